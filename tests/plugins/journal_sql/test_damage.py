"""An event that cannot be read costs its own task; every other task stays readable."""

from __future__ import annotations

import contextlib
import sqlite3
import time

import pytest

from delf.errors import UnreadableEventError
from delf.events import (
    ApprovalDecided,
    ApprovalRequested,
    FileWritten,
    ModelCalled,
    StoppedBy,
    TaskFinished,
    TaskQueued,
    TaskStarted,
)
from delf.protocols.search import TaskFilter

END = {"status": True, "text": "", "duration_ms": 1.0}
ASKED = {"call_id": 1, "action": "pay", "effect": "write", "digest": "d", "arguments": {}}


@pytest.fixture
def journal(sqlite_place, open_journal):
    return open_journal(sqlite_place)


@pytest.fixture
def damage(sqlite_place):
    """Damages the events of a task's type, as a newer delf or a defective disk would."""

    def spoil(task_id, kind, change="data = '{'"):
        with contextlib.closing(sqlite3.connect(sqlite_place, isolation_level=None)) as raw:
            changed = raw.execute(
                f"UPDATE delf_events SET {change} WHERE type = ? "
                "AND task = (SELECT id FROM delf_tasks WHERE task_id = ?)",
                (kind, task_id),
            )
            assert changed.rowcount == 1

    return spoil


async def start(journal, name, **more):
    event = TaskStarted(task_id=name, seq=1, at=time.time(), task=f"do {name}", **more)
    await journal.append(event)


async def ask(journal, name, request_id):
    asked = {**ASKED, "request_id": request_id}
    await journal.append(ApprovalRequested(task_id=name, seq=2, at=1.0, **asked))


async def decide(journal, name, request_id):
    decided = {"request_id": request_id, "decision": "approved", "by": "ann", "project": "/shop"}
    event = ApprovalDecided(task_id=name, seq=3, at=2.0, remember="until_revoked", **decided)
    await journal.append(event)


@pytest.mark.parametrize(
    "change", ["data = '{'", "v = 99", "type = 'Later'", "blobs = '{\"a\":1}'"]
)
async def test_unreadable_event_is_named(journal, damage, change):
    await start(journal, "t")
    damage("t", "TaskStarted", change)
    with pytest.raises(UnreadableEventError, match=r"task t is damaged|cannot read|is damaged"):
        await journal.read("t")


async def test_export_has_all_tasks_but_the_unreadable_one(journal, damage):
    for name in ("a", "b", "c"):
        await start(journal, name)
    damage("b", "TaskStarted")
    tasks = journal.read_all()
    assert [(await anext(tasks))[0].task_id for _ in range(2)] == ["a", "c"]
    with pytest.raises(UnreadableEventError, match="event 1 of task b is damaged"):
        await anext(tasks)


async def test_pending_requests_of_other_tasks_are_listed(journal, damage):
    for name in ("a", "b", "c"):
        await start(journal, name)
        await ask(journal, name, f"req_{name}")
    await decide(journal, "b", "req_b")
    damage("b", "ApprovalDecided", "v = 99")  # so that the request would seem to wait
    records = await journal.find_requests(waiting=True)
    assert [record.requested.request_id for record in records] == ["req_a", "req_c"]
    with pytest.raises(UnreadableEventError):
        await journal.find_requests("req_b")
    (record,) = await journal.find_requests("req_a")
    assert record.requested.request_id == "req_a"


async def test_subscription_passes_a_batch_of_damaged_notes(journal, sqlite_place):
    await start(journal, "a")
    for number in range(250):
        await journal.post("a", "remark", {"number": number})
    with contextlib.closing(sqlite3.connect(sqlite_place, isolation_level=None)) as raw:
        raw.execute("UPDATE delf_notes SET data = '{'")
    await journal.post("a", "remark", {"number": "last"})
    notes = journal.subscribe_notes(after=0)
    assert (await anext(notes)).data == {"number": "last"}


async def test_remembered_decisions_of_other_tasks_hold(journal, damage):
    for name in ("a", "b"):
        await start(journal, name)
        await ask(journal, name, f"req_{name}")
        await decide(journal, name, f"req_{name}")
    damage("a", "ApprovalRequested")
    assert [decision.request_id for decision in await journal.remembered()] == ["req_b"]


async def test_damaged_note_hides_no_other_note(journal, sqlite_place):
    for name in ("a", "b", "c"):
        await start(journal, name)
        await ask(journal, name, f"req_{name}")
        await decide(journal, name, f"req_{name}")
    assert await journal.asked_to_stop(["a", "b", "c"]) == {}
    await journal.post("a", "cancel", {"by": "ann", "via": "page"})
    await journal.revoke("req_b", "ann")
    with contextlib.closing(sqlite3.connect(sqlite_place, isolation_level=None)) as raw:
        raw.execute("UPDATE delf_notes SET data = '{'")
    await journal.post("c", "cancel", {"by": "bob", "via": "page"})
    assert await journal.asked_to_stop(["a", "b", "c"]) == {"c": StoppedBy("bob", "page")}
    assert [note.task_id for note in await journal.notes()] == ["c"]
    # A damaged note may revoke any decision about its task.
    assert [decision.request_id for decision in await journal.remembered()] == ["req_a", "req_c"]


async def test_subscription_to_all_tasks_skips_an_unreadable_event(journal, damage):
    events = journal.subscribe()
    await start(journal, "a")
    await start(journal, "b")
    damage("a", "TaskStarted", "v = 99")
    assert (await anext(events)).task_id == "b"


async def test_search_finds_tasks_after_an_unreadable_event(journal, damage):
    await start(journal, "a")
    await start(journal, "b")
    damage("a", "TaskStarted")
    assert await journal.index(10.0) == 0
    found = await journal.search(TaskFilter(text="do"))
    assert [match.task.task_id for match in found.tasks] == ["b"]


async def test_search_finds_a_task_that_was_damaged_later(journal, damage):
    await start(journal, "a")
    await start(journal, "b")
    assert await journal.index(10.0) == 0
    damage("a", "TaskStarted")
    found = await journal.search(TaskFilter(text="do"))
    assert [match.task.task_id for match in found.tasks] == ["b", "a"]


async def test_old_tasks_with_damaged_events_are_removed(journal, damage, tmp_path):
    for name in ("a", "b"):
        await start(journal, name, setup={"input_files": [f"/in/{name}"]})
        written = {"label": name, "path": str(tmp_path / name), "size": 1}
        await journal.append(FileWritten(task_id=name, seq=2, at=1.0, **written))
        await journal.append(TaskFinished(task_id=name, seq=3, at=2.0, **END))
    await journal.append(TaskQueued(task_id="c", seq=1, at=1.0, task="c"))
    damage("a", "FileWritten")
    damage("a", "TaskStarted")
    damage("c", "TaskQueued", "data = '{\"input_files\":['")
    removed = await journal.prune()
    assert set(removed.tasks) == {"a", "b"}
    assert removed.inputs == (), "the damaged task that stays may use any of the input files"
    assert removed.files == (str(tmp_path / "b"),)


async def test_old_prompts_are_removed_beside_damaged_events(sqlite_place, open_journal, damage):
    journal = open_journal(sqlite_place, keep_prompts="1h")
    for name in ("a", "b"):
        await start(journal, name)
        called = {"model": "m", "purpose": "generate", "prompt": "secret"}
        await journal.append(ModelCalled(task_id=name, seq=2, at=1.0, **called))
    damage("a", "ModelCalled", "data = substr(data, 2)")
    await journal.prune(older_than=3600.0)
    assert (await journal.read("b"))[1].prompt is None
