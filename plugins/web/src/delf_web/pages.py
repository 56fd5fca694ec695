"""Pages of HTML: their text as Markdown, their links, their tables."""

from __future__ import annotations

import copy
import logging
import re
from collections.abc import Iterator
from typing import Any, Final, TypedDict

from delf.notes import note
from delf_web.dates import stated_date
from delf_web.document import Document, lxml_html

_MAX_SPAN: Final = 1000
_NEARLY_ALL: Final = 0.9
_MORE: Final = 1.3
_LINK: Final = re.compile(r"\]\((?:[^()\s]|\([^()\s]*\))*(?: \"[^\"\n]*\")?\)")
_WORD: Final = re.compile(r"\w+")
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
        whole: Whether to read all of the page's text.
    """
    import trafilatura

    # trafilatura logs an error for pages without text.
    logging.getLogger("trafilatura").setLevel(logging.CRITICAL)
    page = document.text
    tree = _tree(page, document.url)
    if tree is None:
        return Text(title="", date=None, text=plain(page))
    everything = whole_text(tree)
    text = "" if whole else _main_text(tree, document.url)
    # A page without a main part, such as a list, is read as a whole.
    if text and not whole:
        _note_share(text, everything)
    if not (text or everything):
        note(f"{document.url} shows no text: it is empty, has pictures, or is written by scripts")
    about: Any = trafilatura.extract_metadata(
        copy.deepcopy(tree), default_url=document.url, date_config={"extensive_search": False}
    )
    return Text(
        title=(about.title or "") if about is not None else "",
        date=stated_date(tree, document.url),
        text=text or everything,
    )


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


def _note_share(text: str, everything: str) -> None:
    """Add a note about the omitted share of a page's text, since extraction may lose most of it."""
    main, all_words = _WORD.findall(_LINK.sub("]", text)), _WORD.findall(everything)
    main_count, total = (
        sum(map(len, words)) for words in (main, all_words)
    )  # in characters: some scripts do not separate words
    if main_count < _NEARLY_ALL * total:
        note(
            f"this is the page's main text, {len(main):,} of about {len(all_words):,} words: "
            "scrape(url, whole=True) gives all of them"
        )
    elif main_count > _MORE * total:
        note(
            f"this text is of the page's data for programs; it shows {len(all_words):,} words "
            "itself"
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
    """Yield the start and the end of each visible element."""
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


def read_links(document: Document) -> list[Link]:
    """Return all links of a page, each once.

    Args:
        document: A page of HTML.
    """
    tree = _tree(document.text, document.url)
    links: dict[str, str] = {}
    if tree is None:
        return []
    for element in tree.xpath("//a[@href]"):
        url = str(element.get("href")).partition("#")[0]
        if url.startswith(("http://", "https://")):
            links[url] = links.get(url) or _words(element)
    return [Link(text=text, url=url) for url, text in links.items()]


def read_tables(document: Document) -> list[Table]:
    """Return all tables of a page with more than one cell.

    Args:
        document: A page of HTML.
    """
    tree = _tree(document.text, document.url)
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
    tree = _tree(document.text, document.url)
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
        return _words(html.fromstring(f"<div>{markup}</div>"))
    except (html.etree.LxmlError, ValueError):
        return markup


def _tree(page: str, url: str) -> Any:
    html = lxml_html()
    # The parser stops at NUL, and refuses text that declares an encoding.
    content = page.replace("\0", "").encode("utf-8", errors="replace")
    try:
        tree: Any = html.document_fromstring(content, parser=html.HTMLParser(encoding="utf-8"))
    except (html.etree.LxmlError, ValueError):
        return None
    tree.make_links_absolute(url, resolve_base_href=True, handle_failures="discard")
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
            _insert_spanning_cells(below, row)
            text = _words(cell)
            deep = _span(cell, "rowspan")
            for _ in range(min(_span(cell, "colspan"), _MAX_SPAN - len(row))):
                if deep > 1:
                    below[len(row)] = text, deep
                row.append(text)
        _insert_spanning_cells(below, row)
        below = {at: (text, deep - 1) for at, (text, deep) in below.items() if deep > 1}
        rows.append(row)
    width = max(map(len, rows), default=0)
    return [row + [""] * (width - len(row)) for row in rows]


def _insert_spanning_cells(below: dict[int, tuple[str, int]], row: list[str]) -> None:
    """Insert cells that span down from earlier rows."""
    while len(row) in below and len(row) < _MAX_SPAN:
        row.append(below[len(row)][0])


def _span(cell: Any, name: str) -> int:
    value = str(cell.get(name, "1")).strip()
    return max(1, min(int(value), _MAX_SPAN)) if value.isascii() and value.isdigit() else 1
