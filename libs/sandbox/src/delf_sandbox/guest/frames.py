"""Frames on the wire: a four-byte big-endian length, then a value in tagged JSON.

Every frame is a list whose first item names it.

Host to guest::

    ["init", {tools, modules, libraries, limits, scratch, readable, links, row_files, zone}]
    ["exec", number, code, start]
    ["return", call, value]   ["raise", call, kind, message, status?]   ["message", call, message]

Guest to host::

    ["ready"]
    ["call", call, connection, method, args, kwargs, alone, line]   ["cancel", call]
    ["print", text]           ["file", name, last, bytes]        ["clock", readings]
    ["turns", recording]
    ["rows", name, last, bytes]
    ["done", value, variables]
    ["failed", kind, message, line, source, variables, call]
    ["limit", name, message, line, source, variables]
    ["rerun", context, remaining, carry, variables]
"""

from __future__ import annotations

import re
import struct
from typing import Any

from delf.values.conversion import plain_or_as_is
from delf.values.encoding import TooLargeError, UnsupportedValueError, check_size, dumps

_LENGTH = struct.Struct(">I")
HEADER = _LENGTH.size
UNPAIRED_SURROGATES = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]")
"""Matches unpaired surrogates in bytes that were encoded with ``surrogatepass``."""


class FrameTooLargeError(ValueError):
    """A frame exceeds the size limit of the session."""


def encode(frame: list[Any], limit: int) -> bytes:
    """Encode a frame as its length and its JSON payload.

    Unpaired surrogates in texts are replaced, because UTF-8 cannot encode them.

    Args:
        frame: The frame's name, followed by its fields.
        limit: The maximum number of bytes of the payload.

    Raises:
        UnsupportedValueError: If a field cannot be encoded.
        FrameTooLargeError: If the frame exceeds a limit.
    """
    try:
        payload = _dumps_within(frame, limit)
    except UnsupportedValueError:  # a field has values of a data library, such as numpy
        payload = _dumps_within(plain_or_as_is(frame), limit)
    # Each encoded surrogate begins with this byte. A search for a byte is faster than the pattern.
    if b"\xed" in payload:
        payload = UNPAIRED_SURROGATES.sub("\ufffd".encode(), payload)
    return _header(len(payload), limit) + payload


def _dumps_within(frame: list[Any], limit: int) -> bytes:
    try:
        check_size(frame, limit)
    except TooLargeError as error:
        raise FrameTooLargeError(str(error)) from None
    return dumps(frame)


def frame_around(head: bytes, value: bytes, limit: int) -> tuple[bytes, bytes, bytes]:
    """Build a frame whose last field is encoded already, without copying that field.

    Args:
        head: The JSON of the frame before the last field, such as ``["return",7,``.
        value: The last field in tagged JSON.
        limit: The maximum number of bytes of the payload.

    Returns:
        Three parts to send in this order: the frame's header with ``head``, ``value`` itself, and
        the closing bracket.

    Raises:
        FrameTooLargeError: If the frame exceeds the limit.
    """
    return _header(len(head) + len(value) + 1, limit) + head, value, b"]"


def _header(size: int, limit: int) -> bytes:
    if size > limit:
        raise FrameTooLargeError(f"{size:,} bytes, and at most {limit:,} can be passed")
    return _LENGTH.pack(size)


class FrameReader:
    """Splits a stream of bytes into the payloads of its frames.

    Args:
        limit: The maximum number of bytes of a payload.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._buffer = bytearray()

    @property
    def pending(self) -> int:
        """The number of received bytes of the frame that is not complete yet."""
        return len(self._buffer)

    def feed(self, data: bytes) -> list[bytes]:
        """Add received data. Return the payloads of the frames that the data completes.

        Raises:
            FrameTooLargeError: If the length of a frame exceeds the limit.
        """
        buffer = self._buffer
        buffer += data
        payloads: list[bytes] = []
        start = 0
        end = len(buffer)
        while end - start >= HEADER:
            (size,) = _LENGTH.unpack_from(buffer, start)
            if size > self._limit:
                raise FrameTooLargeError(f"a frame of {size:,} bytes, over {self._limit:,}")
            if end - start - HEADER < size:
                break
            start += HEADER
            payloads.append(bytes(buffer[start : start + size]))
            start += size
        if start:
            del buffer[:start]
        return payloads
