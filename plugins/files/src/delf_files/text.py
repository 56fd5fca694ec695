"""Bytes as text, whoever wrote them."""

from __future__ import annotations

import codecs
from typing import Final

_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


def decode(data: bytes, encoding: str | None = None) -> str:
    """Text of any common encoding: by its mark, as UTF-8, else as Windows writes it.

    Args:
        data: The bytes.
        encoding: What it is, if that is known.

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
            return data.decode(marked)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        pass
    wide = _without_mark(data)
    if wide is not None:
        return data.decode(wide)
    try:
        return data.decode("cp1252")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def decode_if_text(data: bytes) -> str | None:
    """Text, if the bytes are surely that."""
    marked = any(data.startswith(mark) for mark, _ in _MARKS)
    if not marked and b"\0" in data:
        return None
    try:
        return decode(data) if marked else data.decode("utf-8")
    except ValueError:
        return None


def _without_mark(data: bytes) -> str | None:
    """UTF-16 that lacks its mark: every other byte of what is mostly ASCII is zero."""
    sample = data[:4000]
    if len(sample) < 4 or len(data) % 2:
        return None
    half = len(sample) // 2
    if sample[1::2].count(0) > 0.7 * half:
        return "utf-16-le"
    if sample[0::2].count(0) > 0.7 * half:
        return "utf-16-be"
    return None
