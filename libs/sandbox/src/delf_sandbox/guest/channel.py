"""The guest's end of the wire: two descriptors, read by the event loop."""

from __future__ import annotations

import os
import select
from collections.abc import Callable
from threading import RLock, get_ident
from time import perf_counter  # the real clock; scripts get a patched one
from typing import Any

from delf.values.encoding import make_loads
from delf_sandbox.guest.frames import FrameReader, encode
from delf_sandbox.guest.records import Record
from delf_sandbox.guest.spin import SPIN_SECONDS, Spin

_loads = make_loads(Record)
_READ_SIZE = 64 * 1024
"""The read size; above it the C library maps fresh pages for each buffer."""
_MAX_PENDING = 1024 * 1024
"""The maximum number of bytes queued for sending before the end of a turn."""


class WireLock:
    """A reentrant lock for senders, usable from a signal handler.

    A signal handler interrupts the main thread anywhere, so it sends only if :meth:`take_if_free`
    succeeds.
    """

    def __init__(self) -> None:
        self._lock = RLock()
        self._holder = 0
        self._depth = 0

    def __enter__(self) -> None:
        self._lock.acquire()
        self._holder = get_ident()
        self._depth += 1

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if not self._depth:
            self._holder = 0
        self._lock.release()

    def take_if_free(self) -> bool:
        """Acquire the lock unless any thread, this one included, holds it."""
        # An RLock would let the handler in that interrupts its own thread in the middle of a frame.
        if self._holder == get_ident() or not self._lock.acquire(blocking=False):
            return False
        self._holder = get_ident()
        self._depth += 1
        return True


class Channel:
    """Sends and receives frames.

    Frames are queued and sent by :meth:`flush` before the event loop waits. The host always reads,
    so writing may block without a deadlock. Threads of a script may print, so senders hold
    :attr:`lock`.

    Args:
        receive: Called with each frame.
    """

    def __init__(self, receive: Callable[[list[Any]], None]) -> None:
        self.limit = 64 * 1024 * 1024
        self.lock = WireLock()
        self._read_fd = self._write_fd = -1
        self._receive = receive
        self._reader = FrameReader(2**32 - 1)
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._spin = Spin()
        self._wait = select.poll()

    def open(self, read_fd: int, write_fd: int) -> None:
        """Attach the channel to two descriptors.

        Args:
            read_fd: The descriptor for reading.
            write_fd: The descriptor for writing.
        """
        self._read_fd, self._write_fd = read_fd, write_fd
        self._wait.register(read_fd, select.POLLIN)
        os.set_blocking(read_fd, False)

    def send(self, frame: list[Any], at_once: bool = False) -> None:
        """Send a frame, or queue it for the next flush."""
        payload = encode(frame, self.limit)
        self._pending.append(payload)
        self._pending_bytes += len(payload)
        if at_once or self._pending_bytes > _MAX_PENDING:
            self.flush()

    def flush(self) -> None:
        """Flush queued frames."""
        if not self._pending:
            return
        data = memoryview(b"".join(self._pending))
        self._pending.clear()
        self._pending_bytes = 0
        while data:
            try:
                data = data[os.write(self._write_fd, data) :]
            except BlockingIOError:
                select.select((), (self._write_fd,), ())
            except OSError:
                os._exit(0)  # the host has closed the wire, and no thread may run on

    def take(self) -> None:
        """Read available data without blocking, and dispatch its frames.

        Nested loops may find no data, because an outer loop has read it.
        """
        try:
            data = os.read(self._read_fd, _READ_SIZE)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self._hand_over(data)

    def receive(self) -> None:
        """Read available data, blocking if there is none, and dispatch its frames."""
        self._hand_over(self._read())

    def _hand_over(self, data: bytes) -> None:
        if not data:
            os._exit(0)  # the host has closed the wire, and no thread may run on
        for payload in self._reader.feed(data):
            self._receive(_loads(payload))

    def _read(self) -> bytes:
        """Read available bytes, spinning for a moment before sleeping."""
        deadline = perf_counter() + SPIN_SECONDS if self._spin.pays() else 0.0
        while True:
            try:
                data = os.read(self._read_fd, _READ_SIZE)
            except BlockingIOError:
                if perf_counter() < deadline:
                    continue
                if deadline:
                    self._spin.was_in_vain()
                    deadline = 0.0
                # A short sleep means that spinning on would have paid: the next wait spins again.
                slept_at = perf_counter()
                self._wait.poll()
                if perf_counter() - slept_at < SPIN_SECONDS:
                    self._spin.record_success()
            except OSError:
                return b""
            else:
                if deadline:
                    self._spin.record_success()
                return data
