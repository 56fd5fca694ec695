"""RSS and Atom feeds as entries."""

from __future__ import annotations

import io
import re
import time
from typing import Any, Final, TypedDict, cast

from delf.errors import ToolExecutionError
from delf.notes import note
from delf_web.document import Document
from delf_web.pages import plain

_TIME_WITH_ZONE: Final = re.compile(r":\d\d.*(?:[A-Za-z]|[+-]\d\d:?\d\d)\s*$")


class Entry(TypedDict):
    """An entry of a feed; ``date`` is in ISO 8601."""

    title: str
    url: str
    date: str | None
    summary: str


def read_feed(document: Document) -> list[Entry]:
    """Return the entries of an RSS or Atom feed in their order.

    Args:
        document: The feed.

    Raises:
        ToolExecutionError: If the document is not a feed.
    """
    import feedparser

    # Pass a stream, because feedparser would open a text that looks like a URL or a path.
    parsed = cast("Any", feedparser).parse(
        io.BytesIO(document.text.encode("utf-8", errors="replace")),
        response_headers={
            "content-location": document.url,
            "content-type": f"{document.kind}; charset=utf-8",
        },
    )
    if not parsed.version:
        raise ToolExecutionError(f"{document.url} is not a feed, and does not link to one")
    error = parsed.get("bozo_exception")
    if parsed.bozo and not isinstance(error, _harmless_warnings()):
        note(f"{document.url} is damaged ({error}): entries may be missing")
    elif not parsed.entries:
        note(f"{document.url} has no entries")
    return [_entry(item) for item in parsed.entries]


def _harmless_warnings() -> tuple[type[Exception], ...]:
    """Return the feedparser errors after which all entries are still complete."""
    import feedparser

    library: Any = feedparser
    return library.CharacterEncodingOverride, library.NonXMLContentType


def _entry(item: Any) -> Entry:
    date_field = "published" if item.get("published_parsed") else "updated"
    moment = item.get(f"{date_field}_parsed")
    return Entry(
        title=_plain(item, "title"),
        url=item.get("link", ""),
        date=_format_date(str(item.get(date_field, "")), moment) if moment else None,
        summary=_plain(item, "summary"),
    )


def _plain(item: Any, name: str) -> str:
    """Return a text of an entry without markup. In plain text, ``<`` is no markup and stays."""
    text = str(item.get(name, ""))
    is_plain = item.get(f"{name}_detail", {}).get("type") == "text/plain"
    return " ".join(text.split()) if is_plain else plain(text)


def _format_date(text: str, moment: time.struct_time) -> str:
    """Format a feed's date as ISO 8601.

    A time or time zone that is missing in the text is left out, although feedparser sets it to
    midnight or UTC.

    Args:
        text: The date in the feed.
        moment: The date as parsed by feedparser.
    """
    if ":" not in text:
        return time.strftime("%Y-%m-%d", moment)
    zone = "Z" if _TIME_WITH_ZONE.search(text) else ""  # feedparser has converted it to UTC
    return time.strftime("%Y-%m-%dT%H:%M:%S", moment) + zone
