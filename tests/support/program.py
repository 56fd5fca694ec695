"""The program ``delf`` as a user starts it: in a process of its own."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import termios
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from support.nurseries import Program

DELF = Path(sys.executable).with_name("delf")


def environment(**more: str) -> dict[str, str]:
    """The test's environment, with these variables; a sandbox is started once a task needs one."""
    return {**os.environ, "COLUMNS": "100", "DELF_SANDBOX_LOCAL_POOL_SIZE": "0", **more}


def delf(
    *arguments: str | Path,
    cwd: Path,
    stdin: str | bytes = b"",
    env: Mapping[str, str] | None = None,
    timeout: float = 60,
) -> subprocess.CompletedProcess[str]:
    """Run the program to its end, with pipes; see :func:`start`."""
    data = stdin.encode() if isinstance(stdin, str) else stdin
    command = [DELF, *map(str, arguments)]
    done = run(command, cwd=cwd, env=environment(**(env or {})), given=data, timeout=timeout)
    out, err = done.stdout.decode(), done.stderr.decode(errors="replace")
    return subprocess.CompletedProcess(command, done.returncode, out, err)


def run(
    command: Sequence[str | Path],
    *,
    given: str | bytes | None = None,
    timeout: float = 60,
    **options: Any,
) -> subprocess.CompletedProcess[Any]:
    """Run a program to its end, with pipes; see :func:`start`.

    Args:
        command: The program and its arguments.
        given: Its standard input.
        timeout: Seconds, after which it is killed.
        options: As of :func:`start`.

    Raises:
        subprocess.TimeoutExpired: When it was.
    """
    pipe = subprocess.PIPE
    with start(command, stdin=pipe, stdout=pipe, stderr=pipe, **options) as process:
        try:
            out, err = process.communicate(given, timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def start(
    command: Sequence[str | Path],
    *,
    cwd: str | Path = ".",
    env: Mapping[str, str] | None = None,
    terminal: bool = False,
    imported: tuple[str, ...] = (),
    **options: Any,
) -> subprocess.Popen[Any]:
    """Start a program with the options of ``Popen``.

    ``delf``, a file of Python, ``python -c`` and ``python -m`` are forked from a process that has
    imported what they need, unless the environment has something to say to Python itself: to
    import it all takes half a second of processor time.

    Args:
        command: The program and its arguments.
        cwd: Its folder.
        env: All of its environment, this process's when omitted.
        terminal: Whether its standard input becomes the terminal that controls it.
        imported: Modules that it needs, in place of what ``delf`` does.
        options: As of ``Popen``.
    """
    env = dict(os.environ) if env is None else env
    words = [str(word) for word in command]
    words = words[1:] if words[0] == sys.executable else words
    is_known = words[0] in (str(DELF), "-c", "-m") or words[0].endswith(".py")
    options["cwd"] = Path(cwd).resolve()
    if is_known and sys.platform == "linux" and _of_python(env) == _of_python(os.environ):
        return Program(words, terminal=terminal, imported=imported, env=env, **options)
    if terminal:
        options["preexec_fn"] = lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    return subprocess.Popen(command, env=env, **options)


def _of_python(environ: Mapping[str, str]) -> dict[str, str]:
    quick = ("PYTHONPATH",)
    return {k: v for k, v in environ.items() if k.startswith("PYTHON") and k not in quick}


def write_recording(path: Path, *scripts: str, **reply: Any) -> str:
    """A recording that answers with these scripts, in order; the model's name for it."""
    lines = [
        {"request": {"contains": []}, "reply": {"text": f"```python\n{script}\n```", **reply}}
        for script in scripts
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return f"recorded:{path}"


def failure_lines(stderr: str) -> list[str]:
    """The output without warnings and the closing line."""
    quiet = ("warning:", "failed ·", "done ·", "hint: delf runs show")
    return [line for line in stderr.splitlines() if line and not line.startswith(quiet)]
