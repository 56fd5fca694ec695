"""SQLAlchemy's engines: one for reading and one for writing, bound to the running loop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Any, Final
from weakref import WeakSet

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.pool import AsyncAdaptedQueuePool

from delf.errors import DelfError
from delf_sql.backends import Backend
from delf_sql.failures import unavailable

log = logging.getLogger(__name__)

_GRACE_SECONDS: Final = 1.0
"""What a database has beyond its own time limit before its answer is not waited for."""
_STOP_SECONDS: Final = 5.0
_SPARE: Final = 2


@dataclass(slots=True)
class _Lane:
    """An engine with as many places as its pool has connections."""

    engine: AsyncEngine
    places: asyncio.Semaphore
    loop: asyncio.AbstractEventLoop
    drivers: WeakSet[Any] = field(default_factory=WeakSet[Any])


class Engines:
    """Connections to one database. Engines are made when needed, and again after closing.

    Args:
        backend: How to speak with it.
        pool_size: The most statements at the same time.
        timeout: Seconds that a statement may take.
    """

    def __init__(self, backend: Backend, pool_size: int, timeout: float) -> None:
        self._backend = backend
        self._pool_size = pool_size
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
            connection = await self._checkout(lane)
            try:
                driver = (await connection.get_raw_connection()).driver_connection
                async with asyncio.timeout(self._timeout + _GRACE_SECONDS):
                    async with self._stopped_when_cancelled(driver):
                        yield driver
            finally:
                await asyncio.shield(self._give_back(connection))

    async def _checkout(self, lane: _Lane) -> AsyncConnection:
        try:
            return await lane.engine.connect()
        except DelfError:
            raise
        except Exception as error:
            raise unavailable(error, self._backend) from None

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

    async def _give_back(self, connection: AsyncConnection) -> None:
        driver = (await connection.get_raw_connection()).driver_connection
        if not self._backend.is_usable(driver):
            await connection.invalidate()
        await connection.close()

    def _lane(self, *, reader: bool) -> _Lane:
        loop = asyncio.get_running_loop()
        lane = self._lanes.get(reader)
        if lane is not None and lane.loop is loop:
            return lane
        if lane is not None:
            self._abandon(lane)
        lane = self._lanes[reader] = self._make_lane(loop, reader=reader)
        return lane

    def _make_lane(self, loop: asyncio.AbstractEventLoop, *, reader: bool) -> _Lane:
        backend = self._backend

        async def create() -> Any:
            driver = await backend.connect(reader=reader)
            lane.drivers.add(driver)
            return driver

        engine = create_async_engine(
            backend.sqlalchemy_url,
            async_creator=create,
            poolclass=AsyncAdaptedQueuePool,
            pool_size=self._pool_size,
            max_overflow=_SPARE,
            pool_pre_ping=True,
            hide_parameters=True,
        )
        lane = _Lane(engine, asyncio.Semaphore(self._pool_size), loop)
        return lane

    def _abandon(self, lane: _Lane) -> None:
        """Drop what belongs to a loop that is not running any more."""
        for driver in tuple(lane.drivers):
            self._backend.abandon(driver)
        lane.engine.sync_engine.dispose(close=False)

    async def aclose(self) -> None:
        """Close all connections. The next statement opens new ones."""
        loop = asyncio.get_running_loop()
        lanes, self._lanes = list(self._lanes.values()), {}
        for lane in lanes:
            if lane.loop is loop:
                await lane.engine.dispose()
            else:
                self._abandon(lane)
