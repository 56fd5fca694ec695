"""Documents at addresses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from delf_confined.text import decode_declared

_MARKUP: Final = ("html", "xml")


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """The document at an address.

    Args:
        url: The final address after redirects.
        kind: The media type, such as ``text/html``.
        charset: The encoding by the server, if declared.
        content: The bytes.
    """

    url: str
    kind: str
    charset: str | None
    content: bytes

    @property
    def text(self) -> str:
        """The text, decoded by byte order mark, declared charset, UTF-8 or detection.

        Guesses and undecodable bytes are noted.
        """
        is_markup = self.kind.endswith(_MARKUP)
        return decode_declared(self.content, self.charset, self.url, is_markup=is_markup)


def lxml_html() -> Any:
    """Return lxml's HTML, which has no types and is loaded on first use."""
    from lxml import html

    return html
