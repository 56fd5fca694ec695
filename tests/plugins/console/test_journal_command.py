"""`delf journal`: its size, copies, and tasks that move to another place."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import sqlite3
import stat
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from delf.events import (
    ApprovalDecided,
    ApprovalRequested,
    Printed,
    TaskFinished,
    TaskQueued,
    TaskStarted,
)
from delf_journal_sql import SqlJournal
from delf_journal_sql.errors import JournalError
from delf_journal_sql.settings import JournalSettings
from delf_journal_sql.sqlite import SqliteConnection

END: dict[str, Any] = {"status": True, "text": "done", "duration_ms": 1.0}


def fill(place: str) -> None:
    async def work() -> None:
        journal = SqlJournal(place)
        for number in range(40):
            name = f"task_{number:02}"
            at = 1000.0 + number
            await journal.append(TaskStarted(task_id=name, seq=1, at=at, task=f"Do {number}"))
            await journal.append(Printed(task_id=name, seq=2, at=at, text="é" * 90_000))
            if number:
                await journal.append(TaskFinished(task_id=name, seq=3, at=at + 1, **END))
        queued = TaskQueued(task_id="task_q", seq=1, at=2000.0, task="Later", queue="mails")
        await journal.append(queued)
        await journal.aclose()

    asyncio.run(work())


@pytest.fixture
def place(tmp_path: Path) -> str:
    return str(tmp_path / "journal.db")


@pytest.fixture
def run(delf_project: Any, place: str) -> Any:
    def command(*arguments: Any, journal: str = place) -> Any:
        texts = [str(argument) for argument in arguments]
        return delf_project.run("journal", *texts, DELF_JOURNAL_SQL_URL=journal)

    return command


def contents(place: str) -> dict[str, list[Any]]:
    async def read() -> dict[str, list[Any]]:
        journal = SqlJournal(place)
        try:
            tasks = await journal.find(1000)
            return {task.task_id: list(await journal.read(task.task_id)) for task in tasks}
        finally:
            await journal.aclose()

    return asyncio.run(read())


def test_journal_size_command_reports_size(run: Any, place: str) -> None:
    fill(place)
    shown = run("size").stdout
    assert shown.startswith(f"{place}: ")
    assert "41 tasks (39 done, 1 interrupted, 1 queued)\n120 events\n" in shown
    data = json.loads(run("size", "--json").stdout)
    assert data["tasks"] == {"done": 39, "interrupted": 1, "queued": 1}
    assert run("check").stdout == "nothing is damaged\n"


def test_journal_backup_is_a_working_journal(run: Any, place: str, tmp_path: Path) -> None:
    fill(place)
    copy = tmp_path / "copy.db"
    assert run("backup", copy).exit_code == 0
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    assert contents(str(copy)) == contents(place)
    again = run("backup", copy)
    assert (again.exit_code, "already exists" in again.stderr) == (1, True)
    assert "No such file or directory" in run("backup", tmp_path / "no" / "copy.db").stderr


def test_journal_backup_ignores_uncommitted_changes(run: Any, place: str, tmp_path: Path) -> None:
    fill(place)
    with closing(sqlite3.connect(place, isolation_level=None)) as other, other:
        other.execute("BEGIN IMMEDIATE")
        other.execute("DELETE FROM delf_events")
        assert run("backup", tmp_path / "copy.db").exit_code == 0
        other.execute("ROLLBACK")
    assert contents(str(tmp_path / "copy.db")) == contents(place)


def test_journal_export_and_import_move_tasks(run: Any, place: str, tmp_path: Path) -> None:
    fill(place)
    file, there = tmp_path / "tasks.jsonl", str(tmp_path / "there.db")
    assert run("export", file).stderr == f"{file}: 41 tasks\n"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert run("import", file, journal=there).stderr == "41 tasks added\n"
    assert contents(there) == contents(place)
    states = json.loads(run("size", "--json", journal=there).stdout)["tasks"]
    assert states == {"done": 39, "interrupted": 1, "queued": 1}, "those that wait go on waiting"
    assert run("import", file, journal=there).stderr == "0 tasks added\n"


def test_export_of_an_earlier_version_keeps_the_users_of_tasks(
    run: Any, place: str, tmp_path: Path
):
    """It called the user of a task its key. Without the user, the task would be the local user's."""
    data = {"task": "Pay.", "origin": "serve", "parent": None, "key": "ada:1", "setup": {}}
    event = {"type": "TaskStarted", "v": 1, "task_id": "t", "seq": 1, "at": 1.0, "data": data}
    file = tmp_path / "tasks.jsonl"
    file.write_text(f'{{"delf_journal": 1}}\n{json.dumps(event)}\n')
    assert run("import", file).stderr == "1 task added\n"
    (started,) = contents(place)["t"]
    assert started.user == "ada:1"


@pytest.mark.parametrize("last_commit", [2, 4, 6, 8])
def test_killed_import_leaves_no_part_of_a_task(
    run: Any, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, last_commit: int
) -> None:
    fill(place)
    file, there = tmp_path / "tasks.jsonl", str(tmp_path / "there.db")
    assert run("export", file).exit_code == 0
    commit, commits = SqliteConnection.commit, itertools.count()

    def die(self: SqliteConnection) -> None:
        if next(commits) >= last_commit:
            raise JournalError("killed")
        commit(self)

    with monkeypatch.context() as patched:
        patched.setattr(SqliteConnection, "commit", die)
        run("import", file, journal=there)
    contents_here, contents_there = contents(place), contents(there)
    assert all(events == contents_here[name] for name, events in contents_there.items())
    added = len(contents_here) - len(contents_there)
    assert run("import", file, journal=there).stderr == f"{added} tasks added\n"
    assert contents(there) == contents_here


@pytest.mark.parametrize("revoked", [False, True])
def test_imported_decision_holds_for_its_task_only(
    run: Any, place: str, tmp_path: Path, revoked: bool
) -> None:
    """An export has no revocations, and may come from somebody else."""
    place_of = {"task_id": "task_1", "at": 1000.0, "request_id": "req_1"}
    call = {"call_id": 1, "action": "pay", "arguments": {}, "digest": "0", "effect": "write"}
    decision = {"decision": "approved", "by": "terminal", "remember": "until_revoked"}

    async def decide() -> None:
        async with contextlib.aclosing(SqlJournal(place)) as journal:
            await journal.append(TaskStarted(task_id="task_1", seq=1, at=1000.0, task="Pay."))
            await journal.append(ApprovalRequested(**place_of, **call, seq=2))
            await journal.append(ApprovalDecided(**place_of, **decision, seq=3))
            if revoked:
                await journal.revoke("req_1", "cli")

    async def remembered(name: str) -> int:
        async with contextlib.aclosing(SqlJournal(name)) as journal:
            return len(await journal.remembered())

    asyncio.run(decide())
    file, there = tmp_path / "tasks.jsonl", str(tmp_path / "there.db")
    assert run("export", file).exit_code == 0
    assert run("import", file, journal=there).stderr == "1 task added\n"
    assert asyncio.run(remembered(place)) == (0 if revoked else 1)
    assert asyncio.run(remembered(there)) == 0
    (events,) = contents(there).values()
    assert events[-1].remember == "task"


def test_journal_export_names_an_unreadable_task(run: Any, place: str, tmp_path: Path) -> None:
    fill(place)
    with contextlib.closing(sqlite3.connect(place, isolation_level=None)) as raw:
        raw.execute("UPDATE delf_events SET v = 99 WHERE pos = 1")
    file, there = tmp_path / "tasks.jsonl", str(tmp_path / "there.db")
    done = run("export", file)
    assert done.exit_code == 1
    assert f"{file} has 40 tasks, without what cannot be read: " in " ".join(done.stderr.split())
    assert run("import", file, journal=there).stderr == "40 tasks added\n"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "\xff",
        "[" * 100_000,
        '{"delf_journal": 2}',
        '{"delf_journal": 1}\n{"type": "x"}',
        '{"delf_journal": 1}\n[1]',
        '{"delf_journal": 1}\nnull',
    ],
    ids=lambda text: text[:30],
)
def test_invalid_export_is_refused(run: Any, tmp_path: Path, text: str) -> None:
    file = tmp_path / "tasks.jsonl"
    file.write_text(text, "latin-1")
    done = run("import", file)
    assert done.exit_code == 1
    assert (
        f"{file}, line {text.count(chr(10)) + 1}: this is not an event of a journal" in done.stderr
    )


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90 days", 90 * 86_400),
        ("12h", 43_200),
        ("2 weeks", 1_209_600),
        ("1.5d", 129_600),
        (60, 60),
    ],
)
def test_journal_keep_option_accepts_durations(text: Any, seconds: float) -> None:
    states = ("done", "failed", "stopped", "interrupted")
    assert JournalSettings(keep=text).keep == dict.fromkeys(states, seconds)
    assert SqlJournal("x.db", keep={"failed": text}).keep == {"failed": seconds}
    assert SqlJournal("x.db").keep == {}


@pytest.mark.parametrize("text", ["soon", "-1d", 0, "3 years", {"running": "1d"}, {"done": "x"}])
def test_journal_keep_option_refuses_invalid_durations(text: Any) -> None:
    with pytest.raises(ValueError, match="keep"):
        JournalSettings(keep=text)
