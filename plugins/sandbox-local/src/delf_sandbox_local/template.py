"""The template process, which has imported what guests need and forks one per request.

Standard library only. The template runs no script itself and stays single-threaded, so that forking
is safe. A request is a four-byte length and JSON, with the guest's end of a wire as passed
descriptor; replies are lines of JSON: ``{"pid": …}`` or ``{"error": …}`` for a request, and
``{"exit": [pid, status, cpu_seconds]}`` when a guest ended.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import platform
import select
import signal
import socket
import struct
import sys
from typing import TYPE_CHECKING, Any, NoReturn

from delf_confined import landlock, seccomp, system
from delf_sandbox_local import namespaces
from delf_sandbox_local.launcher import confine, prepare

if TYPE_CHECKING:
    from delf_sandbox.guest.serve import Server

_HEADER = struct.Struct(">I")
_EX_OSERR = 71


def main(zipapp: str, descriptor: int, parent: int) -> None:
    """Prepare this process, and fork guests until the host closes the control socket.

    Args:
        zipapp: The path of the guest's archive.
        descriptor: The descriptor of the control socket.
        parent: The process id of the host.
    """
    linux_namespaces, server = make_ready(zipapp)
    serve(descriptor, parent, linux_namespaces, server)


def make_ready(zipapp: str) -> tuple[list[str], Server]:
    """Confine this process, and prepare everything that its guests share.

    A guest is a process for scripts that is forked from this process.

    Args:
        zipapp: The path of the guest's archive.

    Returns:
        The names of the namespaces that were created, and the server. Each guest runs the host's
        scripts by a call of the server's method ``serve``.
    """
    os.umask(0o077)  # files of scripts are private
    linux_namespaces = namespaces.enter()
    prepare()
    if "mounts" in linux_namespaces:
        namespaces.hide_system()
    namespaces.bound_capabilities()
    # With mount namespaces, each guest mounts its scratch space and then drops its capabilities.
    if "mounts" not in linux_namespaces:
        namespaces.drop_capabilities()
    sys.path.insert(0, zipapp)
    from delf_sandbox.guest.preload import preload

    # Import before the first fork, so that guests share the modules and need no time for them.
    preload()
    from delf_sandbox.guest.serve import Server

    server = Server()
    landlock.prepare()
    if seccomp.is_supported():
        # Build both filters before the first fork, because build() caches them.
        for threads in (False, True):
            seccomp.build(platform.machine(), seccomp.Permissions(threads))
    gc.collect()
    gc.freeze()  # keep the pages shared with forks
    return linux_namespaces, server


def serve(descriptor: int, parent: int, linux_namespaces: list[str], server: Server) -> None:
    """Fork guests on the host's request until the host closes the control socket.

    Args:
        descriptor: The descriptor of the control socket.
        parent: The process id of the host.
        linux_namespaces: The names of the namespaces, from :func:`make_ready`.
        server: The server, from :func:`make_ready`.
    """
    # Set the death signal after make_ready(), which changes this process's credentials and so would
    # reset the signal.
    system.die_with_parent(parent)
    # The host ends guests one by one; a Ctrl-C here would end all of them.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # The end of a guest (SIGCHLD) has to wake up the loop in _TemplateProcess.serve(). Python only
    # does so for a signal with a handler, so set one that does nothing. With SIG_IGN, the guest's
    # exit status would be lost, too.
    signal.signal(signal.SIGCHLD, _ignore_signal)
    with socket.socket(fileno=descriptor) as control:
        _TemplateProcess(control, linux_namespaces, server).serve()


class _TemplateProcess:
    """The template process, from which the guests are forked.

    A guest is a process that runs scripts. The template process forks a guest on the host's
    request, and reports to the host when a guest has ended.

    Args:
        host_socket: The socket through which the host sends requests.
        linux_namespaces: The names of the namespaces that were created for this process.
        server: The server that each guest runs.
    """

    def __init__(
        self, host_socket: socket.socket, linux_namespaces: list[str], server: Server
    ) -> None:
        self._server = server
        self._host_socket = host_socket
        self._linux_namespaces = linux_namespaces
        # Each signal, such as SIGCHLD when a guest ends, writes a byte to this pipe, which ends a
        # poll().
        self._wake_up_reader, self._wake_up_writer = os.pipe()
        os.set_blocking(self._wake_up_reader, False)
        os.set_blocking(self._wake_up_writer, False)
        signal.set_wakeup_fd(self._wake_up_writer, warn_on_full_buffer=False)

    def serve(self) -> None:
        """Handle requests for guests until the host closes the control socket.

        Each guest is a forked process. When a guest has ended, send its exit status to the host.
        """
        self._send({"ready": True, "namespaces": self._linux_namespaces})
        poll = select.poll()
        poll.register(self._host_socket, select.POLLIN)
        poll.register(self._wake_up_reader, select.POLLIN)
        while True:
            for descriptor, _ in poll.poll():
                if descriptor == self._wake_up_reader:
                    self._reap()
                elif not self._handle_request():
                    return

    def _handle_request(self) -> bool:
        """Fork the guest of one request. Return False if the host has closed the socket."""
        header, descriptors, _, _ = socket.recv_fds(self._host_socket, _HEADER.size, 1)
        if not header:
            return False
        (size,) = _HEADER.unpack(header)
        request = self._receive(size)
        if request is None:
            return False
        try:
            child = os.fork()
        except OSError as error:
            reply: dict[str, Any] = {"error": f"no process can be started: {error.strerror}"}
        else:
            if child == 0:
                self._become_guest(json.loads(request), descriptors[0])  # never returns
            reply = {"pid": child}
        request[:] = bytes(size)  # hide the file names from later guests
        for descriptor in descriptors:
            os.close(descriptor)
        self._send(reply)
        return True

    def _receive(self, size: int) -> bytearray | None:
        """Receive bytes from the host; return None if the host closes the socket before the end."""
        data = bytearray(size)
        received = 0
        while received < size:  # SIGCHLD interrupts reads
            received_now = self._host_socket.recv_into(
                memoryview(data)[received:], 0, socket.MSG_WAITALL
            )
            if not received_now:
                return None
            received += received_now
        return data

    def _become_guest(self, request: dict[str, Any], wire: int) -> NoReturn:
        """Confine the forked child process, and serve one session of scripts in it.

        Args:
            request: The host's request, with limits and folders.
            wire: The descriptor of the socket to the host.
        """
        try:
            os.setpgid(0, 0)  # a group of its own, to be killed as a whole
            system.die_with_parent(request["template"])
            self._release_template_resources()
            limits = request["limits"]
            scratch = request["scratch"]
            null_device = os.open(os.devnull, os.O_RDWR)
            for descriptor in (0, 1):  # the template's streams are shared by all guests
                os.dup2(null_device, descriptor)
            if "mounts" in self._linux_namespaces:
                namespaces.mount_scratch(scratch, limits["scratch_bytes"])
                # This change of credentials makes the kernel forget die_with_parent().
                namespaces.drop_capabilities()
                system.die_with_parent(request["template"])
            os.chdir(scratch)
            from delf_sandbox.guest.policy import link_inputs

            link_inputs(request["links"], scratch)  # before confinement forbids links
            _make_libraries_importable(request["libraries"])
            max_threads = request["max_threads"]
            confine(limits, request["readable"], scratch, max_threads=max_threads)
            # Redirect standard error last, because errors of the steps above are written to it.
            os.dup2(null_device, 2)
            os.close(null_device)
            # serve() ends the process at the end of the session, so it never returns.
            self._server.serve(wire, wire, threads=max_threads > 0)
        except BaseException as error:
            sys.excepthook(type(error), error, error.__traceback__)
        finally:  # after an error, do not return into the loop of the template
            os._exit(_EX_OSERR)

    def _release_template_resources(self) -> None:
        """Reset the template process's signals and close its descriptors, in a forked guest."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for descriptor in (self._host_socket.fileno(), self._wake_up_reader, self._wake_up_writer):
            os.close(descriptor)

    def _reap(self) -> None:
        """Report the exit status and the processor time of each ended guest to the host."""
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake_up_reader, 4096)
        while True:
            try:
                pid, status, used = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            seconds = used.ru_utime + used.ru_stime
            self._send({"exit": [pid, os.waitstatus_to_exitcode(status), seconds]})

    def _send(self, message: dict[str, Any]) -> None:
        try:
            self._host_socket.sendall(json.dumps(message).encode() + b"\n")
        except OSError:
            os._exit(0)  # the host has closed the socket


def _make_libraries_importable(folders: list[str]) -> None:
    """Add libraries' folders to the import path; limit numeric libraries to one thread."""
    sys.path += folders
    if folders:
        for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
            os.environ[name] = "1"


def _ignore_signal(_number: int, _frame: object) -> None:
    """Do nothing. Only a signal with a Python handler wakes up the ``poll()`` of this process."""
