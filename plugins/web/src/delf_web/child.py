"""Parsing of documents in a child process, because hostile input can take minutes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from delf.errors import ToolExecutionError
from delf_web.document import Document
from delf_web.feeds import read_feed
from delf_web.markup import check_markup
from delf_web.pages import Text, feeds_of, read_links, read_tables, read_text
from delf_web.pdf import read_pdf

HTML: Final = frozenset({"text/html", "application/xhtml+xml"})
PDF: Final = "application/pdf"
_FEED_TYPES: Final = frozenset(
    {"application/rss+xml", "application/atom+xml", "application/rdf+xml"}
)
_TEXT_TYPES: Final = frozenset({"application/json", "application/xml", "application/javascript"})


def _text(document: Document) -> Text:
    """Return the text of a document: the main text of an HTML page, all text of other formats."""
    kind = document.kind
    if kind in HTML:
        return read_text(document)
    if kind == PDF:
        return read_pdf(document)
    if kind in _FEED_TYPES:
        entries = read_feed(document)
        lines = [f"- [{item['title']}]({item['url']}) {item['date'] or ''}" for item in entries]
        return Text(title="", date=None, text="\n".join(lines))
    if kind.startswith("text/") or kind in _TEXT_TYPES or kind.endswith(("+json", "+xml")):
        return Text(title="", date=None, text=document.text)
    raise ToolExecutionError(f"{document.url} is not text: it is {kind}")


def _for_html(read: Callable[[Document], Any]) -> Callable[[Document], Any]:
    def read_html(document: Document) -> Any:
        if document.kind not in HTML:
            raise ToolExecutionError(f"{document.url} is not a page: it is {document.kind}")
        return read(document)

    return read_html


_PARSERS: Final[dict[str, Callable[[Document], Any]]] = {
    "text": _text,
    "whole": lambda document: (
        read_text(document, whole=True) if document.kind in HTML else _text(document)
    ),
    "links": _for_html(read_links),
    "tables": _for_html(read_tables),
    "feeds": feeds_of,
    "feed": read_feed,
}


def read(output: str, url: str, kind: str, charset: str | None, content: bytes) -> Any:
    """Parse a document, and return the requested kind of data.

    Args:
        output: The requested kind: ``text`` (the main text), ``whole`` (all text), ``links``,
            ``tables``, ``feeds`` (the addresses of a page's feeds) or ``feed`` (the entries of a
            feed).
        url: The URL of the document.
        kind: The media type.
        charset: The character encoding that the server declared, if any.
        content: The bytes.

    Raises:
        ToolExecutionError: If the document cannot be parsed, or its format has no such data.
    """
    document = Document(url=url, kind=kind, charset=charset, content=content)
    if kind in HTML:
        check_markup(content, url)
    return _PARSERS[output](document)


def warm_up() -> None:
    """Parse a small page, so that the libraries load the modules that they import on first use."""
    read("text", "https://example.com/", "text/html", None, b"<html><p>A page.</p></html>")
