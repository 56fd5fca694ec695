"""Connections: some for reading and some for writing, bound to the running loop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Any, Final
from weakref import WeakSet

from delf.errors import DelfError
from delf_sql.backends import Backend
from delf_sql.failures import unavailable

log = logging.getLogger(__name__)

_GRACE_SECONDS: Final = 1.0
"""What a database has beyond its own time limit before its answer is not waited for."""
_STOP_SECONDS: Final = 5.0


@dataclass(slots=True)
class _Lane:
    """Connections of one kind: places for those in use, and those that rest."""

    reader: bool
    places: asyncio.Semaphore
    loop: asyncio.AbstractEventLoop
    idle: list[Any] = field(default_factory=list[Any])
    drivers: WeakSet[Any] = field(default_factory=WeakSet[Any])


class Pool:
    """Connections to one database, made when needed, and again after closing.

    Each statement gets a session that holds nothing of an earlier one.

    Args:
        backend: How to speak with it.
        size: The most statements of a kind at the same time.
        timeout: Seconds that a statement may take.
    """

    def __init__(self, backend: Backend, size: int, timeout: float) -> None:
        self._backend = backend
        self._size = size
        self._timeout = timeout
        self._lanes: dict[bool, _Lane] = {}

    @contextlib.asynccontextmanager
    async def connection(self, *, reader: bool) -> AsyncGenerator[Any]:
        """A driver's connection for one statement. It is rolled back afterwards.

        Args:
            reader: A connection that cannot change anything.

        Raises:
            ConnectionUnavailableError: When the database does not answer.
            TimeoutError: When the statement did not end in time.
        """
        lane = self._lane(reader=reader)
        async with lane.places:
            driver = await self._checkout(lane, reader=reader)
            try:
                async with asyncio.timeout(self._timeout + _GRACE_SECONDS):
                    async with self._stopped_when_cancelled(driver):
                        yield driver
            finally:
                await asyncio.shield(self._give_back(lane, driver))

    async def _checkout(self, lane: _Lane, *, reader: bool) -> Any:
        try:
            while lane.idle:
                driver = lane.idle.pop()
                alive = False
                try:
                    alive = await self._backend.revive(driver)
                finally:  # who asks for it may be cancelled meanwhile
                    if not alive:
                        self._backend.abandon(driver)
                if alive:
                    return driver
            driver = await self._backend.connect(reader=reader)
        except DelfError:
            raise
        except Exception as error:
            raise unavailable(error, self._backend) from None
        lane.drivers.add(driver)
        return driver

    @contextlib.asynccontextmanager
    async def _stopped_when_cancelled(self, driver: Any) -> AsyncGenerator[None]:
        try:
            yield
        except asyncio.CancelledError:
            await asyncio.shield(self._stop(driver))
            raise

    async def _stop(self, driver: Any) -> None:
        try:
            async with asyncio.timeout(_STOP_SECONDS):
                await self._backend.interrupted(driver)
        except Exception as error:
            log.warning("could not stop a cancelled statement: %s", type(error).__name__)

    async def _give_back(self, lane: _Lane, driver: Any) -> None:
        """Let it rest without what its statement left in the session, else end it."""
        if self._backend.is_usable(driver):
            try:
                async with asyncio.timeout(_STOP_SECONDS):
                    await self._backend.reset(driver)
            except Exception as error:
                log.debug("a connection could not be reset: %s", type(error).__name__)
            else:
                if self._lanes.get(lane.reader) is lane:
                    lane.idle.append(driver)
                    return
        self._backend.abandon(driver)

    def _lane(self, *, reader: bool) -> _Lane:
        loop = asyncio.get_running_loop()
        lane = self._lanes.get(reader)
        if lane is not None and lane.loop is loop:
            return lane
        if lane is not None:
            self._abandon(lane)
        lane = self._lanes[reader] = _Lane(reader, asyncio.Semaphore(self._size), loop)
        return lane

    def _abandon(self, lane: _Lane) -> None:
        """Drop what belongs to a loop that is not running any more."""
        for driver in tuple(lane.drivers):
            self._backend.abandon(driver)

    async def aclose(self) -> None:
        """Close all connections. The next statement opens new ones."""
        loop = asyncio.get_running_loop()
        lanes, self._lanes = list(self._lanes.values()), {}
        for lane in lanes:
            if lane.loop is not loop:
                self._abandon(lane)
            while lane.loop is loop and lane.idle:
                await self._backend.close(lane.idle.pop())
