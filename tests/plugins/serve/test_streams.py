"""A client's stream of a task's events reaches the task's end, whatever was heard meanwhile."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

from delf.events import TaskFinished
from delf_devkit.testing.events import every_event
from delf_journal_sql import SqlJournal
from delf_serve import streams
from delf_serve.streams import END, Streams


class Deaf(SqlJournal):
    """Its events are written, as by another server, before its subscriptions are heard."""

    def subscribe(self, task_id=None):
        return self._nothing()

    async def _nothing(self):
        await asyncio.Event().wait()
        yield


async def test_it_ends_where_the_last_event_was_written_before_the_subscription_was_heard(
    monkeypatch, tmp_path
):
    monkeypatch.setattr(streams, "_BEAT_SECONDS", 0.01)
    begun = every_event("t1")[0]
    end = TaskFinished(
        task_id="t1", seq=begun.seq + 1, at=1.0, status=True, text="", duration_ms=1.0
    )
    journal, seen = Deaf(f"sqlite:///{tmp_path}/journal.db"), []
    await journal.append(begun)
    async with asyncio.timeout(10):
        async for frame in Streams(SimpleNamespace(journal=journal)).events("t1", 0):
            seen.append(frame)
            if len(seen) == 3:
                await journal.append(end)
    await journal.aclose()
    assert seen[-1] == END
    assert any(b"id: %d" % end.seq in frame for frame in seen)
