"""Runners do what waits in a queue once each, whatever happens to the runners."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

from delf.errors import ConfigurationError, ConnectionUnavailableError
from delf.events import TaskFinished, TaskPostponed, TaskQueued, TaskStarted
from delf.types import TaskState
from delf_cli.options import run_options
from delf_engine.project.project import load_project
from delf_journal_sql import SqlJournal
from delf_runner_dbos.queue import DbosQueue
from delf_runner_dbos.schedule_command import add as schedule_add
from delf_runner_dbos.schedules import open_schedules
from delf_runner_dbos.settings import QueueSettings
from support.postgres import own_postgres
from support.program import delf, start, write_recording
from support.until import until

from .chaos import Chaos
from .fleet import Fleet, fleet

pytestmark = [pytest.mark.timeout(240)]

TASKS = int(os.environ.get("DELF_TEST_CHAOS_TASKS", "12"))
WORKERS = int(os.environ.get("DELF_TEST_CHAOS_WORKERS", "3"))


def names(count: int) -> list[str]:
    return [f"job-{number}" for number in range(count)]


def once_each(one: Fleet, count: int) -> bool:
    wanted = {(name, step): 1 for name in names(count) for step in range(one.steps)}
    return dict(one.marks()) == wanted


async def begun(one: Fleet, count: int) -> None:
    """Wait until a number of steps are recorded."""
    await until(lambda: one.marks().total() >= count, 60)


async def survived(chaos: Chaos, count: int) -> None:
    """Check that every task ended once and made each call once; print a summary."""
    one = chaos.one
    assert dict(await one.states()) == {"done": count}, one.logs()
    assert once_each(one, count)
    for record in await one.journal.find(count):
        events = await one.journal.read(record.task_id)
        assert [event.seq for event in events] == list(range(1, len(events) + 1))
        assert [type(e) for e in events].count(TaskFinished) == 1
    delays = await chaos.delays()
    median = delays[len(delays) // 2] if delays else 0.0
    sys.stderr.write(
        f"{count} tasks; {dict(chaos.done)}; {len(delays)} tasks lost by kills went on after "
        f"{median:.1f} s (median), {max(delays, default=0.0):.1f} s at most\n"
    )


@pytest.mark.timeout(240 + 2 * TASKS)
async def test_runners_survive_kills_stops_crashes_and_clock_changes(tmp_path: Path) -> None:
    with own_postgres() as server:
        async with fleet(tmp_path, server.url, server.url) as one:
            await one.submit(names(TASKS))
            chaos = Chaos(one, server)
            for _ in range(WORKERS):
                one.start(*chaos.options)
            await begun(one, 3)
            await chaos.shake(150.0 + 1.5 * TASKS)
            await survived(chaos, TASKS)


@pytest.mark.timeout(240 + TASKS)
async def test_runners_on_one_machine_survive_kills_and_stops(tmp_path: Path) -> None:
    count = max(6, TASKS // 4)
    async with fleet(tmp_path, f"sqlite:///{tmp_path}/journal.db") as one:
        await one.submit(names(count))
        chaos = Chaos(one)
        for _ in range(WORKERS):
            one.start(*chaos.options)
        await begun(one, 3)
        await chaos.shake(150.0 + TASKS)
        await survived(chaos, count)


async def test_runner_continues_tasks_of_a_dead_runner(tmp_path: Path) -> None:
    async with fleet(tmp_path, f"sqlite:///{tmp_path}/journal.db", pause=0.4, steps=5) as one:
        await one.submit(names(2))
        first = one.start()
        await begun(one, 2)
        os.killpg(first.pid, signal.SIGKILL)
        one.start()
        await one.all_over(60)
        assert dict(await one.states()) == {"done": 2}
        assert once_each(one, 2)


TAKER = """
import sys, threading
from dbos import DBOS
from delf_runner_dbos.engine import configuration
from delf_runner_dbos.queue import TASK
from delf_runner_dbos.sqlite import add_missing_functions

add_missing_functions()
DBOS(config=configuration(sys.argv[1]))

@DBOS.workflow(name=TASK)
def task(ticket: dict) -> str:
    print(ticket["task_id"], flush=True)
    threading.Event().wait()

DBOS.listen_queues(["default"])
DBOS.launch()
threading.Event().wait()
"""


async def test_task_whose_runner_died_before_its_start_is_done(tmp_path: Path) -> None:
    async with fleet(tmp_path, f"sqlite:///{tmp_path}/journal.db", steps=1) as one:
        await one.submit(names(2))
        await DbosQueue(one.database).register("default", QueueSettings(), 4)
        command = [sys.executable, "-c", TAKER, one.database]
        with start(command, text=True, stdout=subprocess.PIPE) as taker:
            assert taker.stdout is not None
            for _ in range(2):
                assert (await asyncio.to_thread(taker.stdout.readline)).startswith("task_")
            taker.kill()
        one.start()
        await one.all_over(120)
        assert dict(await one.states()) == {"done": 2}
        assert once_each(one, 2)


async def test_waiting_tasks_survive_the_loss_of_the_queue_database(tmp_path: Path) -> None:
    async with fleet(tmp_path, f"sqlite:///{tmp_path}/journal.db", steps=1) as one:
        await one.submit(names(2))
        (tmp_path / "dbos.sqlite").unlink()
        one.start()
        await one.all_over(60)
        assert once_each(one, 2)


async def test_task_that_cannot_be_enqueued_is_not_journalled(tmp_path: Path) -> None:
    nowhere = "postgresql://delf:geheim@127.0.0.1:1/dbos"
    async with fleet(tmp_path, f"sqlite:///{tmp_path}/journal.db", nowhere) as one:
        with pytest.raises(
            ConnectionUnavailableError, match="the queue's database failed"
        ) as message:
            await one.submit(names(1))
        assert "geheim" not in str(message.value)
        assert await one.journal.find() == []


async def at_once(one: Fleet) -> dict[str | None, int]:
    """Return the largest number of concurrent tasks of each user."""
    moments: dict[str | None, list[tuple[float, int]]] = {}
    for record in await one.journal.find(100):
        for event in await one.journal.read(record.task_id):
            if isinstance(event, (TaskStarted, TaskFinished)):
                step = 1 if isinstance(event, TaskStarted) else -1
                moments.setdefault(record.user, []).append((event.at, step))
    return {user: max(accumulate(step for _, step in sorted(of))) for user, of in moments.items()}


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
async def test_user_concurrency_holds_across_runners(tmp_path: Path, kind: str) -> None:
    with contextlib.ExitStack() as stack:
        url = f"sqlite:///{tmp_path}/journal.db"
        if kind == "postgresql":
            url = stack.enter_context(own_postgres()).url
        more = "user_concurrency = 2\n[plugins.runner-dbos.queues.default]\nuser_concurrency = 1"
        database = url if kind == "postgresql" else None
        async with fleet(tmp_path, url, database, steps=1, lease=20, more=more) as one:
            await one.submit(names(5), user="customer-7")
            await one.submit(["job-5", "job-6", "job-7"], user="customer-8")
            for _ in range(3):
                one.start()
            await one.all_over(150)
            assert dict(await one.states()) == {"done": 8}
            assert once_each(one, 8)
            most = 1 if kind == "postgresql" else 3  # SQLite: one for each runner
            assert {user: count <= most for user, count in (await at_once(one)).items()} == {
                "customer-7": True,
                "customer-8": True,
            }


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgresql", marks=pytest.mark.soak)])
async def test_task_is_retried_after_a_service_outage(tmp_path: Path, kind: str) -> None:
    with contextlib.ExitStack() as stack:
        url = f"sqlite:///{tmp_path}/journal.db"
        if kind == "postgresql":
            url = stack.enter_context(own_postgres()).url
        more = "retries = 2\nretry_after = 0.1"
        database = url if kind == "postgresql" else None
        async with fleet(tmp_path, url, database, steps=2, lease=20, more=more, away=2) as one:
            await one.submit(["job-0", "job-1"])
            await one.submit(["job-2"], retries=1)
            for _ in range(2):
                one.start()
            await one.all_over(150)
            found = {record.task: record for record in await one.journal.find()}
            for number, state, tries in ((0, "done", 2), (1, "done", 2), (2, "failed", 1)):
                record = found[f"Do job-{number} ."]
                assert (record.state, record.tries) == (state, tries)
                assert record.losses == 0
            assert "the truth does not answer" in (found["Do job-2 ."].error or "")
            assert once_each(one, 3)


DEADLY = """
import os, signal
from delf import tool

@tool(effect="read", confirm=False)
def noted(name: str) -> int:
    \"\"\"End the process that works on the task.\"\"\"
    os.kill(os.getpid(), signal.SIGKILL)
    return 0
"""


async def test_task_crashing_its_runner_each_time_fails(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/journal.db"
    async with fleet(tmp_path, url, steps=0, lease=1, more="losses = 2") as one:
        (tmp_path / "tools.py").write_text(DEADLY)
        await one.submit(["job-0"])
        for _ in range(3):
            runner = one.start()
            assert await asyncio.to_thread(runner.wait, 60) == -signal.SIGKILL
        one.start()
        await one.all_over(60)
        (record,) = await one.journal.find()
        assert (record.state, record.losses) == ("failed", 3)
        assert record.error == "3 runners ended while they did this task"


async def test_schedule_submits_a_task_each_time(tmp_path: Path) -> None:
    def program(*words: str) -> None:
        ended = delf("schedule", *words, cwd=tmp_path)
        assert ended.returncode == 0, ended.stderr

    async with fleet(tmp_path, f"sqlite:///{tmp_path}/journal.db", steps=1) as one:
        every_second = ("often", "* * * * * *", "Do job-0 .")
        await asyncio.to_thread(program, "add", *every_second, "--tools", "tools.py")
        one.start()

        async def happened() -> bool:
            return (await one.states())["done"] >= 2

        await until(happened, 90)
        await asyncio.to_thread(program, "remove", "often")
        assert one.marks()["job-0", 0] >= 2


async def test_stopping_runner_returns_unfinished_tasks(
    tmp_path: Path,
) -> None:
    async with fleet(tmp_path, f"sqlite:///{tmp_path}/journal.db", pause=0.5, steps=6) as one:
        await one.submit(names(2))
        first = one.start("--concurrency", "1", "--grace", "0")
        await begun(one, 1)
        first.terminate()
        assert await asyncio.to_thread(first.wait, 30) == 0
        states = await one.states()
        assert states["running"] == 0
        assert states["interrupted"] + states["queued"] == 2
        one.start()
        await one.all_over(60)
        assert once_each(one, 2)


async def test_priorities_and_delays_are_obeyed(tmp_path: Path) -> None:
    async with fleet(tmp_path, f"sqlite:///{tmp_path}/journal.db", steps=1) as one:
        (late,) = await one.submit(["job-9"], delay=3600)
        (last,) = await one.submit(["job-1"], priority=5)
        (first,) = await one.submit(["job-2"], priority=-1)
        (stopped,) = await one.submit(["job-3"], priority=-2)
        assert await one.journal.stop(stopped, "a test")
        one.start("--concurrency", "1")

        async def happened() -> bool:
            return (await one.states())["done"] >= 2

        await until(happened, 60)
        begun = {name: await started(one, name) for name in (first, last)}
        assert begun[first] < begun[last]
        assert (await one.journal.task(late)).state == "queued"
        assert {name for name, _ in one.marks()} == {"job-1", "job-2"}
        with pytest.raises(ConfigurationError, match="the priority 2000000000 is out of range"):
            await one.submit(["job-3"], priority=2_000_000_000)


async def started(one: Fleet, name: str) -> float:
    """Return the time at which a task began."""
    return next(e.at for e in await one.journal.read(name) if isinstance(e, TaskStarted))


@pytest.mark.parametrize("kind", [pytest.param("sqlite", marks=pytest.mark.soak), "postgresql"])
async def test_global_concurrency_holds_across_runners(tmp_path: Path, kind: str) -> None:
    with contextlib.ExitStack() as stack:
        url = f"sqlite:///{tmp_path}/journal.db"
        if kind == "postgresql":
            url = stack.enter_context(own_postgres()).url
        database = url if kind == "postgresql" else None
        more = "global_concurrency = 1"
        async with fleet(tmp_path, url, database, steps=1, lease=20, more=more) as one:
            await one.submit(names(5))
            for _ in range(2):
                one.start()
            await one.all_over(150)
            assert once_each(one, 5)
            # In SQLite DBOS counts before it locks: each of two runners may begin one at once.
            assert (await at_once(one))[None] <= (1 if kind == "postgresql" else 2)


async def test_rate_limit_holds_per_queue_and_user(tmp_path: Path) -> None:
    more = "per_second = 0.0005\nuser_per_second = 0.0002"
    async with fleet(tmp_path, f"sqlite:///{tmp_path}/journal.db", steps=1, more=more) as one:
        await one.submit(names(2))
        await one.submit(["job-2", "job-3"], user="customer-7")
        await one.submit(["job-4"], queue="other")
        one.start("--queue", "default", "--queue", "other")

        async def happened() -> bool:
            return (await one.states())["done"] >= 3

        await until(happened, 60)
        waiting = {r.task for r in await one.journal.find(state=TaskState.QUEUED)}
        assert len(waiting & {"Do job-0 .", "Do job-1 ."}) == 1
        assert len(waiting & {"Do job-2 .", "Do job-3 ."}) == 1


def test_detached_task_is_run_by_a_runner_and_schedules_are_managed(tmp_path: Path) -> None:
    llm = write_recording(tmp_path / "hello.jsonl", "print('hello')")
    how = ("--user", "customer-7", "--retries", "2", "--retry-after", "5")
    left = delf("run", "Say hello.", "--llm", llm, "--detach", "--json", *how, cwd=tmp_path)
    task = json.loads(left.stdout)
    assert task["queue"] == "default"
    (listed,) = json.loads(delf("runs", "list", "--json", cwd=tmp_path).stdout)
    assert (listed["task_id"], listed["state"]) == (task["task_id"], "queued")
    assert (listed["user"], listed["tries"]) == ("customer-7", 0)
    events = delf("runs", "events", task["task_id"], "--json", cwd=tmp_path).stdout
    queued = json.loads(events.splitlines()[0])["data"]
    assert (queued["user"], queued["retries"], queued["retry_after"]) == ("customer-7", 2, 5.0)
    assert delf("resume", task["task_id"], cwd=tmp_path).stdout == "hello\n"
    assert delf("run", "x", "--llm", llm, "--queue", "q", cwd=tmp_path).returncode == 2
    assert delf("run", "x", "--llm", llm, "--retries", "1", cwd=tmp_path).returncode == 2
    memory = delf("run", "x", "--llm", llm, "--detach", "--journal", "none", cwd=tmp_path)
    assert "runners cannot read the journal 'none'" in memory.stderr
    disabled = {"DELF_DISABLE_PLUGINS": "runner-dbos"}
    without = delf("run", "x", "--llm", llm, "--detach", cwd=tmp_path, env=disabled)
    assert "the package delf-plugin-runner-dbos is disabled" in without.stderr
    assert len(json.loads(delf("runs", "list", "--json", cwd=tmp_path).stdout)) == 1
    add = ("schedule", "add", "morning", "0 8 * * 1-5", "Say hello.", "--zone", "Europe/Vienna")
    add = (*add, "--llm", llm)
    assert delf(*add, cwd=tmp_path).returncode == 0
    assert "there is a schedule 'morning' already" in delf(*add, cwd=tmp_path).stderr
    (kept,) = json.loads(delf("schedule", "list", "--json", cwd=tmp_path).stdout)
    assert (kept["cron"], kept["zone"], kept["task"]) == (
        "0 8 * * 1-5",
        "Europe/Vienna",
        "Say hello.",
    )
    bad = delf("schedule", "add", "bad", "every day", "Say hello.", "--llm", llm, cwd=tmp_path)
    assert (bad.returncode, "the schedule 'every day'" in bad.stderr) == (2, True)
    assert delf("schedule", "remove", "morning", cwd=tmp_path).returncode == 0
    assert delf("schedule", "remove", "morning", cwd=tmp_path).returncode == 2


async def test_schedule_stores_the_options_that_a_detached_task_stores(tmp_path: Path) -> None:
    llm = write_recording(tmp_path / "hello.jsonl", "print('hello')")
    (tmp_path / "in.csv").write_text("a\n")
    options = ("--llm", llm, "--budget", "2", "--timeout", "5m", "--approve", "reads", "--stream")
    options += ("--file", "in.csv", "--out", "reports", "--observe", "otel", "--flows", "guard")
    task = delf("run", "Say hello.", "--detach", "--json", *options, cwd=tmp_path)
    task_id = json.loads(task.stdout)["task_id"]
    events = delf("runs", "events", task_id, "--json", cwd=tmp_path).stdout
    setup = json.loads(events.splitlines()[0])["data"]["setup"]
    add = ("schedule", "add", "morning", "0 8 * * *", "Say hello.")
    assert delf(*add, *options, cwd=tmp_path).returncode == 0
    schedules = open_schedules(load_project(tmp_path))
    assert (await schedules.find("morning")).setup["flags"] == setup["flags"]
    await schedules.aclose()
    for option in (("--set", "connections.shop.token=t"), ("--base-url", "http://u:p@localhost")):
        refused = delf(*add, *option, cwd=tmp_path)
        assert refused.returncode == 2
        assert re.search(f"No such option.*{option[0]}", refused.stderr)


def test_schedule_takes_every_option_of_run_that_concerns_the_task() -> None:
    missing = {o.name for o in run_options()} - {o.name for o in schedule_add.params}
    of_the_terminal = {"calls", "verbose", "events"}
    assert missing - of_the_terminal == {"overrides", "base_url", "journal"}


async def test_runs_list_and_show_mention_the_next_retry(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/journal.db"
    journal = SqlJournal(url)
    message: Any = {"error": "the shop does not answer", "code": "ERR-CONN-003", "tries": 2}
    await journal.append(TaskQueued(task_id="task_1", seq=1, at=1.0, task="Sell.", queue="q"))
    await journal.append(TaskPostponed(task_id="task_1", seq=2, at=2.0, not_before=4e9, **message))
    await journal.aclose()
    env = {"DELF_JOURNAL_SQL_URL": url}
    listed = await asyncio.to_thread(delf, "runs", "list", cwd=tmp_path, env=env)
    assert "queued, try 3" in listed.stdout
    shown = await asyncio.to_thread(delf, "runs", "show", "task_1", cwd=tmp_path, env=env)
    assert "queued, try 3 not before 2096-" in shown.stdout
    assert "the shop does not answer" in shown.stdout
    events = await asyncio.to_thread(delf, "runs", "events", "task_1", cwd=tmp_path, env=env)
    assert "TaskPostponed" in events.stdout


def test_documented_guarantees_name_existing_tests() -> None:
    root = Path(__file__).parents[3]
    page = (root / "docs" / "operations.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(test_\w+)`", page))
    sources = [*(root / "tests/plugins/runner_dbos").glob("test_*.py")]
    sources += (root / "tests/plugins/journal_sql").glob("test_*.py")
    sources += (root / "tests/plugins/engine/journal").glob("test_*.py")
    known = set(re.findall(r"def (test_\w+)", "\n".join(p.read_text() for p in sources)))
    assert len(named) >= 6
    assert named <= known
