"""Documents at addresses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from delf.network.charsets import codec_of, decoded, label_in_page
from delf.notes import note
from delf_confined.text import decode, has_mark

_MARKUP: Final = ("html", "xml")


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

    @property
    def text(self) -> str:
        """The text, decoded by byte order mark, declared charset, UTF-8 or detection.

        Guesses and undecodable bytes are noted.
        """
        if has_mark(self.content):
            return decode(self.content, about=self.url)
        in_page = label_in_page(self.content) if self.kind.endswith(_MARKUP) else None
        label = self.charset if codec_of(self.charset) else in_page
        codec = codec_of(label)
        text = None if codec is None else decoded(self.content, label)
        if text is not None:
            return text
        if codec is None or codec == "utf-8":
            return decode(self.content, about=self.url, remedy=": its letters may be wrong")
        note(f"{self.url} has bytes that are not {label}: each was read as \ufffd")
        return self.content.decode(codec, errors="replace")


def lxml_html() -> Any:
    """Return lxml's HTML, which has no types and is loaded on first use."""
    from lxml import html

    return html
