"""A server whose journal does not store an event of a task."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import pytest

from delf.errors import DelfError, JournalFailedError, JournalUnavailableError
from delf.events import CallStarted, Event
from delf.protocols.journal import TaskRecord
from delf.protocols.people import Person
from delf.protocols.search import TaskFilter
from delf.specs import JournalSpec
from delf.testing import TestHost
from delf_journal_sql import SqlJournal
from delf_journal_sql.errors import JournalError, JournalSetupError
from delf_serve import budgets as budgets_module
from delf_serve import history as history_module
from delf_serve.tasks import adoption
from plugins.serve.test_money import PAID
from plugins.serve.test_people import add, person, run
from support.serving import Outbox, bearer, doing, make_agent, serving
from support.until import until

PLACE = "the journal postgresql://ann@db7.example.org/delf does not answer"


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
    """A journal with methods whose database can be switched off."""

    error: DelfError | None = None
    failing: Collection[str] = ("task",)
    failures = 0

    def _fail(self, method: str) -> None:
        if self.error is not None and method in self.failing:
            self.failures += 1
            raise self.error

    async def people(self) -> list[Person]:
        self._fail("people")
        return await super().people()

    async def task(self, task_id: str) -> TaskRecord:
        self._fail("task")
        return await super().task(task_id)

    async def read(self, task_id: str, after: int = 0) -> Sequence[Event]:
        self._fail("read")
        return await super().read(task_id, after)

    async def index(self, seconds: float) -> int:
        self._fail("index")
        return await super().index(seconds)


@pytest.fixture
def away(journal_url: str) -> tuple[Away, dict[str, Any]]:
    """Return a journal that can be switched off, and the options of an agent with the journal."""
    host = TestHost.discover(environ={})
    spec = JournalSpec(name="away", summary="Away.", factory="a:b", durable=True, shared=True)
    journal = Away(journal_url)
    host.provide(spec, lambda: journal)
    return journal, {"journal": "away", "host": host}


@pytest.mark.parametrize("kind", [JournalError, JournalSetupError, JournalFailedError])
async def test_answer_hides_the_database_of_a_failed_journal(serve, away, caplog, kind):
    journal, options = away
    server = await serve(agent=options)
    task_id = (await server.run("print(1)"))["task_id"]
    journal.error = kind(PLACE)
    answer = await server.client.get(f"/tasks/{task_id}")
    assert (answer.status_code, answer.json()["code"]) == (503, kind.code)
    assert "db7.example" not in answer.text
    logged = [record.message for record in caplog.records if "db7.example" in record.message]
    assert any(answer.json()["request_id"] in message for message in logged)


@pytest.mark.parametrize("method", ["GetTask", "CancelTask", "SubscribeToTask", "SendMessage"])
@pytest.mark.parametrize("failing", ["task", "read"])
async def test_a2a_answer_hides_the_database_of_a_failed_journal(serve, away, method, failing):
    pytest.importorskip("a2a")
    journal, options = away
    server = await serve(agent=options)
    task_id = (await server.run("await hold()"))["task_id"]
    journal.error, journal.failing = JournalError(PLACE), (failing,)
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "go on"}]}
    params = {"message": {**message, "taskId": task_id}} if "Send" in method else {"id": task_id}
    call = {"jsonrpc": "2.0", "id": "1", "method": method, "params": params}
    answer = await server.client.post("/a2a", json=call, headers={"a2a-version": "1.0"})
    assert "cannot use a service" in answer.text
    assert "db7.example" not in answer.text


async def test_draft_of_a_routine_hides_the_database_of_a_failed_journal(serve, away):
    journal, options = away
    server = await serve(agent=options)
    task_id = (await server.run("print(1)"))["task_id"]
    journal.error, journal.failing = JournalError(PLACE), ("read",)
    answer = await server.client.post("/routines", json={"task_id": task_id, "name": "one"})
    assert answer.status_code == 503
    assert "db7.example" not in answer.text


async def test_running_task_goes_on_while_the_costs_of_others_are_unknown(serve, away, monkeypatch):
    monkeypatch.setattr(budgets_module, "REFRESH_SECONDS", 0.0)
    journal, options = away
    server = await serve(agent={**PAID, **options, "retry_count": 5}, budgets={"*": 9.0})
    order = {"task": doing("await hold()\n1 / 0")}
    task_id = (await server.client.post("/run", json=order)).json()["task_id"]
    await server.events(task_id, until="CallStarted")
    journal.error, journal.failing = JournalSetupError(PLACE), ("index",)
    server.box.gate.set()
    ended = await server.until(task_id, "done", "failed")
    assert "ZeroDivisionError" in ended["error"]
    assert (await server.client.post("/run", json=order)).status_code == 503


async def test_search_index_is_updated_again_after_an_outage(serve, away, monkeypatch):
    monkeypatch.setattr(history_module, "INDEX_PAUSE_SECONDS", 0.01)
    journal, options = away
    journal.error, journal.failing = JournalSetupError(PLACE), ("index",)
    server = await serve(agent=options)
    await until(lambda: journal.failures >= 3)
    assert (await server.client.get("/search")).status_code == 503
    journal.error = None
    task_id = (await server.run("print('found')"))["task_id"]
    await server.until(task_id, "done")
    await until(lambda: _finds(journal, task_id))


async def _finds(journal: SqlJournal, task_id: str) -> bool:
    return task_id in [match.task.task_id for match in (await journal.search(TaskFilter())).tasks]


async def test_interrupted_task_is_resumed_after_people_could_not_be_read(
    serve, away, monkeypatch, tmp_path
):
    monkeypatch.setattr(adoption, "LOOK_SECONDS", 0.01)
    journal, options = away
    server = await serve("boss-key", api_key="boss:boss-key", agent=options)
    box = Outbox()
    async with serving(make_agent(str(tmp_path), box), box, "ada-key") as first:
        await add(first, person("ada"))
        task_id = (await first.run("print(await send('bob'))"))["task_id"]
        await first.until(task_id, "waiting")
        journal.error, journal.failing = JournalSetupError(PLACE), ("people",)
    failures = journal.failures
    await until(lambda: journal.failures >= failures + 3)
    journal.error = None
    task = await server.until(task_id, "waiting", "failed")
    assert task["state"] == "waiting", task


@pytest.mark.parametrize("action", ["resume a task", "change a person"])
async def test_error_of_unreadable_people_does_not_name_the_database(serve, away, action):
    journal, options = away
    server = await serve("boss-key", api_key="boss:boss-key", agent=options)
    await add(server, person("ada"))
    script = "import asyncio\nawait asyncio.sleep(7)"
    task = await run(server, "ada", script, timeout=1)
    journal.error, journal.failing = JournalSetupError(PLACE), ("people",)
    if action == "resume a task":
        answer = await server.client.post(f"/tasks/{task['task_id']}/resume", json={"timeout": 60})
    else:
        answer = await server.client.delete("/people/ada")
    assert answer.status_code == 503
    assert "cannot use a service" in answer.text
    assert "db7.example" not in answer.text


async def test_accepted_task_does_not_fail_because_people_cannot_be_read(serve, away, monkeypatch):
    monkeypatch.setattr(adoption, "LOOK_SECONDS", 0.01)
    journal, options = away
    server = await serve("boss-key", api_key="boss:boss-key", agent={**options, "max_tasks": 1})
    await add(server, person("ada"))
    first_id = (await server.run("print(await hold())"))["task_id"]
    await server.until(first_id, "running")
    order = {"task": doing("print('done late')")}
    answer = await server.client.post("/run", json=order, headers=bearer("ada-key"))
    task_id = answer.json()["task_id"]
    await server.until(task_id, "queued")
    journal.error, journal.failing = JournalSetupError(PLACE), ("people",)
    server.box.gate.set()
    await server.until(first_id, "done")
    await until(lambda: journal.failures >= 3)
    journal.error = None
    task = await server.until(task_id, "done", "failed")
    assert task["result"] == "done late", task
