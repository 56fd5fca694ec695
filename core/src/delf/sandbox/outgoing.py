"""What a session writes to its guest: in order, small frames together, large ones in slices."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import Final

_LARGE: Final = 256 * 1024
_SLICES: Final = 8
"""How many are written in one turn of the loop, if the guest takes as many."""


class Outgoing:
    """Holds back what the transport has no room for, and what is behind it.

    To hand a large frame to a transport at once would copy it, and keep the event loop for as
    long as that takes.
    """

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._next: list[bytes] = []
        self._next_size = 0
        self._held: deque[memoryview] = deque()
        self._held_size = 0
        self._paused = False
        self._pump_soon: asyncio.Handle | None = None

    def connected(self, transport: asyncio.Transport) -> None:
        """Where to write to from now on."""
        self._transport = transport

    def add(self, parts: Iterable[bytes]) -> None:
        """Have the parts of a frame written with the next :meth:`flush`."""
        for part in parts:
            self._next.append(part)
            self._next_size += len(part)

    @property
    def is_waiting(self) -> bool:
        """Whether something was added since the last :meth:`flush`."""
        return bool(self._next)

    @property
    def unread_bytes(self) -> int:
        """How much the guest has not taken yet."""
        buffered = self._transport.get_write_buffer_size() if self._transport is not None else 0
        return buffered + self._held_size

    def flush(self) -> bool:
        """Write what was added, or as much of it as there is room for.

        Returns:
            Whether all of it was handed on.
        """
        parts, size = self._next, self._next_size
        self._next, self._next_size = [], 0
        if self._transport is None or self._transport.is_closing():
            self.clear()
            return False
        if size < _LARGE and not self._held:
            self._transport.write(parts[0] if len(parts) == 1 else b"".join(parts))
            return True
        self._hold(parts)
        self._pump()
        return not self._held

    def pause(self) -> None:
        """The transport has more than it can write."""
        self._paused = True

    def resume(self) -> None:
        """The transport has room again."""
        self._paused = False
        if self._held:
            self._pump()

    def clear(self) -> None:
        """Nothing is to be written any more."""
        self._next.clear()
        self._held.clear()
        self._next_size = self._held_size = 0

    def _hold(self, parts: Iterable[bytes]) -> None:
        small: list[bytes] = []
        for part in parts:
            if len(part) < _LARGE:
                small.append(part)
            else:
                self._hold_one(b"".join(small))
                self._hold_one(part)
                small.clear()
        self._hold_one(b"".join(small))

    def _hold_one(self, data: bytes) -> None:
        if data:
            self._held.append(memoryview(data))
            self._held_size += len(data)

    def _pump(self) -> None:
        self._pump_soon = None
        transport = self._transport
        if transport is None or transport.is_closing():
            self.clear()
            return
        for _ in range(_SLICES):
            if not self._held or self._paused:
                return
            first = self._held[0]
            self._held_size -= len(first[:_LARGE])
            if len(first) > _LARGE:
                self._held[0] = first[_LARGE:]
            else:
                self._held.popleft()
            transport.write(first[:_LARGE])
        if self._held and self._pump_soon is None:
            self._pump_soon = asyncio.get_running_loop().call_soon(self._pump)
