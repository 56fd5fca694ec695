"""Pages of HTML: their text as Markdown, their links, their tables."""

from __future__ import annotations

import copy
import datetime as dt
import logging
import re
from collections.abc import Iterator
from typing import Any, Final, TypedDict
from urllib.parse import urlsplit

from delf.notes import note
from delf_web.document import Document

_MAX_SPAN: Final = 1000
_NEARLY_ALL: Final = 0.9
_LINK: Final = re.compile(r"\]\([^)\s]*\)")
_DATE_IN_URL: Final = re.compile(r"/((?:19|20)\d\d)/(\d\d?)/(\d\d?)/[^/]*[^\W\d_]")
_TIMES: Final = (
    '//*[(self::time and @datetime) or contains(@itemprop, "datePublished")'
    ' or (self::abbr and contains(@class, "published"))]'
    "[not(ancestor::aside or ancestor::footer or ancestor::nav)]"
    '[not(ancestor::*[contains(@class, "comment") or contains(@id, "comment")])]'
)
_UNSHOWN: Final = frozenset(
    {
        "script", "style", "noscript", "template", "head", "title", "object", "embed", "iframe",
        "svg", "math", "datalist",
    }
)  # fmt: skip
_BLOCKS: Final = frozenset(
    {
        "address", "article", "aside", "blockquote", "body", "br", "caption", "dd", "details",
        "dialog", "div", "dl", "dt", "fieldset", "figcaption", "figure", "footer", "form", "h1",
        "h2", "h3", "h4", "h5", "h6", "header", "hgroup", "hr", "legend", "li", "main", "nav",
        "ol", "option", "p", "pre", "section", "summary", "table", "tr", "ul",
    }
)  # fmt: skip


class Link(TypedDict):
    """A link of a page."""

    text: str
    url: str


class Table(TypedDict):
    """A table of a page: all rows have the same number of cells."""

    caption: str
    rows: list[list[str]]


class Text(TypedDict):
    """The readable text of a page."""

    title: str
    date: str | None
    text: str


def read_text(document: Document, *, whole: bool = False) -> Text:
    """Return a page's main text as Markdown, without menus and the like.

    Args:
        document: A page of HTML.
        whole: Read all of its text, plainly.
    """
    import trafilatura

    # It logs as an error that a page holds nothing to read.
    logging.getLogger("trafilatura").setLevel(logging.CRITICAL)
    tree = _tree(document)
    if tree is None:
        return Text(title="", date=None, text=plain(text_of(document)))
    everything = whole_text(tree)
    text = "" if whole else _main_text(document)
    # A page that is not an article has no main part: then everything on it is read.
    if text and not whole:
        _note_share(text, everything)
    about: Any = trafilatura.extract_metadata(
        copy.deepcopy(tree), default_url=document.url, date_config={"extensive_search": False}
    )
    return Text(
        title=(about.title or "") if about is not None else "",
        date=stated_date(tree, document.url),
        text=text or everything,
    )


def _main_text(document: Document) -> str:
    import trafilatura

    found: Any = trafilatura.extract(
        decoded(document),
        url=document.url,
        output_format="markdown",
        include_comments=False,
        include_links=True,
        favor_recall=True,
        date_extraction_params={"extensive_search": False},
    )
    return str(found or "").strip()


def _note_share(text: str, everything: str) -> None:
    """Note the omitted share of a page's text: extraction may lose most of it."""
    kept, total = len(_LINK.sub("]", text).split()), len(everything.split())
    if kept < _NEARLY_ALL * total:
        note(
            f"this is the page's main text, {kept:,} of about {total:,} words: "
            "scrape(url, whole=True) gives all of them"
        )


def whole_text(tree: Any) -> str:
    """Return all words of a page that a browser shows, a line for each block.

    Args:
        tree: The page.
    """
    pieces: list[str] = []
    body = tree.find("body")
    for event, element in _html_walk(tree if body is None else body):
        tag = element.tag if isinstance(element.tag, str) else ""
        if event == "start":
            pieces += ["\n"] if tag in _BLOCKS else [" | "] if tag in ("td", "th") else []
            pieces.append(element.text or "" if tag and tag not in _UNSHOWN else "")
        else:
            pieces += ["\n"] if tag in _BLOCKS else []
            pieces.append(element.tail or "")
    lines = (" ".join(line.split()).removeprefix("| ") for line in "".join(pieces).split("\n"))
    return "\n".join(line for line in lines if line)


def _html_walk(body: Any) -> Iterator[tuple[str, Any]]:
    """Yield elements at their begin and end, without invisible ones."""
    open_: list[tuple[Any, Any]] = [(body, iter(body))]
    yield "start", body
    while open_:
        element, children = open_[-1]
        child = next(children, None)
        if child is None:
            open_.pop()
            if open_:
                yield "end", element
            continue
        yield "start", child
        is_shown = isinstance(child.tag, str) and child.tag not in _UNSHOWN
        open_.append((child, iter(child if is_shown else ())))


def stated_date(tree: Any, url: str) -> str | None:
    """Return the publication date declared by a page, or None.

    Style sheets, names of models and a copyright have numbers that look like dates, too.

    Args:
        tree: The page.
        url: Its address, which states a date as ``/2026/01/31/title``.
    """
    from htmldate import find_date

    html = _lxml()
    for statements in (
        tree.xpath('//meta[@content] | //script[contains(@type, "ld+json")]'),
        tree.xpath(_TIMES),
    ):
        page = html.document_fromstring("<html><head></head><body></body></html>")
        for element in statements:
            kept = copy.deepcopy(element)
            kept.tail = None
            page.find("head" if element.tag in ("meta", "script") else "body").append(kept)
        found = find_date(page, extensive_search=False, original_date=True) if statements else None
        if found:
            return str(found)
    in_url = _DATE_IN_URL.search(urlsplit(url).path)
    try:
        return dt.date(*map(int, in_url.groups())).isoformat() if in_url else None
    except ValueError:
        return None


def read_links(document: Document) -> list[Link]:
    """Return all links of a page, each once.

    Args:
        document: A page of HTML.
    """
    tree = _tree(document)
    found: dict[str, str] = {}
    if tree is None:
        return []
    for element in tree.xpath("//a[@href]"):
        url = str(element.get("href")).partition("#")[0]
        if url.startswith(("http://", "https://")):
            found[url] = found.get(url) or _words(element)
    return [Link(text=text, url=url) for url, text in found.items()]


def read_tables(document: Document) -> list[Table]:
    """Return all tables of a page with more than one cell.

    Args:
        document: A page of HTML.
    """
    tree = _tree(document)
    tables: list[Table] = []
    for element in tree.xpath("//table") if tree is not None else ():
        rows = _rows(element)
        if sum(map(len, rows)) > 1:
            captions = element.xpath("./caption")
            tables.append(Table(caption=_words(captions[0]) if captions else "", rows=rows))
    return tables


def feeds_of(document: Document) -> list[str]:
    """Return the addresses of the feeds that a page names.

    Args:
        document: A page of HTML.
    """
    tree = _tree(document)
    if tree is None:
        return []
    found = tree.xpath(
        '//link[contains(@rel, "alternate")]'
        '[@type="application/rss+xml" or @type="application/atom+xml"]/@href'
    )
    return [str(url) for url in found]


def decoded(document: Document) -> str | bytes:
    """Decode a document by the server's charset; return bytes without one."""
    if document.charset is None:
        return document.content
    try:
        return document.content.decode(document.charset, errors="replace")
    except LookupError:
        return document.content


def text_of(document: Document) -> str:
    """Return a document's text, detecting its encoding if necessary."""
    return _text(decoded(document))


def _text(content: str | bytes) -> str:
    return content if isinstance(content, str) else content.decode("utf-8", errors="replace")


def plain(markup: str) -> str:
    """Return the words of a piece of HTML."""
    html = _lxml()
    try:
        return _words(html.fromstring(f"<div>{markup}</div>"))
    except (html.etree.LxmlError, ValueError):
        return markup


def _lxml() -> Any:
    """Lxml's HTML, which has no types."""
    from lxml import html

    return html


def _tree(document: Document) -> Any:
    html = _lxml()
    content = decoded(document)
    if isinstance(content, str):  # lxml takes no text that names an encoding of its own
        content = content.encode("utf-8", errors="replace")
        parser = html.HTMLParser(encoding="utf-8")
    else:
        parser = html.HTMLParser()
    try:
        tree: Any = html.document_fromstring(content, parser=parser)
    except (html.etree.LxmlError, ValueError):
        return None
    tree.make_links_absolute(document.url, resolve_base_href=True, handle_failures="discard")
    return tree


def _words(element: Any) -> str:
    return " ".join(str(element.text_content()).split())


def _rows(table: Any) -> list[list[str]]:
    """Return the cells of a table; a spanning cell is repeated."""
    rows: list[list[str]] = []
    below: dict[int, tuple[str, int]] = {}
    for line in table.xpath("./tr | ./thead/tr | ./tbody/tr | ./tfoot/tr"):
        row: list[str] = []
        for cell in line.xpath("./th | ./td"):
            _take(below, row)
            text = _words(cell)
            deep = _span(cell, "rowspan")
            for _ in range(min(_span(cell, "colspan"), _MAX_SPAN - len(row))):
                if deep > 1:
                    below[len(row)] = text, deep
                row.append(text)
        _take(below, row)
        below = {at: (text, deep - 1) for at, (text, deep) in below.items() if deep > 1}
        rows.append(row)
    width = max(map(len, rows), default=0)
    return [row + [""] * (width - len(row)) for row in rows]


def _take(below: dict[int, tuple[str, int]], row: list[str]) -> None:
    """Fill the places that cells of earlier rows reach down to."""
    while len(row) in below and len(row) < _MAX_SPAN:
        row.append(below[len(row)][0])


def _span(cell: Any, name: str) -> int:
    value = str(cell.get(name, "1")).strip()
    return max(1, min(int(value), _MAX_SPAN)) if value.isascii() and value.isdigit() else 1
