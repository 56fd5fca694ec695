"""Processes that begin as forks of ones that have imported what they need.

They are children of this process like any other; only how they come to life differs.
"""

from __future__ import annotations

import atexit
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

from delf_sandbox_local import forkserver

_BOOT: Final = forkserver.BOOT.format(source=forkserver.SOURCE)
_FOLDER: Final = Path(__file__).parent


class Nursery:
    """A process that forks, and the way to it.

    Args:
        command: What runs it; the number of its socket is added.
        env: Its environment, this process's when omitted.
    """

    def __init__(self, command: Sequence[str | Path], env: Mapping[str, str] | None = None) -> None:
        self._command = command
        self._env = env
        self._turn = threading.Lock()
        self._number = 0
        self._owner = os.getpid()
        self._start()
        atexit.register(self._close)

    def _start(self) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, *self._command, str(theirs.fileno())],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env=self._env,
            )

    def _close(self) -> None:
        if os.getpid() == self._owner:  # and not a fork of it
            self._control.close()
            self._process.kill()
            self._process.wait()

    def fork(self, descriptors: Sequence[int], **request: Any) -> int:
        """The number of a new child of this process.

        If the process that forks has ended, only this call fails: the next begins another one.
        """
        with self._turn:
            self._number += 1
            data = json.dumps({"host": os.getpid(), "number": self._number, **request}).encode()
            try:
                socket.send_fds(self._control, [data], descriptors)
                return self._answer()
            except (BrokenPipeError, EOFError) as error:
                self._close()
                status = self._process.returncode
                self._start()
                raise RuntimeError(f"the process that forks others ended: {status}") from error

    def _answer(self) -> int:
        """The next answer to the last request; a test whose time was over left its own unread."""
        while data := self._control.recv(100):
            number, process = json.loads(data)
            if number == self._number:
                return process
        raise EOFError


class _Forked(subprocess.Popen[Any]):
    """A process with the usual streams, begun otherwise."""

    def _begin(self, streams: Sequence[int], pass_fds: Sequence[int], **options: Any) -> int:
        raise NotImplementedError

    def _execute_child(  # of the standard library; the same from Python 3.11 to 3.14
        self, args: Any, executable: Any, preexec_fn: Any, close_fds: Any, pass_fds: Any,
        cwd: Any, env: Any, startupinfo: Any, creationflags: Any, shell: Any,
        p2cread: int, p2cwrite: int, c2pread: int, c2pwrite: int, errread: int, errwrite: int,
        *rest: Any,
    ) -> None:  # fmt: skip
        streams = [p2cread, c2pwrite, errwrite]
        streams = [own if given == -1 else given for own, given in enumerate(streams)]
        options = {"command": args, "cwd": cwd, "env": env, "session": bool(rest[-2])}
        options["umask"] = rest[-3]
        self.pid = self._begin(streams, pass_fds, **options)
        self._child_created = True
        self._close_pipe_fds(p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite)


# -- templates of the local sandbox -----------------------------------------------------------


class _Template(_Forked):
    def _begin(self, streams: Sequence[int], pass_fds: Sequence[int], **options: Any) -> int:
        zipapp = options["command"][-3]
        return _templates(os.getpid(), zipapp).fork([*pass_fds, streams[2]])


@cache
def _templates(_host: int, zipapp: str) -> Nursery:
    command = ("-P", "-s", "-S", "-X", "utf8", _FOLDER / "warm_template.py")
    return Nursery(
        [*command, os.pathsep.join(forkserver.SOURCE), zipapp], forkserver.TEMPLATE_ENVIRONMENT
    )


def _start_template(command: list[str], **options: Any) -> subprocess.Popen[Any]:
    usual = sys.platform == "linux" and command[command.index("-c") + 1] == _BOOT
    return (_Template if usual else subprocess.Popen)(command, **options)


quick_templates: Final = SimpleNamespace(
    Popen=_start_template, PIPE=subprocess.PIPE, DEVNULL=subprocess.DEVNULL
)
"""Stands in for the module ``subprocess`` where templates are started."""


# -- templates of confined children -----------------------------------------------------------


class _Reader(_Forked):
    def _begin(self, streams: Sequence[int], pass_fds: Sequence[int], **options: Any) -> int:
        environ = tuple(options["env"].items())
        return _readers(os.getpid(), environ).fork(
            pass_fds, paths=json.loads(options["command"][-2])
        )


@cache
def _readers(_host: int, environ: tuple[tuple[str, str], ...]) -> Nursery:
    paths = json.dumps([path for path in sys.path if os.path.isabs(path)])
    return Nursery(["-I", "-X", "utf8", _FOLDER / "warm_reader.py", paths], dict(environ))


quick_readers: Final = SimpleNamespace(
    Popen=_Reader if sys.platform == "linux" else subprocess.Popen, DEVNULL=subprocess.DEVNULL
)
"""Stands in for the module ``subprocess`` where templates of confined children are started."""


# -- the program ------------------------------------------------------------------------------


class Program(_Forked):
    """``delf``, or a file of Python, as ``subprocess.Popen`` would start it.

    Args:
        command: The program's or file's path, and its arguments.
        terminal: Whether its standard input becomes the terminal that controls it.
        imported: Modules that it needs, in place of what ``delf`` does.
        options: As of ``Popen``; ``cwd`` and ``env`` among them.
    """

    def __init__(
        self,
        command: Sequence[str | Path],
        *,
        terminal: bool = False,
        imported: tuple[str, ...] = (),
        **options: Any,
    ) -> None:
        self._terminal = terminal
        self._imported = imported
        super().__init__([str(word) for word in command], **options)

    def _begin(self, streams: Sequence[int], pass_fds: Sequence[int], **options: Any) -> int:
        options = {**options, "cwd": str(options["cwd"]), "env": dict(options["env"])}
        return _programs(os.getpid(), self._imported).fork(
            streams, terminal=self._terminal, **options
        )


@cache
def _programs(_host: int, imported: tuple[str, ...]) -> Nursery:
    return Nursery([_FOLDER / "warm_program.py", *imported])
