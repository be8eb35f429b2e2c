"""A chapter's body as readers get it: HTML that is safe in any page, and how many words it has.

A body is HTML when it has a tag of a name we know, else it is text. Text becomes paragraphs, as WordPress makes them.
HTML is sanitised by nh3, which parses it like a browser. That parser follows the standard, and the standard lets a few
kilobytes become gigabytes: elements left open are opened again in every paragraph, and attributes and open elements are
searched one by one. So the parser only gets what is *tame* (`_tamed`): tags that are kept, with few attributes, and no
comments; and what still leaves too much open (`_is_entangled`) gives up its tags and is taken as text.
"""

import html
import re
from math import isqrt
from typing import NamedTuple

import nh3

from worker import words

# Names of tags, as alternatives of a pattern. What prose needs: paragraphs and lines, emphasis, lists, characters with
# their pronunciation, pictures, tables.
_FORMATTING = "a|b|code|em|i|s|small|strong|u"
_INLINE = f"{_FORMATTING}|cite|del|ins|mark|q|rb|ruby|span|sub|sup"
_VOID = "br|hr|img"
_BLOCKS = "blockquote|caption|div|figcaption|figure|h1|h2|h3|h4|h5|h6|li|ol|pre|p|table|tbody|tfoot|thead|tr|ul"
# No lines of their own, but words end at them, as they do at blocks.
_APART = "rp|rt|td|th"
_KEPT = f"{_BLOCKS}|{_VOID}|{_INLINE}|{_APART}"
# Like a div.
_LIKE_BLOCKS = "address|article|aside|center|dd|details|dl|dt|fieldset|footer|form|header|main|nav|section|summary"
# Gone with all that is in them.
_HIDDEN = (
    "applet|audio|button|canvas|head|iframe|math|noembed|noframes|noscript|object|script|select|style|svg|template"
    "|textarea|title|video"
)
# Gone, but for what is in them.
_UNWRAPPED = "abbr|big|body|embed|font|html|input|kbd|link|meta|nobr|param|samp|strike|tt|var|wbr"

_ATTRIBUTES = {"a": {"href", "title"}, "img": {"src", "alt", "title", "width", "height"}}

# How many open elements the parser may meet, added up over all tags, because it may make as many anew: some 200 bytes
# each. Honest prose of any length nests a few deep, and few tags cannot reach the limit.
_USUALLY_OPEN = 3
_MOST_OPEN = 50_000
_FEW_TAGS = isqrt(2 * _MOST_OPEN)
_MOST_PASSES = 5

_SPACE = r"[ \t\n\f\r]"
# As the parser reads one, without surprises. A longer value, such as a picture's data, is none that is kept.
_VALUE = r"""(?:"[^"]{0,2000}+"|'[^']{0,2000}+'|[^\s"'=<>`]++)"""
_ATTRIBUTE = rf"{_SPACE}++[a-zA-Z][-\w:.]*+(?:{_SPACE}*+={_SPACE}*+{_VALUE})?+"
_FEW_ATTRIBUTES = rf"(?:{_ATTRIBUTE}){{0,16}}+"
_TAG_END = rf"{_FEW_ATTRIBUTES}{_SPACE}*+/?+>"

_KNOWN_TAG = re.compile(
    rf"</?(?:{_KEPT}|{_LIKE_BLOCKS}|{_HIDDEN}|{_UNWRAPPED})(?:[\s/][^<>]*+)?>", re.ASCII | re.IGNORECASE
)
_TAG = re.compile(rf"<(/?)({_KEPT}){_TAG_END}", re.ASCII)
_UNTAMED = re.compile(rf"<(?=[a-zA-Z/!?])(?!/?(?:{_KEPT}){_TAG_END})", re.ASCII)
# Whatever begins with <, to its end, as a browser reads it. An end that is not there is looked for only once.
_MARKUP = re.compile(
    rf"<!--(?:-?>|.*?(?:--!?>|\Z))"
    rf"|<(?P<hidden>{_HIDDEN})(?=[\s/>]).*?(?:</(?P=hidden)(?=[\s/>])[^>]*+(?:>|\Z)|\Z)"
    rf"|<(?P<slash>/?)(?P<name>[a-z][^\s/<>]*+)(?:(?P<attributes>{_FEW_ATTRIBUTES}){_SPACE}*+/?+>|[^>]*+(?:>|\Z))"
    rf"|<[/!?][^>]*+(?:>|\Z)"
    rf"|<",
    re.ASCII | re.IGNORECASE | re.DOTALL,
)
_BLOCK_TAG = re.compile(rf"</?(?:{_BLOCKS}|hr){_TAG_END}", re.ASCII)
_TAG_APART = re.compile(rf"</?(?:{_APART}|img){_TAG_END}", re.ASCII)
_LINE_BREAK = re.compile(rf"</?br{_TAG_END}", re.ASCII)
_BREAKING_TAG = re.compile(rf"<(?:{_BLOCKS}|br|hr)>")
# With these, HTML that was parsed and written may be another when it is parsed again.
_UNSETTLED = re.compile(r"<(?:a|table|caption|t[dhr]|tbody|thead|tfoot)[\s/>]|<h[1-6].*<h[1-6]", re.DOTALL)
_BREAKS_IN_PRE = re.compile(r"<pre>\n+")
# White space of any kind, in UTF-8.
_BLANK_LINES = re.compile(
    rb"\n(?:(?:[ \t\v\f\x1c-\x1f]|\xc2[\x85\xa0]|\xe1\x9a\x80"
    rb"|\xe2\x80[\x80-\x8a\xa8\xa9\xaf]|\xe2\x81\x9f|\xe3\x80\x80)*+\n)++"
)
_MARK_OF_ORDER = b"\xef\xbb\xbf"
_ENTITIES = ((b"&", b"&amp;"), (b"<", b"&lt;"), (b">", b"&gt;"))

_is_kept = re.compile(_KEPT).fullmatch
_is_like_a_block = re.compile(_LIKE_BLOCKS).fullmatch
_is_void = re.compile(_VOID).fullmatch
_is_formatting = re.compile(_FORMATTING).fullmatch
_is_inline = re.compile(_INLINE).fullmatch


class Prepared(NamedTuple):
    html: bytes
    words: int


def prepare(raw: bytes) -> Prepared:
    """What is stored of a body that came as UTF-8."""
    # The parser would drop some of these, and keep others.
    if b"\0" in raw:
        raw = raw.replace(b"\0", b"")
    if _MARK_OF_ORDER[:1] in raw:  # to look for one byte takes a fraction of the time
        raw = raw.replace(_MARK_OF_ORDER, b"")
    if b"<" in raw and _KNOWN_TAG.search(text := raw.decode()):
        return _from_html(text)
    return _from_text(raw)


def _from_text(raw: bytes) -> Prepared:
    """Text is not decoded: that and encoding it again would take longer than all the rest."""
    escaped = raw
    for sign, entity in _ENTITIES:
        if sign in escaped:
            escaped = escaped.replace(sign, entity)
    return Prepared(_paragraphs(escaped), words.count(raw))


def _paragraphs(escaped: bytes) -> bytes:
    """Blank lines part paragraphs, a single line break is one."""
    if b"\r" in escaped:
        escaped = escaped.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    # No carriage return is left in it: so it can mark the end of a paragraph.
    marked = _BLANK_LINES.sub(b"\r", b"\n\n%b\n\n" % escaped).strip(b"\r")
    if not marked:
        return b""
    return b"<p>%b</p>\n" % marked.replace(b"\n", b"<br>\n").replace(b"\r", b"</p>\n<p>")


def _from_html(text: str) -> Prepared:
    tame = _tamed(text) if _UNTAMED.search(text) else text
    clean = _cleaned(tame)
    if clean is not None and not _BREAKING_TAG.search(clean):
        # Text with emphasis in it, whose paragraphs are still its lines.
        text = _TAG.sub(lambda tag: tag[0].replace("\n", " "), clean)
        clean = _cleaned(_paragraphs(text.encode()).decode())
    if clean is None:
        return _from_text(_visible(tame).replace("\ufeff", "").encode())
    return Prepared(clean.encode(), words.count(_visible(clean).encode()))


def _tamed(text: str) -> str:
    return _MARKUP.sub(_tame_markup, text)


def _tame_markup(found: re.Match[str]) -> str:
    markup, name = found[0], found["name"]
    if not markup.endswith(">") and (name or markup == "<"):
        return markup.replace("<", "&lt;")  # no tag after all
    if not name:
        return ""
    name = name.lower()
    if _is_like_a_block(name):
        name = "div"
    elif not _is_kept(name):
        return ""
    attributes = (name in _ATTRIBUTES and found["attributes"]) or ""
    return f"<{found['slash']}{name}{attributes}>"


def _is_entangled(tame: str) -> bool:
    """Whether the parser might find too much left open; it never finds more than is counted here."""
    if tame.count("<") <= _FEW_TAGS:
        return False
    stack: list[str] = []
    astray = met = 0
    for tag in _TAG.finditer(tame):
        slash, name = tag.groups()
        if _is_void(name):
            continue
        if not slash:
            # A paragraph ends the one before it.
            if not (stack and stack[-1] == name and name in ("p", "li")):
                stack.append(name)
        elif stack and stack[-1] == name:
            stack.pop()
        elif name in stack:
            place = len(stack) - 1 - stack[::-1].index(name)
            crossed = set(stack[place + 1 :])
            if _is_formatting(name):
                crossed.discard("p")
            # Beyond a table, for one, the end of an element is not seen.
            astray += not all(map(_is_inline, crossed))
            del stack[place]
        met += max(0, len(stack) + astray - _USUALLY_OPEN)
        if met > _MOST_OPEN:
            return True
    return False


def _https(relative_url: str) -> str | None:
    """Addresses within a site mean nothing elsewhere; `//host/path` does."""
    return f"https:{relative_url}" if relative_url.startswith("//") else None


_CLEANER = nh3.Cleaner(
    tags=set(_KEPT.split("|")),
    clean_content_tags=set(_HIDDEN.split("|")),
    attributes={"*": set(), **_ATTRIBUTES},  # else any tag may have a title and a language
    url_schemes={"http", "https"},
    url_relative=_https,
    link_rel="nofollow noopener noreferrer",
)


def _cleaned(tame: str) -> str | None:
    """Sanitised, and the same when it is sanitised again; None if that cannot be had."""
    if _is_entangled(tame):
        return None
    clean = _cleaned_once(tame)
    if _UNSETTLED.search(tame):
        for _ in range(_MOST_PASSES):
            if _is_entangled(clean):
                return None
            before, clean = clean, _cleaned_once(clean)
            if clean == before:
                break
        else:
            return None
    return None if _is_entangled(clean) else clean


def _cleaned_once(tame: str) -> str:
    clean = _CLEANER.clean(tame)
    if _UNTAMED.search(clean):  # escaped, an attribute may have become too long
        clean = _CLEANER.clean(_tamed(clean))
    # Entities may have stood for what does not survive another parsing; nor does a line break that begins a <pre>.
    clean = _with_plain_line_breaks(clean).replace("\ufeff", "")
    return _BREAKS_IN_PRE.sub("<pre>", clean) if "<pre>" in clean else clean


def _with_plain_line_breaks(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def _visible(tame: str) -> str:
    """The text that a reader sees. What is a paragraph of its own stays one."""
    text = tame.replace("<p>", "\n\n").replace("</p>", "\n\n").replace("<br>", "\n")
    if "<" in text:
        text = _TAG_APART.sub(" ", _LINE_BREAK.sub("\n", _BLOCK_TAG.sub("\n\n", text)))
        text = _TAG.sub("", text)
    return html.unescape(text)
