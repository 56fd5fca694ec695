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
_FEEDS: Final = frozenset({"application/rss+xml", "application/atom+xml", "application/rdf+xml"})
_TEXTS: Final = frozenset({"application/json", "application/xml", "application/javascript"})


def _text(document: Document) -> Text:
    """Return the main text of a page, PDF, feed or text file."""
    kind = document.kind
    if kind in HTML:
        return read_text(document)
    if kind == PDF:
        return read_pdf(document)
    if kind in _FEEDS:
        entries = read_feed(document)
        lines = [f"- [{item['title']}]({item['url']}) {item['date'] or ''}" for item in entries]
        return Text(title="", date=None, text="\n".join(lines))
    if kind.startswith("text/") or kind in _TEXTS or kind.endswith(("+json", "+xml")):
        return Text(title="", date=None, text=document.text)
    raise ToolExecutionError(f"{document.url} is not text: it is {kind}")


def _page(read: Callable[[Document], Any]) -> Callable[[Document], Any]:
    def checked(document: Document) -> Any:
        if document.kind not in HTML:
            raise ToolExecutionError(f"{document.url} is not a page: it is {document.kind}")
        return read(document)

    return checked


_WORKS: Final[dict[str, Callable[[Document], Any]]] = {
    "text": _text,
    "whole": lambda document: (
        read_text(document, whole=True) if document.kind in HTML else _text(document)
    ),
    "links": _page(read_links),
    "tables": _page(read_tables),
    "feeds": feeds_of,
    "feed": read_feed,
}


def read(work: str, url: str, kind: str, charset: str | None, content: bytes) -> Any:
    """Read a document.

    Args:
        work: The kind of result: ``text``, ``whole``, ``links``, ``tables``, ``feeds`` or ``feed``.
        url: The document's address.
        kind: The media type.
        charset: The encoding by the server, if declared.
        content: The bytes.

    Raises:
        ToolExecutionError: If the document cannot be read.
    """
    document = Document(url=url, kind=kind, charset=charset, content=content)
    if kind in HTML:
        check_markup(content, url)
    return _WORKS[work](document)


def warm_up() -> None:
    """Load the libraries' lazy parts."""
    read("text", "https://example.com/", "text/html", None, b"<html><p>A page.</p></html>")
