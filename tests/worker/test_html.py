"""What crawlers send becomes what readers expect."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from worker import html, words

NOFOLLOW = 'rel="nofollow noopener noreferrer"'


def prepared(text: str) -> str:
    return html.prepare(text.encode()).html.decode()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        (" \n\u3000\r\n\t", ""),
        ("Một dòng.", "<p>Một dòng.</p>\n"),
        ("Một.\n\nHai.", "<p>Một.</p>\n<p>Hai.</p>\n"),
        ("Một.\r\n\r\nHai.\r\nBa.", "<p>Một.</p>\n<p>Hai.<br>\nBa.</p>\n"),
        ("Một.\rHai.", "<p>Một.<br>\nHai.</p>\n"),
        ("\n\n  \n Một.\n \u00a0\u3000\n\nHai. \n\n\n", "<p> Một.</p>\n<p>Hai. </p>\n"),
        ("\ufeffMột\0 hai\ufeff", "<p>Một hai</p>\n"),
        ("a < b && c > d <3", "<p>a &lt; b &amp;&amp; c &gt; d &lt;3</p>\n"),
        ("&lt;b&gt; &nbsp;", "<p>&amp;lt;b&amp;gt; &amp;nbsp;</p>\n"),
        ("<Hệ thống> chào <ký chủ>", "<p>&lt;Hệ thống&gt; chào &lt;ký chủ&gt;</p>\n"),
    ],
)
def test_text_becomes_paragraphs_and_lines(text: str, expected: str) -> None:
    assert prepared(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<p>Một.</p>\r\n<p>Hai.</p>", "<p>Một.</p>\n<p>Hai.</p>"),
        ("<P CLASS=x>Một.<P>Hai.", "<p>Một.</p><p>Hai.</p>"),
        ("<p lang=vi title=x>Một.</p>", "<p>Một.</p>"),
        ("Một<br>Hai<br/>Ba<BR />", "Một<br>Hai<br>Ba<br>"),
        ("Một<br>\r\n<br>\r\nHai", "Một<br>\n<br>\nHai"),
        ("<div class=c><div>Một</div><div>Hai</div></div>", "<div><div>Một</div><div>Hai</div></div>"),
        ("<article><section>Một</section></article>", "<div><div>Một</div></div>"),
        ("<html><head><title>x</title></head><body><p>Một</body></html>", "<p>Một</p>"),
        ("<p>a &amp; b&nbsp;&hellip; &#272;&#x1EBF; &lt;b&gt;</p>", "<p>a &amp; b&nbsp;… Đế &lt;b&gt;</p>"),
        ("<p>x</p><!-- quảng cáo --><p>y</p>", "<p>x</p><p>y</p>"),
        ("<p>x<script>var a = '<p>';</script>y<style>p {}</style>z</p>", "<p>xyz</p>"),
        ("<p><font color=red>x</font> <o:p></o:p></p>", "<p>x </p>"),
        ("<ul><li>a<li>b</ul>", "<ul><li>a</li><li>b</li></ul>"),
        ("<h1>Chương 1</h1>\n<hr>\n<p>x", "<h1>Chương 1</h1>\n<hr>\n<p>x</p>"),
        ("<pre>\n  thơ\n  ca</pre>", "<pre>  thơ\n  ca</pre>"),
        ("<table><tr><td>a<td>b</table>", "<table><tbody><tr><td>a</td><td>b</td></tr></tbody></table>"),
        (
            "<p><ruby>漢<rp>(</rp><rt>かん</rt><rp>)</rp></ruby></p>",
            "<p><ruby>漢<rp>(</rp><rt>かん</rt><rp>)</rp></ruby></p>",
        ),
        (
            "<figure><img src='https://i.example/a.png' alt='\"A\"' width=10 style=x></figure>",
            '<figure><img src="https://i.example/a.png" alt="&quot;A&quot;" width="10"></figure>',
        ),
        ("<p><img src=//i.example/a.png></p>", '<p><img src="https://i.example/a.png"></p>'),
        ("<p><img src=/a.png alt=A></p>", '<p><img alt="A"></p>'),
        (
            "<p><a href='http://x.example/?a=1&b=2' target=_blank rel=me>x</a></p>",
            f'<p><a href="http://x.example/?a=1&amp;b=2" {NOFOLLOW}>x</a></p>',
        ),
        ("<p><a href=/chuong-2>Sau</a></p>", f"<p><a {NOFOLLOW}>Sau</a></p>"),
    ],
)
def test_html_keeps_what_prose_needs_and_nothing_else(text: str, expected: str) -> None:
    assert prepared(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Một <i>hai</i>.\n\nBa.", "<p>Một <i>hai</i>.</p>\n<p>Ba.</p>\n"),
        ("Một <b>hai</b>\r\nba", "<p>Một <b>hai</b><br>\nba</p>\n"),
        ("<font>Một</font>\n\nhai & ba", "<p>Một</p>\n<p>hai &amp; ba</p>\n"),
        ("<b>x", "<p><b>x</b></p>\n"),
        ("<a title='<p>\n\n'>x</a>\n\ny", f'<p><a title="&lt;p&gt;  " {NOFOLLOW}>x</a></p>\n<p>y</p>\n'),
        ("a < b, <i>c</i>", "<p>a &lt; b, <i>c</i></p>\n"),
    ],
)
def test_text_with_emphasis_in_it_keeps_its_lines(text: str, expected: str) -> None:
    assert prepared(text) == expected


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("<p>một hai</p><p>ba</p>", 3),
        ("<p>một<p>hai", 2),
        ("một<br>hai<br/>ba", 3),
        ("<div>một</div><div lang=vi>hai</div>", 2),
        ("<p>mộ<b>t</b> h<i>ai</i></p>", 2),
        ("<table><tr><td>một<td>hai</table>", 2),
        ("<p>một&nbsp;hai &amp; ba</p>", 3),
        ("<p>một<img src=//x.example/a alt='hai ba'>bốn</p>", 2),
        ("<p><a href=//x.example title='hai ba'>một</a></p>", 1),
        ("<p>một<script>hai ba</script></p><!-- bốn -->", 1),
        ("<ruby>漢<rt>かん</rt></ruby>", 3),
        ("<p><a title='" + "&" * 1000 + " x y z'>một</a> hai</p>", 2),
        ("Tổng cộng <b>năm</b> từ thôi", 5),
    ],
)
def test_only_what_a_reader_sees_is_counted_in_words(text: str, count: int) -> None:
    assert html.prepare(text.encode()).words == count


def plainly(text: str) -> str:
    """Text as paragraphs, line by line: slow and right."""
    text = text.replace("\0", "").replace("\ufeff", "").replace("\r\n", "\n").replace("\r", "\n")
    paragraphs: list[list[str]] = [[]]
    for line in text.split("\n"):
        if not line or line.isspace():
            paragraphs.append([])
        else:
            paragraphs[-1].append(line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;"))
    return "".join("<p>" + "<br>\n".join(lines) + "</p>\n" for lines in paragraphs if lines)


WHITE_SPACE = "".join(chr(code) for code in range(0x3001) if chr(code).isspace())
TEXT = st.text(st.sampled_from(WHITE_SPACE + "\0\ufeff\u200b\u180e\r\n\r\n\r\n\n\n\nab&<>ếĐ中\U0001f600"), max_size=60)


@settings(deadline=None, max_examples=500)
@given(TEXT | st.text(max_size=60))
def test_every_text_becomes_paragraphs_as_line_by_line(text: str) -> None:
    if not html._KNOWN_TAG.search(text.replace("\0", "").replace("\ufeff", "")):
        assert prepared(text) == plainly(text)
        assert html.prepare(text.encode()).words == words.count(text.replace("\0", "").replace("\ufeff", "").encode())


def test_every_kind_of_white_space_makes_a_blank_line() -> None:
    for space in WHITE_SPACE:
        assert prepared(f"a\n{space}\nb") == plainly(f"a\n{space}\nb") == "<p>a</p>\n<p>b</p>\n", hex(ord(space))


def test_no_other_character_makes_a_blank_line() -> None:
    """All that could be taken for white space by a part of its bytes."""
    signs = [chr(code) for code in range(1, 0x3100) if not chr(code).isspace() and chr(code) not in "<>&"]
    assert [hex(ord(sign)) for sign in signs if prepared(f"a\n{sign}\nb") != plainly(f"a\n{sign}\nb")] == []
