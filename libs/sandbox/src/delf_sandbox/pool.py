"""A pool of sessions started ahead of the tasks that use them."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Coroutine
from typing import Any, Final, Generic, TypeVar

from delf.errors import SandboxUnavailableError
from delf.machine.contexts import shared_task
from delf_sandbox.session import WireSession

_log = logging.getLogger(__name__)
_START_SECONDS: Final = 30.0
S = TypeVar("S", bound=WireSession)
K = TypeVar("K")


class SessionPool(Generic[S, K]):
    """Keeps started sessions of one kind; each is used once.

    Sessions belong to one event loop; after a change of loop new ones are started.

    Args:
        size: The number of idle sessions to keep.
        start: Starts a session of a kind.
        usable: Returns True if an idle session can still be used.
        abandon: Releases sessions of a closed loop, without awaiting.
    """

    def __init__(
        self,
        size: int,
        start: Callable[[K], Coroutine[Any, Any, S]],
        *,
        usable: Callable[[S], bool],
        abandon: Callable[[Collection[S]], None],
    ) -> None:
        self._size = size
        self._start = start
        self._usable = usable
        self._abandon = abandon
        self._loop: asyncio.AbstractEventLoop | None = None
        self._reset()

    def _reset(self) -> None:
        self.waiting: deque[S] = deque()
        """Idle sessions."""
        self.open: set[S] = set()
        """Sessions in use."""
        self.closed = False
        self._kind: K | None = None
        self._filling: asyncio.Task[None] | None = None
        self._work: set[asyncio.Task[Any]] = set()

    def follow_loop(self) -> None:
        """Drop all sessions that belong to another event loop."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self.abandon()
            self._loop = loop

    def abandon(self) -> None:
        """Drop all sessions, of a loop that may be closed."""
        if self._loop is not None:
            self._abandon((*self.waiting, *self.open))
        self._reset()
        self._loop = None

    async def take(self, kind: K) -> S:
        """Return an idle session or start one; it is in use until it is closed."""
        self.follow_loop()
        self.closed = False
        session = self._take_waiting(kind) or await self._start_for_caller(kind)
        self.open.add(session)
        return session

    def fill(self, kind: K) -> None:
        """Start sessions of a kind in the background until the pool is full."""
        self.follow_loop()
        if not self.closed and self._size > 0 and (self._filling is None or self._filling.done()):
            self._filling = shared_task(self._fill(kind))

    async def filled(self) -> None:
        """Wait until the pool is full."""
        if self._filling is not None:
            await asyncio.wait({self._filling})

    def in_background(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run work in an empty context, to be finished before the pool closes."""
        task = shared_task(work)
        self._work.add(task)
        task.add_done_callback(self._work.discard)
        return task

    async def aclose(
        self, finish: Callable[[Collection[asyncio.Task[Any]]], Awaitable[bool]] | None = None
    ) -> None:
        """Close all sessions. Idempotent; the pool can be used again.

        Args:
            finish: Waits for background work and returns True if all is done; otherwise the rest is
                cancelled.
        """
        self.follow_loop()
        self.closed = True
        if self._filling is not None:
            # First: the filling would start further sessions while these are being closed.
            self._filling.cancel()
            await asyncio.gather(self._filling, return_exceptions=True)
            self._filling = None
        # In rounds: a start that was in flight may add a session while these are closing.
        while sessions := [*self.waiting, *self.open]:
            self.waiting.clear()
            self.open.clear()
            await asyncio.gather(*(session.aclose() for session in sessions))
        while self._work:  # work may start further work
            if finish is None:
                await asyncio.wait(set(self._work))
            elif not await finish(set(self._work)):
                break
        for work in self._work:
            work.cancel()

    def _take_waiting(self, kind: K) -> S | None:
        while self.waiting and kind == self._kind:
            session = self.waiting.popleft()
            if self._usable(session):
                return session
            self.in_background(session.aclose())
        return None

    async def _start_for_caller(self, kind: K) -> S:
        """Start a session; close the session if the caller was cancelled during the start."""
        starting = self.in_background(self._start(kind))
        try:
            # Cancelling a start half-way would leave an untracked process.
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            starting.add_done_callback(self._close_abandoned)
            raise

    def _close_abandoned(self, starting: asyncio.Task[S]) -> None:
        if not starting.cancelled() and starting.exception() is None:
            self.in_background(starting.result().aclose())

    async def _fill(self, kind: K) -> None:
        """Start sessions of a kind until enough wait; close waiting sessions of another kind."""
        if kind != self._kind:
            # Set before the first await, so that nobody takes a session of the old kind meanwhile.
            stale, self._kind = list(self.waiting), kind
            self.waiting.clear()
            await asyncio.gather(*(session.aclose() for session in stale))
        try:
            while len(self.waiting) < self._size and not self.closed:
                session = await self._start_for_caller(kind)
                # Before it is ready: a task may take it at once, and then waits for the rest of the
                # start.
                self.waiting.append(session)
                await session.ready(_START_SECONDS)
        except SandboxUnavailableError as error:
            _log.debug("no session could be started ahead: %s", error)
