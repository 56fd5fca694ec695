"""The backend ``local``: a fresh process for each session, forked from a template."""

from __future__ import annotations

import asyncio
import os
import stat
import sys
import tempfile
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Literal

from delf.errors import SandboxUnavailableError
from delf.machine.folders import user_folder
from delf.machine.own_files import make_private_folder
from delf.protocols.sandbox import (
    Availability,
    Available,
    Limits,
    SessionSpec,
    Unavailable,
)
from delf.types import Isolation
from delf_confined import landlock, seccomp
from delf_sandbox.pool import SessionPool
from delf_sandbox.session import WireSession
from delf_sandbox.zipapp import guest_digest, guest_zipapp
from delf_sandbox_local import namespaces
from delf_sandbox_local.forkserver import ForkServer
from delf_sandbox_local.process import LocalProcess

_START_SECONDS = 20.0
_NO_CONFINEMENT = (
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
SessionConfig = tuple[Limits, bool, tuple[str, ...], tuple[tuple[str, str], ...]]
"""The limits of a session, whether it has libraries, and its input files.

A started process can serve any session of the same configuration.
"""


class _LocalSession(WireSession):
    """A session with a guest in a process of this machine."""

    def __init__(
        self, process: LocalProcess, frame_bytes: int, forget: Callable[[_LocalSession], None]
    ) -> None:
        super().__init__(process, frame_bytes)
        self.process = process
        self._forget = forget

    async def aclose(self) -> None:
        """End the process. Idempotent."""
        self._forget(self)
        await super().aclose()


class LocalBackend:
    """A sandbox backend that runs each session in a new process of this machine.

    Implements :class:`delf.protocols.sandbox.SandboxBackend`. Each process is forked from a
    template process that has imported the common modules. Some processes are forked in advance, so
    that tasks need not wait.

    Args:
        scratch: The storage of the files that scripts write: ``memory`` with the limit
            ``scratch_bytes``, or ``disk`` without a total limit. Systems without mount namespaces,
            such as macOS, need ``disk``.
        pool_size: The number of idle processes to keep started; each is used once.
        python: The path of the interpreter for scripts, CPython 3.11 or newer; by default the
            interpreter of this program.
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
        self._on_disk = scratch == "disk"
        self._server: ForkServer | None = None
        self.pool: SessionPool[_LocalSession, SessionConfig] = SessionPool(
            pool_size,
            self._start,
            usable=lambda guest: guest.alive and guest.process.running,
            abandon=self._abandon,
        )

    @property
    def template(self) -> int | None:
        """The process id of the template process; None if none is running."""
        return None if self._server is None else self._server.pid

    async def available(self) -> Availability:
        """Return whether scripts can run, and how they are confined."""
        if os.name != "posix":
            return Unavailable("this system has no POSIX processes", "use sandbox-docker")
        try:
            # A test is slow, because it starts a process. So test only if the system's settings
            # seem to forbid mount namespaces. If the settings seem to allow them, and mislead, the
            # first session fails.
            if not self._on_disk and not namespaces.seem_available():
                await self._confining_server()  # raises if scripts cannot run
        except SandboxUnavailableError as error:
            return Unavailable(error.message, error.hint or "")
        abi = landlock.version()
        measures = ["own process and resource limits"]
        measures.append(f"Landlock {abi}" if abi else "no Landlock here: files can be read")
        measures.append("seccomp filter" if seccomp.is_supported() else "no seccomp filter here")
        if self._on_disk:
            measures.append("scratch space on the disk")
        return Available(", ".join(measures))

    def missing_libraries(self, libraries: tuple[str, ...]) -> Mapping[str, str]:
        """Return a mapping from each library that scripts could not import to the reason."""
        if not libraries:
            return {}
        from delf_sandbox_local.libraries import missing_libraries

        return missing_libraries(libraries)

    async def _confining_server(self) -> ForkServer:
        """Return a template process whose sessions can be confined.

        Sessions need mount namespaces, unless the user permits scratch files on the disk.

        Raises:
            SandboxUnavailableError: If sessions would have no mount namespace.
        """
        if self._on_disk:
            return await self._running_server()
        if sys.platform != "linux":
            raise SandboxUnavailableError(_NO_CONFINEMENT, hint=_HINT)
        server = await self._running_server()
        await server.ready()
        if "mounts" not in server.namespaces:
            raise SandboxUnavailableError(_NO_MOUNTS, hint=_HINT)
        return server

    async def measures(self) -> Mapping[str, bool]:
        """Return a mapping from the name of each confinement mechanism to whether it works here.

        A template process is started to find out.
        """
        server = await self._running_server()
        await server.ready()
        abi = landlock.version()
        return {
            "a process of its own, resource limits, no environment": True,
            f"files out of reach (Landlock{f' {abi}' if abi else ''})": abi > 0,
            "allow-list of system calls (seccomp)": seccomp.is_supported(),
            "user namespace": "user" in server.namespaces,
            "network namespace": "network" in server.namespaces,
            "mounts of its own, scratch in memory": "mounts" in server.namespaces,
        }

    async def open(self, spec: SessionSpec) -> WireSession:
        """Return a session in a process that no other task has used."""
        kind = _kind(spec)
        guest = await self.pool.take(kind)
        try:
            await guest.ready(_START_SECONDS)
            guest.initialise(spec, guest.process.scratch, spec.files, spec.path_by_name)
        except BaseException:
            await guest.aclose()
            raise
        self.pool.fill(kind)
        return guest

    async def warm_up(self, spec: SessionSpec) -> None:
        """Start the template process, and fork processes for coming sessions in the background."""
        await self._running_server()
        self.pool.fill(_kind(spec))

    def visible_path(self, path: str) -> str:
        """Return the same path, because the processes share the file system of the host."""
        return path

    async def aclose(self) -> None:
        """End all processes, and wait until they are gone. Idempotent."""
        await self.pool.aclose()
        if self._server is not None:
            await self._server.aclose()
            self._server = None

    def abandon(self) -> None:
        """Release all sessions without awaiting, because their event loop is closed."""
        self.pool.abandon()

    def _abandon(self, _guests: Collection[_LocalSession]) -> None:
        """Kill the template process and the guests that it has forked, without awaiting.

        Called when the event loop that started the template process is closed.
        """
        if self._server is not None:
            self._server.abandon()
            self._server = None

    async def _running_server(self) -> ForkServer:
        """Return the template process; start another process if none is alive."""
        # A template process belongs to the event loop that started it. If another loop is running
        # now, the pool calls _abandon(), which also ends the process.
        self.pool.abandon_sessions_of_other_loop()
        server = self._server
        if server is None or not server.is_connected:
            dead_server = server
            # Set before the await below, so that concurrent callers share the new process.
            server = self._server = ForkServer(guest_archive(), self._python)
            if dead_server is not None:
                await dead_server.aclose()
        return server

    async def _start(self, config: SessionConfig) -> _LocalSession:
        """Fork a process for sessions with the given limits, libraries and files."""
        server = await self._confining_server()
        limits, has_libraries, files, links = config
        process, wire = await server.fork(
            limits, libraries=has_libraries, files=files, links=dict(links)
        )
        loop = asyncio.get_running_loop()
        _, session = await loop.create_connection(
            lambda: _LocalSession(process, limits.frame_bytes, self.pool.in_use.discard), sock=wire
        )
        # At the end, read all frames even if reading is paused: the last ones have the outcome.
        process.when_ended(session.process_ended)
        return session


def _kind(spec: SessionSpec) -> SessionConfig:
    return spec.limits, bool(spec.libraries), spec.files, tuple(spec.path_by_name.items())


def _is_only_writable_by_user(path: Path) -> bool:
    """Return True if only this user can write to a file or folder."""
    status = path.lstat()
    is_protected = status.st_uid == os.getuid() and not status.st_mode & 0o022
    return is_protected and stat.S_IFMT(status.st_mode) in (stat.S_IFDIR, stat.S_IFREG)


def guest_archive() -> Path:
    """Return the path of the guest's archive, which is written once for each version.

    The content of an existing archive is not checked, just as Python does not check its compiled
    modules.

    Raises:
        SandboxUnavailableError: If the archive cannot be written.
    """
    name = f"guest-{guest_digest()[:16]}-{sys.implementation.cache_tag}.pyz"
    for folder in (user_folder("cache"), Path(tempfile.gettempdir()) / f"delf-{os.getuid()}"):
        path = folder / name
        try:
            make_private_folder(folder)
            # Skip a folder to which another user can write: that user could replace the program
            # that runs all scripts.
            if not _is_only_writable_by_user(folder):
                continue
            if path.exists() and _is_only_writable_by_user(path):
                return path
            _write_archive(path)
        except OSError:
            continue
        return path
    raise SandboxUnavailableError("the sandbox's program cannot be written to a cache folder")


def _write_archive(path: Path) -> None:
    """Write the guest's archive atomically; leave no partial file, for example on a full disk."""
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
        try:
            file.write(guest_zipapp())
            file.flush()
            # Sync before the rename, or a loss of power could leave an empty file of this name.
            os.fsync(file.fileno())
            Path(file.name).replace(path)
        except BaseException:
            Path(file.name).unlink()
            raise
