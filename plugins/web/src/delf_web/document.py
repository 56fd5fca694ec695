"""Documents at addresses."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """The document at an address.

    Args:
        url: Where it was in the end.
        kind: Its media type, as ``text/html``.
        charset: Its encoding by the server, if declared.
        content: Its bytes.
    """

    url: str
    kind: str
    charset: str | None
    content: bytes
