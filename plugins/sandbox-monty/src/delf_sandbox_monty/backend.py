"""The backend ``monty``: a pool of worker processes of the interpreter."""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path
from typing import Any

from delf.errors import SandboxUnavailableError
from delf.machine.contexts import without_context
from delf.machine.zones import Zone
from delf.protocols.sandbox import Availability, Available, SessionSpec, Unavailable
from delf.types import Isolation
from delf_sandbox.folders import remove_folder
from delf_sandbox.inputs import WORKSPACE, copy_inputs, visible_path
from delf_sandbox_monty.session import SCRATCH, MontySession

_NO_LIMIT = 10**9
_START_SECONDS = 30.0


class MontyBackend:
    """A sandbox backend that runs scripts in Monty, a Python interpreter without system access.

    Implements :class:`delf.protocols.sandbox.SandboxBackend`.

    Args:
        max_sessions: The maximum number of concurrent worker processes; further sessions wait.
    """

    isolation: Isolation = "interpreter"

    def __init__(self, *, max_sessions: int = 256) -> None:
        self._max_sessions = max_sessions
        self._reset()

    def _reset(self) -> None:
        """Forget the objects that belong to an event loop."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pool: Any = None
        self._open: set[MontySession] = set()
        self._opening = asyncio.Lock()

    async def available(self) -> Availability:
        """Return whether the package of Monty is installed."""
        try:
            import pydantic_monty
        except ImportError as error:
            return Unavailable(f"pydantic-monty cannot be used here: {error}")
        return Available(f"Monty {pydantic_monty.__version__}, a subset of Python")

    async def open(self, spec: SessionSpec) -> MontySession:
        """Return a session with a new worker process."""
        pool = await self._running_pool()
        folder = await self._new_folder(spec)
        mounts: list[Any] = []
        try:
            mounts = _monty_mounts(folder, spec)
            checkout = pool.checkout(
                limits=_monty_limits(spec),
                os_policy={"sleep_system_max": _NO_LIMIT, "timezone": _monty_zone(spec.zone)},
                assert_message_annotations=False,
            )
            session = MontySession(await _enter(checkout), spec, mounts, folder, self._open.discard)
        except BaseException:
            for mount in mounts:
                mount.close()
            remove_folder(str(folder))
            raise
        self._open.add(session)
        try:
            await session.begin()
        except BaseException:
            await session.aclose()
            raise
        return session

    async def _new_folder(self, spec: SessionSpec) -> Path:
        """Create a session's folder in a thread. If the caller is cancelled, remove the folder."""
        making = asyncio.ensure_future(asyncio.to_thread(self._make_folder, spec))
        try:
            return await asyncio.shield(making)
        except asyncio.CancelledError:
            await asyncio.wait({making})
            if making.exception() is None:
                remove_folder(str(making.result()))
            raise

    async def warm_up(self, spec: SessionSpec) -> None:
        """Start the pool of worker processes."""
        await self._running_pool()

    def visible_path(self, path: str) -> str:
        """Return the path in ``/workspace`` under which scripts see a file.

        Files of different folders on the host are in different subfolders of ``/workspace``.

        Args:
            path: The absolute path on the host.
        """
        return visible_path(path)

    async def aclose(self) -> None:
        """End all worker processes. Idempotent."""
        if self._loop is not asyncio.get_running_loop():
            self._reset()  # forget sessions and the pool of another event loop, which has ended
        for session in list(self._open):
            await session.aclose()
        if self._pool is not None:
            pool = self._pool
            self._pool = None
            await without_context(pool.__aexit__, None, None, None)

    async def _running_pool(self) -> Any:
        """Return the pool of the running event loop, after starting it if necessary."""
        from pydantic_monty import AsyncMonty

        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._reset()
            self._loop = loop
        async with self._opening:
            if self._pool is None:
                pool = AsyncMonty(max_processes=self._max_sessions, checkout_timeout=_START_SECONDS)
                self._pool = await _enter(pool)
        return self._pool

    def _make_folder(self, spec: SessionSpec) -> Path:
        """Create a session's folder, with ``scratch`` and, for the input files, ``workspace``."""
        folder = Path(tempfile.mkdtemp(prefix="delf-monty-"))
        try:
            for name in ("scratch", "workspace"):
                (folder / name).mkdir()
            copy_inputs(spec.files, folder / "workspace")
        except BaseException:
            remove_folder(str(folder))
            raise
        return folder


async def _enter(manager: Any) -> Any:
    """Enter an asynchronous context manager, and return the value it gives.

    Raises:
        SandboxUnavailableError: If the interpreter cannot be started.
    """
    try:
        return await without_context(manager.__aenter__)
    except (OSError, RuntimeError, TimeoutError) as error:
        raise SandboxUnavailableError(f"Monty cannot be started: {error}") from error


def _monty_zone(zone: Zone) -> Any:
    """Convert a time zone for Monty.

    A zone without a name is the machine's own; Monty gets the offset that the zone has now.
    """
    if zone.name:
        return zone.name
    now = time.localtime()
    return {"offset_seconds": now.tm_gmtoff, "name": now.tm_zone}


def _monty_mounts(folder: Path, spec: SessionSpec) -> list[Any]:
    """Return the folders that scripts can open, in Monty's form.

    Relative file names refer to the first folder.
    """
    from pydantic_monty import MountDir

    limit = spec.limits.scratch_bytes
    scratch = MountDir(
        host_path=folder / "scratch",
        virtual_path=SCRATCH,
        mode="read-write",
        write_bytes_limit=limit,
    )
    inputs = MountDir(host_path=folder / "workspace", virtual_path=WORKSPACE, mode="read-only")
    return [scratch, inputs]


def _monty_limits(spec: SessionSpec) -> Any:
    """Convert a session's limits for Monty, except the number of calls."""
    return {
        "max_memory": spec.limits.memory_bytes,
        "max_feed_duration_secs": max(spec.limits.cpu_seconds, 0.001),
        "max_suspensions": _NO_LIMIT,
    }
