"""The work of runners on workflows, without DBOS: the queue is a double that records calls."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import AsyncMock, Mock

import pytest

from delf.errors import ConfigurationError, ConnectionUnavailableError, PluginError
from delf.events import PROJECT_FOLDER, TaskFinished, TaskPostponed, TaskQueued, TaskStarted
from delf.protocols.people import Person
from delf.types import TaskState
from delf_journal_sql import SqlJournal
from delf_journal_sql.errors import JournalSetupError
from delf_runner_dbos import runner as module
from delf_runner_dbos.queue import Ticket, belongs_to_project
from delf_runner_dbos.runner import Runner, RunnerOptions
from delf_runner_dbos.schedules import seen_digests
from delf_runner_dbos.settings import QueueSettings
from delf_serve.keys import Keys
from delf_serve.people import RequestedChanges
from delf_serve.people_tasks import ServedPeople
from delf_serve.settings import ServeSettings
from support import program
from support.serving import Outbox, doing, make_agent
from support.until import until

FAR = 4e9

CLAIMER = """
import asyncio, os, signal, sys
from delf_journal_sql import SqlJournal

async def main():
    journal = SqlJournal(sys.argv[1])
    await journal.claim("t")
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


class NotedQueue:
    """A queue that records a runner's calls, and fails a chosen number of times."""

    def __init__(self) -> None:
        self.requeued: list[tuple[Ticket, float]] = []
        self.handed_on: list[Mapping[str, str]] = []
        self.enqueued: list[TaskQueued] = []
        self.work: list[Any] = []
        self.lost: list[str] = []
        self.registered: list[str] = []
        self.firings: list[Any] = []
        self.away = 0

    def _answer(self) -> None:
        if self.away:
            self.away -= 1
            raise ConnectionUnavailableError("the queue's database failed: away")

    async def enqueue(self, task: TaskQueued) -> None:
        self._answer()
        self.enqueued.append(task)

    async def requeue(self, ticket: Ticket, delay: float) -> None:
        self._answer()
        self.requeued.append((ticket, delay))

    async def release(self, workflows: Mapping[str, str]) -> None:
        self._answer()
        self.handed_on.append(workflows)

    async def register(self, queue: str, *_: Any) -> None:
        self._answer()
        self.registered.append(queue)

    async def call(self, work: Callable[[Any], Any]) -> Any:
        return work(SimpleNamespace(list_workflows=Mock(return_value=self.firings)))

    async def running_workflows(self, _: Collection[str]) -> list[Any]:
        return self.work

    async def without_workflow(self, task_ids: list[str]) -> list[str]:
        return [name for name in task_ids if name in self.lost]

    restore = enqueue


class Agents:
    """Lends an agent whose behaviour a test defines."""

    def __init__(self) -> None:
        self.setups: list[Any] = []
        self.does: Any = None

    def lend(self, setup: Any) -> Any:
        self.setups.append(setup)
        return contextlib.nullcontext(self)

    async def aclose(self) -> None:
        """Nothing is held."""

    async def aresume(self, task_id: str, *_: Any, **options: Any) -> None:
        await self.does(task_id, **options)


@pytest.fixture
async def journal(tmp_path: Path) -> AsyncIterator[SqlJournal]:
    journal = SqlJournal(str(tmp_path / "journal.db"))
    yield journal
    await journal.aclose()


@pytest.fixture
def queue() -> NotedQueue:
    return NotedQueue()


@pytest.fixture
def agents() -> Agents:
    return Agents()


@pytest.fixture
def runner(journal: SqlJournal, queue: Any, agents: Any) -> Runner:
    settings = {"q": QueueSettings(losses=1)}
    options = RunnerOptions(queues=settings, concurrency=1, lease=30.0, grace=0.0)
    return Runner(journal, queue, agents, agents, options)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWAY_SECONDS", "PERMIT_SECONDS"):
        monkeypatch.setattr(module, name, 0.01)
    monkeypatch.setattr(module, "JOURNAL_PAUSES", (0.0,))


def waits(not_before: float | None = None, **more: Any) -> TaskQueued:
    event: dict[str, Any] = {"task_id": "t", "queue": "q", "task": "Do it."}
    return TaskQueued(seq=1, at=1.0, not_before=not_before, **{**event, **more})


def ticket(requeues: int = 0, user: str | None = None) -> Ticket:
    return Ticket(task_id="t", queue="q", user=user, requeues=requeues)


async def ends(journal: SqlJournal, task_id: str) -> None:
    await journal.claim(task_id)
    event = TaskFinished(task_id=task_id, seq=2, at=2.0, status=True, text="", duration_ms=1.0)
    await journal.append(event)


async def test_task_runs_with_an_agent_of_its_own_setup(
    runner: Runner, journal: SqlJournal, agents: Agents, queue: NotedQueue
) -> None:
    async def do(task_id: str, **options: Any) -> None:
        assert options == {"continue_past_limit": False, "retries": 3, "retry_after": 0.0}
        await ends(journal, task_id)

    agents.does = do
    await journal.append(waits(setup={"folder": "x"}, retries=3, retry_after=0.0))
    assert await runner.work("t", ticket()) == "done"
    assert await runner.work("t:2", ticket()) == "done"
    assert agents.setups == [{"folder": "x"}]
    assert queue.requeued == []


class Workflows:
    """Fails to start once, then starts and lets the runner end."""

    def __init__(self, runner: Runner) -> None:
        self.runner = runner
        self.did: list[str] = []

    async def start(self, _: Collection[str]) -> None:
        self.did.append("start")
        if len(self.did) == 1:
            raise OSError("the database went away")
        self.runner.end()

    async def stop(self, seconds: float) -> None:
        self.did.append(f"stop {seconds}")


async def test_runner_starts_once_the_database_is_available(
    runner: Runner, queue: NotedQueue
) -> None:
    queue.away = 1
    workflows: Any = Workflows(runner)
    await asyncio.wait_for(runner.run(workflows), 30)
    assert workflows.did == ["start", "start", "stop 0.0"]
    assert queue.registered == ["q", "q"]


async def test_agent_that_fails_to_close_keeps_no_task_from_other_runners(
    runner: Runner, journal: SqlJournal, agents: Agents, queue: NotedQueue
) -> None:
    never = asyncio.Event()

    async def do(_: str, **__: Any) -> None:
        await never.wait()

    async def aclose() -> None:
        raise PluginError("the observer failed to close")

    agents.does, agents.aclose = do, aclose
    await journal.append(waits())
    work = asyncio.create_task(runner.work("t", ticket()))
    await until(lambda: agents.setups)
    with pytest.raises(ExceptionGroup, match="while closing"):
        await runner.run(cast("Any", Workflows(runner)))
    work.cancel()
    assert queue.handed_on == [{"t": "q"}]


async def test_task_of_another_folder_is_postponed_with_growing_delay(
    runner: Runner, journal: SqlJournal, agents: Agents, queue: NotedQueue
) -> None:
    async def do(_: str, **__: Any) -> None:
        raise ConfigurationError("the task is of another folder")

    agents.does = do
    await journal.append(waits())
    for requeues in (0, 1, 20):
        assert await runner.work("t", ticket(requeues)) == "requeued"
    assert [(t.requeues, delay) for t, delay in queue.requeued] == [(1, 2.0), (2, 4.0), (21, 300.0)]


async def test_task_that_failed_before_it_did_anything_is_not_put_back(
    runner: Runner, journal: SqlJournal, agents: Agents, queue: NotedQueue, caplog: Any
) -> None:
    async def do(task_id: str, **_: Any) -> None:
        await journal.claim(task_id)
        end: dict[str, Any] = {"status": False, "text": "", "error": "there is no routine"}
        await journal.append(TaskFinished(task_id=task_id, seq=2, at=2.0, duration_ms=1.0, **end))
        raise ConfigurationError("there is no routine")

    agents.does = do
    await journal.append(waits())
    assert await runner.work("t", ticket()) == "failed"
    assert queue.requeued == []
    assert caplog.records == []


async def test_failed_task_is_enqueued_for_its_retry(
    runner: Runner, journal: SqlJournal, agents: Agents, queue: NotedQueue
) -> None:
    async def do(task_id: str, **_: Any) -> None:
        await journal.claim(task_id)
        message: Any = {"error": "away", "code": "ERR-CONN-003", "tries": 1, "not_before": FAR}
        await journal.append(TaskPostponed(task_id=task_id, seq=2, at=2.0, **message))

    agents.does = do
    await journal.append(waits())
    assert await runner.work("t", ticket(7)) == "requeued"
    assert await runner.work("t:2", ticket()) == "requeued"  # not before its time
    assert [t.requeues for t, _ in queue.requeued] == [0, 0]
    assert all(delay > 1e9 for _, delay in queue.requeued)
    assert len(agents.setups) == 1


async def test_task_claimed_elsewhere_is_checked_after_a_lease(
    runner: Runner, journal: SqlJournal, agents: Agents, queue: NotedQueue
) -> None:
    await journal.append(waits())
    await journal.claim("t")
    assert await runner.work("t:2", ticket(5)) == "requeued"
    assert queue.requeued == [(ticket(), 30.0)]
    assert agents.setups == []


async def test_task_missing_from_the_journal_is_finally_abandoned(
    runner: Runner, queue: NotedQueue
) -> None:
    assert await runner.work("t", ticket()) == "requeued"
    assert await runner.work("t", ticket(99)) == "unknown"
    assert [t.requeues for t, _ in queue.requeued] == [1]


async def test_task_waits_for_the_queue_database(runner: Runner, queue: NotedQueue) -> None:
    queue.away = 3
    assert await runner.work("t", ticket()) == "requeued"
    assert [t.requeues for t, _ in queue.requeued] == [1]


async def test_busy_runner_returns_further_tasks(
    runner: Runner, journal: SqlJournal, agents: Agents, queue: NotedQueue
) -> None:
    begun, on = asyncio.Event(), asyncio.Event()

    async def do(task_id: str, **_: Any) -> None:
        begun.set()
        await on.wait()
        await ends(journal, task_id)

    agents.does = do
    await journal.append(waits())
    await journal.append(waits(task_id="u", user="customer-7"))
    first = asyncio.ensure_future(runner.work("t", ticket()))
    await begun.wait()
    second = Ticket(task_id="u", queue="q", user="customer-7")
    both = [runner.work("u", second) for _ in range(2)]  # it is back before it is let go
    assert await asyncio.gather(*both) == ["requeued", "requeued"]
    assert queue.handed_on == [{"u": "q/keys"}] * 2
    on.set()
    assert await first == "done"
    assert await runner.work("u", second) == "done"


async def test_task_whose_runners_repeatedly_died_fails(
    runner: Runner, journal: SqlJournal, agents: Agents
) -> None:
    await journal.append(waits())
    for _ in range(2):
        await lose(journal)
    assert await runner.work("t", ticket()) == "failed"
    assert (await journal.task("t")).error == "2 runners ended while they did this task"
    assert agents.setups == []


async def lose(journal: SqlJournal) -> None:
    """Let a process claim the task and die."""
    command = [sys.executable, "-c", CLAIMER, journal.place]
    with program.start(command, stdout=subprocess.DEVNULL) as claimer:
        assert await asyncio.to_thread(claimer.wait, 60) == -signal.SIGKILL


def begun(at: int, workflow_id: str = "t") -> Any:
    return SimpleNamespace(workflow_id=workflow_id, dequeued_at=at, queue_name="q")


async def test_sweep_reassigns_tasks_of_a_dead_process(
    runner: Runner, journal: SqlJournal, queue: NotedQueue
) -> None:
    await journal.append(waits())
    await lose(journal)
    queue.work = [begun(1)]
    await runner.sweep()
    assert queue.handed_on == []  # somebody may have begun it in this moment
    queue.work = [begun(2)]
    await runner.sweep()
    assert queue.handed_on == []  # somebody has
    await runner.sweep()
    assert queue.handed_on == [{"t": "q"}]


async def test_release_of_workflows_ignores_tasks_that_a_runner_works_on(
    runner: Runner, journal: SqlJournal, queue: NotedQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = [0.0]
    monkeypatch.setattr(module, "monotonic", lambda: times[-1])
    await journal.append(waits())
    await journal.append(waits(task_id="u"))
    await journal.claim("u")
    queue.work = [begun(1), begun(1, "u:again")]
    for now in (0.0, 29.0, 31.0):
        times.append(now)
        await runner.sweep()
    assert queue.handed_on == [{"t": "q"}]  # nobody claimed it for a lease


async def test_task_only_in_the_journal_is_enqueued(
    runner: Runner, journal: SqlJournal, queue: NotedQueue
) -> None:
    await journal.append(waits())
    await journal.append(waits(task_id="known"))
    await journal.append(waits(task_id="other", queue="another"))
    await journal.append(waits(task_id="beside", setup={"folder": "/another"}))
    queue.lost = ["t", "other", "beside"]
    await runner.restore()
    assert [event.task_id for event in queue.enqueued] == ["t"]


async def test_unreadable_task_does_not_keep_others_out_of_the_queue(
    runner: Runner, journal: SqlJournal, queue: NotedQueue, tmp_path: Path
) -> None:
    for name in ("unreadable", "t"):
        await journal.append(waits(task_id=name))
    with contextlib.closing(sqlite3.connect(tmp_path / "journal.db", isolation_level=None)) as raw:
        raw.execute(
            "UPDATE delf_events SET v = 99 WHERE task = "
            "(SELECT id FROM delf_tasks WHERE task_id = 'unreadable')"
        )
    queue.lost = ["unreadable", "t"]
    await runner.restore()
    assert [event.task_id for event in queue.enqueued] == ["t"]


async def test_schedule_submits_one_task_per_firing(
    runner: Runner, journal: SqlJournal, queue: NotedQueue
) -> None:
    context = {"task": "Do it.", "queue": "q", "setup": {"folder": "/"}, "user": None}
    queue.away = 1
    (name,) = (await runner.fire("sched-morning-1", context))["tasks"]
    assert (await runner.fire("sched-morning-1", context))["tasks"] == [name]
    assert (await runner.fire("sched-morning-2", context))["tasks"] != [name]
    (_, first) = await journal.find()
    assert (first.task_id, first.state, first.queue) == (name, "queued", "q")
    assert [event.task_id for event in queue.enqueued[:2]] == [name, name]


async def test_schedule_does_not_wait_for_an_unreadable_task(
    runner: Runner, journal: SqlJournal, queue: NotedQueue, tmp_path: Path
) -> None:
    context = {"task": "Do it.", "queue": "q", "setup": {"folder": "/"}, "user": None}
    assert (await runner.fire("sched-morning-1", context))["tasks"]
    with contextlib.closing(sqlite3.connect(tmp_path / "journal.db", isolation_level=None)) as raw:
        raw.execute("UPDATE delf_events SET v = 99")
    assert (await runner.fire("sched-morning-1", context))["tasks"] == []


async def test_item_of_two_overlapping_firings_starts_one_task(
    journal: SqlJournal, queue: Any, agents: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two overlapping firings see the same item, and neither knows the other's outcome."""

    async def items(*_given: Any) -> list[dict[str, Any]]:
        return [{"id": "m1"}]

    async def seen(*_given: Any) -> list[str]:
        return []

    monkeypatch.setattr(module, "items_of", items)
    monkeypatch.setattr(module, "seen_digests", seen)
    watchers: Any = SimpleNamespace(lend=Mock(return_value=contextlib.nullcontext()))
    options = RunnerOptions(queues={"q": QueueSettings()}, concurrency=1, lease=30.0, grace=0.0)
    runner = Runner(journal, queue, agents, watchers, options)
    watch = {
        "name": "w",
        "made": 1.0,
        "task": "Do it.",
        "queue": "q",
        "setup": {"folder": "/"},
        "user": None,
    }
    context = {**watch, "each": "mails()"}
    started = [
        (await runner.fire(firing, context))["tasks"] for firing in ("one", "two", "one", "two")
    ]
    ((first,), *_) = started
    assert started == [[first], [], [first], []]  # a repeated firing still knows its task
    await journal.append(TaskStarted(task_id=first, seq=2, at=1.0, task="Do it."))
    await journal.append(
        TaskFinished(task_id=first, seq=3, at=2.0, status=True, text="", duration_ms=1.0)
    )
    await journal.remove([first])
    assert (await runner.fire("three", context))["tasks"] == []
    assert await journal.find() == []


def test_task_of_a_former_folder_belongs_to_this_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    old = "/srv/shop"
    assert belongs_to_project({}, ())
    assert belongs_to_project({"folder": str(tmp_path)}, ())
    assert not belongs_to_project({"folder": old}, ())
    assert belongs_to_project({"folder": old}, [old])
    assert not belongs_to_project({PROJECT_FOLDER: old}, ())
    assert belongs_to_project({PROJECT_FOLDER: str(tmp_path)}, ())


def test_task_of_a_program_belongs_to_a_runner_below_the_root_of_its_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "delf.toml").touch()
    (tmp_path / "sub").mkdir()
    monkeypatch.chdir(tmp_path / "sub")
    assert belongs_to_project({PROJECT_FOLDER: str(tmp_path)}, ())
    assert not belongs_to_project({PROJECT_FOLDER: str(tmp_path.parent)}, ())


async def test_tasks_of_a_missing_folder_are_logged(
    runner: Runner, journal: SqlJournal, queue: NotedQueue, tmp_path: Path, caplog: Any
) -> None:
    (tmp_path / "other").mkdir()
    for name, folder in (("t", "gone"), ("u", "gone"), ("v", "other")):
        await journal.append(waits(task_id=name, setup={"folder": str(tmp_path / folder)}))
    queue.lost = ["t", "u", "v"]
    await runner.restore()
    assert queue.enqueued == []
    (message,) = [record.getMessage() for record in caplog.records]
    assert message.startswith(f"2 tasks belong to the folder {tmp_path / 'gone'}, ")
    assert "former_folders" in message


@pytest.mark.parametrize("change", [{"revoked_at": 2.0}, {"rights": ("read",)}])
async def test_schedule_of_a_person_without_rights_starts_no_task(
    runner: Runner, journal: SqlJournal, change: dict[str, Any]
) -> None:
    ada = Person(name="ada", uid="1", made_at=1.0, rights=("read", "run"))
    assert await journal.keep_person(ada, None)
    setup = {"folder": "/"}
    context = {"name": "s", "task": "Do it.", "queue": "q", "setup": setup, "user": ada.user}
    assert (await runner.fire("one", context))["tasks"]
    assert await journal.keep_person(replace(ada, **change), ada)
    fired = await runner.fire("two", context)
    assert (fired["tasks"], fired["failure"]) == ([], "ada may not run tasks any more")


async def test_schedule_of_a_removed_person_stays_ended_after_a_namesake_is_added(
    runner: Runner, journal: SqlJournal
) -> None:
    ada = Person(name="ada", uid="1", made_at=1.0, rights=("read", "run"))
    assert await journal.keep_person(ada, None)
    removed = replace(ada, revoked_at=2.0)
    assert await journal.keep_person(removed, ada)
    namesake = RequestedChanges().apply_to(removed, "ada")
    assert await journal.keep_person(namesake, removed)
    context = {"name": "s", "task": "Do it.", "queue": "q", "setup": {"folder": "/"}, "user": None}
    fired = await runner.fire("one", {**context, "user": ada.user})
    assert (fired["tasks"], fired["failure"]) == ([], "ada may not run tasks any more")
    assert (await runner.fire("two", {**context, "user": namesake.user}))["tasks"]


@pytest.mark.parametrize("change", ["removed", "without the right", "replaced by a namesake"])
@pytest.mark.parametrize("is_interrupted", [False, True])
async def test_accepted_task_of_a_person_without_rights_fails_unstarted(
    runner: Runner, journal: SqlJournal, agents: Agents, change: str, is_interrupted: bool
) -> None:
    ada = Person(name="ada", uid="1", made_at=1.0, rights=("read", "run"))
    assert await journal.keep_person(ada, None)
    await journal.append(waits(user=ada.user))
    if is_interrupted:
        await lose(journal)
    removed = replace(ada, revoked_at=2.0)
    changed = replace(ada, rights=("read",)) if change == "without the right" else removed
    assert await journal.keep_person(changed, ada)
    if change == "replaced by a namesake":
        assert await journal.keep_person(RequestedChanges().apply_to(removed, "ada"), removed)
    assert await runner.work("t", ticket(user=ada.user)) == "failed"
    assert agents.setups == []
    assert (await journal.task("t")).error == "ada may not run tasks any more"


@pytest.fixture
def people_are_away_once(journal: SqlJournal, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the first read of the people fail, as while the database restarts."""
    away = JournalSetupError("the journal does not answer")
    people = AsyncMock(side_effect=[away, [Person(name="ada", uid="1", made_at=1.0)]])
    monkeypatch.setattr(journal, "people", people)


async def test_task_is_requeued_while_people_cannot_be_read(
    runner: Runner, journal: SqlJournal, queue: Any, people_are_away_once: None
) -> None:
    await journal.append(waits(user="ada:1"))
    assert await runner.work("t", ticket(user="ada:1")) == "requeued"
    assert len(queue.requeued) == 1
    assert (await journal.task("t")).state is TaskState.QUEUED


async def test_schedule_waits_while_people_cannot_be_read(
    runner: Runner, people_are_away_once: None
) -> None:
    context = {"name": "s", "task": "Do it.", "queue": "q", "setup": {"folder": "/"}}
    fired = await runner.fire("one", {**context, "user": "ada:1"})
    assert len(fired["tasks"]) == 1


async def test_firing_after_a_failed_first_firing_counts_as_the_first(
    runner: Runner, journal: SqlJournal, queue: Any
) -> None:
    ada = Person(name="ada", uid="1", made_at=1.0, rights=("read",))
    assert await journal.keep_person(ada, None)
    context = {"name": "s", "stored_name": "p/s", "made": "m", "each": "inbox()"}
    fired = await runner.fire("one", {**context, "user": ada.user})
    assert fired["failure"]
    queue.firings = [SimpleNamespace(output=fired)]
    # With an empty list, the next firing would start a task for each item that is there already.
    assert await seen_digests(queue, context) is None


class Ends(list[str]):
    """The ends of tasks of which a person is notified."""

    def tell(self, end: TaskFinished) -> None:
        self.append(f"{end.task_id}: {end.state}")


async def test_task_of_a_person_obeys_their_budget_and_reports_its_end(
    journal: SqlJournal, queue: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DELF_JOURNAL_SQL_URL", f"sqlite:///{tmp_path / 'journal.db'}")
    ada = Person(name="ada", uid="1", made_at=1.0)
    assert await journal.keep_person(ada, None)
    settings = ServeSettings(budgets={"ada": 0.5})
    people, ends = ServedPeople(settings, Keys(), journal), Ends()
    monkeypatch.setattr(people, "end_notices", ends)
    options = RunnerOptions(queues={"q": QueueSettings()}, concurrency=1, lease=30.0, grace=0.0)
    paid: dict[str, Any] = {"cost_usd": 0.5, "allow_unpriced": True}
    async with make_agent(str(tmp_path), Outbox(), **paid) as agent:
        lent: Any = SimpleNamespace(lend=Mock(return_value=contextlib.nullcontext(agent)))
        runner = Runner(journal, queue, lent, lent, options, people)
        ended = list[str]()
        for name, user in (("t1", ada.user), ("t2", ada.user), ("t3", None)):
            await journal.append(waits(task_id=name, task=doing("print(1)"), user=user))
            place = Ticket(task_id=name, queue="q", user=user, requeues=0)
            ended.append(await runner.work(name, place))
        assert ended == ["done", "failed", "done"]
        assert "budget" in str((await journal.task("t2")).error)
    assert ends == ["t1: done", "t2: failed"]
