"""Decoding of bytes of unknown origin."""

from __future__ import annotations

import codecs
import re
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from delf.network import charsets
from delf.notes import note
from delf_confined.charsets import WESTERN, guess

_SAMPLE_BYTES: Final = 64_000
_CHUNK_BYTES: Final = 4 * 1024 * 1024
_CONTINUATION_BYTES: Final = bytes(range(0x80, 0xC0))
_PRINTABLE_ASCII: Final = re.compile(rb"[\t\n\r -~]")
_MAX_PRINTABLE_SHARE_OF_UTF16: Final = 0.7
_MIN_ZERO_SHARE_OF_UTF16: Final = 0.35
_CONTROLS: Final = re.compile(r"[\x00-\x08\x0e-\x1f\ufffe\uffff]")

_GIVE_ENCODING: Final = "; if its letters look wrong, give encoding="
_LETTERS_MAY_BE_WRONG: Final = ": its letters may be wrong"
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
    warning: str = _GIVE_ENCODING,
) -> str:
    """Decode a text whose encoding may be unknown.

    Unless ``encoding`` is given, the text is decoded by its byte order mark, as UTF-8 if the bytes
    are (mostly) valid UTF-8, or else in the encoding that fits best. The result of the current tool
    call gets a note if the encoding is a guess, or if bytes cannot be decoded.

    Args:
        data: The encoded text.
        encoding: The encoding; None if it is unknown.
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

    A byte order mark has precedence over the declared charset. A text that declares a charset is
    decoded by :func:`delf.network.charsets.decode_charset`, and any other text by :func:`decode`. A
    guessed encoding and undecodable bytes are reported by :func:`note`.

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
    if codec is None:  # no known charset is declared
        return decode(data, about=about, warning=_LETTERS_MAY_BE_WRONG)
    text = charsets.decode_charset(data, label)
    if text is not None:
        return text
    if codec == "utf-8":  # often declared for texts in other encodings
        return decode(data, about=about, warning=_LETTERS_MAY_BE_WRONG)
    note(f"{about} has bytes that are not {label}: each was read as \ufffd")
    return data.decode(codec, errors="replace")


class _Chunk(NamedTuple):
    data: bytes
    first_line: int
    """The number of the line in the file on which the chunk begins."""


def encoding_of_file(path: str, about: str) -> str:
    """Detect the encoding of a file of any size.

    The result is "utf-8" only if the whole file is valid UTF-8 and has no byte order mark. The
    result is "utf-8-sig" if the file has a byte order mark, or is UTF-8 apart from a few invalid
    bytes. If the encoding is a guess, the result of the current tool call gets a note.

    Args:
        path: The path of the file.
        about: The name of the file for notes.
    """
    with Path(path).open("rb") as file:
        beginning = file.read(_CHUNK_BYTES)
        encoding = _encoding_by_mark(beginning) or _detect_utf16_with_note(beginning, about)
        if encoding == "utf-8":  # the file has the mark, which "utf-8-sig" leaves out
            return "utf-8-sig"
        if encoding is not None:
            return encoding
        file.seek(0)
        return _encoding_without_mark(file, about)


def _encoding_without_mark(file: BinaryIO, about: str) -> str:
    """Return "utf-8" if a file is valid UTF-8 up to its end, else a guess from the invalid part."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    previous = _Chunk(b"", first_line=1)
    while True:
        first_line = previous.first_line + previous.data.count(b"\n")
        chunk = _Chunk(file.read(_CHUNK_BYTES), first_line)
        try:
            decoder.decode(chunk.data, final=not chunk.data)
        except UnicodeDecodeError as error:
            return _encoding_of_invalid_utf8(previous, chunk, error, about)
        if not chunk.data:
            return "utf-8"
        previous = chunk


def _encoding_of_invalid_utf8(
    previous: _Chunk, chunk: _Chunk, error: UnicodeDecodeError, about: str
) -> str:
    """Guess the encoding of a file from its first chunk with invalid UTF-8 and the chunk before."""
    # The invalid bytes may be the last ones of the previous chunk, which may itself begin inside of
    # a character.
    sample = previous.data.lstrip(_CONTINUATION_BYTES) + chunk.data
    encoding = encoding_of(sample, about, first_line=previous.first_line)
    if encoding != "utf-8":
        return encoding
    # The file is UTF-8 apart from a few invalid bytes. Do not return "utf-8", which stands for a
    # file without invalid bytes.
    line = chunk.first_line + error.object.count(b"\n", 0, error.start)
    _note_replaced_bytes(about, encoding, line)
    return "utf-8-sig"


def encoding_of(data: bytes, about: str, first_line: int = 1, warning: str = _GIVE_ENCODING) -> str:
    """Detect the encoding of a text.

    If the encoding is a guess, the result of the current tool call gets a note.

    Args:
        data: The encoded text.
        about: The name of the file for notes.
        first_line: The number that the first line of the text has in the file.
        warning: The end of the note: what to do if the guess is wrong.
    """
    encoding = _encoding_by_mark(data) or _detect_utf16_with_note(data, about)
    if encoding is not None:
        return encoding
    position = _position_of_invalid_utf8(data)
    # The caller replaces the invalid bytes if there are only a few.
    if position is None or _is_mostly_utf8(data):
        return "utf-8"
    encoding, name = guess(data)
    lines_before_text = first_line - 1
    line = lines_before_text + _line_number(data, position)
    invalid_byte = f"byte 0x{data[position]:02x} on line {line}"
    note(f"{about} is not UTF-8 ({invalid_byte}) and was read as {name}{warning}")
    return encoding


def _position_of_invalid_utf8(data: bytes) -> int | None:
    """Return the position of the first byte that is not UTF-8; None if all bytes are UTF-8."""
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        return error.start
    return None


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
    """Return True if, decoded as UTF-8, most non-ASCII characters are valid."""
    text = data.decode("utf-8", "replace")
    ascii_count = sum(map(str.isascii, text))
    stray_count = text.count("\ufffd")
    valid_count = len(text) - ascii_count - stray_count  # of non-ASCII characters
    return stray_count < valid_count


def decode_if_text(data: bytes) -> str | None:
    """Decode bytes that are UTF-8 or have a byte order mark; return None for other bytes."""
    encoding = _encoding_by_mark(data)
    if encoding is None and b"\0" in data:  # binary data, although it may be valid UTF-8
        return None
    try:
        return data.decode(encoding or "utf-8").removeprefix("\ufeff")
    except ValueError:
        return None


def _is_utf8_without_controls(data: bytes) -> bool:
    """Return True if bytes are UTF-8 without control characters, apart from stray zero bytes."""
    try:
        return not _CONTROLS.search(data.decode("utf-8").replace("\0", ""))
    except UnicodeDecodeError:
        return False


def _detect_utf16_with_note(data: bytes, about: str) -> str | None:
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

    In UTF-16, every second byte of an ASCII text is zero: the second byte of each pair in the
    variant "utf-16-le", and the first byte in "utf-16-be".
    """
    data = data[: len(data) // 2 * 2]  # half a pair at the end belongs to no character
    sample = data[:_SAMPLE_BYTES]
    has_zero_first = b"\0" in sample[::2]
    has_zero_second = b"\0" in sample[1::2]
    if has_zero_first == has_zero_second or _is_text_with_stray_zeros(data, sample):
        return None
    encoding = "utf-16-be" if has_zero_first else "utf-16-le"
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError:
        return None
    return None if _CONTROLS.search(text) else encoding


def _is_text_with_stray_zeros(data: bytes, sample: bytes) -> bool:
    """Return True if data with zero bytes is ASCII or UTF-8 text rather than UTF-16."""
    # In UTF-16, the text "ab" is "a", 0, "b", 0: 50 % zero bytes and 50 % printable bytes. The
    # limits of 35 % and 70 % leave room for other characters.
    zero_share = sample.count(0) / len(sample)  # the caller has found a zero byte in the sample
    if zero_share >= _MIN_ZERO_SHARE_OF_UTF16:
        return False
    printable_share = len(_PRINTABLE_ASCII.findall(sample)) / len(sample)
    is_ascii_text = printable_share > _MAX_PRINTABLE_SHARE_OF_UTF16
    return is_ascii_text or _is_utf8_without_controls(data)
