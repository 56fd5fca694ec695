"""`delf schedule` checks a routine before it is stored, and shows how its tasks ended."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import pytest

from delf.events import TaskFinished, TaskQueued
from delf.types import TaskState
from delf_cli.schedules import Firing
from delf_engine.project.project import load_project
from delf_journal_sql import SqlJournal
from delf_runner_dbos import schedule_command
from delf_runner_dbos.schedules import open_schedules
from support.cli_fixtures import *  # noqa: F403 - here, run

ROUTINE = """\
# /// routine
# title = "Orders"
# task = "How many orders are from AT?"
#
# [parameters.country]
# type = "text"
# default = "AT"
# ///
print(country)
"""


@pytest.fixture
def schedule(here: Any, run: Any, monkeypatch: pytest.MonkeyPatch):
    """The command, in a project with a routine."""
    monkeypatch.setenv("DELF_RUNNER_DBOS_DATABASE", f"sqlite:///{here}/dbos.sqlite")
    (here / "delf.toml").write_text('[plugins.journal-sql]\nurl = "sqlite:///journal.db"\n')
    (here / "routines").mkdir()
    (here / "routines/orders.py").write_text(ROUTINE)
    return lambda *words: run("--trust", str(here), "schedule", *words)


def test_routine_of_a_schedule_is_checked_before_it_is_stored(schedule: Any):
    add = ("add", "daily", "0 7 * * *")
    routine = ("--strategy", "routine")
    for task, words in {
        "nosuch()": "there is no routine 'nosuch'",
        'orders(land="FR")': "the routine orders has no parameter 'land'",
        "orders(country=[1])": "country = [1] does not fit",
        'orders("FR")': "is not a call of a routine",
        'orders(country=item["c"])': "item is known only if the schedule has `each`",
    }.items():
        refused = schedule(*add, task, *routine)
        assert (refused.exit_code, words in refused.stderr) == (2, True), (task, refused.stderr)
    assert json.loads(schedule("list", "--json").stdout) == []
    for name, task in (("call", 'orders(country="FR")'), ("name", "orders")):
        added = schedule("add", name, "0 7 * * *", task, *routine)
        assert added.exit_code == 0, added.output


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("--tools", "tolls.py", "--tools tolls.py: it does not exist"),
        ("-c", "shpo", "unknown connection 'shpo'"),
        ("--file", "in.csv", "input file 'in.csv' does not exist"),
        ("--sandbox", "mnoty", "unknown sandbox 'mnoty'"),
        ("--strategy", "codgen", "unknown strategy 'codgen'"),
    ],
)
def test_schedule_with_a_misspelt_option_is_refused(
    schedule: Any, monkeypatch: pytest.MonkeyPatch, option: str, value: str, words: str
):
    monkeypatch.setenv("DELF_LLM", "openai/gpt-4o")
    refused = schedule("add", "daily", "0 7 * * *", "Count orders.", option, value)
    assert (refused.exit_code, words in refused.stderr) == (2, True), refused.stderr
    assert json.loads(schedule("list", "--json").stdout) == []


async def test_schedule_records_the_strategy_of_the_project(schedule: Any, here: Any):
    with (here / "delf.toml").open("a") as toml:
        toml.write('[agent]\nstrategy = "routine"\n')
    added = await asyncio.to_thread(schedule, "add", "orders", "0 7 * * *", "orders")
    assert added.exit_code == 0, added.output
    schedules = open_schedules(load_project(here))
    try:
        assert (await schedules.find("orders")).is_routine
    finally:
        await schedules.aclose()


@pytest.fixture
def past(schedule: Any, here: Any, monkeypatch: pytest.MonkeyPatch):
    """A function that sets the tasks of a past firing: their ids with their errors or None."""

    def begin(tasks: dict[str, str | None], note: str | None = None) -> None:
        async def fill() -> None:
            journal = SqlJournal(f"sqlite:///{here}/journal.db")
            for name, error in tasks.items():
                await journal.append(TaskQueued(task_id=name, seq=1, at=1.0, task="x", queue="q"))
                end: dict[str, Any] = {"status": error is None, "text": "", "error": error}
                if error != "queued":
                    await journal.claim(name)
                    await journal.append(
                        TaskFinished(task_id=name, seq=2, at=2.0, duration_ms=1.0, **end)
                    )
            await journal.aclose()

        asyncio.run(fill())
        firing = Firing(
            at=0.0, state=TaskState.DONE, task_ids=("task_gone", *tasks), test=True, note=note
        )
        schedules = SimpleNamespace(
            history=AsyncMock(return_value=[firing]),
            test=AsyncMock(return_value="test-1"),
            firing=AsyncMock(return_value=firing),
            find=AsyncMock(return_value=SimpleNamespace(queue="q")),
            aclose=AsyncMock(),
        )
        monkeypatch.setattr(schedule_command, "open_schedules", lambda _: schedules)
        monkeypatch.setattr(schedule_command, "TEST_SECONDS", 0.0)

    return begin


@pytest.mark.parametrize(
    ("tasks", "state", "line"),
    [
        ({}, "done", "started   test  gone"),
        ({"task_a": None}, "done", "done      test  gone, a done"),
        ({"task_a": None, "task_b": "no FR"}, "failed", "failed    test  gone, a done, b failed  no FR"),
        ({"task_a": None, "task_b": "queued"}, "queued", "queued    test  gone, a done, b queued"),
    ],
)  # fmt: skip
def test_history_and_test_show_how_the_tasks_ended(
    schedule: Any, past: Any, tasks: Any, state: Any, line: Any
):
    past(tasks)
    (shown,) = json.loads(schedule("history", "daily", "--json").stdout)
    assert shown["state"] == state
    assert list(shown["task_states"]) == list(tasks)
    for words in ("history", "test"):
        done = schedule(words, "daily")
        assert (done.stdout + done.stderr).strip().endswith(line)
        assert done.exit_code == 0
