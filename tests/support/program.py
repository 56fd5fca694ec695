"""The program ``delf`` as a user starts it: in a process of its own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
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
    """Run the program to its end, with pipes."""
    data = stdin.encode() if isinstance(stdin, str) else stdin
    done = subprocess.run(
        [DELF, *arguments],
        cwd=cwd,
        env=environment(**(env or {})),
        input=data,
        capture_output=True,
        timeout=timeout,
    )
    return subprocess.CompletedProcess(
        done.args, done.returncode, done.stdout.decode(), done.stderr.decode(errors="replace")
    )


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
