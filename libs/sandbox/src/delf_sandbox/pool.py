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
    """A pool of started sessions of one kind, each of which is used once.

    The sessions belong to one event loop; on a different loop, new sessions are started.

    Args:
        size: The number of idle sessions to keep.
        start: Starts a session of the given kind.
        usable: Returns True if an idle session can still be used.
        abandon: Releases the given sessions without awaiting, because their loop may be closed.
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
        self.idle: deque[S] = deque()
        self.in_use: set[S] = set()
        self.closed = False
        # What the idle sessions were started with, such as their configuration; None before fill().
        self._kind_of_idle: K | None = None
        self._filling: asyncio.Task[None] | None = None
        self._background_tasks: set[asyncio.Task[Any]] = set()

    def abandon_sessions_of_other_loop(self) -> None:
        """Abandon all sessions if they belong to an event loop other than the running one."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self.abandon()
            self._loop = loop

    def abandon(self) -> None:
        """Release all sessions without awaiting, because their loop may be closed."""
        if self._loop is not None:
            self._abandon((*self.idle, *self.in_use))
        self._reset()
        self._loop = None

    async def take(self, kind: K) -> S:
        """Return an idle or new session of a kind; the session is in use until it is closed."""
        self.abandon_sessions_of_other_loop()
        self.closed = False  # a closed pool opens again when a session is taken
        session = self._take_idle(kind) or await self._start_shielded(kind)
        self.in_use.add(session)
        return session

    def fill(self, kind: K) -> None:
        """Start sessions of a kind in the background until the pool is full."""
        self.abandon_sessions_of_other_loop()
        if self.closed or self._size <= 0:
            return
        # A fill in progress goes on, even with another kind: the next call of this method replaces
        # its sessions.
        if self._filling is None or self._filling.done():
            self._filling = shared_task(self._fill(kind))

    async def filled(self) -> None:
        """Wait until the pool is full."""
        if self._filling is not None:
            await asyncio.wait({self._filling})

    def run_in_background(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run a coroutine as a task, with an empty context.

        The pool waits for the task before it closes.
        """
        task = shared_task(work)
        self._background_tasks.add(task)
        task.add_done_callback(self._background_tasks.discard)
        return task

    async def aclose(
        self, finish: Callable[[Collection[asyncio.Task[Any]]], Awaitable[bool]] | None = None
    ) -> None:
        """Close all sessions. Idempotent. The next :meth:`take` opens the pool again.

        Args:
            finish: Waits for the given background tasks, and returns False to have the rest
                cancelled. By default, all tasks are awaited.
        """
        self.abandon_sessions_of_other_loop()
        self.closed = True
        if self._filling is not None:
            # Stop the filling first, because it would start sessions while others are closed.
            self._filling.cancel()
            await asyncio.gather(self._filling, return_exceptions=True)
            self._filling = None
        # Repeat, because a start that was in flight may add a session while others are closing.
        while sessions := [*self.idle, *self.in_use]:
            self.idle.clear()
            self.in_use.clear()
            await asyncio.gather(*(session.aclose() for session in sessions))
        while self._background_tasks:  # work may start further work
            if finish is None:
                await asyncio.wait(set(self._background_tasks))
            elif not await finish(set(self._background_tasks)):
                break
        for work in self._background_tasks:
            work.cancel()

    def _take_idle(self, kind: K) -> S | None:
        """Return a usable idle session of a kind, if any; close unusable ones."""
        if kind != self._kind_of_idle:
            return None
        while self.idle:
            session = self.idle.popleft()
            if self._usable(session):
                return session
            self.run_in_background(session.aclose())
        return None

    async def _start_shielded(self, kind: K) -> S:
        """Start a session. If the caller is cancelled meanwhile, close the session once started."""
        starting = self.run_in_background(self._start(kind))
        try:
            # Cancelling a start half-way would leave an untracked process.
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            starting.add_done_callback(self._close_abandoned)
            raise

    def _close_abandoned(self, starting: asyncio.Task[S]) -> None:
        """Close the session that a start has made; do nothing if the start failed."""
        if not starting.cancelled() and starting.exception() is None:
            self.run_in_background(starting.result().aclose())

    async def _fill(self, kind: K) -> None:
        """Close idle sessions of other kinds; start sessions of a kind until the pool is full."""
        if kind != self._kind_of_idle:
            # Set the kind before the first await, so that nobody takes an old session meanwhile.
            self._kind_of_idle = kind
            stale = list(self.idle)
            self.idle.clear()
            await asyncio.gather(*(session.aclose() for session in stale))
        try:
            while len(self.idle) < self._size and not self.closed:
                session = await self._start_shielded(kind)
                # Other tasks may take the session from now on, and wait themselves until it is
                # ready. This loop goes on until enough sessions stay idle.
                self.idle.append(session)
                await session.ready(_START_SECONDS)
        except SandboxUnavailableError as error:
            # Nobody waits for this session. The next caller of take() starts a session of its own,
            # and gets the error if that start fails, too.
            _log.debug("no session could be started ahead: %s", error)
