"""The template process: imports requested modules, and forks a child for each call.

The template handles no untrusted data: requests come from the program that started it, and a
child's answer goes to that program by a separate socket. A child is reaped only at the program's
request, because its process id could be reused from then on.
"""

from __future__ import annotations

import gc
import importlib
import inspect
import json
import logging
import os
import platform
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from pkgutil import resolve_name
from typing import Any, NoReturn

from delf_confined import landlock, seccomp
from delf_confined.child import serve
from delf_confined.confine import confine
from delf_confined.wire import LENGTH, receive_exactly, send

_log = logging.getLogger(__name__)


def main(descriptor: int) -> None:
    """Answer requests of the parent process until it closes the control socket.

    Args:
        descriptor: The descriptor of the control socket.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process handles Ctrl-C
    os.umask(0o077)
    # Libraries may print while they are imported, and nobody reads that.
    os.dup2(os.open(os.devnull, os.O_RDWR), 1)
    # Load the library before any fork, so that the children need not load it again.
    landlock.prepare()
    if seccomp.is_supported():
        # Fill the cache of build(), which the children inherit.
        for writes in (False, True):
            permissions = seccomp.Permissions(threads=True, writes=writes, locks=True)
            seccomp.build(platform.machine(), permissions)
    imported_names: set[str] = set()
    with socket.socket(fileno=descriptor) as control, suppress(EOFError, ConnectionError):
        while True:
            head, descriptors, _, _ = socket.recv_fds(control, LENGTH.size, 1)
            # The parent process has ended, so its end of the socket is closed.
            if len(head) < LENGTH.size:
                return
            (length,) = LENGTH.unpack(head)
            request = json.loads(receive_exactly(control, length))
            try:
                answer = _handle_request(request, descriptors, control, imported_names)
            finally:
                for received in descriptors:
                    os.close(received)
            send(control, json.dumps(answer).encode())


def _handle_request(
    request: dict[str, Any],
    descriptors: list[int],
    control: socket.socket,
    imported_names: set[str],
) -> dict[str, Any]:
    """Serve one request of the parent process: fork a child, or reap one. Return the answer."""
    if "reap" in request:
        return {"status": _reap(request["reap"])}
    module_names = (*request["preload"], request["function"])
    # Import before the fork, so that all later children share the imported modules.
    if not imported_names.issuperset(module_names):
        new_names = [name for name in request["preload"] if name not in imported_names]
        _import(request["function"], new_names)
        # Record failed imports, too: a retry would fail again, and the child reports the error.
        imported_names.update(module_names)
    try:
        pid = os.fork()
    except OSError as error:
        return {"error": f"no process can be started: {error.strerror}"}
    if pid == 0:  # in the child, which ends in _run_child()
        _run_child(request, descriptors[0], control, os.getppid())
    return {"pid": pid}


def _reap(pid: int) -> int:
    """Wait for the end of a child, and return its exit status; 0 if the status is unknown."""
    try:
        _, status = os.waitpid(pid, 0)
    except ChildProcessError:
        # If the program ignores SIGCHLD, so does this process, and the kernel reaps children.
        return 0
    return os.waitstatus_to_exitcode(status)


def _import(function: str, preload: Sequence[str]) -> None:
    """Import what child processes need, so that each child is forked with these modules loaded.

    Import the module of ``function`` and the modules that ``preload`` names; where ``preload``
    names a function, call this function. Failures are ignored, because the child reports them.
    """
    for name in (*preload, function):
        try:
            target = resolve_name(name)
            if name != function and callable(target):
                target()  # a preload function of our own code
        except Exception as error:  # an import may raise anything
            _log.debug("%s: %s", name, error)
            continue
        # A child needs asyncio for an async function.
        if inspect.iscoroutinefunction(target):
            importlib.import_module("asyncio")
    gc.collect()
    gc.freeze()  # keep the pages shared with children


def _run_child(
    request: dict[str, Any], answers_fd: int, control: socket.socket, template_pid: int
) -> NoReturn:
    """Confine the forked child process, make its call, and exit.

    Args:
        request: The call and its limits.
        answers_fd: The descriptor of the socket for the call's answers.
        control: The template process's own socket, which the child closes.
        template_pid: The id of the template process.
    """
    try:
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # end if the program is gone
        # A child that keeps the template's socket could answer in place of the template.
        control.close()
        limits = request["limits"]
        # Change the folder before the confinement, after which this may be forbidden.
        os.chdir(limits["scratch"] or "/")
        confine(limits, request["readable"], parent=template_pid)
        with socket.socket(fileno=answers_fd) as answers:
            serve(answers, request["function"], limits["answer"])
        os._exit(0)
    except BaseException as error:  # the child must not run the template's loop
        sys.excepthook(type(error), error, error.__traceback__)
    finally:
        os._exit(70)  # reached only after an error
