"""Bytes as text, whoever wrote them."""

from __future__ import annotations

import codecs
import re
from typing import Final

from delf.notes import note
from delf_files.charsets import LATIN, guess

_SAMPLE: Final = 64_000
_CONTROLS: Final = re.compile(r"[\x00-\x08\x0e-\x1f\ufffe\uffff]")

_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


def decode(data: bytes, encoding: str | None = None, about: str = "the file") -> str:
    """Text of any common encoding: by its mark, as UTF-8, else by what it seems to say.

    What was guessed, and bytes that are no text, are noted.

    Args:
        data: The bytes.
        encoding: What it is, if that is known.
        about: The file, as notes call it.

    Raises:
        ValueError: When it is no text in that encoding, or the encoding is unknown.
    """
    if encoding is not None:
        try:
            return data.decode(encoding).removeprefix("\ufeff")
        except LookupError:
            raise ValueError(f"unknown encoding {encoding!r}") from None
    for mark, marked in _MARKS:
        if data.startswith(mark):
            return _whole(data, marked, about).removeprefix("\ufeff")
    wide = _without_mark(data)
    if wide is not None:
        return _whole(data, wide, about)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        found = error
    if _is_utf8_but_for_few(data):
        return _whole(data, "utf-8", about)
    encoding, name = guess(data)
    place = f"byte 0x{data[found.start]:02x} on line {_line(data, found.start)}"
    note(
        f"{about} is not UTF-8 ({place}) and was read as {name}; if its letters look wrong, "
        "give encoding="
    )
    if encoding != LATIN:
        return _whole(data, encoding, about)
    try:
        return data.decode(LATIN)
    except UnicodeDecodeError:
        return data.decode("latin-1")


def _whole(data: bytes, encoding: str, about: str) -> str:
    """Text with a mark in place of each byte that is none, which is noted."""
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        note(
            f"{about} has bytes that are no {encoding.upper()}, the first on "
            f"line {_line(data, error.start)}: each was read as \ufffd"
        )
        return data.decode(encoding, "replace")


def _line(data: bytes, place: int) -> int:
    return data.count(b"\n", 0, place) + 1


def _is_utf8_but_for_few(data: bytes) -> bool:
    """Tell whether most of what is beyond ASCII is UTF-8, so that the rest are stray bytes."""
    text = data.decode("utf-8", "replace")
    stray = text.count("\ufffd")
    return sum(map(str.isascii, text)) + stray < len(text) - stray


def decode_if_text(data: bytes) -> str | None:
    """Text, if the bytes are surely that."""
    marked = next((encoding for mark, encoding in _MARKS if data.startswith(mark)), None)
    if marked is None and b"\0" in data:
        return None
    try:
        return data.decode(marked or "utf-8").removeprefix("\ufeff")
    except ValueError:
        return None


def _is_utf8(data: bytes) -> bool:
    """Tell whether it is text except for zeros: UTF-16 has zeros between its letters."""
    try:
        return not _CONTROLS.search(data.decode("utf-8").replace("\0", ""))
    except UnicodeDecodeError:
        return False


def _without_mark(data: bytes) -> str | None:
    """UTF-16 that lacks its mark: its zero bytes are all on one side, and what it says is text."""
    sample = data[: _SAMPLE - _SAMPLE % 2]
    zeros = sample.count(0)
    if not zeros:
        return None
    data = data[: len(data) - len(data) % 2]  # it may be cut in the midst of a letter
    if _is_utf8(data) and zeros < 0.35 * len(sample):  # of ASCII, every other byte is zero
        return None
    for encoding, side in (("utf-16-le", 1), ("utf-16-be", 0)):
        if sample[side::2].count(0) != zeros:
            continue
        try:
            text = data.decode(encoding)
        except UnicodeDecodeError:
            continue
        if not _CONTROLS.search(text):
            return encoding
    return None
