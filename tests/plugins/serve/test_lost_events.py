"""A server whose journal does not store an event of a task."""

from __future__ import annotations

import pytest

from delf.errors import DelfError, JournalFailedError, JournalUnavailableError
from delf.events import CallStarted, Event
from delf.protocols.journal import TaskRecord
from delf.specs import JournalSpec
from delf.testing import TestHost
from delf_journal_sql import SqlJournal
from delf_journal_sql.errors import JournalError, JournalSetupError


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


class Away(SqlJournal):
    """A journal whose database can be switched off."""

    error: DelfError | None = None

    async def task(self, task_id: str) -> TaskRecord:
        if self.error is not None:
            raise self.error
        return await super().task(task_id)


@pytest.mark.parametrize("kind", [JournalError, JournalSetupError, JournalFailedError])
async def test_answer_hides_the_database_of_a_failed_journal(serve, journal_url, caplog, kind):
    host = TestHost.discover(environ={})
    spec = JournalSpec(name="away", summary="Away.", factory="a:b", durable=True, shared=True)
    journal = Away(journal_url)
    host.provide(spec, lambda: journal)
    server = await serve(agent={"journal": "away", "host": host})
    task_id = (await server.run("print(1)"))["task_id"]
    journal.error = kind("the journal postgresql://ann@db7.example.org/delf does not answer")
    answer = await server.client.get(f"/tasks/{task_id}")
    assert (answer.status_code, answer.json()["code"]) == (503, kind.code)
    assert "db7" not in answer.text
    logged = [record.message for record in caplog.records if "db7" in record.message]
    assert any(answer.json()["request_id"] in message for message in logged)
