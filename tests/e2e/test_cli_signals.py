"""A run that is stopped from outside: everything that it started is gone."""

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.program import DELF, delf, environment, failure_lines, start, write_recording

SCRIPTS = {
    "sleeps": "import asyncio\nprint(await started())\nawait asyncio.sleep(600)",
    "spins": "print(await started())\nwhile True: pass",
    "calls": "await started()\nawait hold()",
    "blocks": "await started()\nawait block()",
}
TOOLS = """
import asyncio, time
from delf import tool

@tool(effect="read", confirm=False)
def started() -> None:
    '''Started.'''

@tool(effect="read", confirm=False)
async def hold() -> None:
    '''Hold.'''
    try:
        await asyncio.sleep(600)
    finally:
        open("cleaned", "w").close()

@tool(effect="read", confirm=False)
def block() -> None:
    '''Block.'''
    time.sleep(600)
"""


@contextmanager
def running(here: Path, script: str) -> Iterator[subprocess.Popen[str]]:
    """A run whose script has begun."""
    (here / "tools.py").write_text(TOOLS)
    llm = write_recording(here / "answers.jsonl", SCRIPTS[script])
    command = [DELF, "run", "x", "--tools", "tools.py", "--llm", llm, "--events"]
    with start(
        command,
        cwd=here,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        wanted = {"calls": "hold", "blocks": "block"}.get(script, "started")
        for line in process.stdout:
            event = json.loads(line)
            if event["type"] == "CallStarted" and event["data"]["action"] == wanted:
                break
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def children(process: subprocess.Popen[str]) -> list[int]:
    tasks = Path(f"/proc/{process.pid}/task")
    return [int(p) for t in tasks.iterdir() for p in (t / "children").read_text().split()]


@pytest.mark.parametrize("script", list(SCRIPTS))
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signal_ends_the_run_and_its_sandboxes(tmp_path, script, number, status):
    with running(tmp_path, script) as process:
        sandboxes = children(process)
        assert sandboxes
        process.send_signal(number)
        rest, message = process.communicate(timeout=20)
    assert process.returncode == status
    if (script, number) == ("sleeps", signal.SIGINT):
        last = json.loads(rest.splitlines()[-1])
        assert (last["type"], last["data"]["status"]) == ("TaskFinished", False)
    assert not [pid for pid in sandboxes if Path(f"/proc/{pid}").exists()]
    assert failure_lines(message) == []  # its events say it, which are what was asked for
    assert script != "calls" or (tmp_path / "cleaned").exists()


STUCK = """
import asyncio, time
from delf.tools.action import action
from delf.tools.connection import Connection

class Desk(Connection):
    @action(effect="read")
    async def find(self) -> int:
        '''Find.'''
        return 1

    async def aclose(self) -> None:
        {end}

desk = Desk(name="desk")
"""


@pytest.mark.parametrize("end", ["time.sleep(600)", "await asyncio.sleep(600)"])
def test_plugin_that_does_not_close_holds_no_answer_and_no_signal(tmp_path, end):
    (tmp_path / "tools.py").write_text(STUCK.format(end=end))
    llm = write_recording(tmp_path / "answers.jsonl", "print(await desk.find())")
    command = [DELF, "run", "x", "--tools", "tools.py", "--llm", llm]
    with start(
        command,
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout.readline() == "1\n"
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        if "await" not in end:  # the second ends the process, whatever it does
            process.send_signal(signal.SIGTERM)
        process.wait(20)
        assert time.monotonic() - began < 8
    assert process.returncode in (130, -signal.SIGTERM, -signal.SIGINT)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_hangup_ends_the_process_but_not_the_task(tmp_path, number):
    """A closed terminal and a machine that goes down end a process, and no task."""
    (tmp_path / "tools.py").write_text(
        TOOLS.replace("await asyncio.sleep(600)", "await asyncio.sleep(0 if os.path.exists('go') else 600)")
        .replace("import asyncio, time", "import asyncio, os, time")
        .replace("\'\'\'Started.\'\'\'", "open('begun', 'a').write('x')")
    )  # fmt: skip
    llm = write_recording(
        tmp_path / "answers.jsonl", "await started()\nawait hold()\nprint('whole')"
    )
    command = [DELF, "run", "x", "--tools", "tools.py", "--llm", llm, "--verbose"]
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment(), stderr=subprocess.PIPE, text=True
    ) as process:
        for line in process.stderr:
            if "hold" in line:
                break
        began = time.monotonic()
        assert delf("runs", "list", cwd=tmp_path).returncode == 0  # its last event gets older
        worked = time.monotonic() - began
        process.send_signal(number)
        _, errors = process.communicate(timeout=20)
    assert process.returncode == 128 + number
    message = re.search(r"interrupted · ([\d.]+) s", errors)
    assert message
    assert float(message[1]) > worked - 0.1, "the time until its end, not until its last event"
    assert f"{number.name} ended its process; it can be resumed" in errors
    assert re.search(r"\nhint: delf resume [0-9a-f]{7}\n$", errors)
    (task,) = json.loads(delf("runs", "list", "--json", cwd=tmp_path).stdout)
    assert (task["state"], task["error"]) == ("interrupted", None)
    (tmp_path / "go").touch()
    resumed = delf("resume", task["task_id"], cwd=tmp_path)
    assert (resumed.returncode, resumed.stdout) == (0, "whole\n"), resumed.stderr
    assert (tmp_path / "begun").read_text() == "x", "nothing is done twice"


def test_kill_leaves_no_sandbox(tmp_path):
    with running(tmp_path, "spins") as process:
        sandboxes = children(process)
        assert sandboxes
        process.kill()
        process.wait(20)
        for pid in sandboxes:
            try:
                descriptor = os.pidfd_open(pid)
            except ProcessLookupError:
                continue
            import select

            assert select.select([descriptor], [], [], 10)[0], f"{pid} runs on"
            os.close(descriptor)


def test_ignored_hangup_stays_ignored(tmp_path):
    (tmp_path / "tools.py").write_text(TOOLS)
    llm = write_recording(tmp_path / "answers.jsonl", SCRIPTS["sleeps"])
    command = ["nohup", DELF, "run", "x", "--tools", "tools.py", "--llm", llm, "--events"]
    with start(
        command,
        cwd=tmp_path,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        for line in process.stdout:
            if json.loads(line)["type"] == "CallStarted":
                break
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=20)
    assert process.returncode == 143


def test_person_reads_that_it_was_stopped_and_what_it_had_changed(tmp_path):
    (tmp_path / "tools.py").write_text(
        TOOLS.replace('read", confirm=False)\ndef started', 'write", confirm=False)\ndef started')
    )
    llm = write_recording(
        tmp_path / "answers.jsonl", "await started()\nprint('half')\nawait hold()"
    )
    command = [DELF, "run", "x", "--tools", "tools.py", "--llm", llm, "--verbose"]
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment(), stderr=subprocess.PIPE, text=True
    ) as process:
        for line in process.stderr:
            if "→" in line and "hold" in line:
                break
        process.send_signal(signal.SIGINT)
        _, message = process.communicate(timeout=20)
    assert process.returncode == 130
    assert "changed before it was stopped:\n  started()\nstopped · " in message
    assert re.search(r"\nhint: delf runs show [0-9a-f]{7}\n$", message)
    (task,) = json.loads(delf("runs", "list", "--json", cwd=tmp_path).stdout)
    assert (task["state"], task["error"]) == ("stopped", "the task was stopped")
