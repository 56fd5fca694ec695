"""Pages of HTML: their text as Markdown, their links, their tables."""

from __future__ import annotations

import logging
from typing import Any, Final, TypedDict

from delf_web.document import Document

_MAX_SPAN: Final = 1000


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


def read_text(document: Document) -> Text:
    """A page's text as Markdown: what is to be read, without menus and the like.

    Args:
        document: A page of HTML.
    """
    import trafilatura

    # It logs as an error that a page holds nothing to read.
    logging.getLogger("trafilatura").setLevel(logging.CRITICAL)
    content = decoded(document)
    found: Any = trafilatura.extract_with_metadata(
        content,
        url=document.url,
        output_format="markdown",
        include_comments=False,
        include_links=True,
        favor_recall=True,
    )
    text = (found.text or "").strip() if found is not None else ""
    # A page that is not an article has no main part: then everything on it is read.
    text = text or trafilatura.html2txt(content).strip() or plain(_text(content))
    return Text(
        title=(found.title or "") if found is not None else "",
        date=found.date if found is not None else None,
        text=text,
    )


def read_links(document: Document) -> list[Link]:
    """All links of a page, each once.

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
    """All tables of a page that have more than one cell.

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
    """The addresses of the feeds that a page names.

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
    """A document's text, where the server said how it is encoded; else its bytes."""
    if document.charset is None:
        return document.content
    try:
        return document.content.decode(document.charset, errors="replace")
    except LookupError:
        return document.content


def text_of(document: Document) -> str:
    """A document's text, whatever it takes to decode it."""
    return _text(decoded(document))


def _text(content: str | bytes) -> str:
    return content if isinstance(content, str) else content.decode("utf-8", errors="replace")


def plain(markup: str) -> str:
    """The words of a piece of HTML."""
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
    """The cells of a table; one that spans several places is in each of them."""
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
    told = str(cell.get(name, "1")).strip()
    return max(1, min(int(told), _MAX_SPAN)) if told.isascii() and told.isdigit() else 1
