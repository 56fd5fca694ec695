"""``delf run`` and ``delf chat`` are stopped at random moments and resumed: each write is made once.

By SIGTERM and SIGHUP, after which its task is resumed, and by one Ctrl-C or two, after which the
journal has every write. ``DELF_TEST_CLI_STOPS=50`` for a long run, with ``DELF_TEST_CLI_SEED`` for
other moments.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from support.program import DELF, delf, environment, write_recording
from support.until import until_now

STOPS: Final = int(os.environ.get("DELF_TEST_CLI_STOPS", "3"))
SEED: Final = int(os.environ.get("DELF_TEST_CLI_SEED", "20261201"))
WRITES: Final = 12
SCRIPT: Final = f"""
for n in range({WRITES}):
    print(n)
    await (write if n % 2 else write_in_thread)(n)
print("end")
"""
TOOLS: Final = """
import asyncio
from delf import tool

def note(n):
    with open("written", "a") as file:
        file.write(f"{n}\\n")

@tool(effect="write", confirm=False)
async def write(n: int) -> None:
    '''Write.'''
    note(n)
    await asyncio.sleep(0.01)

@tool(effect="write", confirm=False)
def write_in_thread(n: int) -> None:
    '''Write.'''
    note(n)
"""
pytestmark = [pytest.mark.slow, pytest.mark.timeout(120 + 30 * STOPS)]


def written(here: Path) -> list[int]:
    """The numbers that were written, in order."""
    file = here / "written"
    return [int(line) for line in file.read_text().split()] if file.exists() else []


def project(here: Path, program: str) -> list[str | Path]:
    """Make a project of one task; return the command that works on the task or watches it."""
    here.mkdir()
    (here / "tools.py").write_text(TOOLS)
    llm = write_recording(here / "answers.jsonl", SCRIPT)
    words = ["run", "x"] if program == "run" else ["chat"]
    return [DELF, *words, "--tools", "tools.py", "--llm", llm]


def stopped(here: Path, command: Sequence[str | Path], chance: random.Random, *numbers: int) -> int:
    """Run a program, send it signals after some further writes, and wait for its end."""
    env = environment(XDG_DATA_HOME=str(here))
    null = subprocess.DEVNULL
    # Not as a fork of a process that has imported all: a signal may come as it begins.
    with subprocess.Popen(
        command, cwd=here, env=env, stdin=subprocess.PIPE, stdout=null, stderr=null
    ) as process:
        assert process.stdin is not None
        process.stdin.write(b"x\n")  # the turn of a chat
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        wanted = len(written(here)) + chance.randint(0, 4)
        until_now(lambda: process.poll() is not None or len(written(here)) >= wanted)
        for number in numbers:
            if process.poll() is None:
                process.send_signal(number)
                try:
                    process.wait(chance.uniform(0, 0.02))
                except subprocess.TimeoutExpired:
                    continue
        return process.wait(30)


def events(here: Path, task: str) -> list[dict[str, Any]]:
    done = delf("runs", "events", task, "--json", cwd=here, env={"XDG_DATA_HOME": str(here)})
    return [json.loads(line) for line in done.stdout.splitlines()]


def task_of(here: Path) -> dict[str, Any] | None:
    listed = delf("runs", "list", "--json", cwd=here, env={"XDG_DATA_HOME": str(here)})
    return next(iter(json.loads(listed.stdout)), None)


def open_call(found: list[dict[str, Any]]) -> int | None:
    """The number that a call was to write whose outcome is unknown."""
    begun = {}
    for event in found:
        data = event["data"]
        if event["type"] == "CallStarted":
            begun[data["call_id"]] = data["arguments"]["n"]
        elif event["type"] == "CallFinished" and data["cancellation"] != "cut_off":
            begun.pop(data["call_id"], None)
    return next(iter(begun.values()), None)


@pytest.mark.parametrize("program", ["run", pytest.param("chat", marks=pytest.mark.soak)])
def test_abandoned_and_resumed_task_writes_once(tmp_path: Path, program: str) -> None:
    chance, stops = random.Random(SEED), 0
    for number in range(STOPS):
        here = tmp_path / str(number)
        command: Sequence[str | Path] = project(here, program)
        while True:
            how = chance.choice((signal.SIGTERM, signal.SIGTERM, signal.SIGHUP))
            stopped(here, command, chance, how)
            task = task_of(here)
            if task is None:  # it had not begun
                continue
            if task["state"] != "interrupted":
                break
            stops += 1
            lost = open_call(events(here, task["task_id"]))
            settle = "done" if lost in written(here) else "again"
            command = [DELF, "resume", task["task_id"], "--settle", settle]
        assert task["state"] == "done", task
        assert written(here) == [*range(WRITES)], f"seed {SEED}, task {number}"
        if stops >= STOPS:
            break
    print(f"{stops} times left and resumed")
    assert stops


@pytest.mark.parametrize("program", [pytest.param("run", marks=pytest.mark.soak), "chat"])
def test_task_stopped_by_ctrl_c_records_every_write(tmp_path: Path, program: str) -> None:
    chance = random.Random(SEED)
    for number in range(STOPS):
        here = tmp_path / str(number)
        presses = chance.choice((1, 2)) * (signal.SIGINT,)
        stopped(here, project(here, program), chance, *presses)
        task = task_of(here)
        if task is None:
            assert written(here) == []
            continue
        found = events(here, task["task_id"])
        begun = Counter(e["data"]["arguments"]["n"] for e in found if e["type"] == "CallStarted")
        assert set(written(here)) <= set(begun), f"seed {SEED}, task {number}"
        assert len(written(here)) == len(set(written(here)))
