"""What an address gave."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """What an address gave.

    Args:
        url: Where it was in the end.
        kind: Its media type, as ``text/html``.
        charset: Its encoding, where the server said so.
        content: Its bytes.
    """

    url: str
    kind: str
    charset: str | None
    content: bytes
