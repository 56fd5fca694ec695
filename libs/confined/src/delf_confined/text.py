"""Decoding of bytes of unknown origin."""

from __future__ import annotations

import codecs
import re
from pathlib import Path
from typing import Final

from delf.network import charsets
from delf.notes import note
from delf_confined.charsets import WESTERN, guess

_SAMPLE_BYTES: Final = 64_000
_CHUNK_BYTES: Final = 4 * 1024 * 1024
_CONTINUATION_BYTES: Final = bytes(range(0x80, 0xC0))
_PRINTABLE_ASCII: Final = re.compile(rb"[\t\n\r -~]")
_MAX_PRINTABLE_SHARE_OF_UTF16: Final = 0.7
_MIN_ZERO_SHARE_OF_UTF16: Final = 0.35
# The encoding of UTF-8 text with a byte order mark or invalid bytes, as opposed to "utf-8".
_IMPERFECT_UTF8: Final = "utf-8-sig"
_CONTROLS: Final = re.compile(r"[\x00-\x08\x0e-\x1f\ufffe\uffff]")

_WARNING: Final = "; if its letters look wrong, give encoding="
_BYTE_ORDER_MARKS: Final = (
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
    warning: str = _WARNING,
) -> str:
    """Decode a text whose encoding is unknown.

    A byte order mark decides; otherwise, the text is decoded as UTF-8 or, if that fails, in the
    encoding that is detected. Notes are added about a guessed encoding and about bytes that cannot
    be decoded.

    Args:
        data: The encoded text.
        encoding: The encoding, if known.
        about: The name of the file for notes.
        warning: The end of a note about a guessed encoding: what to do if the guess is wrong.

    Raises:
        ValueError: If ``encoding`` is given, and is unknown or does not fit the data.
    """
    if encoding is not None:
        try:
            return data.decode(encoding).removeprefix("\ufeff")
        except LookupError:
            raise ValueError(f"unknown encoding {encoding!r}") from None
    detected = encoding_of(data, about, warning=warning)
    if detected == WESTERN:
        try:
            return data.decode(WESTERN)
        except UnicodeDecodeError:
            return data.decode("latin-1")  # Windows-1252 does not define all bytes
    return _decode_leniently(data, detected, about).removeprefix("\ufeff")


def decode_declared(data: bytes, label: str | None, about: str, *, is_markup: bool) -> str:
    """Decode a text that may declare its charset, such as a page of the web.

    A byte order mark comes first, then the declared charset; otherwise, the text is decoded like
    any other by :func:`decode`. A guessed encoding and undecodable bytes are reported by
    :func:`note`.

    Args:
        data: The encoded text.
        label: The charset that is declared outside of the text, such as in a header, if any.
        about: The name of the text for notes.
        is_markup: Whether the text itself may declare a charset, as HTML and XML do.
    """
    if _encoding_by_mark(data) is not None:
        return decode(data, about=about)
    codec = charsets.codec_of(label)
    if codec is None and is_markup:
        label = charsets.label_in_page(data)
        codec = charsets.codec_of(label)
    if codec is not None:
        text = charsets.decode_charset(data, label)
        if text is not None:
            return text
    # Without a known charset, the encoding is guessed. So is that of a text that declares UTF-8,
    # but is not valid UTF-8.
    if codec is None or codec == "utf-8":
        return decode(data, about=about, warning=": its letters may be wrong")
    note(f"{about} has bytes that are not {label}: each was read as \ufffd")
    return data.decode(codec, errors="replace")


def encoding_of_file(path: str, about: str) -> str:
    """Detect the encoding of a file of any size.

    The result is "utf-8" only if the whole file is valid UTF-8 and has no byte order mark. Any
    other UTF-8 text is "utf-8-sig". If the encoding is a guess, the task gets a note that says so.

    Args:
        path: The path of the file.
        about: The name of the file for notes.
    """
    decoder = codecs.getincrementaldecoder("utf-8")()
    with Path(path).open("rb") as file:
        chunk = file.read(_CHUNK_BYTES)
        encoding = _encoding_by_mark(chunk) or _detect_utf16(chunk, about)
        if encoding is not None:
            return _IMPERFECT_UTF8 if encoding == "utf-8" else encoding
        # The numbers of the lines on which the chunk and the previous chunk begin.
        first_line = first_line_of_previous = 1
        previous_chunk = b""
        while True:
            try:
                decoder.decode(chunk, final=not chunk)
            except UnicodeDecodeError as error:
                # The invalid bytes may be the last ones of the previous chunk, which may itself
                # begin inside of a character.
                sample = previous_chunk.lstrip(_CONTINUATION_BYTES) + chunk
                encoding = encoding_of(sample, about, first_line=first_line_of_previous)
                if encoding == "utf-8":  # apart from a few invalid bytes
                    line_breaks_before_error = error.object.count(b"\n", 0, error.start)
                    _note_replaced_bytes(about, encoding, first_line + line_breaks_before_error)
                    encoding = _IMPERFECT_UTF8
                return encoding
            if not chunk:
                return "utf-8"
            previous_chunk = chunk
            first_line_of_previous = first_line
            first_line += chunk.count(b"\n")
            chunk = file.read(_CHUNK_BYTES)


def encoding_of(data: bytes, about: str, first_line: int = 1, warning: str = _WARNING) -> str:
    """Detect the encoding of a text. If the encoding is a guess, a note tells the script so.

    Args:
        data: The encoded text.
        about: The name of the file for notes.
        first_line: The number that the first line of the text has in the file.
        warning: The end of the note: what to do if the guess is wrong.
    """
    encoding = _encoding_by_mark(data) or _detect_utf16(data, about)
    if encoding is not None:
        return encoding
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        decode_error = error
    else:
        return "utf-8"
    if _is_mostly_utf8(data):
        return "utf-8"  # the caller replaces the few invalid bytes
    encoding, name = guess(data)
    line = _line_number(data, decode_error.start) + first_line - 1
    invalid_byte = f"byte 0x{data[decode_error.start]:02x} on line {line}"
    note(f"{about} is not UTF-8 ({invalid_byte}) and was read as {name}{warning}")
    return encoding


def _encoding_by_mark(data: bytes) -> str | None:
    for mark, encoding in _BYTE_ORDER_MARKS:
        if data.startswith(mark):
            return encoding
    return None


def _decode_leniently(data: bytes, encoding: str, about: str) -> str:
    """Decode a text, replacing bytes that cannot be decoded by U+FFFD.

    Replaced bytes add a note to the result of the current call.

    Args:
        data: The bytes of the text.
        encoding: The encoding.
        about: A name for the text in the note, such as the name of the file.
    """
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        _note_replaced_bytes(about, encoding, _line_number(data, error.start))
        return data.decode(encoding, "replace")


def _note_replaced_bytes(about: str, encoding: str, line: int) -> None:
    note(
        f"{about} has bytes that are not {encoding.upper()}, the first on line {line}: each was "
        "read as \ufffd"
    )


def _line_number(data: bytes, position: int) -> int:
    return data.count(b"\n", 0, position) + 1


def _is_mostly_utf8(data: bytes) -> bool:
    """Return True if most non-ASCII characters are valid UTF-8, apart from a few stray bytes."""
    text = data.decode("utf-8", "replace")
    ascii_count = sum(map(str.isascii, text))
    stray_count = text.count("\ufffd")
    valid_count = len(text) - ascii_count - stray_count  # of non-ASCII characters
    return stray_count < valid_count


def decode_if_text(data: bytes) -> str | None:
    """Return bytes as text if they are UTF-8 or have a byte order mark, else None."""
    encoding = _encoding_by_mark(data)
    if encoding is None and b"\0" in data:
        return None
    try:
        return data.decode(encoding or "utf-8").removeprefix("\ufeff")
    except ValueError:
        return None


def _is_utf8(data: bytes) -> bool:
    """Return True if bytes are UTF-8 without control characters, apart from stray zero bytes."""
    try:
        return not _CONTROLS.search(data.decode("utf-8").replace("\0", ""))
    except UnicodeDecodeError:
        return False


def _detect_utf16(data: bytes, about: str) -> str | None:
    """Return the encoding of UTF-16 text without a byte order mark; None for other text.

    A detected encoding adds a note to the result of the current call.

    Args:
        data: The bytes of the text.
        about: A name for the text in the note, such as the name of the file.
    """
    encoding = _utf16_variant(data)
    if encoding is not None:
        note(f"{about} has no mark of its encoding, and was read as {encoding.upper()}")
    return encoding


def _utf16_variant(data: bytes) -> str | None:
    """Return the variant of UTF-16 in which a text is encoded, or None.

    The zero bytes show the variant: every second byte of an ASCII text in UTF-16 is zero.
    """
    sample = data[:_SAMPLE_BYTES]
    zero_count = sample.count(0)
    if zero_count == 0:
        return None
    has_half_code_unit = len(data) % 2 == 1
    if has_half_code_unit:
        data = data[:-1]
    # In UTF-16, half of the bytes of an ASCII text are zero bytes, and half are printable. The
    # limits are far from a half, because a text may also have other characters.
    zero_share = zero_count / len(sample)
    printable_share = len(_PRINTABLE_ASCII.findall(sample)) / len(sample)
    if zero_share < _MIN_ZERO_SHARE_OF_UTF16:
        is_mostly_ascii = printable_share > _MAX_PRINTABLE_SHARE_OF_UTF16
        if is_mostly_ascii or _is_utf8(data):
            return None  # ASCII or UTF-8 with a few stray zero bytes
    for encoding, high_byte in (("utf-16-le", 1), ("utf-16-be", 0)):
        all_zeros_are_high_bytes = sample[high_byte::2].count(0) == zero_count
        if not all_zeros_are_high_bytes:
            continue
        try:
            text = data.decode(encoding)
        except UnicodeDecodeError:
            continue
        if not _CONTROLS.search(text):
            return encoding
    return None
