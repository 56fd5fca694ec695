"""The queue as DBOS keeps it: what is enqueued, what is left out, and what is forgotten."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.event import listens_for

from delf.errors import ConfigurationError, ConnectionUnavailableError
from delf.events import TaskQueued
from delf.settings import SecretStr
from delf_cli.schedules import Schedule
from delf_runner_dbos import queue as module
from delf_runner_dbos.queue import DbosQueue, Ticket, task_queue
from delf_runner_dbos.schedules import DbosSchedules, delete_idle_firings
from delf_runner_dbos.settings import QueueSettings, RunnerSettings
from delf_runner_dbos.sqlite import lock_claims


@pytest.fixture
async def queue(tmp_path: Path) -> AsyncIterator[DbosQueue]:
    queue = DbosQueue(f"sqlite:///{tmp_path}/dbos.sqlite")
    yield queue
    await queue.aclose()


def waits(task_id: str = "t", **more: Any) -> TaskQueued:
    return TaskQueued(task_id=task_id, seq=1, at=1.0, task="Do it.", queue="q", **more)


async def workflows(queue: DbosQueue) -> dict[str, Any]:
    rows = await queue.call(lambda client: client.list_workflows())
    return {row.workflow_id: row for row in rows}


async def test_task_becomes_one_workflow_with_user_priority_and_delay(queue: DbosQueue) -> None:
    for task in (waits(), waits(), waits("k", user="seven", priority=-3)):
        await queue.enqueue(task)
    await queue.enqueue(waits("later", not_before=time.time() + 3600))
    found = await workflows(queue)
    assert {name: (row.status, row.queue_name) for name, row in found.items()} == {
        "t": ("ENQUEUED", "q"),
        "k": ("ENQUEUED", "q/keys"),
        "later": ("DELAYED", "q"),
    }
    assert (found["k"].queue_partition_key, found["k"].priority) == ("seven", 2**30 - 6)
    assert found["t"].input["args"] == (
        {"task_id": "t", "queue": "q", "user": None, "priority": 0, "requeues": 0},
    )


async def test_invalid_times_of_a_schedule_are_refused(queue: DbosQueue, tmp_path: Path) -> None:
    schedules = DbosSchedules(queue, tmp_path)
    with pytest.raises(ConfigurationError, match="the schedule 'at noon' cannot be created"):
        await schedules.add(Schedule(name="daily", cron="at noon", task="Do it."))


@pytest.mark.parametrize("name", ["", " ", "q/keys"])
async def test_invalid_name_of_a_queue_is_refused(
    queue: DbosQueue, tmp_path: Path, name: str
) -> None:
    schedule = Schedule(name="daily", cron="0 8 * * *", task="Do it.", queue=name)
    for refused in (
        queue.enqueue(replace(waits(), queue=name)),
        DbosSchedules(queue, tmp_path).add(schedule),
    ):
        with pytest.raises(ConfigurationError, match="cannot be the name of a queue"):
            await refused
    assert await workflows(queue) == {}


async def test_schedule_of_an_empty_task_is_refused(queue: DbosQueue, tmp_path: Path) -> None:
    schedules = DbosSchedules(queue, tmp_path)
    with pytest.raises(ConfigurationError, match="the task is empty"):
        await schedules.add(Schedule(name="daily", cron="0 8 * * *", task=" "))
    assert await schedules.all() == []


async def test_queue_resumes_begun_tasks_before_new_ones(queue: DbosQueue) -> None:
    tasks = {"urgent": waits("urgent", priority=-1), "first": waits("first"), "t": waits()}
    for task in tasks.values():
        await queue.enqueue(task)
    await queue.requeue(Ticket.of(tasks["t"]), 0.0)
    found = (await workflows(queue)).items()
    order = [name for name, _ in sorted(found, key=lambda item: (item[1].priority, item[0]))]
    assert [name.partition(":")[0] for name in order] == ["urgent", "t", "first", "t"]


async def test_queue_settings_become_limits_of_queue_and_users(queue: DbosQueue) -> None:
    settings = QueueSettings(global_concurrency=3, per_second=0.5, user_concurrency=5)
    await queue.register("q", settings, concurrency=8)
    plain, keys = await queue.call(
        lambda client: [client.retrieve_queue(name) for name in ("q", "q/keys")]
    )
    for one in (plain, keys):
        assert (one.global_concurrency, one.worker_concurrency) == (3, 3)
        assert one.limiter == {"limit": 1, "period": 2.0}
    assert (plain.partition_concurrency, keys.partition_concurrency) == (None, 3)


async def test_queue_has_times_in_milliseconds_with_any_sqlite(queue: DbosQueue) -> None:
    """DBOS's column defaults use this function with Python 3.12 and later."""
    before = time.time()

    def read(client: Any) -> Any:
        with client._sys_db.engine.connect() as connection:  # noqa: SLF001 - DBOS has no public way
            return connection.exec_driver_sql("SELECT unixepoch('subsec') * 1000").scalar()

    milliseconds = await queue.call(read)
    assert before - 1 <= milliseconds / 1000 <= time.time() + 1


async def test_global_concurrency_holds_between_count_and_claim(
    queue: DbosQueue, tmp_path: Path
) -> None:
    """One process claims a workflow while another has counted but not yet claimed."""
    lock_claims()
    await queue.register("q", QueueSettings(global_concurrency=1), concurrency=1)
    for name in ("a", "b"):
        await queue.enqueue(waits(name))
    other = DbosQueue(f"sqlite:///{tmp_path}/dbos.sqlite")

    def claim(client: Any) -> list[str]:
        database = client._sys_db  # noqa: SLF001 - DBOS has no public way to claim
        settings = database.get_queue("q")
        return database.start_queued_workflows(settings, "x", "1", None, is_latest_version=True)[0]

    with ThreadPoolExecutor(1) as pool:
        theirs: list[Future[list[str]]] = []

        def between(client: Any) -> None:
            @listens_for(client._sys_db.engine, "before_cursor_execute")  # noqa: SLF001
            def look(_c: Any, _cursor: Any, sql: str, *_more: Any) -> None:
                if "ORDER BY" in sql and not theirs:
                    theirs.append(pool.submit(lambda: other.call_in_this_thread(claim)))
                    wait(theirs, timeout=0.3)

            _ = look

        await queue.call(between)
        ours = await queue.call(claim)
        assert [*ours, *theirs[0].result()] == ["a"]
    await other.aclose()


async def test_task_without_a_workflow_is_enqueued_again(queue: DbosQueue) -> None:
    for name in ("waits", "rests", "ended", "cancelled"):
        await queue.enqueue(waits(name))
    await queue.requeue(Ticket(task_id="rests", queue="q"), 60.0)
    for name in ("rests", "cancelled"):
        await queue.call(lambda client, name=name: client.cancel_workflow(name))
    names = ["waits", "rests", "cancelled", "lost"]
    assert await queue.without_workflow(names) == ["cancelled", "lost"]
    for name in ("cancelled", "lost"):
        await queue.restore(waits(name))
    assert await queue.without_workflow(names) == []
    copies = [name for name in await workflows(queue) if name.startswith("cancelled:")]
    assert len(copies) == 1


async def test_finished_workflows_are_deleted(queue: DbosQueue) -> None:
    for name in ("over", "waits"):
        await queue.enqueue(waits(name))
    await queue.call(lambda client: client.cancel_workflow("over"))
    await queue.delete_old_workflows(time.time() - 3600)
    assert {*await workflows(queue)} == {"over", "waits"}
    await queue.delete_old_workflows(time.time() + 3600)
    assert {*await workflows(queue)} == {"waits"}


async def test_schedules_of_other_programs_are_left_out(queue: DbosQueue, tmp_path: Path) -> None:
    schedules = DbosSchedules(queue, tmp_path)
    await schedules.add(Schedule(name="ours", cron="0 8 * * *", task="Do it.", queue="q"))
    foreign = {"schedule_name": "theirs", "workflow_name": "report", "schedule": "0 8 * * *"}
    await queue.call(lambda client: client.create_schedule(**foreign, context={"of": "another"}))
    assert [schedule.name for schedule in await schedules.all()] == ["ours"]
    with pytest.raises(ConfigurationError, match="no schedule 'theirs'"):
        await schedules.find("theirs")
    assert await delete_idle_firings(queue) == set()


async def test_projects_sharing_a_database_have_their_own_schedules(
    queue: DbosQueue, tmp_path: Path
) -> None:
    shop, bank = (DbosSchedules(queue, tmp_path / name) for name in ("shop", "bank"))
    for project, task in ((shop, "Count the orders."), (bank, "Count the money.")):
        await project.add(Schedule(name="morning", cron="0 8 * * *", task=task, queue="q"))
        with pytest.raises(ConfigurationError, match="there is a schedule 'morning' already"):
            await project.add(Schedule(name="morning", cron="0 9 * * *", task="Do it."))
    await shop.pause("morning", paused=True)
    await shop.test("morning")
    assert [(s.task, s.paused) for s in await shop.all()] == [("Count the orders.", True)]
    assert [(s.task, s.paused) for s in await bank.all()] == [("Count the money.", False)]
    assert [len(await project.history("morning")) for project in (shop, bank)] == [1, 0]
    await shop.remove("morning")
    assert await shop.all() == []
    await shop.add(Schedule(name="morning", cron="0 8 * * *", task="Do it.", queue="q"))
    assert await shop.history("morning") == []  # the firings of the removed schedule are gone
    assert (await bank.find("morning")).task == "Count the money."


async def test_taken_name_is_quoted_in_the_command_that_frees_it(
    queue: DbosQueue, tmp_path: Path
) -> None:
    schedules = DbosSchedules(queue, tmp_path)
    schedule = Schedule(name="each morning", cron="0 8 * * *", task="Do it.")
    await schedules.add(schedule)
    with pytest.raises(ConfigurationError) as caught:
        await schedules.add(schedule)
    assert caught.value.hint == "delf schedule remove 'each morning'"


async def test_moved_project_keeps_the_schedules_of_its_former_folder(
    queue: DbosQueue, tmp_path: Path
) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    await DbosSchedules(queue, old).add(Schedule(name="daily", cron="0 8 * * *", task="Do it."))
    schedules = DbosSchedules(queue, new, [str(old)])
    assert [schedule.name for schedule in await schedules.all()] == ["daily"]
    with pytest.raises(ConfigurationError, match="there is a schedule 'daily' already"):
        await schedules.add(Schedule(name="daily", cron="0 9 * * *", task="Do it."))
    await schedules.remove("daily")
    assert await DbosSchedules(queue, old).all() == []


async def test_excluded_workflows_hide_no_finished_workflow(
    queue: DbosQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BATCH_SIZE", 2)
    kept = ["kept-1", "kept-2", "kept-3"]
    for name in (*kept, "over-1", "over-2", "over-3"):
        await queue.enqueue(waits(name))
        await queue.call(lambda client, name=name: client.cancel_workflow(name))
    await queue.delete_old_workflows(time.time() + 3600, excluded_ids=kept)
    assert [*await workflows(queue)] == kept


async def test_unreachable_queue_database_error_hides_the_password() -> None:
    url = "postgresql://delf:geheim@127.0.0.1:1/dbos"
    queue = task_queue({"runner-dbos": {"database": url}}, {}, Path())
    with pytest.raises(ConnectionUnavailableError, match="the queue's database failed") as message:
        await asyncio.wait_for(queue.enqueue(waits()), 30)
    assert "geheim" not in f"{message.value} {message.value.hint}"
    await queue.aclose()


def test_default_queue_database_is_per_project(tmp_path: Path) -> None:
    one, other = (RunnerSettings().url(tmp_path, tmp_path / name) for name in ("a", "b"))
    assert one != other
    assert one == RunnerSettings().url(tmp_path, tmp_path / "b" / ".." / "a")
    shared = RunnerSettings(database=SecretStr("postgresql://db/dbos"))
    assert shared.url(tmp_path, tmp_path / "a") == "postgresql://db/dbos"


def test_unwritable_data_folder_is_reported(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    with pytest.raises(
        ConfigurationError, match=r"cannot be written: (Not a directory|File exists)"
    ) as caught:
        RunnerSettings().url(tmp_path / "file" / "delf", tmp_path)
    assert "XDG_DATA_HOME" in caught.value.hint
    monkeypatch.setattr("os.access", lambda *_: False)  # as on a file system that is read-only
    with pytest.raises(ConfigurationError, match="cannot be written: Permission denied"):
        RunnerSettings().url(tmp_path, tmp_path)
