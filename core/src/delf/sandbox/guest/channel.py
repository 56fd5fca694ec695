"""The guest's end of the wire: two descriptors, read by the event loop, written at once."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Any

from delf.sandbox.guest.frames import FrameReader, encode
from delf.values import loads

_READ_SIZE = 256 * 1024


class Channel:
    """Sends and receives frames.

    What is sent within one turn of the event loop goes out in one write. The host always
    reads, so writing may block without a deadlock.

    Args:
        read_fd: Where the host's frames arrive.
        write_fd: Where frames go.
        receive: Called with each frame.
    """

    def __init__(self, read_fd: int, write_fd: int, receive: Callable[[list[Any]], None]) -> None:
        self.limit = 64 * 1024 * 1024
        self._read_fd = read_fd
        self._write_fd = write_fd
        self._receive = receive
        self._reader = FrameReader(2**32 - 1)
        self._pending: list[bytes] = []
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(read_fd, self._readable)

    def send(self, frame: list[Any], *, at_once: bool = False) -> None:
        """Send a frame, or queue it for the end of this turn of the loop."""
        data = encode(frame, self.limit)
        self._pending.append(data)
        if at_once:
            self.flush()
        elif len(self._pending) == 1:
            self._loop.call_soon(self.flush)

    def flush(self) -> None:
        """Write what is queued now."""
        if not self._pending:
            return
        data = memoryview(b"".join(self._pending))
        self._pending.clear()
        try:
            while data:
                data = data[os.write(self._write_fd, data) :]
        except OSError:
            os._exit(0)

    def _readable(self) -> None:
        try:
            data = os.read(self._read_fd, _READ_SIZE)
        except OSError:
            data = b""
        if not data:
            os._exit(0)
        for payload in self._reader.feed(data):
            self._receive(loads(payload))
