"""Messages of a session to its guest: in order, small frames together, large ones in slices."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import Final

_LARGE: Final = 256 * 1024
_SLICES: Final = 2
"""The number of slices that are written in one turn of the loop, if the guest takes them."""


class Outgoing:
    """Holds back what the transport has no room for, and what is behind it.

    To hand a large frame to a transport at once would copy it, and keep the event loop for as
    long as that takes. To hand it many small ones would make each write count all before it.
    """

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._next: list[bytes] = []
        self._next_size = 0
        self._held: deque[bytes | memoryview] = deque()
        self._held_size = 0
        self._paused = False
        self._pump_soon: asyncio.Handle | None = None

    def connected(self, transport: asyncio.Transport) -> None:
        """Write to this transport from now on."""
        self._transport = transport
        # It has no room as soon as something is left over, so that the rest is held here.
        transport.set_write_buffer_limits(high=0)

    def add(self, parts: Iterable[bytes]) -> None:
        """Have the parts of a frame written with the next :meth:`flush`."""
        for part in parts:
            self._next.append(part)
            self._next_size += len(part)

    @property
    def is_waiting(self) -> bool:
        """True if something was added since the last :meth:`flush`."""
        return bool(self._next)

    @property
    def unread_bytes(self) -> int:
        """Count the bytes that are held because the guest has no room for them."""
        return self._held_size

    def flush(self) -> None:
        """Write what was added, or as much of it as there is room for."""
        parts, size = self._next, self._next_size
        self._next, self._next_size = [], 0
        if self._transport is None or self._transport.is_closing():
            self.clear()
            return
        if size < _LARGE and not self._held and not self._paused:
            self._transport.write(parts[0] if len(parts) == 1 else b"".join(parts))
            return
        self._held.extend(parts)
        self._held_size += size
        if self._pump_soon is None:
            self._pump()

    def pause(self) -> None:
        """The transport has more than it can write."""
        self._paused = True

    def resume(self) -> None:
        """The transport has room again."""
        self._paused = False
        if self._held and self._pump_soon is None:
            self._pump()

    def clear(self) -> None:
        """Nothing is to be written any more."""
        self._next.clear()
        self._held.clear()
        self._next_size = self._held_size = 0

    def _pump(self) -> None:
        self._pump_soon = None
        transport = self._transport
        for _ in range(_SLICES):
            if transport is None or transport.is_closing():
                self.clear()
            if transport is None or not self._held or self._paused:
                return
            piece = self._next_slice()
            self._held_size -= len(piece)
            transport.write(piece)
        if self._held:
            self._pump_soon = asyncio.get_running_loop().call_soon(self._pump)

    def _next_slice(self) -> bytes | memoryview:
        """Small parts together, or some of a large one."""
        first = self._held.popleft()
        if len(first) > _LARGE:
            rest = memoryview(first)
            self._held.appendleft(rest[_LARGE:])
            return rest[:_LARGE]
        small, size = [first], len(first)
        while self._held and size + len(self._held[0]) <= _LARGE:
            small.append(self._held.popleft())
            size += len(small[-1])
        return first if len(small) == 1 else b"".join(small)
