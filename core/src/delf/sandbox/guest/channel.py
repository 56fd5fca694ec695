"""The guest's end of the wire: two descriptors, read by the event loop, written at once."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from delf.sandbox.guest.frames import FrameReader, encode
from delf.values import loads

_READ_SIZE = 64 * 1024
"""Below the size from which the C library maps fresh pages for every buffer."""


class Channel:
    """Sends and receives frames.

    What is sent goes out together with :meth:`flush`, before the event loop waits. The host
    always reads, so writing may block without a deadlock.

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
        os.set_blocking(read_fd, True)

    def send(self, frame: list[Any], at_once: bool = False) -> None:
        """Send a frame, or queue it for the next flush."""
        self._pending.append(encode(frame, self.limit))
        if at_once:
            self.flush()

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

    def receive(self) -> None:
        """Read what is there, or wait until something is, and hand over its frames."""
        try:
            data = os.read(self._read_fd, _READ_SIZE)
        except OSError:
            data = b""
        if not data:
            os._exit(0)
        for payload in self._reader.feed(data):
            self._receive(loads(payload))
