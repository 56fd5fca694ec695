"""The project's agent in one process or in several, which share the socket and the journal."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, NoReturn

import click

from delf.errors import DelfError
from delf_serve.app import make_app
from delf_serve.server import address_of, bind, serve
from delf_serve.settings import NAME

if TYPE_CHECKING:
    from delf_cli.session import Options
    from delf_cli.state import State
    from delf_serve.app import Application


_WAITS_SECONDS: Final = 7 * 86_400.0
"""The seconds for which a question waits on a page, unless it says otherwise."""
_REFUSED: Final = 2
"""The exit status of a process that another one would not be better than."""
_SHORTEST_LIFE_SECONDS: Final = 1.0
"""A process that ends sooner is replaced after this time, so that nothing spins."""


def serve_project(
    state: State,
    options: Options,
    own: Mapping[str, Any],
    *,
    host: str,
    port: int,
    processes: int,
    tasks: Sequence[str] = (),
) -> int:
    """Serve the project's agent until the process is told to end.

    Args:
        state: The program's flags.
        options: How the agent is.
        own: Settings of the server from the command line; they win over the project's.
        host: The address to listen at.
        port: The port.
        processes: Their number; in each is an agent.
        tasks: Submitted when it starts.

    Returns:
        The exit status.

    Raises:
        ConfigurationError: When it cannot be served so.
    """
    from delf_cli.session import log_to_stderr

    log_to_stderr(state)
    app = make_application(state, options, own)
    app.first_tasks = tuple(tasks)
    with bind(host, port) as listener:
        said = f"delf serves on {address_of(listener)} - Ctrl-C ends it"
        if processes == 1:
            serve(lambda: app, listener, lambda: click.echo(said, err=True))
            return 0
        start = app.service.start
        return _Pool(
            lambda: make_application(state, options, own, start), listener, processes, said
        ).run()


def make_application(
    state: State, options: Options, own: Mapping[str, Any], start: str = ""
) -> Application:
    """The application of the project's agent; ``start`` is what its processes share."""
    from delf.plugins.journals import need_durable_journal
    from delf_cli.session import Setup

    setup = Setup.of(state, options)
    if not setup.journal_was_chosen:
        need_durable_journal(setup.host, "a server")
    more: dict[str, Any] = {}
    if "chat" not in setup.project.agent.model_fields_set:
        more["chat"] = {"persist": True}
    if "approvals" not in setup.project.agent.model_fields_set:
        more["approvals"] = ["web"]
    if "approval_timeout" not in setup.project.agent.model_fields_set:
        more["approval_timeout"] = _WAITS_SECONDS
    agent = setup.agent(**more)
    given = {**setup.project.plugin_options.get(NAME, {}), **own}
    return make_app(agent, given, setup.project.environ, start)


class _Pool:
    """Processes that serve the same socket; one that dies is replaced.

    Args:
        make: Makes the application, in each of them.
        listener: The socket.
        count: How many.
        said: What the first of them says once it serves.
    """

    def __init__(self, make: Any, listener: socket.socket, count: int, said: str) -> None:
        self._make = make
        self._listener = listener
        self._count = count
        self._said: str | None = said
        self._began: dict[int, float] = {}
        self._ending = False
        self._life, self._held = os.pipe()  # at its end when this process is, however it ended

    def run(self) -> int:
        """Keep them running until this process is told to end; the exit status."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._end)
        for _ in range(self._count):
            self._fork()
        refused = 0
        while self._began:
            pid, status = os.wait()
            lived = time.monotonic() - self._began.pop(pid)
            if os.waitstatus_to_exitcode(status) == _REFUSED:
                refused = _REFUSED
                self._end()
            if self._ending:
                continue
            click.echo(f"warning: process {pid} is gone; another one takes its place", err=True)
            time.sleep(max(0.0, _SHORTEST_LIFE_SECONDS - lived))
            self._fork()
        return refused

    def _fork(self) -> None:
        pid = os.fork()
        if not pid:
            self._work()
        self._said = None
        self._began[pid] = time.monotonic()
        if self._ending:  # told between two looks
            os.kill(pid, signal.SIGTERM)

    def _work(self) -> NoReturn:
        status = 1
        try:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            os.close(self._held)
            threading.Thread(target=_end_with, args=(self._life,), daemon=True).start()
            serve(self._make, self._listener, self._say)
            status = 0
        except DelfError as error:
            status = _REFUSED
            click.echo(f"error: {error}", err=True)
        except BaseException as error:
            click.echo(f"error: {type(error).__name__}: {error}", err=True)
        finally:
            sys.stderr.flush()
            os._exit(status)

    def _say(self) -> None:
        if self._said is not None:
            click.echo(self._said, err=True)

    def _end(self, _number: int = 0, _frame: FrameType | None = None) -> None:
        self._ending = True
        for pid in self._began:
            os.kill(pid, signal.SIGTERM)


def _end_with(life: int) -> None:
    """End this process once the one is gone that holds the other end of a pipe."""
    os.read(life, 1)
    os.kill(os.getpid(), signal.SIGTERM)
