"""``delf run`` is killed; ``delf resume`` ends what it began, and does nothing twice."""

import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from delf.events import PROJECT_FOLDER, TaskStarted
from delf_journal_sql import SqlJournal
from support.program import DELF, delf, environment, start, write_recording

from .waiting import FREE_TO_CLOSE, Run, running, sent

pytestmark = pytest.mark.timeout(120)

NO_RETRY = "agent.retry_count=0"
SCRIPT = """
print(await desk.close(7))
print(await desk.send("ada"))
"""


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "tools.py").write_text(FREE_TO_CLOSE)
    return tmp_path


def killed_while_it_waits(here: Path, *flags: str) -> tuple[str, str]:
    """The ids of a task that was killed, and of the request that waited."""
    with running(here, SCRIPT, flags=flags) as run:
        request = run.request()
        run.process.kill()
        run.process.communicate()
    listed = json.loads(delf("runs", "list", "--json", cwd=here).stdout)
    assert [task["state"] for task in listed] == ["interrupted"]
    return listed[0]["task_id"], request


def test_resume_from_another_folder_uses_the_task_options(here: Path, tmp_path: Path) -> None:
    task, request = killed_while_it_waits(here)
    assert sent(here) == ["closed 7"]
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    process = start(
        [DELF, "resume", task[:9]],
        cwd=elsewhere,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    run = Run(process)
    assert run.request() == request, "the request keeps its id"
    done = delf("approvals", "approve", request, cwd=elsewhere)
    assert (done.returncode, done.stderr) == (0, "")
    status, out, err = run.end()
    assert (status, out) == (0, "closed\nsent to ada\n"), err
    assert sent(here) == ["closed 7", "ada 1"]
    again = delf("resume", task, cwd=here)
    assert (again.returncode, again.stdout) == (0, "closed\nsent to ada\n")
    assert sent(here) == ["closed 7", "ada 1"]


@pytest.mark.parametrize(("options", "used"), [([], "shop"), (["--here"], "bank")])
def test_resume_continues_a_task_of_a_server_in_its_project(
    tmp_path: Path, options: list[str], used: str
) -> None:
    for name in ("shop", "bank"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "delf.toml").write_text('[agent]\nllm = "recorded:answers.jsonl"\n')
    setup = {PROJECT_FOLDER: str(tmp_path / "shop")}

    async def interrupt() -> None:
        async with aclosing(SqlJournal(str(tmp_path / "journal.db"))) as journal:
            event: dict[str, Any] = {"seq": 1, "at": 1.0, "task": "Pay.", "setup": setup}
            await journal.append(TaskStarted(task_id="task_served", **event))

    asyncio.run(interrupt())
    trusted = os.pathsep.join(str(tmp_path / name) for name in ("shop", "bank"))
    env = {"DELF_TRUST": trusted, "DELF_JOURNAL_SQL_URL": str(tmp_path / "journal.db")}
    failed = delf("resume", "task_served", *options, cwd=tmp_path / "bank", env=env)
    assert f"no recording at {tmp_path / used / 'answers.jsonl'}" in failed.stderr


def test_hint_after_an_interrupted_resume_names_the_task(here: Path) -> None:
    task, request = killed_while_it_waits(here)
    process = start(
        [DELF, "resume", task],
        cwd=here,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    run = Run(process)
    assert run.request() == request
    process.send_signal(signal.SIGTERM)
    _, _, err = run.end()
    hint = next(line for line in err.splitlines() if line.startswith("hint: "))
    assert hint == f"hint: delf resume {task.removeprefix('task_')[:7]}"


def test_resume_options_override_the_recorded_options(here: Path) -> None:
    task, _ = killed_while_it_waits(here)
    done = delf("resume", task, "--approve", "none", "--set", NO_RETRY, "--json", cwd=here)
    assert done.returncode == 1
    assert "denied" in json.loads(done.stdout)["error"]
    assert sent(here) == ["closed 7"]


def test_secret_option_must_be_given_again_on_resume(here: Path) -> None:
    key = "providers.openai=sk-planted-0123456789"
    task, _ = killed_while_it_waits(here, "--set", key)
    kept = delf("runs", "events", task, "--json", cwd=here).stdout
    assert "planted" not in kept
    failed = delf("resume", task, cwd=here)
    assert failed.returncode == 2
    assert "give it again: --set providers.openai=…" in failed.stderr
    done = delf("resume", task, "--set", key, "--approve", "all", cwd=here)
    assert (done.returncode, done.stdout) == (0, "closed\nsent to ada\n")


def test_secret_inside_another_option_must_be_given_again(here: Path) -> None:
    flags = ("--base-url", "http://ada:planted-0123456789@127.0.0.1:9/v1")
    task, _ = killed_while_it_waits(here, *flags)
    failed = delf("resume", task, cwd=here)
    assert failed.returncode == 2
    assert "give it again: --llm" in failed.stderr


def test_resume_resolves_flag_paths_in_the_working_folder(here: Path, tmp_path: Path) -> None:
    task, _ = killed_while_it_waits(here)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "own.toml").write_text("")
    flags = ("--config", "own.toml", "--approve", "all")
    done = delf("resume", task, *flags, cwd=elsewhere)
    assert (done.returncode, done.stdout) == (0, "closed\nsent to ada\n"), done.stderr


def test_unresumable_tasks_are_refused(here: Path) -> None:
    unknown = delf("resume", "task_none", cwd=here)
    assert unknown.returncode == 1
    assert "task_none" in unknown.stderr
    assert "delf runs list" in unknown.stderr
    with running(here, SCRIPT) as run:
        run.request()
        listed = json.loads(delf("runs", "list", "--json", cwd=here).stdout)
        busy = delf("resume", listed[0]["task_id"], cwd=here)
    assert busy.returncode == 1
    assert re.search(r"is being worked on by process \d+", busy.stderr)


def test_resume_of_a_task_from_a_deleted_folder_needs_the_here_option(
    here: Path, tmp_path: Path
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    (gone / "tools.py").write_text((here / "tools.py").read_text())
    task, _ = killed_while_it_waits(gone)
    shutil.rmtree(gone)
    failed = delf("resume", task, cwd=here)
    assert failed.returncode == 2
    assert "gone' cannot be entered: No such file or directory" in failed.stderr
    model = write_recording(here / "answers.jsonl", SCRIPT)
    moved = delf("resume", task, "--here", "--approve", "all", "--llm", model, cwd=here)
    assert moved.returncode == 0, moved.stderr


def test_child_task_cannot_be_resumed_alone(tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text(
        "from delf import CallContext, tool\n\n\n@tool(effect='read', confirm=False)\n"
        "async def hand_over(context: CallContext) -> str:\n    'Ask.'\n"
        "    return (await context.delegate('the child')).text\n"
    )
    llm = write_recording(tmp_path / "answers.jsonl", "print(hand_over())", "print(1)")
    delf("run", "the parent", "--tools", "tools.py", "--llm", llm, cwd=tmp_path)
    listed = json.loads(delf("runs", "list", "--json", cwd=tmp_path).stdout)
    named = {task["task"]: task["task_id"] for task in listed}
    done = delf("resume", named["the child"], cwd=tmp_path)
    assert done.returncode != 0
    assert "it goes on with the task that started it" in done.stderr
    assert f"delf resume {named['the parent']}" in done.stderr
