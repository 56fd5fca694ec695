"""A container: creation, start, supervision and end."""

from __future__ import annotations

import asyncio
import json
import math
import secrets
import signal
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
from delf_sandbox.process import process_limits
from delf_sandbox.session import WireSession
from delf_sandbox_docker.engine import LABEL, LABEL_HOST, LABEL_OWNER, Engine, machine, owner
from delf_sandbox_docker.image import PROGRAM

# The first and last of the user ids that systemd's table of user ids leaves unused.
_USER_ID_RANGE = (1879048192, 2147352575)
# The first and last of the user ids for an engine that maps only 65,536 ids.
_MAPPED_USER_ID_RANGE = (10_000, 65_000)
SCRATCH = "/tmp"  # noqa: S108 - the container's own, a tmpfs
_MB = 1024 * 1024
_TMPFS = "rw,noexec,nosuid,nodev,mode=1777,size={size}"
_EMPTY_TMPFS = "ro,noexec,nosuid,nodev,mode=555,size=4k"
_HEADER = struct.Struct(">BxxxI")
_STDOUT = 1
_MANY_SIGNALS = 64
_MAX_STDERR = 4000
# The bytes of a container's memory that a script may not take.
#
# Python needs this memory to report the end of the script.
_MEMORY_RESERVE = 16 * _MB


@dataclass(frozen=True, slots=True, kw_only=True)
class Confinement:
    """The restrictions that are the same for all containers of a backend.

    Args:
        cpu_limit: The number of processors that a container may use, such as ``0.5``.
        pids_limit: The maximum number of processes and threads in a container.
        runtime: The container runtime, such as ``runsc``; the engine's default when None.
    """

    cpu_limit: float = 1.0
    pids_limit: int = 64
    runtime: str | None = None

    def host_config(
        self, client: Any, limits: Limits, folder: Path | None, volumes: Sequence[str] = ()
    ) -> dict[str, Any]:
        """Return the configuration with which the engine starts a container.

        Args:
            client: The client of Docker's SDK.
            limits: The limits of the session.
            folder: The folder to share with the container, if any.
            volumes: The paths that the image declares as volumes. An empty folder replaces each
                of them, because the size of a volume is unlimited.
        """
        from docker.types import LogConfig

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
                **dict.fromkeys(volumes, _EMPTY_TMPFS),
                SCRATCH: _TMPFS.format(size=limits.scratch_bytes),
            },
            ulimits=_ulimits(limits),
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


def _ulimits(limits: Limits) -> list[dict[str, Any]]:
    """Return the resource limits of each process of a container, in the engine's form."""
    cpu_seconds = max(1, math.ceil(limits.cpu_seconds))
    soft_and_hard = {
        # SIGXCPU reports the reason; a script that ignores it is killed one second later.
        "cpu": (cpu_seconds, cpu_seconds + 1),
        "core": (0, 0),
        "memlock": (0, 0),
        "msgqueue": (0, 0),
        "sigpending": (_MANY_SIGNALS, _MANY_SIGNALS),
    }
    for name, value in process_limits(limits).items():
        soft_and_hard[name.removeprefix("RLIMIT_").lower()] = (value, value)
    return [
        {"Name": name, "Soft": soft, "Hard": hard} for name, (soft, hard) in soft_and_hard.items()
    ]


def program_arguments(limits: Limits, processors: float) -> list[str]:
    """Return the command line arguments of :mod:`delf_sandbox_docker.boot` for a container."""
    memory = max(limits.memory_bytes - _MEMORY_RESERVE, limits.memory_bytes // 2)
    return [str(memory), str(limits.cpu_seconds), str(processors)]


def create(
    engine: Engine, image: str, host_config: Mapping[str, Any], command: Sequence[str]
) -> str:
    """Create a container without starting it. Blocks.

    Returns:
        The id of the container.
    """
    labels = {LABEL: "session", LABEL_HOST: machine(), LABEL_OWNER: owner()}
    created: dict[str, Any] = engine.client().create_container(
        image,
        entrypoint=list(PROGRAM),
        command=list(command),
        user=_random_user_id(engine),
        working_dir=SCRATCH,
        environment={"HOME": SCRATCH, "USER": "sandbox", "PYTHONHASHSEED": "0"},
        hostname="sandbox",
        stdin_open=True,
        detach=False,  # so that Docker closes standard input when this process ends
        labels=labels,
        host_config=host_config,
        network_disabled=True,  # creating even an empty network takes 0.1 s
        use_config_proxy=False,  # the proxy's address may hold a password
    )
    return str(created["Id"])


def _random_user_id(engine: Engine) -> str:
    """Return a random user and group id, as ``user:group``.

    Some limits are counted per user, so two containers should not have the same user.
    """
    first, last = _MAPPED_USER_ID_RANGE if engine.maps_users() else _USER_ID_RANGE
    number = first + secrets.randbelow(last - first + 1)
    return f"{number}:{number}"


class ContainerProcess:
    """The guest's process in a container.

    Implements :class:`delf_sandbox.process.GuestProcess`.

    Args:
        engine: The Docker engine.
        container_id: The id of the container.
        stream: The socket of the container's standard streams; closing it ends the container.
        folder: The folder that the host shares with the container, if any. The folder is removed
            together with the container.
        limits: The limits of the session, for messages about the end of the container.
    """

    def __init__(
        self,
        engine: Engine,
        container_id: str,
        stream: socket.socket,
        folder: Path | None,
        limits: Limits,
    ) -> None:
        self.container_id = container_id
        self.folder = folder
        self._engine = engine
        self.stream = stream
        self._limits = limits
        self._stderr = b""
        self._killed = False
        self._removal: asyncio.Task[None] | None = None

    def add_stderr(self, piece: bytes) -> None:
        """Add a piece of the container's standard error, of which only the end is kept."""
        self._stderr = (self._stderr + piece)[-_MAX_STDERR:]

    @property
    def cpu_seconds(self) -> float:
        """The processor seconds that process 1 reported at the guest's end.

        The value is zero if the host ended the guest.
        """
        used = self._exit_report().get("cpu")
        return float(used) if isinstance(used, (int, float)) else 0.0

    def kill(self) -> None:
        """End the container by closing its streams.

        Process 1 then exits, and the kernel kills all other processes.
        """
        if self._killed:
            return
        self._killed = True
        try:
            self.stream.shutdown(socket.SHUT_RDWR)
        except OSError:
            return  # the container has ended

    async def exit_outcome(self) -> Outcome:
        """Return the outcome that the last report of process 1 implies."""
        report = self._exit_report()
        status = report.get("exit")
        if report.get("oom") is True:
            message = f"the script needed more memory than {self._limits.memory_bytes:,} bytes"
            return LimitReached(limit="memory", message=message)
        if status == -signal.SIGXCPU:
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
        if not text:
            return Crashed(message="the sandbox's container or the Docker engine is gone")
        last_line = text.splitlines()[-1][:300]
        return Crashed(message=f"the sandbox's container is gone: {last_line}")

    def _exit_report(self) -> dict[str, Any]:
        """Return the report in the last line of standard error; empty if that line is no report."""
        lines = self._stderr.decode("utf-8", "replace").strip().splitlines()
        try:
            report: Any = json.loads(lines[-1]) if lines else {}
        except (ValueError, RecursionError):
            return {}
        if isinstance(report, dict):
            return cast("dict[str, Any]", report)
        return {}

    async def aclose(self) -> None:
        """Kill the container, wait for its removal, and remove its folder."""
        self.kill()
        if self._removal is None:
            self._removal = asyncio.get_running_loop().create_task(self._remove())
        await asyncio.shield(self._removal)

    async def _remove(self) -> None:
        """Remove the container and its folder; log if the container could not be removed."""
        removal = asyncio.ensure_future(self._engine.run(self._engine.remove, self.container_id))
        try:
            # track() logs a DelfError and does not raise it: the next process removes a container
            # that is left over.
            with self._engine.removal_outage.track(DelfError):
                has_ended = await self._engine.wait_while_responding({removal})
                if not has_ended:  # the engine no longer responds
                    removal.cancel()
                    raise self._engine.not_responding_error()
                await removal
        finally:
            self._release()

    def abandon(self) -> None:
        """Kill the container without awaiting."""
        self.kill()
        self._release()

    def _release(self) -> None:
        self.stream.close()
        if self.folder is not None:
            remove_folder(str(self.folder))


class ContainerSession(WireSession):
    """A session with the guest in a container, over the container's standard streams.

    Docker sends standard output and standard error in one stream of frames.

    Args:
        process: The process of the container.
        frame_bytes: The maximum number of bytes of a frame of the wire protocol.
        forget: Called with the session when it is closed.
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
        self._incomplete_frame = b""

    async def aclose(self) -> None:
        """Kill the container and wait until it is gone. Idempotent."""
        self._forget(self)
        await super().aclose()

    def data_received(self, data: bytes) -> None:
        """Split received data into Docker's frames, and pass on standard output and error.

        A frame has a header of eight bytes with the stream and the size of the payload.
        """
        if self._incomplete_frame:
            data = self._incomplete_frame + data
        start = 0
        end = len(data)
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
        self._incomplete_frame = data[start:]


def make_container_folder(parent: str) -> Path:
    """Create a folder for one container, with an empty folder ``workspace`` for input files.

    Args:
        parent: A folder that nobody else may enter.
    """
    import tempfile

    folder = Path(tempfile.mkdtemp(dir=parent))
    (folder / "workspace").mkdir()
    (folder / "workspace").chmod(0o755)
    return folder
