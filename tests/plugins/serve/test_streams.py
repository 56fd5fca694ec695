"""A client's stream of a task's events reaches the task's end, with or without live events."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from types import SimpleNamespace

from delf.events import ApprovalDecided, ApprovalRequested, TaskFinished, TaskStarted
from delf.testing import request_for
from delf.types import TaskState
from delf_devkit.testing.events import every_event
from delf_engine.journal.in_process import InProcessJournal
from delf_journal_sql import SqlJournal
from delf_journal_sql.errors import JournalError
from delf_serve import streams
from delf_serve.streams import END, HELLO, Streams


def streams_of(journal):
    """Streams of single tasks, which need the journal alone."""
    return Streams(lambda: journal, SimpleNamespace(), SimpleNamespace())


class Deaf(SqlJournal):
    """A journal whose subscriptions deliver nothing, as if another server wrote the events."""

    def subscribe(self, task_id=None):
        return self._nothing()

    async def _nothing(self):
        await asyncio.Event().wait()
        yield


async def test_stream_ends_if_the_last_event_precedes_the_subscription(monkeypatch, tmp_path):
    monkeypatch.setattr(streams, "BEAT_SECONDS", 0.01)
    begun = every_event("t1")[0]
    end = TaskFinished(
        task_id="t1", seq=begun.seq + 1, at=1.0, status=True, text="", duration_ms=1.0
    )
    journal, seen = Deaf(f"sqlite:///{tmp_path}/journal.db"), []
    await journal.append(begun)
    async for frame in streams_of(journal).events("t1", 0):
        seen.append(frame)
        if len(seen) == 3:
            await journal.append(end)
    await journal.aclose()
    assert seen[-1] == END
    assert any(b"id: %d" % end.seq in frame for frame in seen)


async def test_resumed_stream_has_the_state_after_each_event(tmp_path):
    journal = SqlJournal(f"sqlite:///{tmp_path}/journal.db")
    asked = request_for()
    fields = {f.name: getattr(asked, f.name) for f in dataclasses.fields(asked) if f.name != "fit"}
    common = {"task_id": asked.task_id, "at": 1.0}
    for event in (
        TaskStarted(**common, seq=1, task="pay"),
        ApprovalRequested(**fields | common, seq=2),
        ApprovalDecided(
            **common, seq=3, request_id=asked.request_id, decision="approved", by="ann"
        ),
        TaskFinished(**common, seq=4, status=True, text="", duration_ms=1.0),
    ):
        await journal.append(event)
    data = b"".join([f async for f in streams_of(journal).events("task_1", 1)])
    await journal.aclose()
    messages = [json.loads(line[6:]) for line in data.split(b"\n") if line.startswith(b'data: {"')]
    assert [(message["seq"], message["state"]) for message in messages] == [
        (2, "waiting"),
        (3, "running"),
        (4, "done"),
    ]


class Away(InProcessJournal):
    """A journal that fails when a client continues to read."""

    async def read(self, task_id, after=0):
        raise JournalError("the server is away")


async def test_stream_ends_cleanly_if_the_journal_is_unreadable(caplog):
    journal = Away()
    journal.task = lambda _: asyncio.sleep(0, SimpleNamespace(state=TaskState.RUNNING))
    frames = [f async for f in streams_of(journal).events("t1", 0)]
    assert frames == [HELLO]
    assert "the server is away" in caplog.text


async def test_values_without_a_json_type_become_plain_json(serve):
    server = await serve()
    code = (
        "import datetime, decimal\n"
        "await note([{'day': datetime.date(2026, 3, 1), 'sum': decimal.Decimal('1.50'),"
        " 'raw': b'ab', 'pair': (1, 2), 'set': {3}, 'odd': {4: 5}, 'nan': float('nan')}])"
    )
    task = await server.run(code)
    asked = await server.question(task["task_id"])
    wanted = {"day": "2026-03-01", "sum": "1.50", "raw": "YWI=", "pair": [1, 2], "set": [3]}
    wanted |= {"odd": {"4": 5}, "nan": "nan"}
    (order,) = asked["arguments"]["orders"]
    assert order == wanted
    await server.client.post(f"/approvals/{asked['request_id']}", json={"decision": "reject"})
    events = await server.events(task["task_id"])
    (message,) = [event["data"] for event in events if event["type"] == "ApprovalRequested"]
    assert message["arguments"] == {"orders": [wanted]}


async def test_waiting_task_stays_waiting_under_concurrent_reads(serve, monkeypatch):
    monkeypatch.setattr(streams, "GATHER_SECONDS", 0)
    server = await serve()

    async def look() -> None:
        while True:
            await server.app.tasks.pending_requests.by_task()
            await asyncio.sleep(0)

    looking = asyncio.create_task(look())
    try:
        async with server.client.stream("GET", "/events") as answer:
            lines = answer.aiter_lines()
            await anext(lines)
            task = await server.run("await send('bob')")
            seen: list[str] = []
            while "waiting" not in seen:
                line = await anext(lines)
                if line.startswith("data: ") and (message := json.loads(line[6:])):
                    assert message["task_id"] == task["task_id"]
                    seen.append(message["state"])
    finally:
        looking.cancel()
