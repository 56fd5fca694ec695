"""``Template``: the parent's end of a template process, which forks children.

All methods block; call them in threads.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any, Final

from delf.errors import ToolExecutionError
from delf.machine.forks import finalize_in_owner, reset_in_forks
from delf.machine.interpreter import own_python
from delf_confined.limits import Limits
from delf_confined.wire import LENGTH, receive, send

_BOOT: Final = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from delf_confined.template import main; main(int(sys.argv[2]))"
)
_KEPT_VARIABLES: Final = ("LD_LIBRARY_PATH", "LANG", "LC_ALL", "PATH")
# The environment variables that keep numeric libraries from starting threads.
#
# The template must have no threads when it is forked.
_SINGLE_THREAD_VARIABLES: Final = {
    f"{name}_NUM_THREADS": "1" for name in ("OPENBLAS", "OMP", "MKL", "NUMEXPR")
}


class Child:
    """A child process that makes one call.

    Args:
        template: The template from which the child was forked.
        pid: The process id of the child.
        wire: The socket to the child.
    """

    def __init__(self, template: Template, pid: int, wire: socket.socket) -> None:
        self.pid = pid
        self.wire = wire
        self._template = template
        self._lock = threading.Lock()
        self._is_ended = False

    def call(self, arguments: bytes, max_bytes: int) -> bytes:
        """Send the arguments of the call, and wait for the answer.

        Raises:
            EOFError: If the child ended before it answered.
            ValueError: If the answer is too long.
        """
        try:
            send(self.wire, arguments)
            return receive(self.wire, max_bytes)
        except OSError as error:
            raise EOFError from error

    def kill(self) -> None:
        """Kill the child, or do nothing if it has ended. Thread-safe."""
        with self._lock, suppress(ProcessLookupError):
            if not self._is_ended:  # not reaped, so the id is not reused
                os.kill(self.pid, signal.SIGKILL)

    def end(self) -> int:
        """Kill the child, and wait for its end. Idempotent.

        Returns:
            The exit status, or the negative number of the signal that ended the child; 0 if this
            method was called before.
        """
        self.kill()  # idempotent, too
        self.wire.close()
        with self._lock:
            if self._is_ended:  # another process may have the process id now
                return 0
            self._is_ended = True
            return self._template.reap(self.pid)


class Template:
    """Owns a template process, from which children are forked.

    The first :meth:`fork` starts the template process.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._finalizer: weakref.finalize[..., Any] | None = None
        reset_in_forks(self)

    def reset_after_fork(self) -> None:
        """Release the template process, which belongs to the parent of this forked process."""
        self._lock = threading.Lock()
        if self._control is not None:
            self._control.close()  # the template ends when no process has the socket any more
        self._process = self._control = self._finalizer = None

    def fork(
        self, function: str, limits: Limits, readable: Sequence[str], preload: Sequence[str] = ()
    ) -> Child:
        """Fork a child for one call; the child waits for the arguments.

        Args:
            function: The name of the function, as ``module:name``.
            limits: The limits of the call.
            readable: The files that the child may read.
            preload: The names of modules to import, and of functions (``module:name``) to call,
                once in the template process.

        Raises:
            ToolExecutionError: If no process can be started.
        """
        request = {
            "function": function,
            "limits": asdict(limits),
            "readable": list(readable),
            "preload": list(preload),
        }
        own_socket, child_socket = socket.socketpair()
        try:
            # One request at a time, because the template's answers have no number.
            with self._lock:
                answer = self._ask(request, child_socket)
        except BaseException:
            own_socket.close()
            raise
        finally:
            child_socket.close()
        if "pid" not in answer:
            own_socket.close()
            raise ToolExecutionError(str(answer["error"]))
        return Child(self, answer["pid"], own_socket)

    def reap(self, pid: int) -> int:
        """Wait for a child of the template process, and return the child's exit status.

        The child must have been killed, or have ended by itself: this method does not end the
        child.
        """
        with self._lock:
            if self._control is None:  # the template's end killed the child
                return -signal.SIGKILL
            try:
                # Only the template can wait for its own child.
                return int(self._exchange({"reap": pid}, None)["status"])
            except (EOFError, OSError):
                self._release()
                return -signal.SIGKILL

    def _ask(self, request: dict[str, Any], child_socket: socket.socket) -> dict[str, Any]:
        """Start the template process if needed, send a request, and return the process's answer."""
        for _ in range(2):  # retry once if the template has died
            if self._control is None:
                self._start()
            with suppress(EOFError, OSError):
                return self._exchange(request, child_socket)
            self._release()
        return {"error": "the template process ended"}

    def _exchange(
        self, request: dict[str, Any], child_socket: socket.socket | None
    ) -> dict[str, Any]:
        """Send a request to the template process, and return the answer.

        Args:
            request: The request.
            child_socket: The socket that the template passes on to the child that it forks; None
                if the request is not to fork a child.
        """
        control = self._control
        if control is None:
            raise EOFError
        payload = json.dumps(request).encode()
        descriptors = [child_socket.fileno()] if child_socket is not None else []
        socket.send_fds(control, [LENGTH.pack(len(payload))], descriptors)
        # Sent separately, because the template receives the descriptor together with the length.
        control.sendall(payload)
        return json.loads(receive(control))

    def _start(self) -> None:
        """Start the template process with a minimal environment."""
        control, template_socket = socket.socketpair()
        # Relative paths would name other folders in the template, whose working folder is ``/``.
        paths = [path for path in sys.path if os.path.isabs(path)]  # noqa: PTH117 - text
        environ = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
        command = [own_python(), "-I", "-X", "utf8", "-c", _BOOT, json.dumps(paths)]
        try:
            process = subprocess.Popen(  # noqa: S603 - our own interpreter, no shell
                [*command, str(template_socket.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(template_socket.fileno(),),
                env={**environ, **_SINGLE_THREAD_VARIABLES},
                cwd="/",
                start_new_session=True,
            )
        except OSError as error:
            control.close()
            raise ToolExecutionError(f"no process can be started: {error.strerror}") from error
        finally:
            template_socket.close()
        self._process = process
        self._control = control
        # The finalizer ends the process if nobody closes this object. The callback is a function,
        # because a bound method would keep the object alive.
        self._finalizer = finalize_in_owner(self, _end, process, control)

    def _release(self) -> None:
        if self._finalizer is not None:
            self._finalizer()
        self._process = self._control = self._finalizer = None

    def close(self) -> None:
        """End the template process and its children. The next call starts a new template."""
        with self._lock:
            self._release()


def _end(process: subprocess.Popen[bytes], control: socket.socket) -> None:
    control.close()
    process.kill()
    process.wait()
