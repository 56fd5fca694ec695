"""Frames between a program and its children: a length, then bytes. Standard library only."""

from __future__ import annotations

import socket
import struct
from typing import Final

LENGTH: Final = struct.Struct(">Q")


def send(wire: socket.socket, payload: bytes) -> None:
    """Send a frame."""
    wire.sendall(LENGTH.pack(len(payload)))
    wire.sendall(payload)


def receive(wire: socket.socket, most: int | None = None) -> bytes:
    """Receive a frame.

    Args:
        wire: The socket.
        most: The maximum number of bytes; None for a trusted sender.

    Raises:
        EOFError: If the other side closed the connection.
        ValueError: If the frame is longer.
    """
    (length,) = LENGTH.unpack(_exactly(wire, LENGTH.size))
    check(length, most)
    return _exactly(wire, length)


def check(length: int, most: int | None) -> None:
    """Raise for an invalid frame header before reading the frame.

    Raises:
        ValueError: If the frame is too long.
    """
    if most is not None and length > most:
        raise ValueError(f"a frame of {length:,} bytes")


def _exactly(wire: socket.socket, size: int) -> bytes:
    data = bytearray(size)
    view, got = memoryview(data), 0
    while got < size:
        more = wire.recv_into(view[got:])
        if not more:
            raise EOFError
        got += more
    view.release()
    return bytes(data)
