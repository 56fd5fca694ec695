"""Backups, old tasks, and processes that are gone: what grows is kept in bounds."""

from __future__ import annotations

import asyncio
import os
import re
import sqlite3
import time
from contextlib import closing
from types import SimpleNamespace

import pytest

from delf import Agent, tool
from delf.errors import TaskStoppedError
from delf.events import FileWritten, TaskFinished, TaskQueued, TaskStarted
from delf.protocols.conversation import ChatMessage
from delf_engine.retention import prune
from delf_journal_sql import owners
from delf_journal_sql import writer as writers
from delf_journal_sql.errors import ConnectionLostError, JournalConflictError, JournalError
from delf_journal_sql.postgresql import PostgresConnection
from delf_journal_sql.sqlite import SqliteConnection, SqliteDatabase
from support.until import until

END = {"text": "", "duration_ms": 1.0}
DAY = 86_400.0


async def end(journal, name, *, at=None, status=True, code=None):
    at = time.time() if at is None else at
    await journal.append(TaskStarted(task_id=name, seq=1, at=at, task=f"do {name}"))
    await journal.append(TaskFinished(task_id=name, seq=2, at=at, status=status, code=code, **END))


async def names(journal):
    return sorted(task.task_id for task in await journal.find())


# -- old tasks ---------------------------------------------------------------------------------


async def test_removed_tasks_are_known_by_id_in_every_process(journal_url, open_journal):
    one, other = open_journal(journal_url), open_journal(journal_url)
    for name in ("a", "b", "c"):
        await end(one, name)
    await one.remove(["a"])
    await prune(one, None, 1)
    assert [await other.was_removed(name) for name in ("a", "b", "c", "d")] == [
        True,
        True,
        False,
        False,
    ]
    await end(one, "a")  # whoever begins the task again may remove the task again
    assert (await one.remove(["a"])).tasks == ("a",)


async def test_prune_accepts_an_age_per_state(journal_url, open_journal):
    journal = open_journal(
        journal_url, keep={"done": "30 days", "failed": "90 days", "interrupted": "60 days"}
    )
    now = time.time()
    for days in (10, 40, 70, 100):
        await end(journal, f"done {days}", at=now - days * DAY)
        await end(journal, f"failed {days}", at=now - days * DAY, status=False)
        await end(
            journal,
            f"stopped {days}",
            at=now - days * DAY,
            status=False,
            code=TaskStoppedError.code,
        )
    for days in (10, 100):
        begun = TaskStarted(task_id=f"left {days}", seq=1, at=now - days * DAY, task="x")
        await journal.append(begun)
        await journal.release(begun.task_id)
        waits = TaskQueued(task_id=f"waits {days}", seq=1, at=now - days * DAY, task="x", queue="q")
        await journal.append(waits)
    await journal.append(TaskStarted(task_id="runs", seq=1, at=now - 100 * DAY, task="x"))
    would = await journal.prune(journal.keep, dry_run=True)
    gone = await journal.prune(journal.keep)
    assert sorted(gone.tasks) == sorted(would.tasks)
    assert gone.events == would.events == 9
    assert sorted(gone.tasks) == ["done 100", "done 40", "done 70", "failed 100", "left 100"]
    assert "runs" in await names(journal)
    assert "waits 100" in await names(journal), "a runner will do it"


async def test_prune_removes_more_tasks_than_fit_one_transaction(journal_url, open_journal):
    journal = open_journal(journal_url)
    await asyncio.gather(*(end(journal, f"t{n:03}", at=1000.0 + n) for n in range(130)))
    gone = await journal.prune(older_than=1.0, keep=7)
    assert gone.tasks == tuple(f"t{n:03}" for n in range(123))
    assert await names(journal) == [f"t{n:03}" for n in range(123, 130)]


async def test_output_files_go_to_the_default_folder(
    tmp_path, sqlite_place, open_journal, monkeypatch
):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    journal = open_journal(sqlite_place)
    own = tmp_path / "delf-out-abc" / "deep" / "report.txt"
    others = [
        tmp_path / "reports" / "report.txt",
        tmp_path / "reports" / "delf-out-x" / "report.txt",
        tmp_path / "delf-out-abc" / "mine.txt",
    ]
    for path in (own, *others):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    written = [own, *others[:2], tmp_path / "delf-out-gone" / "x.txt"]
    await journal.append(TaskStarted(task_id="t", seq=1, at=1.0, task="x"))
    for seq, path in enumerate(written, 2):
        file = FileWritten(task_id="t", seq=seq, at=1.0, label=path.name, path=str(path), size=1)
        await journal.append(file)
    await journal.append(TaskFinished(task_id="t", seq=6, at=2.0, status=True, **END))
    assert (await prune(journal, None, dry_run=True)).tasks == ("t",)
    assert own.exists()
    assert (await prune(journal, None)).tasks == ("t",)
    assert not own.parent.exists()
    assert [path.exists() for path in others] == [True, True, True]


async def test_unreferenced_input_files_are_reported(journal_url, open_journal):
    journal = open_journal(journal_url)
    for name, files in (("a", ["/in/1", "/in/2"]), ("b", ["/in/2"]), ("c", None)):
        setup = {} if files is None else {"input_files": files}
        words = 'the words "input_files" are not files'
        await journal.append(TaskQueued(task_id=name, seq=1, at=1.0, task=words, setup=setup))
        await journal.append(TaskFinished(task_id=name, seq=2, at=2.0, status=True, **END))
    assert (await journal.remove(["a", "c"])).inputs == ("/in/1",)
    assert (await journal.prune()).inputs == ("/in/2",)


# -- processes that are gone -------------------------------------------------------------------


@pytest.fixture
def clock(monkeypatch):
    """The clock of writers and of both databases, which a test advances.

    Processes write no heartbeats by themselves, because one after a jump would look like life.
    """
    clock = SimpleNamespace(now=1_000_000.0)
    for connection in (SqliteConnection, PostgresConnection):
        monkeypatch.setattr(connection, "now", lambda _self: clock.now)
    time_ = SimpleNamespace(monotonic=lambda: clock.now, sleep=time.sleep)
    monkeypatch.setattr(writers, "time", time_)

    def silent(writer):
        writer.next_heartbeat_at = clock.now + 1e9

    monkeypatch.setattr(writers.Writer, "beat", silent)
    return clock


async def test_idle_process_is_alive_when_it_starts_a_task(journal_url, open_journal, clock):
    journal, other = open_journal(journal_url), open_journal(journal_url)
    for each in (journal, other):
        each.lease(4.0)
    await end(journal, "first")
    clock.now += 3600.0
    await other.prune(older_than=1e9)  # which forgets processes that seem to be gone
    await journal.append(TaskStarted(task_id="second", seq=1, at=1.0, task="x"))
    assert (await other.task("second")).state == "running"
    with pytest.raises(JournalConflictError):
        await other.claim("second")


async def test_idle_process_is_alive_when_it_claims_a_task(journal_url, open_journal, clock):
    journal, other = open_journal(journal_url), open_journal(journal_url)
    for each in (journal, other):
        each.lease(4.0)
    await end(journal, "first")
    await other.append(TaskStarted(task_id="second", seq=1, at=1.0, task="x"))
    await other.release("second")
    clock.now += 3600.0
    await journal.claim("second")
    assert (await other.task("second")).state == "running"


async def test_skipped_heartbeat_is_not_recorded_as_written(
    sqlite_place, open_journal, clock, monkeypatch
):
    """The last heartbeat is recent at the start of a transaction, and too old at its end."""
    journal = open_journal(sqlite_place)
    journal.lease(4.0)  # a heartbeat each second
    await journal.append(TaskStarted(task_id="first", seq=1, at=1.0, task="x"))
    flush = writers.Appending.flush

    def slow_flush(appending):
        flush(appending)
        clock.now += 0.2

    monkeypatch.setattr(writers.Appending, "flush", slow_flush)
    clock.now += 0.9
    await journal.append(TaskStarted(task_id="second", seq=1, at=1.0, task="x"))
    due_at = clock.now
    await journal.append(TaskStarted(task_id="third", seq=1, at=1.0, task="x"))
    with closing(sqlite3.connect(sqlite_place)) as database, database:
        assert database.execute("SELECT heartbeat FROM delf_owners").fetchone() == (due_at,)


async def test_rows_of_dead_processes_are_removed(sqlite_place, open_journal):
    def rows():
        with closing(sqlite3.connect(sqlite_place)) as database, database:
            return database.execute("SELECT COUNT(*) FROM delf_owners").fetchone()[0]

    await open_journal(sqlite_place).append(TaskStarted(task_id="t", seq=1, at=1.0, task="x"))
    with closing(sqlite3.connect(sqlite_place)) as database, database:
        for number in range(50):
            dead = (f"dead{number}", 1, "0", "elsewhere", "elsewhere", 1.0)
            database.execute(
                "INSERT INTO delf_owners (owner, pid, birth, host, place, heartbeat) "
                "VALUES (?, ?, ?, ?, ?, ?)",
                dead,
            )
    assert rows() == 51
    await end(open_journal(sqlite_place), "next")
    assert rows() == 2


async def test_claim_waits_for_a_process_that_may_be_alive(
    sqlite_place, delf_host, scripted_model, monkeypatch, clock
):
    """A process is silent during a call; the next one asks a person, and waits before it calls."""
    monkeypatch.setenv("DELF_JOURNAL_SQL_URL", sqlite_place)
    calls, asked, waits = [], [], []
    begun, never = asyncio.Event(), asyncio.Event()

    @tool(confirm=False)
    async def send(to: str) -> str:
        """Send a mail."""
        calls.append(to)
        if len(calls) == 1:
            begun.set()
            await never.wait()
        return to

    async def decide(request):
        asked.append(request)
        return True

    async def sleep(seconds):
        waits.append(seconds)
        assert len(calls) == 1, "it was made before the other one could have ended it"

    monkeypatch.setattr("delf_engine.journal.claims.sleep", sleep)
    monkeypatch.setattr("delf_engine.journal.claims.monotonic", lambda: clock.now)

    def make():
        return Agent(
            tools=[send], llm="scripted", sandbox="local", host=delf_host, journal="sql",
            lease=40.0, on_confirm=decide,
        )  # fmt: skip

    scripted_model.writes("print(await send('bob'))")
    async with make() as first, make() as second:
        name = await first.asubmit("send a mail")
        await begun.wait()
        clock.now += 100.0
        response = await second.aresume(name)
        assert response.status, response.error
    (request,) = asked
    assert request.outcome_unknown
    assert re.match(rf"pid {os.getpid()} on .* may be alive", request.reason)
    assert waits == [40.0]
    assert calls == ["bob", "bob"]


async def test_claim_does_not_wait_for_a_dead_process(sqlite_place, open_journal, clock):
    journal, other = open_journal(sqlite_place), open_journal(sqlite_place)
    for each in (journal, other):
        each.lease(4.0)
    for name in ("released", "silent", "dead"):
        await journal.append(TaskStarted(task_id=name, seq=1, at=1.0, task="x"))
    await journal.release("released")
    assert await other.claim("released") is None
    clock.now += 100.0
    before = await other.claim("silent")
    assert before is not None
    assert (before.process.split()[:2], before.lease) == (["pid", str(os.getpid())], 4.0)
    with closing(sqlite3.connect(sqlite_place)) as database, database:
        database.execute(
            "UPDATE delf_owners SET birth = 'another' WHERE owner = "
            "(SELECT owner FROM delf_tasks WHERE task_id = 'dead')"
        )
    assert await other.claim("dead") is None


# -- a database that is away -------------------------------------------------------------------


@pytest.mark.parametrize("part", ["heartbeats", "watching"])
async def test_unreachable_database_warns_once_and_counts_failures(
    part, sqlite_place, open_journal, monkeypatch, caplog
):
    journal = open_journal(sqlite_place)
    journal.lease(0.02)
    failures, back = [], asyncio.Event()
    loop = asyncio.get_running_loop()
    register, changes = owners.Owner.register, SqliteDatabase.changes

    def away(whole):
        def try_(self, *given):
            if len(failures) < 5:
                failures.append(self)
                raise ConnectionLostError(JournalError("nobody is there"))
            loop.call_soon_threadsafe(back.set)
            return whole(self, *given)

        return try_

    monkeypatch.setattr("delf_journal_sql.watch.RETRY_SECONDS", 0.01)
    await journal.append(TaskStarted(task_id="t", seq=1, at=1.0, task="x"))
    if part == "watching":
        monkeypatch.setattr(SqliteDatabase, "changes", away(changes))
        live = journal.subscribe("t")  # noqa: F841 - it is watched for as long as it is held
    else:
        monkeypatch.setattr(owners.Owner, "register", away(register))
    await back.wait()
    await until(lambda: len(caplog.records) >= 2)
    await journal.aclose()
    message = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(message) == 2
    assert "(failure 1): nobody is there" in message[0]
    assert "works again after 5 failures" in message[1]


# -- copies ------------------------------------------------------------------------------------


async def fill(journal):
    await end(journal, "done")
    await journal.append(TaskQueued(task_id="waits", seq=1, at=2.0, task="ä 🦊", queue="mails"))
    started = TaskStarted(task_id="runs", seq=1, at=3.0, task="x", setup={"big": "é" * 90_000})
    await journal.append(started)
    await journal.post("runs", "approval", {"n": 1})
    talk = journal.conversations("me")
    await talk.append("c", [ChatMessage(role="user", content="hi", at=1.0)])


async def contents(journal):
    tasks = [(task.task_id, task.queue, task.task) for task in await journal.find()]
    events = {name: list(await journal.read(name)) for name, *_ in tasks}
    notes = [(note.task_id, note.kind, note.data) for note in await journal.notes()]
    talks = [record.conversation for record in await journal.conversations("me").find()]
    return tasks, events, notes, talks


async def test_backup_contains_everything_and_can_be_restored(journal_url, open_journal, tmp_path):
    journal = open_journal(journal_url)
    await fill(journal)
    before = await contents(journal)
    copy = tmp_path / "copy.db"
    await journal.back_up(copy)
    assert not list(tmp_path.glob("copy.db-*")), "a file beside it would have to be kept, too"
    restored = open_journal(str(copy))
    assert await contents(restored) == before
    assert (await restored.task("runs")).state == "interrupted"
    assert (await restored.task("waits")).state == "queued"
    with pytest.raises(JournalError, match="is not empty"):
        await journal.restore(copy)
    assert await contents(journal) == before


async def test_backup_can_be_restored_into_postgresql(postgres_url, tmp_path, open_journal):
    source = open_journal(str(tmp_path / "journal.db"))
    await fill(source)
    copy = tmp_path / "copy.db"
    await source.back_up(copy)
    target = open_journal(postgres_url)
    assert await target.restore(copy) == 3
    assert await contents(target) == await contents(source)
    await end(target, "new")  # its rows have numbers of their own
    await target.post("new", "approval", {})
    await target.claim("runs")
    assert (await target.task("runs")).state == "running"


@pytest.mark.parametrize("content", [b"", b"no database", b"SQLite format 3\x00" + b"x" * 5000])
async def test_invalid_backup_is_refused(content, sqlite_place, open_journal, tmp_path):
    file = tmp_path / "copy.db"
    file.write_bytes(content)
    journal = open_journal(sqlite_place)
    with pytest.raises(Exception, match=r"is not a journal|is damaged") as message:
        await journal.restore(file)
    assert str(file) in str(message.value)
    assert await journal.find() == []


async def test_failed_backup_leaves_no_file(journal_url, open_journal, tmp_path, monkeypatch):
    journal = open_journal(journal_url)
    await fill(journal)

    def fails(*_):
        raise JournalError("the disk is full")

    monkeypatch.setattr("delf_journal_sql.journal.copy_database", fails)
    with pytest.raises(JournalError):
        await journal.back_up(tmp_path / "copy.db")
    assert not (tmp_path / "copy.db").exists()


async def test_waiting_tasks_continue_on_another_machine_from_a_backup(
    tmp_path, delf_host, scripted_model, monkeypatch
):
    """One task waits for a person, one was interrupted; their backup is restored elsewhere."""
    sent = []

    @tool
    async def send(to: str) -> str:
        """Send a mail."""
        sent.append(to)
        return to

    def make(folder):
        monkeypatch.setenv("DELF_JOURNAL_SQL_URL", str(tmp_path / folder / "journal.db"))
        return Agent(
            tools=[send], llm="scripted", sandbox="local", host=delf_host, journal="sql"
        )  # fmt: skip

    scripted_model.writes("print(await send('bob'))")
    (tmp_path / "there").mkdir()
    async with make("here") as agent:
        waiting = await agent.asubmit("send a mail")
        (asked,) = await until(lambda: agent.journal.find_requests(waiting=True))
        await agent.journal.back_up(tmp_path / "there" / "journal.db")
        await waiting.acancel()
    monkeypatch.setattr(owners, "machine_and_namespace", lambda: "another machine")
    async with make("there") as agent:
        record = await agent.journal.task(waiting)
        assert record.state == "interrupted"
        going_on = asyncio.ensure_future(agent.aresume(waiting))
        found = await until(agent.get_pending_approvals)
        assert found[0].request_id == asked.requested.request_id
        assert sent == []
        agent.approve(found[0].request_id)
        response = await going_on
    assert response.status, response.error
    assert sent == ["bob"]
