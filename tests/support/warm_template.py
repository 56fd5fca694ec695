"""Templates of the local sandbox, forked from a process that has done what each of them does first.

Its imports and namespaces are most of what a template costs, and most tests start one. The tests
of the sandbox itself start theirs as users do.

python -P -s -S -X utf8 warm_template.py SOURCE ZIPAPP DESCRIPTOR

The descriptor is the end of a connection, whose requests :mod:`support.forking` serves; or a
socket that listens, as :func:`lend` says.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

Serve = Callable[[int, int], None]

_PR_SET_PDEATHSIG = 1


def become(template: Serve, request: dict[str, Any], descriptors: list[int]) -> None:
    """In a child: be a template."""
    control, errors = descriptors
    os.setsid()
    os.dup2(errors, 2)
    os.close(errors)
    os.chdir("/")
    template(control, request["host"])


def lend(listening: socket.socket, template: Serve) -> None:
    """Fork a template for each connection until the starter of this process ends.

    A connection brings the template's socket and its standard error, and is answered with the
    template's number and a descriptor of the process. It stays a child of this process.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    signal.signal(signal.SIGCHLD, _reap)
    while True:
        connection, _ = listening.accept()
        with connection, contextlib.suppress(OSError):  # whoever asked may have been killed
            _lend_one(listening, connection, template)


def _lend_one(listening: socket.socket, connection: socket.socket, template: Serve) -> None:
    _, descriptors, _, _ = socket.recv_fds(connection, 1, 2)
    try:
        if len(descriptors) != 2:
            return
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})  # its number stays its own
        host = os.getpid()
        child = os.fork()
        if child == 0:
            connection.close()
            listening.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
            try:
                become(template, {"host": host}, descriptors)
            finally:
                os._exit(0)  # and never go on here
        descriptors.append(os.pidfd_open(child))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
        socket.send_fds(connection, [str(child).encode()], descriptors[-1:])
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def _reap(_number: int, _frame: object) -> None:
    try:
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass
    except ChildProcessError:
        return


if __name__ == "__main__":
    sys.path[:0] = [os.path.dirname(__file__), sys.argv[1]]
    from forking import serve

    from delf_sandbox_local.template import make_ready
    from delf_sandbox_local.template import serve as serve_guests

    sys.path[:2] = []
    own, server = make_ready(sys.argv[2])
    template = partial(serve_guests, own=own, server=server)
    control = socket.socket(fileno=int(sys.argv[3]))
    if control.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        lend(control, template)
    else:
        serve(control, partial(become, template))
