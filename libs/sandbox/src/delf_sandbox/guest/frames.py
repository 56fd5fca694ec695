"""Frames on the wire: a four-byte big-endian length, then a value in tagged JSON.

Every frame is a list whose first item names it.

Host to guest::

    ["init", {tools, modules, libraries, limits, scratch, readable, row_files, zone}]
    ["exec", number, code, start]
    ["return", call, value]   ["raise", call, kind, message, status?]   ["message", call, message]

Guest to host::

    ["ready"]
    ["call", call, connection, method, args, kwargs, alone, line]   ["cancel", call]
    ["print", text]           ["file", name, last, bytes]        ["clock", readings]
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
HALF = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]")
"""Half of a surrogate pair, which UTF-8 has no place for."""


class FrameTooLargeError(ValueError):
    """A frame is larger than the session allows."""


def encode(frame: list[Any], limit: int) -> bytes:
    """Return a frame as bytes, with its length ahead; halves of characters are replaced.

    Args:
        frame: Its name and fields.
        limit: The most bytes that the payload may have.

    Raises:
        UnsupportedValueError: When a field cannot be passed.
        FrameTooLargeError: When it is over the limit, or has too many values.
    """
    try:
        payload = _dumps_within(frame, limit)
    except UnsupportedValueError:
        payload = _dumps_within(plain_or_as_is(frame), limit)
    if b"\xed" in payload:
        payload = HALF.sub("\ufffd".encode(), payload)
    return _header(len(payload), limit) + payload


def _dumps_within(frame: list[Any], limit: int) -> bytes:
    try:
        check_size(frame, limit)
    except TooLargeError as error:
        raise FrameTooLargeError(str(error)) from None
    return dumps(frame)


def frame_around(head: bytes, value: bytes, limit: int) -> tuple[bytes, bytes, bytes]:
    """Return the parts of a frame with a pre-encoded last field, which is not copied.

    Args:
        head: The frame up to that field, as ``["return",7,``.
        value: The field in tagged JSON.
        limit: The most bytes that the payload may have.

    Raises:
        FrameTooLargeError: When it is over the limit.
    """
    return _header(len(head) + len(value) + 1, limit) + head, value, b"]"


def _header(size: int, limit: int) -> bytes:
    if size > limit:
        raise FrameTooLargeError(f"{size:,} bytes, and at most {limit:,} can be passed")
    return _LENGTH.pack(size)


class FrameReader:
    """Cuts a stream of bytes into payloads.

    Args:
        limit: The most bytes that a payload may have.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._buffer = bytearray()

    @property
    def pending(self) -> int:
        """Count the bytes of a payload that is not complete."""
        return len(self._buffer)

    def feed(self, data: bytes) -> list[bytes]:
        """Return the payloads that are complete with this data, in order.

        Raises:
            FrameTooLargeError: As soon as a header announces too much.
        """
        buffer = self._buffer
        buffer += data
        payloads: list[bytes] = []
        start, end = 0, len(buffer)
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
