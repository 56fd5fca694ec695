"""Lets hosts in this process have their templates from :mod:`support.warm_template`."""

from __future__ import annotations

import atexit
import ctypes
import os
import signal
import socket
import subprocess
import sys
import threading
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

from delf_sandbox_local import forkserver

_PR_SET_CHILD_SUBREAPER: Final = 36
_BOOT: Final = forkserver._BOOT.format(source=forkserver._SOURCE)

warm_subprocess: Final = SimpleNamespace(
    Popen=lambda command, **options: _start(command, options),
    PIPE=subprocess.PIPE,
    DEVNULL=subprocess.DEVNULL,
)
"""Stands in for the module ``subprocess`` where templates are started."""


def _start(command: list[str], options: dict[str, Any]) -> Any:
    boot, zipapp, descriptor, _ = command[command.index("-c") + 1 :]
    if sys.platform != "linux" or boot != _BOOT:
        return subprocess.Popen(command, **options)
    return _nursery(os.getpid(), zipapp).start(int(descriptor))


class _Template:
    """Of a ``Popen`` what is used of it."""

    def __init__(self, pid: int, errors: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self.stderr = open(errors, "rb")
        self._turn = threading.Lock()

    def kill(self) -> None:
        if self.returncode is None:
            os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> int:
        with self._turn:
            if self.returncode is None:
                _, status = os.waitpid(self.pid, 0)
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode


@cache
def _nursery(host: int, zipapp: str) -> _Nursery:
    """One for each process: templates are children of the one that made it."""
    return _Nursery(host, zipapp)


class _Nursery:
    def __init__(self, host: int, zipapp: str) -> None:
        self._host = host
        self._turn = threading.Lock()
        self._prctl = ctypes.CDLL(None).prctl
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        options = ("-P", "-s", "-S", "-X", "utf8")
        worker = Path(__file__).with_name("warm_template.py")
        words = (worker, forkserver._SOURCE, zipapp, str(theirs.fileno()))
        self._process = subprocess.Popen(
            [sys.executable, *options, *words],
            pass_fds=(theirs.fileno(),),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env=forkserver._ENVIRON,
        )
        theirs.close()
        atexit.register(self._process.kill)

    def start(self, control: int) -> _Template:
        with self._turn:
            read, write = os.pipe()
            self._prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
            socket.send_fds(self._control, [str(self._host).encode()], [control, write])
            pid = int(self._control.recv(100))
            self._control.recv(100)
            self._prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
            os.close(write)
            return _Template(pid, read)
