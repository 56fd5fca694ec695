"""RSS and Atom feeds as entries."""

from __future__ import annotations

import io
import time
from typing import Any, TypedDict, cast

from delf.errors import ToolExecutionError
from delf_web.document import Document
from delf_web.pages import plain


class Entry(TypedDict):
    """An entry of a feed."""

    title: str
    url: str
    date: str | None
    summary: str


def read_feed(document: Document) -> list[Entry]:
    """Return the entries of a feed, in its order.

    Args:
        document: The feed.

    Raises:
        ToolExecutionError: When it is none.
    """
    import feedparser

    # As a stream: feedparser takes text that looks like an address, or a path, for one.
    parsed = cast("Any", feedparser).parse(
        io.BytesIO(document.content),
        response_headers={
            "content-location": document.url,
            "content-type": f"{document.kind}; charset={document.charset or 'utf-8'}",
        },
    )
    if not parsed.version:
        raise ToolExecutionError(f"{document.url} is not a feed, and names none")
    return [_entry(item) for item in parsed.entries]


def _entry(item: Any) -> Entry:
    moment = item.get("published_parsed") or item.get("updated_parsed")
    return Entry(
        title=plain(item.get("title", "")),
        url=item.get("link", ""),
        date=time.strftime("%Y-%m-%dT%H:%M:%SZ", moment) if moment else None,
        summary=plain(item.get("summary", "")),
    )
