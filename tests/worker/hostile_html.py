"""Bodies that are made to cost much, as large as the door lets them be. Run as a program, it sanitises them all."""

from worker import html

MAX_BYTES = 256 << 10
MOST_OPEN = "<b><i><u><s><em><strong><small><code>"

# What is repeated until the body is full: after something, between, before something.
REPEATED = {
    "open formatting": ("", "<b>", ""),
    "open formatting, then paragraphs": (MOST_OPEN * 30, "<p>x", ""),
    "formatting of different kinds": ("", MOST_OPEN, ""),
    "a new kind in every paragraph": ("", f"<p>{MOST_OPEN}", ""),
    "formatting across paragraphs": ("", "<b><p>x</b>", ""),
    "formatting across blocks": ("", "<i><div>x</i>", ""),
    "links in links": ("", "<a href=//x>", ""),
    "links across paragraphs": ("", "<a><p>", ""),
    "links across tables": ("", "<a><table><tr><td>", ""),
    "blocks in blocks": ("", "<div>", ""),
    "blocks that are like blocks": ("", "<section>", ""),
    "quotes": ("", "<blockquote>", ""),
    "list items": ("", "<ul><li>", ""),
    "items without a list": ("", "<li>", ""),
    "items with emphasis": ("", "<li><b>", ""),
    "tables in tables": ("", "<table><tr><td>", ""),
    "tables that are never filled": ("", "<table>", ""),
    "text before tables": ("<table>", "x<b>", ""),
    "rows without a table": ("", "<tr><td>", ""),
    "cells with emphasis": ("<table>", "<td><b>", ""),
    "ruby": ("", "<ruby>x<rt>", ""),
    "headings": ("", "<h1><b>", ""),
    "headings of two kinds": ("", "<h1><h2>", ""),
    "end tags": ("", "</p>", ""),
    "end tags of other elements": ("<div>" * 300 + "<b>" * 300, "</i>", ""),
    "end tags astray": (MOST_OPEN * 200, "</p></div>", ""),
    "line breaks": ("", "<br>", ""),
    "line breaks in open formatting": (MOST_OPEN * 20, "<br>x\n\n", ""),
    "blank lines in open formatting": (MOST_OPEN * 20, "x\n\n", ""),
    "blank lines": ("", "\n \n", "<br>"),
    "blank lines as text": ("", "\n\u3000\n", "x"),
    "white space without end": ("\n", " ", "x"),
    "white space in a tag": ("<p", " ", ">x"),
    "attributes": ("<p>x<a", " href=//x", ">x"),
    "attributes of many names": ("<p>x<a " + " ".join(f"a{n}" for n in range(40_000)), " x", ">x"),
    "an attribute's value": ('<p><img alt="', "x", '">'),
    "an attribute's value that grows when it is escaped": ("<p>", "<img alt='" + "&" * 1990 + "'>", ""),
    "a value without end": ("<p>", '<a href="', ""),
    "tags without end": ("<p>", "<a ", ""),
    "less-than signs": ("<p>", "<", ""),
    "ampersands": ("<p>", "&", ""),
    "entities": ("<p>", "&lt;", ""),
    "comments without end": ("<p>", "<!--", ""),
    "comments": ("<p>", "<!---->", ""),
    "declarations without end": ("<p>", "<!x ", ""),
    "instructions": ("<p>", "<?", ""),
    "scripts without end": ("<p>", "<script>", ""),
    "scripts of many kinds": ("<p>", "<script></style><style></script>", ""),
    "ends of scripts": ("<p>", "</script", ""),
    "drawings": ("<p>", "<svg><math>", ""),
    "templates": ("<p>", "<template>", ""),
    "choices": ("<p>", "<select><option>", ""),
    "line ends of old": ("<pre>", "\r", "</pre>"),
    "nothing but NUL": ("<p>", "\0", ""),
    "nothing but marks of order": ("<p>", "\ufeff", ""),
    "paragraphs that wrap what wraps them": ("", "<p><ruby><p><rt>", ""),
    "pictures in open links": ("", "<a href=//x><img src=//x>", ""),
}


def body(before: str, repeated: str, after: str) -> bytes:
    room = MAX_BYTES - len((before + after).encode())
    return (before + repeated * (room // len(repeated.encode())) + after).encode()


def main() -> None:
    for name, parts in REPEATED.items():
        raw = body(*parts)
        prepared = html.prepare(raw)
        print(f"{len(raw)}\t{len(prepared.html)}\t{prepared.words}\t{name}", flush=True)


if __name__ == "__main__":
    main()
