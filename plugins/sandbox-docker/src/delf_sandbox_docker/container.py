"""A container: creation, start, supervision and end."""

from __future__ import annotations

import asyncio
import json
import secrets
import socket
import struct
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from delf.errors import DelfError
from delf.protocols.sandbox import Crashed, LimitReached, Limits, Outcome
from delf.records import dataclass
from delf_sandbox.folders import remove_folder
from delf_sandbox.inputs import WORKSPACE
from delf_sandbox.session import WireSession
from delf_sandbox_docker.engine import LABEL, LABEL_HOST, LABEL_OWNER, Engine, machine, owner
from delf_sandbox_docker.image import PROGRAM

_USERS = (1879048192, 2147352575)
"""User ids that systemd's table leaves unused."""
_USERS_OF_FEW = (10_000, 65_000)
"""The range for an engine with only 65,536 ids."""
SCRATCH = "/tmp"  # noqa: S108 - the container's own, a tmpfs
_MB = 1024 * 1024
_TMPFS = "rw,noexec,nosuid,nodev,mode=1777,size={size}"
_NOTHING = "ro,noexec,nosuid,nodev,mode=555,size=4k"
_HEADER = struct.Struct(">BxxxI")
_STDOUT = 1
_MANY_SIGNALS = 64
_MAX_STDERR = 4000
_MEMORY_RESERVE = 16 * _MB
"""The container's memory that a script may not take, so that Python can still report the end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Confinement:
    """The confinement of all containers of a backend, besides a session's limits.

    Args:
        cpu_limit: Processors, such as ``0.5``.
        pids_limit: Processes and threads.
        runtime: Another runtime of the engine, such as ``runsc``.
    """

    cpu_limit: float = 1.0
    pids_limit: int = 64
    runtime: str | None = None

    def host_config(
        self, client: Any, limits: Limits, folder: Path | None, volumes: Sequence[str] = ()
    ) -> dict[str, Any]:
        """Return the engine's settings for a container.

        Args:
            client: The SDK's client.
            limits: The limits of the session.
            folder: The host's folder with ``workspace``, if any.
            volumes: Folders declared as volumes by the image, whose size would be unlimited. Each
                is replaced by an empty folder.
        """
        from docker.types import LogConfig

        cpu = max(1, int(limits.cpu_seconds + 0.999))
        values = {
            "cpu": (cpu, cpu + 1),
            "fsize": (limits.file_bytes, limits.file_bytes),
            "nofile": (limits.open_files, limits.open_files),
            "core": (0, 0),
            "memlock": (0, 0),
            "msgqueue": (0, 0),
            "sigpending": (_MANY_SIGNALS, _MANY_SIGNALS),
        }
        ulimits = [{"Name": n, "Soft": soft, "Hard": hard} for n, (soft, hard) in values.items()]
        config: dict[str, Any] = client.create_host_config(
            network_mode="none",
            ipc_mode="none",
            read_only=True,
            cap_drop=["ALL"],
            security_opt=["no-new-privileges:true"],
            mem_limit=limits.memory_bytes,
            # Equal to the memory limit, so that nothing is swapped.
            memswap_limit=limits.memory_bytes,
            nano_cpus=int(self.cpu_limit * 1e9),
            pids_limit=self.pids_limit,
            tmpfs={
                **dict.fromkeys(volumes, _NOTHING),
                SCRATCH: _TMPFS.format(size=limits.scratch_bytes),
            },
            ulimits=ulimits,
            # The engine removes the container, also when this process is killed.
            auto_remove=True,
            # Otherwise the engine would store all output of scripts on disk.
            log_config=LogConfig(type="none"),
            runtime=self.runtime,
            binds=_binds(folder),
        )
        return config


def _binds(folder: Path | None) -> list[str]:
    return [] if folder is None else [f"{folder}/workspace:{WORKSPACE}:ro"]


def program_arguments(limits: Limits, processors: float) -> list[str]:
    """Return the arguments of the container's program; see :mod:`delf_sandbox_docker.boot`."""
    memory = max(limits.memory_bytes - _MEMORY_RESERVE, limits.memory_bytes // 2)
    return [str(memory), str(limits.cpu_seconds), str(processors)]


def create(
    engine: Engine, image: str, host_config: Mapping[str, Any], command: Sequence[str]
) -> str:
    """Make a container, not started yet. Blocks.

    Returns:
        The id.
    """
    labels = {LABEL: "session", LABEL_HOST: machine(), LABEL_OWNER: owner()}
    created: dict[str, Any] = engine.client().create_container(
        image,
        entrypoint=list(PROGRAM),
        command=list(command),
        user=_unused_user_id(engine),
        working_dir=SCRATCH,
        environment={"HOME": SCRATCH, "USER": "sandbox", "PYTHONHASHSEED": "0"},
        hostname="sandbox",
        stdin_open=True,
        detach=False,  # so that Docker closes standard input when we are gone
        labels=labels,
        host_config=host_config,
        network_disabled=True,  # creating even an empty network takes 0.1 s
        use_config_proxy=False,  # the proxy's address may hold a password
    )
    return str(created["Id"])


def _unused_user_id(engine: Engine) -> str:
    """Return a user id of no other container, because some limits are counted per user."""
    first, last = _USERS_OF_FEW if engine.maps_users() else _USERS
    number = first + secrets.randbelow(last - first + 1)
    return f"{number}:{number}"


class ContainerProcess:
    """Implements :class:`delf_sandbox.process.GuestProcess`.

    Args:
        engine: The engine.
        container: The id.
        stream: The standard streams; closing them ends the container.
        folder: The host's folder for the container, removed with the container.
        limits: The limits, for messages about its end.
    """

    def __init__(
        self,
        engine: Engine,
        container: str,
        stream: socket.socket,
        folder: Path | None,
        limits: Limits,
    ) -> None:
        self.container = container
        self.folder = folder
        self._engine = engine
        self.stream = stream
        self._limits = limits
        self._stderr = b""
        self._killed = False
        self._removed: asyncio.Task[None] | None = None

    def add_stderr(self, piece: bytes) -> None:
        """Record a piece of the container's standard error."""
        self._stderr = (self._stderr + piece)[-_MAX_STDERR:]

    @property
    def cpu_seconds(self) -> float:
        """The time reported by process 1 at the guest's end; zero if the host ended it."""
        used = self._exit_report().get("cpu")
        return float(used) if isinstance(used, (int, float)) else 0.0

    def kill(self) -> None:
        """Close the streams: process 1 then exits, and the kernel kills all others."""
        if self._killed:
            return
        self._killed = True
        try:
            self.stream.shutdown(socket.SHUT_RDWR)
        except OSError:
            return  # the container has ended

    async def how_it_ended(self) -> Outcome:
        """Return the outcome that follows from the last message of process 1."""
        report = self._exit_report()
        status = report.get("exit")
        if report.get("oom") is True:
            message = f"the script needed more memory than {self._limits.memory_bytes:,} bytes"
            return LimitReached(limit="memory", message=message)
        if status == -24:  # SIGXCPU
            seconds = self._limits.cpu_seconds
            return LimitReached(limit="cpu", message=f"the script used {seconds:g} s of CPU time")
        if isinstance(status, int) and status < 0:
            message = f"the script crashed the interpreter (signal {-status})"
            return Crashed(message=message, by_script=True)
        if isinstance(status, int):
            message = f"the sandbox ended by itself (status {status})"
            return Crashed(message=message, by_script=True)
        if self._killed:
            return Crashed(message="the sandbox is gone: it was stopped")
        text = self._stderr.decode("utf-8", "replace").strip()
        detail = f": {text.splitlines()[-1][:300]}" if text else ", or the Docker engine is"
        return Crashed(message=f"the sandbox's container is gone{detail}")

    def _exit_report(self) -> dict[str, Any]:
        lines = self._stderr.decode("utf-8", "replace").strip().splitlines()
        try:
            report: Any = json.loads(lines[-1]) if lines else {}
        except ValueError:
            return {}
        return cast("dict[str, Any]", report) if isinstance(report, dict) else {}

    async def aclose(self) -> None:
        """Kill the container, wait for its removal, and remove its folder."""
        self.kill()
        if self._removed is None:
            self._removed = asyncio.get_running_loop().create_task(self._remove())
        await asyncio.shield(self._removed)

    async def _remove(self) -> None:
        removing = asyncio.ensure_future(self._engine.run(self._engine.remove, self.container))
        try:
            with self._engine.leftovers.track(DelfError):
                if not await self._engine.finish({removing}):
                    removing.cancel()
                    raise self._engine.silence()
                await removing
        finally:
            self._free()

    def abandon(self) -> None:
        """Kill the container without awaiting."""
        self.kill()
        self._free()

    def _free(self) -> None:
        self.stream.close()
        if self.folder is not None:
            remove_folder(str(self.folder))


class ContainerSession(WireSession):
    """A session with the guest in a container, over its standard streams.

    Docker multiplexes standard output and standard error.

    Args:
        process: The container.
        frame_bytes: The maximum number of bytes of a frame, either way.
        forget: Called when it is closed.
    """

    def __init__(
        self,
        process: ContainerProcess,
        frame_bytes: int,
        forget: Callable[[ContainerSession], None],
    ) -> None:
        super().__init__(process, frame_bytes)
        self.container = process
        self._forget = forget
        self._piece = b""

    async def aclose(self) -> None:
        """Kill the container and wait until it is gone. Idempotent."""
        self._forget(self)
        await super().aclose()

    def data_received(self, data: bytes) -> None:
        """Cut the stream into Docker's frames: eight bytes, then standard output or error."""
        if self._piece:
            data = self._piece + data
        start, end = 0, len(data)
        while end - start >= _HEADER.size:
            stream, size = _HEADER.unpack_from(data, start)
            frame_end = start + _HEADER.size + size
            if frame_end > end:
                break
            payload = data[start + _HEADER.size : frame_end]
            start = frame_end
            if stream == _STDOUT:
                super().data_received(payload)
            else:
                self.container.add_stderr(payload)
        self._piece = data[start:]


def make_folder(parent: str) -> Path:
    """Make a private folder for one container, readable by the engine only.

    Args:
        parent: A folder that nobody else may enter.
    """
    import tempfile

    folder = Path(tempfile.mkdtemp(dir=parent))
    (folder / "workspace").mkdir()
    (folder / "workspace").chmod(0o755)
    return folder
