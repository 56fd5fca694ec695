"""The Docker engine: its blocking client in threads, and clear errors."""

from __future__ import annotations

import asyncio
import logging
import os
import platform
import shutil
import socket
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar, cast

from delf.errors import SandboxUnavailableError
from delf.machine.folders import expand_home
from delf.machine.threads import in_own_thread
from delf.network.outages import Outage

T = TypeVar("T")
_log = logging.getLogger(__name__)

# The maximum number of concurrent requests to the engine.
_MAX_REQUESTS: Final = 8
_PING_SECONDS: Final = 2.0
_SECONDS_BEFORE_NEXT_PING: Final = 10.0
_REMOVE_SECONDS = 15
_USER_MAPPING_OPTIONS = ("userns", "rootless")
LABEL = "dev.delf.sandbox"
LABEL_HOST = f"{LABEL}.host"
LABEL_OWNER = f"{LABEL}.owner"


class Engine:
    """A connection to a Docker engine.

    Args:
        url: The address of the engine, such as ``unix://…`` or ``tcp://…``; by default
            ``DOCKER_HOST``, or the usual socket.
        timeout_seconds: The timeout of a request in seconds, except for image builds.
        ping_seconds: The time in seconds in which a working engine answers a ping.
    """

    def __init__(
        self, url: str | None = None, timeout_seconds: int = 60, ping_seconds: float = _PING_SECONDS
    ) -> None:
        self.url = url or os.environ.get("DOCKER_HOST") or _default_url()
        self._timeout_seconds = timeout_seconds
        self._ping_seconds = ping_seconds
        self._client: Any = None
        self._info: dict[str, Any] | None = None
        # The monotonic time before which no ping is sent, because a ping failed a moment ago.
        self._next_ping_at = 0.0
        self.removal_outage = Outage(_log, "containers are left for the next process to remove")
        """Logs once that containers cannot be removed, until a removal succeeds."""
        # The event loop, and the semaphore that limits the number of concurrent requests on it.
        self._permits_of_loop: tuple[asyncio.AbstractEventLoop, asyncio.Semaphore] | None = None

    @property
    def local(self) -> bool:
        """True if the engine runs on this machine, and so can share folders with containers."""
        return self.url.startswith(("unix://", "npipe://"))

    def client(self) -> Any:
        """Return the low-level client of Docker's SDK. The first call connects, and blocks.

        Raises:
            SandboxUnavailableError: If there is no engine, or it does not respond.
        """
        if self._client is None:
            try:
                _check_socket(self.url)  # before the slow import of the SDK
            except OSError as error:
                raise self.explain(error) from error
            from docker.errors import DockerException
            from requests import RequestException

            try:
                self._client = _connect(self.url, self._timeout_seconds)
            except (DockerException, RequestException, OSError) as error:
                raise self.explain(error) from error
        return self._client

    def maps_users(self) -> bool:
        """Return True if the engine maps the users of containers to other users of the host."""
        options = self._engine_info().get("SecurityOptions") or ()
        return any(kind in option for option in options for kind in _USER_MAPPING_OPTIONS)

    def identity(self) -> str:
        """Return the unique id of the engine, or the engine's URL if there is no id."""
        return str(self._engine_info().get("ID") or self.url)

    def _engine_info(self) -> dict[str, Any]:
        """Return the engine's description of itself, cached because the request is slow."""
        if self._info is None:
            self._info = cast("dict[str, Any]", self.client().info())
        return self._info

    async def run(self, function: Callable[..., T], *args: Any, **options: Any) -> T:
        """Run a blocking function in a thread, and return its result.

        Raises:
            SandboxUnavailableError: If the engine cannot be reached or refuses the request.
        """
        permits = self._permits_of_running_loop()
        await permits.acquire()
        try:
            work = in_own_thread(partial(function, *args, **options), "delf-docker")
        except BaseException:
            permits.release()
            raise
        # A thread cannot be cancelled, so the work keeps its permit until it ends.
        work.add_done_callback(lambda _: permits.release())
        try:
            return await asyncio.shield(work)
        except SandboxUnavailableError:
            raise  # without the slow imports below
        except Exception as error:
            from docker.errors import DockerException
            from requests import RequestException

            if isinstance(error, (DockerException, RequestException)):
                raise self.explain(error) from error
            raise

    def _permits_of_running_loop(self) -> asyncio.Semaphore:
        loop = asyncio.get_running_loop()
        if self._permits_of_loop is None or self._permits_of_loop[0] is not loop:
            self._permits_of_loop = loop, asyncio.Semaphore(_MAX_REQUESTS)
        return self._permits_of_loop[1]

    async def wait_while_responding(self, requests: Collection[asyncio.Future[Any]]) -> bool:
        """Wait until requests are done, as long as the engine responds to pings.

        Return False if some requests are not done.
        """
        while True:
            # If a ping failed a moment ago, do not wait: see which requests are done already.
            timeout = 0 if self._failed_ping_recently() else self._ping_seconds
            _, unfinished = await asyncio.wait(requests, timeout=timeout)
            if not unfinished:
                return True
            # The ping of another caller may have failed meanwhile.
            if self._failed_ping_recently() or not await self._answers_ping():
                return False

    def _failed_ping_recently(self) -> bool:
        """Return True if a ping failed a moment ago, so that another ping is useless."""
        return time.monotonic() < self._next_ping_at

    async def _answers_ping(self) -> bool:
        """Return True if the engine answers a ping over a new connection in time.

        After a failure, :meth:`_failed_ping_recently` is true for a while.
        """
        asking = in_own_thread(self._greet, "delf-docker")
        finished, _ = await asyncio.wait({asking}, timeout=self._ping_seconds)
        if finished and asking.exception() is None:
            return True
        self._next_ping_at = time.monotonic() + _SECONDS_BEFORE_NEXT_PING
        return False

    def not_responding_error(self) -> SandboxUnavailableError:
        """Return the error for an engine that accepts requests but does not answer."""
        return SandboxUnavailableError(
            f"the Docker engine at {self.url} does not answer", hint="docker info says more"
        )

    def _greet(self) -> None:
        _connect(self.url, self._ping_seconds).close()

    def attach(self, container: str) -> socket.socket:
        """Return a socket of a container's standard streams, before the container is started."""
        client = self.client()
        parameters = {"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1}
        # The SDK returns a wrapper of the socket, and the wrapper keeps the HTTP response. Closing
        # the response closes the socket, so the caller gets a duplicate.
        stream = client.attach_socket(container, params=parameters)
        inner_socket = getattr(stream, "_sock", stream)
        try:
            is_encrypted = hasattr(inner_socket, "context")  # an SSLSocket
            if not isinstance(inner_socket, socket.socket) or is_encrypted:
                raise SandboxUnavailableError(
                    f"containers of an engine at {self.url} cannot be attached to",
                    hint="use unix://, tcp:// or a forwarded socket: ssh -L /tmp/docker.sock:…",
                )
            own_socket = socket.socket(fileno=os.dup(inner_socket.fileno()))
        finally:
            getattr(stream, "_response", stream).close()
        own_socket.setblocking(False)
        return own_socket

    def remove(self, container: str) -> None:
        """Kill a container, and wait until it is removed. Idempotent."""
        from docker.errors import APIError, NotFound

        client = self.client()
        try:
            client.remove_container(container, force=True, v=True)
        except NotFound:
            return
        except APIError as error:
            if error.status_code != 409:  # 409: the removal is in progress
                raise
            with suppress(NotFound):
                end = client.wait(container, timeout=_REMOVE_SECONDS, condition="removed")
                if end.get("Error"):  # the engine's own removal failed
                    client.remove_container(container, force=True, v=True)

    def remove_orphans(self) -> None:
        """Remove the containers of this machine whose host processes have died."""
        wanted = {"label": [f"{LABEL_HOST}={machine()}"]}
        containers: list[Any] = self.client().containers(all=True, filters=wanted)
        for container in containers:
            if not is_owner_alive(container["Labels"].get(LABEL_OWNER, "")):
                self.remove(container["Id"])

    def explain(self, error: BaseException) -> SandboxUnavailableError:
        """Convert an error of Docker's client to an error with an explanation and advice."""
        text = _error_text(error)
        if "no space left on device" in text.lower():
            return SandboxUnavailableError(
                "the Docker engine's disk is full",
                hint="docker system prune",
            )
        if getattr(error, "status_code", None) is not None:
            return SandboxUnavailableError(f"the Docker engine refused: {text}")
        if "Permission denied" in text:
            return SandboxUnavailableError(
                f"this user may not use the Docker engine at {self.url}",
                hint="add the user to the group docker, or use a rootless engine",
            )
        if self.local and not Path(self.url.partition("://")[2]).exists():
            if shutil.which("docker") is None and shutil.which("dockerd") is None:
                return SandboxUnavailableError(
                    "Docker is not installed", hint="install Docker Engine or Docker Desktop"
                )
            return SandboxUnavailableError(
                f"the Docker engine does not run: there is no {self.url}",
                hint="start it (systemctl start docker), or set DOCKER_HOST",
            )
        return SandboxUnavailableError(
            f"the Docker engine at {self.url} does not answer: {text}",
            hint="docker info says more; DOCKER_HOST says where the engine is",
        )

    def close(self) -> None:
        """Close the client. A later request connects again."""
        if self._client is not None:
            self._client.close()
            self._client = self._info = None


def _check_socket(url: str) -> None:
    """Check that a Unix socket accepts connections, before Docker's client connects to it.

    Docker's client would remember a failure, and fail again after Docker was started.

    Raises:
        OSError: If nothing listens on the socket, or this user may not connect.
    """
    if url.startswith("unix://"):
        with socket.socket(socket.AF_UNIX) as probe:
            probe.connect(url.removeprefix("unix://"))


def _connect(url: str, timeout_seconds: float) -> Any:
    """Return a client of a Docker engine; raise DockerException for any other server."""
    from docker import APIClient
    from docker.errors import DockerException
    from requests import JSONDecodeError

    make = cast("Any", APIClient)
    try:
        return make(base_url=url, version="auto", timeout=timeout_seconds)
    except DockerException as error:
        if not isinstance(error.__context__, JSONDecodeError):
            raise
    # Any Docker engine answers with JSON.
    raise DockerException("it is not a Docker engine")


def _default_url() -> str:
    if os.name == "nt":
        return "npipe:////./pipe/docker_engine"
    paths = [Path("/var/run/docker.sock")]
    if "XDG_RUNTIME_DIR" in os.environ:
        paths.append(Path(os.environ["XDG_RUNTIME_DIR"]) / "docker.sock")
    paths.append(expand_home("~") / ".docker" / "run" / "docker.sock")
    for path in paths:
        if path.exists():
            return f"unix://{path}"
    return f"unix://{paths[0]}"


def _error_text(error: BaseException) -> str:
    """Return the engine's explanation of an error; without one, the text of the root cause."""
    explanation = getattr(error, "explanation", None)
    if explanation:
        return str(explanation)
    while error.__context__ is not None or error.__cause__ is not None:
        error = cast("BaseException", error.__cause__ or error.__context__)
    return str(error)


# -- who a container belongs to -------------------------------------------------------------


def machine() -> str:
    """Return the name of this machine with the id of its last boot, for labels of containers."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        boot = ""
    return f"{platform.node()}/{boot}"


def owner(pid: int | None = None) -> str:
    """Return the id and the start time of a process: ``1234-567890``.

    Together they identify a process even when its id is used again. Without ``pid``, this process
    is meant.
    """
    number = os.getpid() if pid is None else pid
    return f"{number}-{_start_time_of(number)}"


def is_owner_alive(name: str) -> bool:
    """Return True if a process still runs.

    Args:
        name: The id and start time of the process, as returned by :func:`owner`.
    """
    number = name.partition("-")[0]
    if not number.isdigit():
        return False
    if Path("/proc/self/stat").exists():  # Linux
        return Path(f"/proc/{number}").exists() and owner(int(number)) == name
    try:
        os.kill(int(number), 0)  # sends no signal, but fails if there is no such process
    except ProcessLookupError:
        return False
    except PermissionError:  # another user's process
        return True
    return True


def _start_time_of(pid: int) -> str:
    """Return the start time of a process in clock ticks since the boot; ``0`` if unknown."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except OSError:
        return "0"
    # The name, in parentheses, may contain spaces: split only the fields after it. Field 3 is the
    # first of these, and field 22 is the start time.
    fields_from_third = text.rpartition(")")[2].split()
    return fields_from_third[22 - 3]
