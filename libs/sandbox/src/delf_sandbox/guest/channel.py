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
# The maximum number of bytes of one read.
#
# For a larger buffer, the C library would map new memory pages at each read.
_READ_SIZE = 64 * 1024
# The number of queued bytes above which frames are sent before the end of a turn.
_MAX_QUEUED_BYTES = 1024 * 1024


_MAX_FRAME_LENGTH = 2**32 - 1


class WireLock:
    """A reentrant lock for sending that a signal handler can use, too.

    A signal handler may interrupt the main thread while it holds the lock. The handler therefore
    sends only if :meth:`acquire_if_free` returns True.
    """

    def __init__(self) -> None:
        self._lock = RLock()
        # RLock does not tell which thread holds it, nor how often.
        self._holder = 0  # the id of the thread that holds the lock; 0 if no thread does
        self._depth = 0  # how many times that thread has acquired the lock

    def __enter__(self) -> None:
        self._lock.acquire()
        self._holder = get_ident()
        self._depth += 1

    def __exit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        """Release the lock once; it stays held if this thread has acquired it more often."""
        self._depth -= 1
        if not self._depth:
            self._holder = 0
        self._lock.release()

    def acquire_if_free(self) -> bool:
        """Acquire the lock without waiting. Return False if any thread holds it, even this one."""
        # A plain RLock would let a signal handler acquire the lock again while the thread that the
        # handler interrupted is sending a frame.
        if self._holder == get_ident() or not self._lock.acquire(blocking=False):
            return False
        self._holder = get_ident()
        self._depth += 1
        return True


class Channel:
    """Sends frames to the host and receives frames from it.

    Frames are queued, and sent by :meth:`flush` before the event loop waits. The host always reads,
    so a blocking write cannot cause a deadlock. Threads of a script may print, so every sender
    holds :attr:`lock`.

    Args:
        on_frame: Called with each received frame.
    """

    def __init__(self, on_frame: Callable[[list[Any]], None]) -> None:
        self.limit = 64 * 1024 * 1024
        """The maximum number of bytes of a sent frame."""
        self.lock = WireLock()
        self._read_fd = self._write_fd = -1  # until open()
        self._on_frame = on_frame
        self._reader = FrameReader(_MAX_FRAME_LENGTH)  # the guest trusts the host
        self._queued: list[bytes] = []  # the encoded frames that the next flush writes
        self._queued_bytes = 0
        self._spin = Spin()  # decides whether to read in a loop for a moment before a sleep
        self._readable = select.poll()  # for the sleep until read_fd has data

    def open(self, read_fd: int, write_fd: int) -> None:
        """Attach the channel to two descriptors.

        Args:
            read_fd: The descriptor for reading.
            write_fd: The descriptor for writing.
        """
        self._read_fd = read_fd
        self._write_fd = write_fd
        self._readable.register(read_fd, select.POLLIN)
        os.set_blocking(read_fd, False)

    def send(self, frame: list[Any], at_once: bool = False) -> None:
        """Queue a frame for the next flush; with ``at_once``, send it and all queued frames now."""
        payload = encode(frame, self.limit)
        self._queued.append(payload)
        self._queued_bytes += len(payload)
        if at_once or self._queued_bytes > _MAX_QUEUED_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write all queued frames to the host."""
        if not self._queued:
            return
        data = memoryview(b"".join(self._queued))
        self._queued.clear()
        self._queued_bytes = 0
        while data:
            try:
                written = os.write(self._write_fd, data)
                data = data[written:]
            except BlockingIOError:
                select.select((), (self._write_fd,), ())
            except OSError:
                os._exit(0)  # the host has closed the wire, and no thread may run on

    def receive_available(self) -> None:
        """Read the available data, if any, and dispatch its frames."""
        data = self._read_available()
        if data is not None:
            self._dispatch(data)

    def receive_blocking(self) -> None:
        """Wait for data, read it and dispatch its frames."""
        self._dispatch(self._read_blocking())

    def _dispatch(self, data: bytes) -> None:
        if not data:
            os._exit(0)  # the host has closed the wire, and no thread may run on
        for payload in self._reader.feed(data):
            self._on_frame(_loads(payload))

    def _read_blocking(self) -> bytes:
        """Wait for bytes and read them; begin with a spin if a message will probably arrive soon.

        Returns:
            The bytes; empty if the host has closed the wire.
        """
        should_spin = self._spin.begin_wait()
        if should_spin:
            data = self._read_while_spinning()
            if data is not None:
                self._spin.record_success()
                return data
            self._spin.record_failure()
            self._sleep_until_readable()  # the spin has just found no bytes
        while (data := self._read_available()) is None:
            self._sleep_until_readable()
        return data

    def _read_while_spinning(self) -> bytes | None:
        """Try to read for the time of a spin; None if no bytes arrive."""
        deadline = perf_counter() + SPIN_SECONDS
        while True:
            data = self._read_available()
            if data is not None or perf_counter() >= deadline:
                return data

    def _read_available(self) -> bytes | None:
        """Read the available bytes; None if there are none, empty if the wire is closed."""
        try:
            return os.read(self._read_fd, _READ_SIZE)
        except BlockingIOError:
            return None
        except OSError:
            return b""

    def _sleep_until_readable(self) -> None:
        slept_at = perf_counter()
        self._readable.poll()
        # Data that came so soon would also have come during a spin: let the next wait spin.
        if perf_counter() - slept_at < SPIN_SECONDS:
            self._spin.record_success()
