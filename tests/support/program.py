"""The program ``delf`` as a user starts it: in a process of its own."""

from __future__ import annotations

import atexit
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from support.many_programs import MARK

DELF = Path(sys.executable).with_name("delf")


def environment(**more: str) -> dict[str, str]:
    """The test's environment, with these variables."""
    return {**os.environ, "COLUMNS": "100", **more}


def delf(
    *arguments: str | Path,
    cwd: Path,
    stdin: str | bytes = b"",
    env: Mapping[str, str] | None = None,
    timeout: float = 60,
) -> subprocess.CompletedProcess[str]:
    """Run the program to its end, with pipes.

    It is forked from a process that has imported what it needs, unless its environment has
    something to say to Python itself: to import it all takes a second of processor time each.
    """
    data = stdin.encode() if isinstance(stdin, str) else stdin
    given = environment(**(env or {}))
    command = [DELF, *map(str, arguments)]
    if sys.platform != "linux" or _of_python(given) != _of_python(os.environ):
        done = subprocess.run(
            command, cwd=cwd, env=given, input=data, capture_output=True, timeout=timeout
        )
        status, out, err = done.returncode, done.stdout, done.stderr
    else:
        status, out, err = warm_program().run(command[1:], str(cwd), given, data, timeout)
    return subprocess.CompletedProcess(command, status, out.decode(), err.decode(errors="replace"))


def _of_python(environ: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environ.items() if name.startswith("PYTHON")}


@cache
def warm_program() -> WarmProgram:
    """The one that this process runs programs with."""
    return WarmProgram()


class WarmProgram:
    """A process from which programs are forked; see :mod:`support.warm_program`."""

    def __init__(self) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        worker = Path(__file__).with_name("warm_program.py")
        self._process = subprocess.Popen(
            [sys.executable, worker, str(theirs.fileno())],
            pass_fds=(theirs.fileno(),),
            stdin=subprocess.DEVNULL,
        )
        theirs.close()
        atexit.register(self._process.kill)

    def run(
        self,
        arguments: Sequence[str],
        cwd: str,
        env: Mapping[str, str],
        data: bytes,
        timeout: float,
    ) -> tuple[int, bytes, bytes]:
        """A program's exit status and what it wrote."""
        request = json.dumps({"arguments": arguments, "cwd": cwd, "env": dict(env)}).encode()
        with TemporaryFile() as given, TemporaryFile() as out, TemporaryFile() as err:
            given.write(data)
            given.seek(0)
            streams = [file.fileno() for file in (given, out, err)]
            self._control.settimeout(60)
            socket.send_fds(self._control, [request], streams)
            child = json.loads(self._control.recv(100))
            self._control.settimeout(timeout)
            try:
                status = json.loads(self._control.recv(100))
            except TimeoutError:
                os.kill(child, signal.SIGKILL)
                self._control.settimeout(60)
                self._control.recv(100)
                raise subprocess.TimeoutExpired(["delf", *arguments], timeout) from None
            out.seek(0)
            err.seek(0)
            return status, out.read(), err.read()


def delf_many(
    commands: Sequence[Sequence[str]],
    *,
    cwd: Path,
    env: Mapping[str, str] | None = None,
    timeout: float = 120,
) -> list[subprocess.CompletedProcess[str]]:
    """Run the program several times in one process, which imports what it needs once."""
    worker = Path(__file__).with_name("many_programs.py")
    done = subprocess.run(
        [sys.executable, worker, json.dumps(commands)],
        cwd=cwd,
        env=environment(**(env or {})),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=timeout,
    )
    outputs = [
        re.split(f"{re.escape(MARK)}(.*)\n", stream.decode(errors="replace"))
        for stream in (done.stdout, done.stderr)
    ]
    assert all(len(parts) == 2 * len(commands) + 1 for parts in outputs), outputs
    out, err = outputs
    return [
        subprocess.CompletedProcess(arguments, int(out[at + 1]), out[at], err[at])
        for at, arguments in zip(range(0, 2 * len(commands), 2), commands, strict=True)
    ]


def write_recording(path: Path, *scripts: str, **reply: Any) -> str:
    """A recording that answers with these scripts, in order; the model's name for it."""
    lines = [
        {"request": {"contains": []}, "reply": {"text": f"```python\n{script}\n```", **reply}}
        for script in scripts
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return f"recorded:{path}"


def failure_lines(stderr: str) -> list[str]:
    """What was said beside warnings and the closing line."""
    quiet = ("warning:", "failed ·", "done ·")
    return [line for line in stderr.splitlines() if line and not line.startswith(quiet)]
