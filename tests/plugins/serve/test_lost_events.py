"""A server whose journal does not store an event of a task."""

from __future__ import annotations

import pytest

from delf.errors import JournalUnavailableError
from delf.events import CallStarted, Event
from delf.specs import JournalSpec
from delf.testing import TestHost
from delf_journal_sql import SqlJournal


class FailsOnce(SqlJournal):
    """A journal that does not store the first start of a call."""

    failed = False

    async def append(self, event: Event) -> None:
        if isinstance(event, CallStarted) and not self.failed:
            self.failed = True
            raise JournalUnavailableError("the database does not answer")
        await super().append(event)


@pytest.mark.slow
async def test_server_resumes_its_own_task_that_lost_an_event(serve, journal_url):
    host = TestHost.discover(environ={})
    spec = JournalSpec(name="once", summary="Fails once.", factory="a:b", durable=True, shared=True)
    journal = FailsOnce(journal_url)
    host.provide(spec, lambda: journal)
    server = await serve(agent={"journal": "once", "host": host}, open_tasks=1)
    task_id = (await server.run("print((await look(3))['name'])"))["task_id"]
    task = await server.until(task_id, "done", "failed")
    assert (task["result"], journal.failed) == ("thing 3", True)
    assert (await server.run("print(1)"))["task_id"]  # the first task is not open any more
