"""A run that is stopped from outside: everything that it started is gone."""

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
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
def begun(
    command: list[object], here: Path, has_begun: Callable[[str], object], **options: object
) -> Iterator[subprocess.Popen[str]]:
    """A process of its own group that has written a line to wait for; killed if a test fails."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with start(command, cwd=here, env=environment(), **pipes, **options) as process:
        for line in process.stdout:
            if has_begun(line):
                break
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def run_of(here: Path, script: str, *options: str, tools: str = TOOLS) -> list[object]:
    """The command that runs a script with tools."""
    (here / "tools.py").write_text(tools)
    llm = write_recording(here / "answers.jsonl", script)
    return [DELF, "run", "x", "--tools", "tools.py", "--llm", llm, *options]


def starts_call(line: str, *actions: str) -> bool:
    """True if an event is the start of a call, of any action or of the given ones."""
    event = json.loads(line)
    return event["type"] == "CallStarted" and (not actions or event["data"]["action"] in actions)


def running(here: Path, script: str) -> AbstractContextManager[subprocess.Popen[str]]:
    """A run whose script has begun."""
    wanted = {"calls": "hold", "blocks": "block"}.get(script, "started")
    command = run_of(here, SCRIPTS[script], "--events")
    return begun(command, here, lambda line: starts_call(line, wanted), start_new_session=True)


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
        rest, message = process.communicate(timeout=50)
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
def test_plugin_that_hangs_on_close_delays_neither_answer_nor_signal(tmp_path, end):
    script = "print(await desk.find())"
    command = run_of(tmp_path, script, tools=STUCK.format(end=end))
    with begun(command, tmp_path, "1\n".__eq__, start_new_session=True) as process:
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        if "await" not in end:  # the second ends the process, whatever it does
            process.send_signal(signal.SIGTERM)
        process.wait(50)
        assert time.monotonic() - began < 8
    assert process.returncode in (130, -signal.SIGTERM, -signal.SIGINT)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_hangup_ends_the_process_but_not_the_task(tmp_path, number):
    """A closed terminal and a machine that goes down end a process, and no task."""
    tools = (
        TOOLS.replace("await asyncio.sleep(600)", "await asyncio.sleep(0 if os.path.exists('go') else 600)")
        .replace("import asyncio, time", "import asyncio, os, time")
        .replace("\'\'\'Started.\'\'\'", "open('begun', 'a').write('x')")
    )  # fmt: skip
    script = "await started()\nawait hold()\nprint('whole')"
    command = run_of(tmp_path, script, "--verbose", tools=tools)
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
        _, errors = process.communicate(timeout=50)
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
        process.wait(50)
        for pid in sandboxes:
            try:
                descriptor = os.pidfd_open(pid)
            except ProcessLookupError:
                continue
            import select

            assert select.select([descriptor], [], [], 10)[0], f"{pid} runs on"
            os.close(descriptor)


def test_ignored_hangup_stays_ignored(tmp_path):
    command = ["nohup", *run_of(tmp_path, SCRIPTS["sleeps"], "--events")]
    with begun(command, tmp_path, starts_call, stdin=subprocess.DEVNULL) as process:
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=50)
    assert process.returncode == 143


def test_interrupted_run_reports_what_it_had_changed(tmp_path):
    tools = TOOLS.replace(
        'read", confirm=False)\ndef started', 'write", confirm=False)\ndef started'
    )
    script = "await started()\nprint('half')\nawait hold()"
    command = run_of(tmp_path, script, "--verbose", tools=tools)
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment(), stderr=subprocess.PIPE, text=True
    ) as process:
        for line in process.stderr:
            if "→" in line and "hold" in line:
                break
        process.send_signal(signal.SIGINT)
        _, message = process.communicate(timeout=50)
    assert process.returncode == 130
    assert "changed before it was stopped:\n  started()\nstopped · " in message
    assert re.search(r"\nhint: delf runs show [0-9a-f]{7}\n$", message)
    (task,) = json.loads(delf("runs", "list", "--json", cwd=tmp_path).stdout)
    assert (task["state"], task["error"]) == ("stopped", "the task was stopped")
    resumed = delf("resume", task["task_id"], cwd=tmp_path)
    hint = "a stopped task does not go on; as a new task: delf runs fork"
    assert (resumed.returncode, hint in resumed.stderr) == (1, True), resumed.stderr
