"""The backend ``local``: a fresh process for each session, forked from a template."""

from __future__ import annotations

import asyncio
import logging
import os
import stat
import sys
import tempfile
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from delf.errors import SandboxUnavailableError
from delf.protocols.sandbox import (
    Availability,
    Available,
    Limits,
    SessionSpec,
    Unavailable,
)
from delf.types import Isolation
from delf_sandbox.session import WireSession
from delf_sandbox.zipapp import guest_digest, guest_zipapp
from delf_sandbox_local import landlock, namespaces, seccomp
from delf_sandbox_local.forkserver import ForkServer
from delf_sandbox_local.process import LocalProcess

_log = logging.getLogger(__name__)

_START_SECONDS = 20.0
_NOTHING_HERE = (
    "this system keeps scripts neither from your files nor from the network: they would have a "
    "process of their own with limits, and no more"
)
_NO_MOUNTS = (
    "this system gives no mounts of one's own, so what scripts write would be on the disk, where "
    "only each file is limited, and they could see what runs"
)
_HINT = (
    "use sandbox-docker or sandbox-monty; on Linux allow user namespaces (sysctl "
    "kernel.apparmor_restrict_unprivileged_userns=0, kernel.unprivileged_userns_clone=1; in a "
    'container: --security-opt seccomp=unconfined); sandbox_config = { scratch = "disk" } '
    "accepts it"
)
_UNHURRIED_SECONDS = 0.05
Kind = tuple[Limits, bool, tuple[str, ...]]
"""The options with which a process is started; only equal sessions can use it."""


class _Guest(WireSession):
    """A session that knows its process."""

    def __init__(self, process: LocalProcess, frame_bytes: int) -> None:
        super().__init__(process, frame_bytes)
        self.process = process


class LocalBackend:
    """Implements :class:`delf.protocols.sandbox.SandboxBackend`.

    Every session has its own process, used once. It is forked from a template that has
    imported what scripts need; a few are forked ahead, so that a task need not wait.

    Args:
        scratch: Where scripts keep files: in ``memory``, within ``scratch_bytes``; or on the
            ``disk``, without a limit of all together, where the system has no mounts of one's own.
            Nothing else works on macOS, where little else of this sandbox does.
        pool_size: How many processes to keep ready.
        python: The interpreter of scripts, CPython 3.11 or newer; this program's own when omitted.
    """

    isolation: Isolation = "process"
    language = f"Python {sys.version_info.major}.{sys.version_info.minor}"

    def __init__(
        self,
        scratch: Literal["memory", "disk"] = "memory",
        *,
        pool_size: int = 2,
        python: str | None = None,
    ) -> None:
        self._python = python
        self._pool_size = pool_size
        self._on_disk = scratch == "disk"
        self._idle: deque[_Guest] = deque()
        self._kind: Kind | None = None
        self._open: set[_Guest] = set()
        self._filling: asyncio.Task[None] | None = None
        self._starting: set[asyncio.Task[_Guest]] = set()
        self._ending: set[asyncio.Task[None]] = set()
        self._server: ForkServer | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False

    async def available(self) -> Availability:
        """Tell whether scripts get mounts of their own here, or the user does without.

        Where the system's settings say that they do, that is found out with the first session.
        """
        if os.name != "posix":
            return Unavailable("this system has no POSIX processes", "use sandbox-docker")
        try:
            if not namespaces.likely():
                await self._check()
        except SandboxUnavailableError as error:
            return Unavailable(error.message, error.hint or "")
        abi = landlock.version()
        measures = [
            "own process and resource limits",
            f"Landlock {abi}" if abi else "no Landlock here: files can be read",
            "seccomp filter" if seccomp.supported() else "no seccomp filter here",
            *(["scratch space on the disk"] if self._on_disk else []),
        ]
        return Available(", ".join(measures))

    async def _check(self) -> ForkServer | None:
        """A template that gives what sessions need; none is started where they need little.

        Raises:
            SandboxUnavailableError: When they would lack mounts of their own.
        """
        if self._on_disk:
            return None
        if sys.platform != "linux":
            raise SandboxUnavailableError(_NOTHING_HERE, hint=_HINT)
        self._follow_loop()
        server = await self._running_server()
        await server.ready()
        if "mounts" not in server.namespaces:
            raise SandboxUnavailableError(_NO_MOUNTS, hint=_HINT)
        return server

    async def measures(self) -> Mapping[str, bool]:
        """Return the confinements of scripts here, found by starting a template."""
        self._follow_loop()
        server = await self._running_server()
        await server.ready()
        abi = landlock.version()
        return {
            "a process of its own, resource limits, no environment": True,
            f"files out of reach (Landlock{f' {abi}' if abi else ''})": abi > 0,
            "allow-list of system calls (seccomp)": seccomp.supported(),
            "user namespace": "user" in server.namespaces,
            "network namespace": "network" in server.namespaces,
            "mounts of its own, scratch in memory": "mounts" in server.namespaces,
            **{f"control group ({name})": name in server.groups for name in ("memory", "pids")},
        }

    async def open(self, spec: SessionSpec) -> WireSession:
        """A session in a process that no other task has used."""
        self._follow_loop()
        kind = _kind(spec)
        self._closed = False
        guest = self._take_idle(kind) or await self._start_for_caller(kind)
        self._open.add(guest)
        try:
            await guest.ready(_START_SECONDS)
            guest.initialise(spec, guest.process.scratch, spec.files)
        except BaseException:
            await self._discard(guest)
            raise
        self._refill(kind)
        return guest

    async def warm_up(self, spec: SessionSpec) -> None:
        """Start processes ahead."""
        self._follow_loop()
        self._refill(_kind(spec))

    def visible_path(self, path: str) -> str:
        """The same path: the process shares the host's file system."""
        return path

    async def aclose(self) -> None:
        """Kill every process."""
        self._follow_loop()
        self._closed = True
        if self._filling is not None:
            self._filling.cancel()
            await asyncio.gather(self._filling, return_exceptions=True)
            self._filling = None
        while underway := {*self._starting, *self._ending}:
            await asyncio.wait(underway)
        guests = [*self._idle, *self._open]
        self._idle.clear()
        self._open.clear()
        await asyncio.gather(*(guest.aclose() for guest in guests), return_exceptions=True)
        if self._server is not None:
            await self._server.aclose()
            self._server = None

    def _follow_loop(self) -> None:
        """Processes belong to one event loop; after a change of loop they are started again."""
        loop = asyncio.get_running_loop()
        if self._loop is loop:
            return
        if self._server is not None:
            self._server.abandon()
            self._server = None
        self._idle.clear()
        self._open.clear()
        self._starting.clear()
        self._ending.clear()
        self._filling = None
        self._closed = False
        self._loop = loop

    def _take_idle(self, kind: Kind) -> _Guest | None:
        if kind != self._kind:
            return None
        while self._idle:
            guest = self._idle.popleft()
            if guest.alive and guest.process.running:
                return guest
        return None

    async def _start_for_caller(self, kind: Kind) -> _Guest:
        """A new guest; one whose caller is gone when it has started is ended."""
        starting = asyncio.get_running_loop().create_task(self._start(kind))
        self._starting.add(starting)
        starting.add_done_callback(self._starting.discard)
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            starting.add_done_callback(self._end_unwanted)
            raise

    def _end_unwanted(self, starting: asyncio.Task[_Guest]) -> None:
        if starting.cancelled() or starting.exception() is not None:
            return
        closing = asyncio.get_running_loop().create_task(starting.result().aclose())
        self._ending.add(closing)
        closing.add_done_callback(self._ending.discard)

    async def _running_server(self) -> ForkServer:
        server = self._server
        if server is None or not server.alive:
            dead, server = server, ForkServer(_zipapp_path(), self._python)
            self._server = server
            if dead is not None:
                await dead.aclose()
        return server

    async def _start(self, kind: Kind) -> _Guest:
        server = await self._check() or await self._running_server()
        limits, libraries, files = kind
        process, wire = await server.fork(limits, libraries=libraries, files=files)
        loop = asyncio.get_running_loop()
        _, guest = await loop.create_connection(
            lambda: _Tracked(process, limits.frame_bytes, self._open), sock=wire
        )
        process.when_ended(guest.process_ended)
        return guest

    def _refill(self, kind: Kind) -> None:
        if self._closed or self._pool_size <= 0:
            return
        if self._filling is None or self._filling.done():
            self._filling = asyncio.get_running_loop().create_task(self._fill(kind))

    async def _fill(self, kind: Kind) -> None:
        if self._idle and kind == self._kind:
            # There is no hurry, and the script that just began can have the processor.
            await asyncio.sleep(_UNHURRIED_SECONDS)
        if kind != self._kind:
            stale, self._kind = list(self._idle), kind
            self._idle.clear()
            await asyncio.gather(*(guest.aclose() for guest in stale))
        try:
            while len(self._idle) < self._pool_size and not self._closed:
                guest = await self._start_for_caller(kind)
                self._idle.append(guest)
                await guest.ready(_START_SECONDS)
        except SandboxUnavailableError as error:
            _log.debug("no process could be started ahead: %s", error)

    async def _discard(self, guest: _Guest) -> None:
        self._open.discard(guest)
        await guest.aclose()


def _kind(spec: SessionSpec) -> Kind:
    return spec.limits, bool(spec.libraries), spec.files


class _Tracked(_Guest):
    """Leaves the backend's books when it is closed."""

    def __init__(self, process: LocalProcess, frame_bytes: int, books: set[_Guest]) -> None:
        super().__init__(process, frame_bytes)
        self._books = books

    async def aclose(self) -> None:
        self._books.discard(self)
        await super().aclose()


def _is_ours(path: Path) -> bool:
    """Tell whether nobody else can put a program there, which the template would run."""
    about = path.lstat()
    kind = stat.S_IFMT(about.st_mode)
    ours = about.st_uid == os.getuid() and not about.st_mode & 0o022
    return ours and kind in (stat.S_IFDIR, stat.S_IFREG)


def _zipapp_path() -> Path:
    """The guest's archive on disk, written once for each version of it and of Python.

    One that is there is taken unread, as Python takes its compiled modules: it came there whole.
    """
    from platformdirs import user_cache_path

    name = f"guest-{guest_digest()[:16]}-{sys.implementation.cache_tag}.pyz"
    for folder in (user_cache_path("delf"), Path(tempfile.gettempdir()) / f"delf-{os.getuid()}"):
        path = folder / name
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not _is_ours(folder):
                continue
            if path.exists() and _is_ours(path):
                return path
            with tempfile.NamedTemporaryFile(dir=folder, delete=False) as file:
                file.write(guest_zipapp())
                file.flush()
                os.fsync(file.fileno())
            Path(file.name).replace(path)
        except OSError:
            continue
        return path
    raise SandboxUnavailableError("the sandbox's program cannot be written to a cache folder")
