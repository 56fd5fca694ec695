"""Frames on the wire: a four-byte big-endian length, then a value in tagged JSON.

Every frame is a list whose first item names it.

Host to guest::

    ["init", {tools, modules, libraries, limits, scratch, readable, row_files}]
    ["exec", number, code, start]
    ["return", call, value]   ["raise", call, kind, message]   ["told", call, message]

Guest to host::

    ["ready"]
    ["call", call, connection, method, args, kwargs]           ["cancel", call]
    ["print", text]           ["file", name, last, bytes]        ["clock", readings]
    ["rows", name, last, bytes]
    ["done", value, variables]
    ["failed", kind, message, line, source, variables]
    ["limit", name, message, line, source, variables]
    ["rerun", context, remaining, carry, variables]
"""

from __future__ import annotations

import struct
from typing import Any

from delf.values import dumps

_LENGTH = struct.Struct(">I")
HEADER = _LENGTH.size


MAX_VALUES = 5_000_000
"""Values in one frame of a guest. Two bytes on the wire can become seventy in memory."""
_WEIGHTS = {b",": 1, b":": 1, b"[": 2, b"{": 6}
"""What each costs, in values: an empty list takes as much as two numbers, a dict as six."""
_FEW_BYTES = 4 * 1024 * 1024
_PIECE = 1024 * 1024


class FrameTooLargeError(ValueError):
    """A frame is larger than the session allows."""


def has_too_many_values(payload: bytes) -> bool:
    """Whether a guest's frame holds more than the host takes into its memory."""
    if len(payload) <= _FEW_BYTES or cost(payload) <= MAX_VALUES:
        return False
    return cost_of_values(payload) > MAX_VALUES


def cost(payload: bytes) -> int:
    """About how many values are in a payload, weighted by what they take in memory."""
    return sum(payload.count(sign) * weight for sign, weight in _WEIGHTS.items())


def cost_of_values(payload: bytes) -> int:
    """The same without the signs that stand in texts, which takes longer."""
    plain = payload.replace(b"\\\\", b"").replace(b'\\"', b"")
    total, in_text = 0, 0
    for start in range(0, len(plain), _PIECE):
        parts = plain[start : start + _PIECE].split(b'"')
        total += cost(b"".join(parts[in_text::2]))
        in_text ^= (len(parts) - 1) % 2
    return total


def encode(frame: list[Any], limit: int) -> bytes:
    """A frame as bytes, with its length ahead.

    Args:
        frame: Its name and fields.
        limit: The most bytes that the payload may have.

    Raises:
        UnsupportedValueError: When a field cannot be passed.
        FrameTooLargeError: When it is over the limit.
    """
    payload = dumps(frame)
    return _header(len(payload), limit) + payload


def frame_around(head: bytes, value: bytes, limit: int) -> tuple[bytes, bytes, bytes]:
    """The parts of a frame whose last field is encoded already, which is not copied.

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

    def feed(self, data: bytes) -> list[bytes]:
        """The payloads that are complete with this data, in order.

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
