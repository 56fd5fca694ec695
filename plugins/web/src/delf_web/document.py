"""Documents at addresses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from delf_confined.text import decode_declared

_MARKUP: Final = ("html", "xml")


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A downloaded document.

    Args:
        url: The final address after redirects.
        kind: The media type, such as ``text/html``.
        charset: The character encoding that the server declared, if any.
        content: The bytes.
    """

    url: str
    kind: str
    charset: str | None
    content: bytes

    @property
    def text(self) -> str:
        """The decoded text, by byte order mark, declared encoding, UTF-8 or detection.

        If the encoding is detected, or if bytes cannot be decoded, a note is added to the result of
        the tool call in progress.
        """
        is_markup = self.kind.endswith(_MARKUP)
        return decode_declared(self.content, self.charset, self.url, is_markup=is_markup)


def lxml_html() -> Any:
    """Return the module ``lxml.html``, which is loaded on first use and has no type hints."""
    from lxml import html

    return html
