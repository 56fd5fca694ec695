"""Decoding of bytes of unknown origin."""

from __future__ import annotations

import codecs
import re
from pathlib import Path
from typing import Final

from delf.network import charsets
from delf.notes import note
from delf_confined.charsets import LATIN, guess

_SAMPLE: Final = 64_000
_CHUNK: Final = 4 * 1024 * 1024
_PRINTED: Final = re.compile(rb"[\t\n\r -~]")
_MAX_PRINTED: Final = 0.7
_HALF_OF_ASCII: Final = 0.35
_CONTROLS: Final = re.compile(r"[\x00-\x08\x0e-\x1f\ufffe\uffff]")

_REMEDY: Final = "; if its letters look wrong, give encoding="
_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


def decode(
    data: bytes,
    encoding: str | None = None,
    about: str = "the file",
    *,
    remedy: str = _REMEDY,
) -> str:
    """Decode text of any common encoding: by its BOM, as UTF-8, else by detection.

    Guesses and undecodable bytes are noted.

    Args:
        data: The text.
        encoding: The encoding, if known.
        about: The file, as notes call it.
        remedy: The end of the note of a guess: what to do if it is wrong.

    Raises:
        ValueError: If the data cannot be decoded, or the encoding is unknown.
    """
    if encoding is not None:
        try:
            return data.decode(encoding).removeprefix("\ufeff")
        except LookupError:
            raise ValueError(f"unknown encoding {encoding!r}") from None
    found = encoding_of(data, about, remedy=remedy)
    if found == LATIN:
        try:
            return data.decode(LATIN)
        except UnicodeDecodeError:
            return data.decode("latin-1")
    return _decode_leniently(data, found, about).removeprefix("\ufeff")


def decode_declared(data: bytes, label: str | None, about: str, *, is_markup: bool) -> str:
    """Decode text by its mark, its declared charset, as UTF-8, or by detection.

    Guesses, and bytes that are not text, are noted.

    Args:
        data: The text.
        label: The charset, if declared outside of the text.
        about: The text, as notes call it.
        is_markup: Whether it may declare a charset itself, as pages do.
    """
    if _decode_with_mark(data) is not None:
        return decode(data, about=about)
    in_page = charsets.label_in_page(data) if is_markup else None
    label = label if charsets.codec_of(label) else in_page
    codec = charsets.codec_of(label)
    text = None if codec is None else charsets.decode_charset(data, label)
    if text is not None:
        return text
    if codec is None or codec == "utf-8":
        return decode(data, about=about, remedy=": its letters may be wrong")
    note(f"{about} has bytes that are not {label}: each was read as \ufffd")
    return data.decode(codec, errors="replace")


def encoding_of_file(path: str, about: str) -> str:
    """Return the encoding of a file of any size.

    Return "utf-8" only for a file that is valid UTF-8 throughout and has no BOM.

    Args:
        path: The file.
        about: The file, as notes call it; empty to add no notes.
    """
    decoder = codecs.getincrementaldecoder("utf-8")()
    with Path(path).open("rb") as file:
        chunk, line = file.read(_CHUNK), 1
        encoding_by_mark = _decode_with_mark(chunk) or _decode_utf16_without_mark(chunk, about)
        if encoding_by_mark is not None:
            return "utf-8-sig" if encoding_by_mark == "utf-8" else encoding_by_mark
        while True:
            try:
                decoder.decode(chunk, final=not chunk)
            except UnicodeDecodeError as error:
                encoding = encoding_of(chunk, about, first_line=line)
                if encoding == "utf-8":
                    _tell_replaced(about, encoding, line + _line_number(chunk, error.start) - 1)
                    return "utf-8-sig"
                return encoding
            if not chunk:
                return "utf-8"
            line += chunk.count(b"\n")
            chunk = file.read(_CHUNK)


def encoding_of(data: bytes, about: str, first_line: int = 1, remedy: str = _REMEDY) -> str:
    """Find the encoding of a text; a guess is noted.

    Args:
        data: The text.
        about: The file, as notes call it.
        first_line: The number of its first line in the file.
        remedy: The end of the note: what to do if the guess is wrong.
    """
    encoding = _decode_with_mark(data) or _decode_utf16_without_mark(data, about)
    if encoding is not None:
        return encoding
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        decode_error = error
    else:
        return "utf-8"
    if _is_utf8_but_for_few(data):
        return "utf-8"
    encoding, name = guess(data)
    line = _line_number(data, decode_error.start) + first_line - 1
    place = f"byte 0x{data[decode_error.start]:02x} on line {line}"
    note(f"{about} is not UTF-8 ({place}) and was read as {name}{remedy}")
    return encoding


def _decode_with_mark(data: bytes) -> str | None:
    return next((encoding for mark, encoding in _MARKS if data.startswith(mark)), None)


def _decode_leniently(data: bytes, encoding: str, about: str) -> str:
    """Decode text, replacing undecodable bytes by U+FFFD; return a note on them, too."""
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        _tell_replaced(about, encoding, _line_number(data, error.start))
        return data.decode(encoding, "replace")


def _tell_replaced(about: str, encoding: str, line: int) -> None:
    note(
        f"{about} has bytes that are not {encoding.upper()}, the first on line {line}: each was "
        "read as \ufffd"
    )


def _line_number(data: bytes, place: int) -> int:
    return data.count(b"\n", 0, place) + 1


def _is_utf8_but_for_few(data: bytes) -> bool:
    """Return True if most non-ASCII bytes are valid UTF-8, so that the others are stray bytes."""
    text = data.decode("utf-8", "replace")
    stray = text.count("\ufffd")
    return sum(map(str.isascii, text)) + stray < len(text) - stray


def decode_if_text(data: bytes) -> str | None:
    """Decode bytes if they are certainly text; return None otherwise."""
    decoded = _decode_with_mark(data)
    if decoded is None and b"\0" in data:
        return None
    try:
        return data.decode(decoded or "utf-8").removeprefix("\ufeff")
    except ValueError:
        return None


def _is_utf8(data: bytes) -> bool:
    """Return True if bytes without their zeros are UTF-8; UTF-16 has zeros between letters."""
    try:
        return not _CONTROLS.search(data.decode("utf-8").replace("\0", ""))
    except UnicodeDecodeError:
        return False


def _decode_utf16_without_mark(data: bytes, about: str) -> str | None:
    """Decode UTF-16 without a byte order mark, with a note; None if the bytes are not UTF-16."""
    encoding = _without_mark(data)
    if encoding is not None:
        note(f"{about} has no mark of its encoding, and was read as {encoding.upper()}")
    return encoding


def _without_mark(data: bytes) -> str | None:
    """Return the variant of UTF-16 in which text without a byte order mark is written, if any.

    The zero bytes tell: in UTF-16 every second byte of ASCII is zero.
    """
    sample = data[: _SAMPLE - _SAMPLE % 2]
    zeros = sample.count(0)
    if not zeros:
        return None
    data = data[: len(data) - len(data) % 2]  # drop half a code unit
    is_rare = zeros < _HALF_OF_ASCII * len(sample)  # half of the bytes of ASCII in UTF-16 are zero
    if is_rare and (_is_utf8(data) or len(_PRINTED.findall(sample)) > _MAX_PRINTED * len(sample)):
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
