"""Commands whose output has no reader any more."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.program import DELF, delf, environment, failure_lines, start, write_recording

pytestmark = pytest.mark.timeout(90)

NOBODY_READS = 141
"""The status with which a shell reports a program that SIGPIPE ended."""
LINES = 20_000


@contextmanager
def unread_pipe() -> Iterator[int]:
    """The end to write to of a pipe that nobody reads."""
    read_end, write_end = os.pipe()
    os.close(read_end)
    try:
        yield write_end
    finally:
        os.close(write_end)


@pytest.mark.parametrize(
    "words",
    [
        "--version",
        "plugins --json",
        "doctor",
        "runs list --json",
    ],
)
def test_commands_end_quietly_when_the_pipe_closes(tmp_path, words):
    with unread_pipe() as out:
        done = subprocess.run(
            [DELF, *words.split()],
            cwd=tmp_path,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.PIPE,
            timeout=60,
        )
    assert (done.returncode, failure_lines(done.stderr.decode())) == (NOBODY_READS, [])


def long_answer(here: Path) -> list[str]:
    llm = write_recording(here / "answers.jsonl", f"for n in range({LINES}): print(n)")
    return ["run", "x", "--llm", llm]


@pytest.mark.parametrize("unbuffered", ["", "1"], ids=["buffered", "unbuffered"])
def test_run_ends_quietly_when_its_reader_leaves(tmp_path, unbuffered):
    """As in ``delf run … | head -1``: a part was read, more was written, and the rest is lost."""
    with start(
        [DELF, *long_answer(tmp_path)],
        cwd=tmp_path,
        env=environment(PYTHONUNBUFFERED=unbuffered),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read(4) == b"0\n1\n"
        process.stdout.close()
        assert failure_lines(process.stderr.read().decode()) == []
        assert process.wait(60) == NOBODY_READS


@pytest.mark.parametrize("unbuffered", ["", "1"], ids=["buffered", "unbuffered"])
def test_fully_read_pipe_gets_the_complete_answer(tmp_path, unbuffered):
    done = delf(*long_answer(tmp_path), cwd=tmp_path, env={"PYTHONUNBUFFERED": unbuffered})
    assert done.returncode == 0
    assert done.stdout.split() == [str(n) for n in range(LINES)]
