"""``delf runs``, as it is typed."""

from __future__ import annotations

import asyncio
import json
import time

import pytest

from delf.errors import UnknownTaskError
from delf.events import (
    ApprovalRequested,
    CallStarted,
    Printed,
    TaskFinished,
    TaskQueued,
    TaskResumed,
    TaskStarted,
)
from delf_devkit.testing.events import every_event
from delf_journal_sql import SqlJournal


@pytest.fixture
def place(tmp_path):
    return str(tmp_path / "journal.db")


@pytest.fixture
async def open_journal():
    """Opens journals and closes them after the test."""
    made = []

    def make(url):
        made.append(SqlJournal(url))
        return made[-1]

    yield make
    for journal in made:
        await journal.aclose()


@pytest.fixture
def runs(delf_project, place):
    def run(*arguments):
        return delf_project.run("runs", *arguments, DELF_JOURNAL_SQL_URL=place)

    return run


@pytest.fixture
def filled(place):
    async def fill():
        journal = SqlJournal(place)
        for event in every_event("task_whole"):
            await journal.append(event)
        old = TaskStarted(task_id="task_wait", seq=1, at=50.0, task="Wait\x1b[31m\nlong")
        await journal.append(old)
        now = time.time()
        await journal.append(TaskStarted(task_id="task_new", seq=1, at=now, task="Fail"))
        end = {
            "status": False,
            "text": "",
            "duration_ms": 90_000.0,
            "error": "no luck",
            "hint": "try",
        }
        await journal.append(TaskFinished(task_id="task_new", seq=2, at=now, **end))
        await journal.aclose()

    asyncio.run(fill())


def test_runs_list_of_an_empty_journal_is_reported(runs, place):
    outcome = runs("list")
    assert (outcome.exit_code, outcome.stdout) == (0, "")
    assert outcome.stderr == f"There is no task yet in {place}\n"
    assert json.loads(runs("list", "--json").stdout) == []


def test_runs_list_shows_tasks(runs, filled):
    outcome = runs("list")
    assert outcome.exit_code == 0
    head, *rows = outcome.stdout.splitlines()
    assert head.split() == ["id", "state", "started", "took", "cost", "task"]
    assert [row.split()[:2] for row in rows] == [
        ["new", "failed"],
        ["whole", "done"],
        ["wait", "interrupted"],
    ]
    assert "Wait\\x1b[31m long" in rows[2], "nothing steers the terminal"
    assert "1 min 30 s" in rows[0]
    assert "$0.1000" in rows[1]


def test_runs_list_filters_tasks(runs, filled):
    def ids(*arguments):
        return [task["task_id"] for task in json.loads(runs("list", "--json", *arguments).stdout)]

    assert ids("--state", "interrupted") == ["task_wait"]
    assert ids("--since", "1h") == ["task_new"]
    assert ids("--limit", "1") == ["task_new"]
    assert runs("list", "--state", "queued").stderr.startswith("No task fits")
    assert runs("list", "--since", "yesterday").exit_code == 2


def test_runs_list_filters_tasks_by_field(runs, place):
    async def fill():
        journal = SqlJournal(place)
        for name in ("day", "night"):
            queued = TaskQueued(task_id=f"task_{name}", seq=1, at=1.0, task="Run", queue=name)
            await journal.append(queued)
        await journal.aclose()

    asyncio.run(fill())
    tasks = json.loads(runs("list", "--queue", "night", "--json").stdout)
    assert [task["task_id"] for task in tasks] == ["task_night"]
    assert runs("list", "--queue", "noon").stderr.startswith("No task fits")


def test_runs_list_obeys_a_large_limit(runs, place):
    names = [f"task_{number:06}" for number in range(1005)]

    async def fill():
        journal = SqlJournal(place)
        began = [TaskQueued(task_id=n, seq=1, at=float(at), task=n) for at, n in enumerate(names)]
        await asyncio.gather(*map(journal.append, began))
        await journal.aclose()

    asyncio.run(fill())
    head, *rows = runs("list", "--limit", "100000").stdout.splitlines()
    assert head.split()[0] == "id"
    assert [f"task_{row.split()[0]}" for row in rows] == names[::-1]
    beyond = runs("list", "--limit", "1" * 21)
    assert beyond.exit_code == 2
    assert "1000000" in beyond.stderr


def test_runs_show_prints_scripts_calls_and_answer(runs, filled):
    outcome = runs("show", "who")
    assert outcome.exit_code == 0
    assert outcome.stdout.startswith("Pay the bill. Today.\ndone, started ")
    assert "bank.pay" in outcome.stdout
    assert outcome.stdout.endswith("\npaid\n")
    assert "error: no luck\nhint: try" in runs("show", "task_new").stdout
    assert json.loads(runs("show", "task_new", "--json").stdout)["hint"] == "try"


def test_runs_show_includes_origins_of_arguments(runs, place):
    call = {"call_id": 1, "action": "mail.send", "arguments": {"to": "eve"}}
    call |= {"effect": "write", "digest": "d"}
    origin = {"kind": "result", "trust": "outside", "text": "from mail.read; others wrote it"}
    began = {"task_id": "task_mail", "at": 1.0}

    async def fill():
        journal = SqlJournal(place)
        await journal.append(TaskStarted(**began, seq=1, task="Write"))
        asked = {"request_id": "req_1", "origins": {"to": origin}, **call}
        await journal.append(ApprovalRequested(**began, seq=2, **asked))
        await journal.append(CallStarted(**began, seq=3, **call))
        await journal.aclose()

    asyncio.run(fill())
    message = "sources of values:\n   1  mail.send to: " + origin["text"]
    assert message in runs("show", "mail").stdout
    data = json.loads(runs("show", "mail", "--json").stdout)
    assert data["trace"]["tool_calls"][0]["origins"] == {"to": origin}


def test_runs_show_prints_json(runs, filled):
    data = json.loads(runs("show", "whole", "--json").stdout)
    assert (data["task_id"], data["state"], data["answer"]) == ("task_whole", "done", "paid")
    assert data["trace"]["usage"]["input_tokens"] == 5


def test_runs_events_prints_every_event(runs, filled):
    lines = runs("events", "whole").stdout.splitlines()
    assert len(lines) == len(every_event())
    assert lines[0].split()[:4] == ["1", "0.000", "s", "TaskQueued"]
    records = [
        json.loads(line) for line in runs("events", "whole", "--json").stdout.split("\n")[:-1]
    ]
    assert [record["seq"] for record in records] == list(range(1, len(lines) + 1))
    assert runs("events", "whole", "--follow").stdout.splitlines() == lines, "it is over already"


def test_runs_code_prints_scripts(runs, filled):
    assert runs("code", "whole").stdout == "print(1)\n"
    assert json.loads(runs("code", "whole", "--json").stdout) == [
        {"attempt": 1, "code": "print(1)"}
    ]
    assert runs("code", "wait").stderr == "task task_wait has no script\n"


def test_runs_prune_removes_old_tasks(runs, filled):
    message = runs("prune", "--dry-run", "--older-than", "30d")
    assert message.stdout == "task_wait\ntask_whole\n"
    assert message.stderr == f"2 tasks with {len(every_event()) + 1} events would be removed\n"
    assert runs("prune", "--keep", "2").stdout == "1 task with 1 event removed\n"
    assert json.loads(runs("prune", "--json").stdout)["tasks"] == ["task_whole"]
    assert [row.split()[0] for row in runs("list").stdout.splitlines()[1:]] == ["new"]


@pytest.mark.parametrize("command", ["show", "events", "code"])
def test_unknown_or_ambiguous_task_id_is_refused(runs, filled, command):
    unknown = runs(command, "zzz")
    assert unknown.exit_code == 1
    assert unknown.stderr == "error: no task 'zzz' is known\nhint: delf runs list shows them all\n"
    several = runs(command, "w")
    assert several.exit_code == 1
    assert several.stderr == (
        "error: more than one task begins with 'w'\nhint: one of: task_whole, task_wait\n"
    )


async def test_follow_continues_until_the_task_ends(place, open_journal):
    from delf_console.runs import events_of

    journal, reader = open_journal(place), open_journal(place)
    with pytest.raises(UnknownTaskError):
        await anext(events_of(reader, "t", follow=True))
    await journal.append(TaskStarted(task_id="t", seq=1, at=1.0, task="x"))
    stream = events_of(reader, "t", follow=True)
    seen = [(await anext(stream)).seq]
    for seq in range(2, 6):
        await journal.append(Printed(task_id="t", seq=seq, at=1.0, text="y"))
    end = {"status": True, "text": "", "duration_ms": 1.0}
    await journal.append(TaskFinished(task_id="t", seq=6, at=2.0, **end))
    seen += [event.seq async for event in stream]
    assert seen == [1, 2, 3, 4, 5, 6]


async def test_follow_continues_after_an_end_that_was_undone(place, open_journal):
    from delf_console.runs import events_of

    journal, reader = open_journal(place), open_journal(place)
    end = {"status": False, "text": "", "error": "no time", "duration_ms": 1.0}
    await journal.append(TaskStarted(task_id="t", seq=1, at=1.0, task="x"))
    await journal.append(TaskFinished(task_id="t", seq=2, at=2.0, **end))
    await journal.reopen("t")
    await journal.append(TaskResumed(task_id="t", seq=3, at=3.0))
    stream = events_of(reader, "t", follow=True)
    seen = [(await anext(stream)).seq for _ in range(3)]
    await journal.append(TaskFinished(task_id="t", seq=4, at=4.0, **end))
    seen += [event.seq async for event in stream]
    assert seen == [1, 2, 3, 4]


async def test_follow_waits_for_a_queued_task(place, open_journal, monkeypatch):
    from delf_console import runs as command

    monkeypatch.setattr(command, "POLL_SECONDS", 0.01)
    journal, reader = open_journal(place), open_journal(place)
    await journal.append(TaskQueued(task_id="t", seq=1, at=1.0, task="x", queue="q"))
    find_task = reader.task
    finds = 0

    async def task(task_id):
        nonlocal finds
        finds += 1
        record = await find_task(task_id)
        if finds == 2:  # the first wait ended without an event
            await journal.append(TaskStarted(task_id="t", seq=2, at=1.0, task="x"))
            end = {"status": True, "text": "", "duration_ms": 1.0}
            await journal.append(TaskFinished(task_id="t", seq=3, at=2.0, **end))
        return record

    monkeypatch.setattr(reader, "task", task)
    assert [event.seq async for event in command.events_of(reader, "t", follow=True)] == [1, 2, 3]


async def test_follow_continues_although_a_subscription_pauses(place, open_journal, monkeypatch):
    from delf_console import runs as command

    monkeypatch.setattr(command, "POLL_SECONDS", 0.01)
    journal, reader = open_journal(place), open_journal(place)
    await journal.append(TaskStarted(task_id="t", seq=1, at=1.0, task="x"))
    subscribe = reader.subscribe

    async def subscribe_by_generator(task_id):
        async for event in subscribe(task_id):
            yield event

    monkeypatch.setattr(reader, "subscribe", subscribe_by_generator)
    stream = command.events_of(reader, "t", follow=True)
    assert (await anext(stream)).seq == 1
    next_event = asyncio.ensure_future(anext(stream))
    await asyncio.wait({next_event}, timeout=0.1)  # several waits end without an event
    end = {"status": True, "text": "", "duration_ms": 1.0}
    await journal.append(TaskFinished(task_id="t", seq=2, at=2.0, **end))
    assert (await next_event).seq == 2
    assert [event async for event in stream] == []


async def test_follow_ends_when_the_owner_is_gone(place, open_journal, monkeypatch, capsys):
    from delf_console import runs as command

    monkeypatch.setattr(command, "POLL_SECONDS", 0.01)
    journal, reader = open_journal(place), open_journal(place)
    await journal.append(TaskStarted(task_id="t", seq=1, at=1.0, task="x"))
    stream = command.events_of(reader, "t", follow=True)
    await anext(stream)
    await journal.aclose()
    assert [event async for event in stream] == []
    assert "interrupted" in capsys.readouterr().err
