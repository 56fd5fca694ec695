"""Pages of HTML: their text as Markdown, their links, their tables."""

from __future__ import annotations

import copy
import logging
import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, TypedDict
from urllib.parse import urljoin

from delf.notes import note
from delf.values.numbers import parse_count
from delf_web.dates import stated_date
from delf_web.document import Document, lxml_html

_MAX_SPAN: Final = 1000
_MIN_UNNOTED_SHARE: Final = 0.9
_MAX_UNNOTED_SHARE: Final = 1.3
_LINK: Final = re.compile(r"\]\((?:[^()\s]|\([^()\s]*\))*(?: \"[^\"\n]*\")?\)")
_WORD: Final = re.compile(r"\w+")
_INVISIBLE_TAGS: Final = frozenset(
    {
        "script", "style", "noscript", "template", "head", "title", "object", "embed", "iframe",
        "svg", "math", "datalist",
    }
)  # fmt: skip
_BLOCK_TAGS: Final = frozenset(
    {
        "address", "article", "aside", "blockquote", "body", "br", "caption", "dd", "details",
        "dialog", "div", "dl", "dt", "fieldset", "figcaption", "figure", "footer", "form", "h1",
        "h2", "h3", "h4", "h5", "h6", "header", "hgroup", "hr", "legend", "li", "main", "nav",
        "ol", "option", "p", "pre", "section", "summary", "table", "tr", "ul",
    }
)  # fmt: skip


class Link(TypedDict):
    """A link with its text and absolute URL."""

    text: str
    url: str


class Table(TypedDict):
    """A table whose rows all have the same number of cells."""

    caption: str
    rows: list[list[str]]


class Text(TypedDict):
    """The title, publication date and Markdown text of a page."""

    title: str
    date: str | None
    text: str


def read_text(document: Document, *, whole: bool = False) -> Text:
    """Return the main text of an HTML page as Markdown, or all visible text.

    A page without a main text, such as a list of links, is returned with all its visible text.

    Args:
        document: A page of HTML.
        whole: Whether to return all visible text, with menus, headers and footers.
    """
    import trafilatura

    # trafilatura logs an error for pages without text.
    logging.getLogger("trafilatura").setLevel(logging.CRITICAL)
    page = document.text
    tree = _parse_page(page, document.url)
    if tree is None:
        return Text(title="", date=None, text=plain(page))
    visible_text = whole_text(tree)
    main_text = "" if whole else _main_text(tree, document.url)
    if main_text:
        _note_differing_length(main_text, visible_text)
    text = main_text or visible_text
    if not text:
        note(f"{document.url} shows no text: it is empty, has pictures, or is written by scripts")
    date = stated_date(tree, document.url)
    metadata: Any = trafilatura.extract_metadata(
        tree, default_url=document.url, date_config={"extensive_search": False}
    )
    title = ""
    if metadata is not None:
        title = metadata.title or ""
    return Text(title=title, date=date, text=text)


def _main_text(tree: Any, url: str) -> str:
    import trafilatura

    cleaned = copy.deepcopy(tree)
    lxml_html().etree.strip_elements(cleaned, "noscript", "template", with_tail=False)
    extracted: Any = trafilatura.extract(
        cleaned,
        url=url,
        output_format="markdown",
        include_comments=False,
        include_links=True,
        favor_recall=True,
        date_extraction_params={"extensive_search": False},
    )
    return str(extracted or "").strip()


def _note_differing_length(text: str, visible_text: str) -> None:
    """Add a note to the call if the main text has much less or more text than the visible page."""
    # The address of a Markdown link is removed, because it is not visible in the page.
    main_words = _WORD.findall(_LINK.sub("]", text))
    visible_words = _WORD.findall(visible_text)
    # Counted in characters, because some writing systems do not separate words.
    main_length = sum(map(len, main_words))
    visible_length = sum(map(len, visible_words))
    if main_length < _MIN_UNNOTED_SHARE * visible_length:
        note(
            f"this is the page's main text, {len(main_words):,} of about "
            f"{len(visible_words):,} words: "
            "scrape(url, whole=True) gives all of them"
        )
    elif main_length > _MAX_UNNOTED_SHARE * visible_length:
        # Text that is not visible was found in data for the page's scripts.
        note(
            "this text comes from data embedded in the page; the visible page has "
            f"{len(visible_words):,} words"
        )


def whole_text(tree: Any) -> str:
    """Return all visible text of a page, one line for each block element or table row.

    Args:
        tree: The parsed HTML of the page.
    """
    pieces: list[str] = []
    body = tree.find("body")
    root = tree if body is None else body
    walk = lxml_html().etree.iterwalk(root, events=("start", "end", "comment", "pi"))
    for event, element in walk:
        if element.tag in _BLOCK_TAGS:
            pieces.append("\n")
        # At the end of an element, or at a comment or processing instruction, append the tail: the
        # text after that node.
        if event != "start":
            if element is not root:  # text after the body is no part of the page
                pieces.append(element.tail or "")
        elif element.tag in _INVISIBLE_TAGS:
            walk.skip_subtree()  # the element's end event still comes, for the text after it
        else:
            if element.tag in ("td", "th"):
                pieces.append(" | ")
            pieces.append(element.text or "")
    lines: list[str] = []
    for line in "".join(pieces).split("\n"):
        shown_line = " ".join(line.split()).removeprefix("| ")  # the row's first cell needs none
        if shown_line:
            lines.append(shown_line)
    return "\n".join(lines)


def read_links(document: Document) -> list[Link]:
    """Return the web links of a page without duplicates.

    Args:
        document: A page of HTML.
    """
    tree = _parse_page(document.text, document.url)
    links: dict[str, str] = {}
    if tree is None:
        return []
    for element in tree.xpath("//a[@href]"):
        url = str(element.get("href")).partition("#")[0]
        if url.lower().startswith(("http://", "https://")):
            links[url] = links.get(url) or _text_of(element)
    return [Link(text=text, url=url) for url, text in links.items()]


def read_tables(document: Document) -> list[Table]:
    """Return the tables of a page that have more than one cell.

    Args:
        document: A page of HTML.
    """
    tree = _parse_page(document.text, document.url)
    if tree is None:
        return []
    tables: list[Table] = []
    for element in tree.xpath("//table"):
        rows = _rows(element)
        if sum(map(len, rows)) > 1:
            captions = element.xpath("./caption")
            tables.append(Table(caption=_text_of(captions[0]) if captions else "", rows=rows))
    return tables


def feeds_of(document: Document) -> list[str]:
    """Return the URLs of the RSS and Atom feeds that a page links.

    Args:
        document: A page of HTML.
    """
    tree = _parse_page(document.text, document.url)
    if tree is None:
        return []
    feed_links = tree.xpath(
        '//link[contains(@rel, "alternate")]'
        '[@type="application/rss+xml" or @type="application/atom+xml"]/@href'
    )
    return [str(url) for url in feed_links]


def plain(markup: str) -> str:
    """Return the plain text of an HTML fragment."""
    html = lxml_html()
    try:
        return _text_of(html.fromstring(f"<div>{markup}</div>"))
    except (html.etree.LxmlError, ValueError):
        return markup


def _parse_page(page: str, url: str) -> Any:
    """Return the tree of a page with absolute links; None if the page cannot be parsed."""
    html = lxml_html()
    # The parser stops at NUL, and refuses text that declares an encoding.
    content = page.replace("\0", "").encode("utf-8", errors="replace")
    try:
        tree: Any = html.document_fromstring(content, parser=html.HTMLParser(encoding="utf-8"))
    except (html.etree.LxmlError, ValueError):
        return None
    for element in tree.xpath("//base[@href]"):
        try:
            urljoin(url, element.get("href"))  # raises for an invalid base URL
        except ValueError:
            element.drop_tree()
    tree.make_links_absolute(url, resolve_base_href=True, handle_failures="discard")
    return tree


def _text_of(element: Any) -> str:
    return " ".join(str(element.text_content()).split())


class _Cell(NamedTuple):
    """The text of a cell, and the number of further rows that the cell covers."""

    text: str
    rows_below: int


def _repeat_cells_above(row: list[str], above: Mapping[int, _Cell]) -> None:
    """Extend a row by the cells of earlier rows that cover its next columns."""
    while len(row) in above and len(row) < _MAX_SPAN:
        row.append(above[len(row)].text)


def _rows(table: Any) -> list[list[str]]:
    """Return the rows of a table as lists of cell texts, all of the same length.

    The text of a cell that spans several rows or columns is repeated in each row and column. Short
    rows are filled up with empty texts.
    """
    rows: list[list[str]] = []
    above: dict[int, _Cell] = {}  # by column, the cells of earlier rows that cover this row
    for table_row in table.xpath("./tr | ./thead/tr | ./tbody/tr | ./tfoot/tr"):
        row: list[str] = []
        # By column, the cells that cover the next row, too.
        below = {
            column: cell._replace(rows_below=cell.rows_below - 1)
            for column, cell in above.items()
            if cell.rows_below > 1
        }
        for element in table_row.xpath("./th | ./td"):
            _repeat_cells_above(row, above)
            cell = _Cell(_text_of(element), rows_below=_span_of(element, "rowspan") - 1)
            end = min(len(row) + _span_of(element, "colspan"), _MAX_SPAN)
            for column in range(len(row), end):
                row.append(cell.text)
                if cell.rows_below:
                    below[column] = cell
        _repeat_cells_above(row, above)  # the columns after the last cell
        rows.append(row)
        above = below
    width = max(map(len, rows), default=0)
    return [row + [""] * (width - len(row)) for row in rows]


def _span_of(cell: Any, name: str) -> int:
    span = parse_count(str(cell.get(name, "1")).strip())
    return 1 if span is None else max(1, min(span, _MAX_SPAN))
