"""Frames between a program and its children: a length, then bytes. Standard library only."""

from __future__ import annotations

import socket
import struct
from typing import Final

LENGTH: Final = struct.Struct(">Q")


def send(wire: socket.socket, payload: bytes) -> None:
    """Send a frame: the length of the payload, followed by the payload."""
    wire.sendall(LENGTH.pack(len(payload)))
    wire.sendall(payload)


def receive(wire: socket.socket, max_bytes: int | None = None) -> bytes:
    """Receive a frame, and return its payload.

    Args:
        wire: The socket.
        max_bytes: The maximum size of the payload in bytes; None if the sender is trusted.

    Raises:
        EOFError: If the other side closed the connection.
        ValueError: If the payload is longer than ``max_bytes``.
    """
    (length,) = LENGTH.unpack(receive_exactly(wire, LENGTH.size))
    check_length(length, max_bytes)
    return receive_exactly(wire, length)


def check_length(length: int, max_bytes: int | None) -> None:
    """Check the announced length of a payload before the payload is read.

    Raises:
        ValueError: If the payload is too long.
    """
    if max_bytes is not None and length > max_bytes:
        raise ValueError(f"a frame of {length:,} bytes")


def receive_exactly(wire: socket.socket, size: int) -> bytes:
    """Receive a number of bytes.

    Raises:
        EOFError: If the other side closed the connection.
    """
    data = bytearray(size)
    view = memoryview(data)
    received = 0
    while received < size:
        chunk_length = wire.recv_into(view[received:])
        if not chunk_length:
            raise EOFError
        received += chunk_length
    view.release()
    return bytes(data)
