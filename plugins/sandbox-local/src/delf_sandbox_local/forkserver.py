"""The host's side of the template process: requests guests, and learns when they end."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import struct
import subprocess
import sysconfig
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

import delf_confined
from delf.errors import ConfigurationError, SandboxUnavailableError
from delf.machine.forks import finalize_in_owner
from delf.machine.interpreter import own_python
from delf.protocols.sandbox import Limits
from delf_sandbox.folders import remove_folder
from delf_sandbox.process import process_limits
from delf_sandbox.wire import limits_by_name
from delf_sandbox_local.process import LocalProcess
from delf_sandbox_local.scratch import ScratchFolders

# The two folders of SOURCE are on the import path only for this import, so that scripts cannot
# import delf.
BOOT = (
    "import sys; sys.path[:0] = {source!r}; "
    "from delf_sandbox_local.template import main; del sys.path[:2]; "
    "main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))"
)
SOURCE = [str(Path(file).resolve().parents[1]) for file in (__file__, delf_confined.__file__)]
_HEADER = struct.Struct(">I")
START_SECONDS = 20.0
_LIBRARY_THREADS = 64


TEMPLATE_ENVIRONMENT = {"PYTHONHASHSEED": "0"}
"""The environment variables of the template process: only a fixed hash seed.

With the fixed seed, a resumed script sees sets in the same order.
"""


def count_threads_of_user() -> int:
    """Return the number of threads of all processes of this user; zero for root.

    The kernel's limit for a guest includes the threads of all processes of the user. Guests cannot
    count these threads, because they see an empty ``/proc``.
    """
    if os.getuid() == 0:
        return 0
    count = 0
    for process in Path("/proc").glob("[0-9]*/status"):
        with suppress(OSError):  # the process ended
            # Bytes, because the name of a process may be cut within a character.
            lines = process.read_bytes().strip().split(b"\n")
            fields = dict(line.split(b":", 1) for line in lines)
            if int(fields[b"Uid"].split()[0]) == os.getuid():
                count += int(fields[b"Threads"])
    return count


class ForkServer:
    """Owns a template process, from which guests are forked, for one event loop.

    Args:
        zipapp: The path of the guest's archive.
        python: The path of the interpreter; this process's own interpreter when None.

    Raises:
        SandboxUnavailableError: If the interpreter is missing or does not start.
    """

    def __init__(self, zipapp: Path, python: str | None = None) -> None:
        try:
            interpreter = python or own_python()
        except ConfigurationError as error:
            raise SandboxUnavailableError(error.message, hint=error.hint) from error
        self._loop = asyncio.get_running_loop()
        # The child process, called the template, imports Python's modules once. It then forks a
        # process for each session: a guest. The key is a guest's process id.
        self._guests: dict[int, LocalProcess] = {}
        # The exit status and processor time of guests whose exit was reported before the reply to
        # the request for their fork, by process id.
        self._early_ends: dict[int, list[Any]] = {}
        self._buffer = b""  # the beginning of a message of the template, until its rest arrives
        self._scratch = ScratchFolders()
        self.namespaces: frozenset[str] = frozenset()
        """The Linux namespaces that the template has; empty until it has reported them."""
        # Held from a request to its reply, because a reply does not name its request.
        self._request_lock = asyncio.Lock()
        # Done when the template has started, or has failed to start.
        self._ready: asyncio.Future[None] = self._loop.create_future()
        # The reply to the current request.
        self._reply: asyncio.Future[dict[str, Any]] | None = None
        # The template gets the other socket, for requests and messages about ended guests.
        self._control, template_socket = socket.socketpair()
        try:
            self._process = _start_template(interpreter, zipapp, template_socket)
        except OSError as error:
            self._control.close()
            raise SandboxUnavailableError(f"no process can be started: {error}") from error
        finally:
            # The child process has its own copy of this socket. Close the copy of this process: as
            # long as any copy is open, the child's exit does not end the stream.
            template_socket.close()
        # End the template even if the event loop is closed without a call of aclose(). The callback
        # is a plain function, because a bound method would keep this object alive.
        finalize_in_owner(self, _end_template, self._process, self._control)
        self._control.setblocking(False)
        self._loop.add_reader(self._control, self._read_messages)

    @property
    def pid(self) -> int:
        """The process id of the template process."""
        return self._process.pid

    @property
    def is_connected(self) -> bool:
        """True while the template process can fork new guests (sandboxed processes)."""
        return self._control.fileno() >= 0

    async def ready(self) -> None:
        """Wait until the template process has started and has reported its Linux namespaces.

        Raises:
            SandboxUnavailableError: If the template process did not start.
        """
        try:
            async with asyncio.timeout(START_SECONDS):
                # The future is shared: a cancelled caller must not cancel it for the others.
                await asyncio.shield(self._ready)
        except TimeoutError:
            raise SandboxUnavailableError(
                f"the sandbox's template process did not start within {START_SECONDS:g} s"
            ) from None

    async def fork(
        self,
        limits: Limits,
        *,
        libraries: bool,
        files: tuple[str, ...] = (),
        links: Mapping[str, str] = MappingProxyType({}),
    ) -> tuple[LocalProcess, socket.socket]:
        """Fork a process for a new guest.

        Args:
            limits: The limits of the session.
            libraries: Whether scripts can import the installed packages.
            files: The input files that scripts may read.
            links: The paths of the input files, by their names for scripts.

        Returns:
            The process, and the host's socket to the guest.

        Raises:
            SandboxUnavailableError: If no guest can be forked.
        """
        await self.ready()
        max_threads = await _max_threads(limits, libraries=libraries)
        has_own_mounts = "mounts" in self.namespaces
        try:
            # With mount namespaces, all guests mount their scratch space on one folder, which each
            # guest sees with its own files. Otherwise each guest gets a folder on the disk.
            scratch = self._scratch.mount_point() if has_own_mounts else self._scratch.make()
        except FileNotFoundError:  # the server was closed meanwhile
            raise SandboxUnavailableError("the sandbox's template process ended") from None
        host_end, guest_end = socket.socketpair()
        request = {
            "limits": {**limits_by_name(limits), "resources": process_limits(limits)},
            "max_threads": max_threads,
            "template": self._process.pid,
            "libraries": _library_folders() if libraries else [],
            "scratch": scratch,
            "readable": list(files),
            "links": dict(links),
        }
        try:
            pid = await self._request_guest(request, guest_end)
        except BaseException:
            host_end.close()
            if not has_own_mounts:
                remove_folder(scratch)
            raise
        finally:
            # The guest has its own copy of the socket. While this copy is open, the stream to the
            # host would not end.
            guest_end.close()
        host_end.setblocking(False)
        process = LocalProcess(pid, scratch, limits, owns_scratch=not has_own_mounts)
        return self._watch(process), host_end

    async def _request_guest(self, request: dict[str, Any], wire: socket.socket) -> int:
        """Let the template process fork a guest, a process that runs scripts.

        Concurrent calls wait for each other.

        Args:
            request: The guest's settings.
            wire: The guest's end of its socket to the host.

        Returns:
            The process id of the guest.
        """
        # Encode outside the lock, for which other forks wait: many files take a while to encode.
        payload = json.dumps(request).encode()
        async with self._request_lock:
            if not self.is_connected:
                raise SandboxUnavailableError("the sandbox's template process is gone")
            reply = self._reply = self._loop.create_future()
            try:
                async with asyncio.timeout(START_SECONDS):
                    await self._send(_HEADER.pack(len(payload)) + payload, wire, reply)
                    message = await reply
            except TimeoutError:
                raise SandboxUnavailableError(
                    f"the sandbox's template process did not answer within {START_SECONDS:g} s"
                ) from None
            except OSError as error:
                raise SandboxUnavailableError(
                    f"the sandbox's template process is gone: {error}"
                ) from error
            finally:
                # End a template that has not replied yet. As replies have no request id, the late
                # reply would be taken for the reply to the next request.
                if not reply.done() or reply.cancelled():
                    self.kill()
                    self._disconnect()
        if "pid" not in message:
            raise SandboxUnavailableError(str(message["error"]))
        return int(message["pid"])

    async def _send(self, data: bytes, wire: socket.socket, reply: asyncio.Future[Any]) -> None:
        """Send a request, and the descriptor of a socket, to the template process.

        The template process forks a guest, which gets the socket. Sending stops if the template
        process replies before it has the whole request.

        Args:
            data: The request, which needs several messages if it lists many files.
            wire: The socket whose descriptor is sent.
            reply: The reply of the template process, when it arrives.
        """
        # The descriptor is sent along with the first bytes; the template receives both together.
        sent_bytes = socket.send_fds(self._control, [data], [wire.fileno()])
        if sent_bytes == len(data):
            return
        rest = data[sent_bytes:]
        sending = self._loop.create_task(self._loop.sock_sendall(self._control, rest))
        try:
            await asyncio.wait({sending, reply}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            sending.cancel()  # a dead template would never read
            await asyncio.gather(sending, return_exceptions=True)

    def _watch(self, guest: LocalProcess) -> LocalProcess:
        """Register a guest, so that its end is recorded when the template process reports the end.

        If the report came before the registration, record the end at once.
        """
        end_status = self._early_ends.pop(guest.pid, None)
        if end_status is not None:
            guest.record_end(*end_status)
        else:
            self._guests[guest.pid] = guest
        return guest

    def _read_messages(self) -> None:
        """Read what the template process sent, and handle each complete message."""
        try:
            data = self._control.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._disconnect()
            return
        # The stream has no message boundaries: the last part may be half a line.
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for line in lines:
            self._handle_message(json.loads(line))

    def _handle_message(self, message: dict[str, Any]) -> None:
        """Handle a message of the template process.

        The process reports that it is ready, reports the end of a guest, or replies to a request.
        """
        match message:
            case {"ready": True, "namespaces": namespaces}:
                self.namespaces = frozenset(namespaces)
                self._ready.set_result(None)
            case {"exit": [pid, *end_status]}:
                guest = self._guests.pop(pid, None)
                if guest is not None:
                    guest.record_end(*end_status)
                else:
                    # A guest may end before _request_guest() has read the reply with its id.
                    self._early_ends[pid] = end_status
            case _ if self._reply is not None and not self._reply.done():
                self._reply.set_result(message)
            case _:
                pass

    def _disconnect(self) -> None:
        """Close the connection to the template process, which has ended or was killed. Idempotent.

        Pending requests fail, and the end of all guests is recorded.
        """
        if not self.is_connected:
            return
        self._loop.remove_reader(self._control)
        self._loop.remove_writer(self._control)
        self._control.close()
        error_line = self._last_error_line()
        if not self._ready.done():
            self._ready.set_exception(
                SandboxUnavailableError(f"the sandbox's template process did not start{error_line}")
            )
            # Mark the exception as retrieved, or asyncio logs it if nobody awaits the future.
            self._ready.exception()
        if self._reply is not None and not self._reply.done():
            self._reply.set_result({"error": f"the template process ended{error_line}"})
        for guest in self._guests.values():
            # The template's end kills its guests, and nobody is left who could report how
            # they ended.
            guest.record_end(-signal.SIGKILL)
        self._guests.clear()

    def _last_error_line(self) -> str:
        """Return the end of an error message: a colon, and the template's last line on stderr.

        The result is empty if the template has written nothing.
        """
        pipe = self._process.stderr
        if pipe is None or pipe.closed:
            return ""
        # Do not block: a guest forked by the template may still hold the other end of the pipe.
        os.set_blocking(pipe.fileno(), False)
        text = (pipe.read(8000) or b"").decode("utf-8", "replace").strip()
        return f": {text.splitlines()[-1]}" if text else ""

    def kill(self) -> None:
        """Kill the template process and all guests."""
        self._process.kill()
        # Kill each guest, too: LocalProcess then reports that the guest was stopped, and kills the
        # guest's process group.
        for guest in list(self._guests.values()):
            guest.kill()

    def abandon(self) -> None:
        """Kill the template process and all guests without awaiting.

        Called when the event loop is closed.
        """
        self._process.kill()
        self._process.wait()
        self._control.close()
        if self._process.stderr is not None:
            self._process.stderr.close()
        for guest in self._guests.values():
            guest.abandon()
        self._scratch.remove()

    async def aclose(self) -> None:
        """Kill the template and all guests, and wait until they are gone. Idempotent."""
        self.kill()
        if self._process.returncode is None:
            # Reap the template before removing the folders: a dying process may still write there.
            await asyncio.to_thread(self._process.wait)
        self._disconnect()
        if self._process.stderr is not None:
            self._process.stderr.close()
        self._scratch.remove()


def _start_template(
    interpreter: str, zipapp: Path, control: socket.socket
) -> subprocess.Popen[bytes]:
    """Start a template process, which forks guests on request.

    Args:
        interpreter: The path of the interpreter.
        zipapp: The path of the guest's archive.
        control: The template's socket for requests and messages.
    """
    # Keep the working folder and installed packages off the import path: their code would run here
    # unconfined.
    options = ("-P", "-s", "-S", "-X", "utf8")
    command = [interpreter, *options, "-c", BOOT.format(source=SOURCE)]
    command += [str(zipapp), str(control.fileno()), str(os.getpid())]
    return subprocess.Popen(  # noqa: S603 - our own interpreter, no shell
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        pass_fds=(control.fileno(),),
        env=TEMPLATE_ENVIRONMENT,
        cwd="/",
        # A terminal sends Ctrl-C to the whole process group: the template would die before the host
        # has ended its tasks.
        start_new_session=True,
    )


async def _max_threads(limits: Limits, *, libraries: bool) -> int:
    """Return the system's limit on threads for a guest; 0 forbids threads."""
    guest_threads = limits.processes
    if libraries:
        guest_threads += _LIBRARY_THREADS
    if guest_threads == 0:
        return 0
    # The system's limit counts all threads of the user, not only those of the guest.
    return guest_threads + await asyncio.to_thread(count_threads_of_user)


def _end_template(process: subprocess.Popen[bytes], control: socket.socket) -> None:
    """Kill a template process, from which guests are forked, and close its streams.

    Called when the :class:`ForkServer` of the process is deleted.
    """
    control.close()
    if process.returncode is None:
        process.kill()
        process.wait()
    if process.stderr is not None:
        process.stderr.close()


def _library_folders() -> list[str]:
    paths = sysconfig.get_paths()
    return list(dict.fromkeys((paths["purelib"], paths["platlib"])))
