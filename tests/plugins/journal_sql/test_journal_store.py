"""Storage of the journal: events that it keeps, finds, refuses and removes."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import os
import sqlite3
import subprocess
import sys
import threading
import time
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest

from delf.environment import FileText
from delf.errors import UnknownTaskError, UnreadableEventError
from delf.events import (
    CallFinished,
    ModelCalled,
    Printed,
    TaskFinished,
    TaskQueued,
    TaskStarted,
)
from delf_journal_sql import SqlJournal, owners, schema, store
from delf_journal_sql.errors import JournalConflictError, JournalError, JournalSetupError
from delf_journal_sql.opening import open_database
from delf_journal_sql.settings import JournalSettings
from delf_journal_sql.sqlite import SqliteDatabase

READER = """
import asyncio, sys
from delf_journal_sql import SqlJournal

async def main():
    journal = SqlJournal(sys.argv[1])
    print(len(await journal.read("t")))
    await journal.aclose()

asyncio.run(main())
"""


def started(task_id, at=1.0, task="do it"):
    return TaskStarted(task_id=task_id, seq=1, at=at, task=task)


def printed(task_id, seq, text="x"):
    return Printed(task_id=task_id, seq=seq, at=float(seq), text=text)


def finished(task_id, seq=2, at=2.0, **fields):
    given = {"status": True, "text": "", "duration_ms": 1.0, "cost_usd": 0.5, **fields}
    return TaskFinished(task_id=task_id, seq=seq, at=at, **given)


class TestAppend:
    async def test_repeated_event_is_stored_once(self, journal_url, open_journal):
        journal = open_journal(journal_url)
        for event in (started("t"), printed("t", 2), printed("t", 2), started("t")):
            await journal.append(event)
        assert [event.seq for event in await journal.read("t")] == [1, 2]
        with pytest.raises(JournalConflictError, match="another event 2"):
            await journal.append(printed("t", 2, "other"))
        with pytest.raises(JournalConflictError, match="event 7 was to follow event 2"):
            await journal.append(printed("t", 7))
        await journal.append(printed("t", 3))
        assert [event.seq for event in await journal.read("t")] == [1, 2, 3]

    async def test_events_appended_together_are_stored_as_a_whole(self, journal_url, open_journal):
        journal, other = open_journal(journal_url), open_journal(journal_url)
        queued = TaskQueued(task_id="q", seq=1, at=1.0, task="x", queue="night")
        whole = [queued, replace(started("q"), seq=2), finished("q", 3), started("t")]
        with pytest.raises(JournalConflictError, match="was to follow"):
            await journal.append_all([*whole, printed("t", 3)])
        assert await other.find() == []
        await journal.append_all([])
        for _ in range(2):
            await journal.append_all(whole)
            assert [event.seq for event in await other.read("q")] == [1, 2, 3]
            states = {record.task_id: record.state for record in await other.find()}
            assert states == {"q": "done", "t": "running"}

    async def test_tasks_that_begin_at_once_are_all_kept(self, journal_url, open_journal):
        journal, other = open_journal(journal_url), open_journal(journal_url)
        await other.append(started("t0"))
        results = await asyncio.gather(
            journal.append(printed("unknown", 3)),
            *(journal.append(started(f"t{n}")) for n in range(20)),
            *(journal.append(printed(f"t{n}", 2)) for n in range(20)),
            journal.append(started("t1")),
            return_exceptions=True,
        )
        refused = [str(error).partition(":")[0] for error in results if error is not None]
        assert refused[0] == "task unknown"
        assert [text.startswith("task t0 ") for text in refused[1:]] == [True, True]
        found = {record.task_id: record.events for record in await journal.find()}
        assert found == {"t0": 1} | {f"t{n}": 2 for n in range(1, 20)}

    async def test_refused_event_does_not_affect_concurrent_appends(
        self, journal_url, open_journal
    ):
        journal = open_journal(journal_url)
        await journal.append(started("bad"))
        good = [journal.append(started(f"t{number}")) for number in range(20)]
        results = await asyncio.gather(
            journal.append(printed("bad", 9)), *good, return_exceptions=True
        )
        assert isinstance(results[0], JournalConflictError)
        assert results[1:] == [None] * 20

    async def test_append_completes_although_its_caller_is_cancelled(
        self, journal_url, open_journal
    ):
        journal = open_journal(journal_url)
        await journal.append(started("t"))
        for seq in range(2, 12):
            text = "x" * (3, 200_000, 2_000_000)[seq % 3]
            work = asyncio.ensure_future(journal.append(printed("t", seq, text)))
            await asyncio.sleep(0)
            work.cancel()
            await asyncio.wait({work})
        await journal.append(printed("t", 12))
        assert [event.seq for event in await journal.read("t")] == list(range(1, 13))

    async def test_close_flushes_pending_events(self, journal_url, open_journal):
        journal = open_journal(journal_url)
        work = [asyncio.ensure_future(journal.append(started(f"t{n}"))) for n in range(50)]
        await asyncio.sleep(0)
        await journal.aclose()
        await asyncio.gather(*work)
        assert len(await journal.find()) == 50
        await journal.append(started("after"))
        await journal.aclose()

    @pytest.mark.parametrize("text", ["Übersicht ÄPFEL", "übersicht", "SICHT", "äpfel"])
    async def test_task_is_found_by_its_text_in_any_case(self, text, journal_url, open_journal):
        journal = open_journal(journal_url)
        await journal.append(started("t", task="Übersicht ÄPFEL"))
        await journal.append(started("other"))
        assert [record.task_id for record in await journal.find(text=text)] == ["t"]


class TestValues:
    @pytest.mark.parametrize(
        "value",
        [
            "x" * 3_000_000,
            list(range(200_000)),
            {"a": b"\0\xff" * 100_000, "b": "Ωμέγα" * 50_000},
            ["half \ud83e, whole 🦊"] * 50_000,
            [{"at": dt.datetime(2026, 1, 2), "price": Decimal("1.10")}] * 20_000,
        ],
        ids=["text", "numbers", "mixed", "halves", "rows"],
    )
    async def test_large_values_round_trip(self, journal_url, open_journal, value):
        journal = open_journal(journal_url)
        live = journal.subscribe("t")
        end = CallFinished(
            task_id="t", seq=2, at=1.0, call_id=1, action="a.b", status="ok",
            duration_ms=1.0, result=value,
        )  # fmt: skip
        await journal.append(started("t"))
        await journal.append(end)
        assert (await journal.read("t"))[1] == end
        assert [await anext(live), await anext(live)][1] == end

    async def test_large_values_are_stored_separately(self, sqlite_place, open_journal):
        journal = open_journal(sqlite_place)
        await journal.append(started("t"))
        await journal.append(printed("t", 2, "x" * 1_000_000))
        await journal.append(finished("t", 3, text="x" * 1_000_000))
        with contextlib.closing(sqlite3.connect(sqlite_place)) as raw:
            ((longest,),) = raw.execute("SELECT MAX(LENGTH(data)) FROM delf_events")
            rows = raw.execute("SELECT size, LENGTH(data) FROM delf_blobs").fetchall()
        assert longest < 200
        assert rows == [(1_000_002, rows[0][1])], "the same value twice is stored once"
        assert rows[0][1] < 10_000

    async def test_any_text_round_trips(self, journal_url, open_journal):
        journal = open_journal(journal_url)
        text = "NUL \0, half \ud83e, \u2028, \x1b[31m, 🦊, 'quoted' \"twice\" %s :name"
        events = [started("t", task=text), printed("t", 2, text), finished("t", 3, error=text)]
        for event in events:
            await journal.append(event)
        assert list(await journal.read("t")) == events
        (found,) = await journal.find(text="🦊")
        assert found.task.startswith("NUL \ufffd, half ")


class TestFind:
    @pytest.fixture
    async def journal(self, journal_url, open_journal):
        journal = open_journal(journal_url)
        for number, task in enumerate(("Pay 100% of it", "Call Zoë", "pay_later"), 1):
            await journal.append(started(f"task_a{number}", at=number * 10.0, task=task))
        await journal.append(finished("task_a1", at=11.0))
        await journal.append(finished("task_a2", at=22.0, status=False, error="no"))
        return journal

    @pytest.mark.parametrize(
        ("filters", "expected"),
        [
            ({"state": "done"}, ["task_a1"]),
            ({"state": "failed"}, ["task_a2"]),
            ({"state": "running"}, ["task_a3"]),
            ({"state": "interrupted"}, []),
            ({"text": "pay"}, ["task_a3", "task_a1"]),
            ({"text": "0%"}, ["task_a1"]),
            ({"text": "y_l"}, ["task_a3"]),
            ({"since": 20.0}, ["task_a3", "task_a2"]),
            ({"limit": 1}, ["task_a3"]),
            ({"since": 20.0, "state": "failed", "text": "call"}, ["task_a2"]),
        ],
    )
    async def test_find_returns_the_tasks_that_match_all_filters(self, journal, filters, expected):
        assert [task.task_id for task in await journal.find(**filters)] == expected

    async def test_prefix_of_an_id_distinguishes_upper_and_lower_case(self, journal):
        await journal.append(started("task_bc", at=0.0))
        for number in range(6):
            await journal.append(started(f"task_BC{number}", at=100.0 + number))
        assert await journal.resolve("b") == "task_bc"
        assert await journal.resolve("task_b") == "task_bc"
        with pytest.raises(UnknownTaskError, match="more than one task begins with 'BC'") as caught:
            await journal.resolve("BC")
        assert caught.value.hint == "one of: " + ", ".join(
            [*(f"task_BC{number}" for number in (5, 4, 3, 2, 1)), "…"]
        )

    async def test_prefix_that_fits_an_id_with_and_without_task_is_unambiguous(
        self, journal_url, open_journal
    ):
        journal = open_journal(journal_url)
        await journal.append(started("task_t1"))
        assert await journal.resolve("t") == "task_t1"


class TestOwners:
    async def test_closed_journal_releases_its_tasks(self, journal_url, open_journal):
        journal = open_journal(journal_url)
        await journal.append(started("t"))
        assert (await journal.task("t")).state == "running"
        await journal.aclose()
        assert (await journal.task("t")).state == "interrupted"
        await journal.append(printed("t", 2))
        assert (await journal.task("t")).state == "running"

    def test_liveness_needs_more_than_a_process_id(self):
        me = owners.Owner()
        row = owners.Process(me.pid, me.birth, me.host, me.machine, 0.0, None)
        assert owners.is_alive(row, 1e9)
        assert not owners.is_alive(row._replace(birth="7"), 1e9)
        assert not owners.is_alive(row._replace(pid=2**22 + 1), 1e9)
        assert not owners.is_alive(row._replace(machine=None), 1e9)

    def test_liveness_on_other_machines_depends_on_the_heartbeat(self):
        row = owners.Process(1, "1", "host", "elsewhere", 100.0, None)
        assert owners.is_alive(row, 100.0 + owners.SILENCE_SECONDS - 1)
        assert not owners.is_alive(row, 100.0 + owners.SILENCE_SECONDS + 1)

    def test_liveness_with_a_lease_depends_on_the_heartbeat(self):
        me = owners.Owner(lease=10.0)
        row = owners.Process(me.pid, me.birth, me.host, me.machine, 100.0, me.lease)
        assert owners.is_alive(row, 109.0)
        assert not owners.is_alive(row, 111.0)
        assert not owners.is_alive(row, 80.0), "the clock was set back: no heartbeat came since"


class TestPrune:
    @pytest.fixture
    async def journal(self, journal_url, open_journal):
        journal = open_journal(journal_url)
        for number in range(6):
            await journal.append(started(f"t{number}", at=1000.0 + number))
            await journal.append(printed(f"t{number}", 2, "x" * 100_000))
            if number != 2:
                await journal.append(finished(f"t{number}", 3, at=2000.0 + number))
        return journal

    async def names(self, journal):
        return [task.task_id for task in await journal.find()]

    async def test_prune_keeps_the_newest_and_running_tasks(self, journal):
        message = await journal.prune(keep=2, dry_run=True)
        assert len(await journal.find()) == 6
        done = await journal.prune(keep=2)
        assert done == message
        assert done.tasks == ("t0", "t1", "t3")
        assert done.events == 9
        assert await self.names(journal) == ["t5", "t4", "t2"]
        await journal.append(printed("t2", 3))
        with pytest.raises(UnknownTaskError):
            await journal.read("t0")

    async def test_prune_removes_every_row_of_a_task(self, journal, journal_url):
        await journal.aclose()
        again = SqlJournal(journal_url)
        assert len((await again.prune()).tasks) == 6
        database = open_database(JournalSettings(url=journal_url))
        with database.reader() as connection:
            for table in ("tasks", "events", "blobs", "notes", "owners"):
                assert connection.execute(f"SELECT COUNT(*) FROM delf_{table}")[0][0] == 0
        database.close()
        await again.aclose()


class TestOpening:
    async def test_default_journal_is_private_to_the_user(
        self, tmp_path, monkeypatch, open_journal
    ):
        monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
        journal = SqlJournal()
        await journal.append(started("t"))
        await journal.aclose()
        path = Path(journal.place)
        assert path == tmp_path / "delf" / "journal.db"
        assert path.stat().st_mode & 0o77 == 0
        assert path.parent.stat().st_mode & 0o77 == 0

    async def test_url_variable_sets_the_database(self, tmp_path, monkeypatch):
        monkeypatch.setenv("DELF_JOURNAL_SQL_URL", f"sqlite:///{tmp_path}/my%20own.db")
        assert SqlJournal().place == str(tmp_path / "my own.db")

    @pytest.mark.parametrize(
        ("url", "says"),
        [
            ("mysql://u:secret@h/d", "cannot be kept at mysql://"),
            ("sqlite://", "memory"),
            (":memory:", "memory"),
            ("postgresql://u:secret@h:port/d", "cannot be read"),
            ("postgresql://u:12/secret@h/d", "cannot be read"),
            ("postgresql://u:1#secret@h/d", "cannot be read"),
            ("postgresql://u:secret@h/d?no_such_option=1", "cannot be read"),
            ("postgresql://u:secret@h/d?conninfo=port%3D1", "cannot be read"),
        ],
    )
    def test_unsupported_url_is_refused(self, url, says):
        with pytest.raises(JournalSetupError, match=says) as caught:
            SqlJournal(url)
        assert "secret" not in caught.value.describe()

    async def test_unreachable_server_is_reported(self):
        journal = SqlJournal("postgresql://u:secret@127.0.0.1:1/d")
        with pytest.raises(JournalSetupError, match="does not answer") as caught:
            await journal.find()
        assert "secret" not in caught.value.describe()
        await journal.aclose()

    def test_url_accepts_an_at_sign_in_a_password(self):
        journal = SqlJournal("postgresql://u:sec@ret@h:5433/d?sslmode=disable")
        assert journal.place == "postgresql://u@h:5433/d"

    async def test_missing_database_is_reported(self, postgres_url, open_journal):
        journal = open_journal(f"{postgres_url}_not")
        with pytest.raises(JournalSetupError, match="does not exist"):
            await journal.find()

    async def test_file_that_is_not_a_database_is_reported(self, tmp_path, open_journal):
        path = tmp_path / "journal.db"
        path.write_text("these are notes, and no database at all " * 100)
        journal = open_journal(str(path))
        with pytest.raises(JournalSetupError, match="damaged, or no SQLite file"):
            await journal.append(started("t"))
        with pytest.raises(JournalSetupError, match="damaged"):
            await anext(journal.subscribe())

    async def test_unwritable_journal_folder_is_reported(self, tmp_path, open_journal):
        (tmp_path / "file").write_text("")
        for place in (tmp_path, tmp_path / "file" / "journal.db"):
            with pytest.raises(JournalSetupError, match="cannot be opened"):
                await open_journal(str(place)).find()

    async def test_read_only_journal_file_is_reported(
        self, sqlite_place, open_journal, monkeypatch
    ):
        journal = open_journal(sqlite_place)
        await journal.append(started("t"))
        await journal.aclose()
        monkeypatch.setattr(os, "access", lambda *_: False)  # the test's user may be root
        with pytest.raises(JournalSetupError, match="cannot be opened: it cannot be read and"):
            await journal.find()

    async def test_full_disk_is_reported_and_recovered_from(
        self, sqlite_place, open_journal, monkeypatch
    ):
        journal = open_journal(sqlite_place)
        await journal.append(started("t"))
        await journal.aclose()
        connect = SqliteDatabase.connect

        def full(database):  # as many pages as there are, and no more
            connection = connect(database)
            ((size,),) = connection.execute("PRAGMA page_count")
            connection.execute(f"PRAGMA max_page_count = {size + 1}")
            return connection

        monkeypatch.setattr(SqliteDatabase, "connect", full)
        with pytest.raises(JournalError, match=r"the disk of the journal .* is full") as caught:
            for seq in range(2, 100):
                await journal.append(printed("t", seq, "x" * 4000))
        assert "free some space" in caught.value.hint
        kept = [event.seq for event in await journal.read("t")]
        assert kept == list(range(1, len(kept) + 1))
        await journal.aclose()
        monkeypatch.undo()
        await journal.append(printed("t", len(kept) + 1))

    @pytest.mark.parametrize("version", ["'x'", "NULL"])
    async def test_invalid_schema_version_is_reported(self, sqlite_place, open_journal, version):
        journal = open_journal(sqlite_place)
        await journal.append(started("t"))
        await journal.aclose()
        with contextlib.closing(sqlite3.connect(sqlite_place, isolation_level=None)) as raw:
            raw.execute("DROP TABLE delf_schema_version")
            raw.execute("CREATE TABLE delf_schema_version (version)")
            raw.execute(f"INSERT INTO delf_schema_version VALUES ({version})")
        with pytest.raises(JournalSetupError, match="does not say its version"):
            await journal.find()

    async def test_second_journal_on_a_file_keeps_the_write_ahead_log(
        self, sqlite_place, open_journal
    ):
        journal = open_journal(sqlite_place)
        await journal.append(started("t"))
        for _ in range(2):  # as an agent and its chat do
            other = open_journal(sqlite_place)
            await other.find()
            await other.aclose()
        read = [sys.executable, "-c", READER, sqlite_place]
        assert await asyncio.to_thread(subprocess.check_output, read, text=True) == "1\n"
        assert Path(f"{sqlite_place}-wal").exists(), "the other process took it away"
        await journal.append(printed("t", 2))
        assert await asyncio.to_thread(subprocess.check_output, read, text=True) == "2\n"

    async def test_locked_journal_file_is_reported(self, sqlite_place, open_journal):
        journal = open_journal(sqlite_place, lock_timeout=0.05)
        await journal.append(started("t"))
        with contextlib.closing(sqlite3.connect(sqlite_place, isolation_level=None)) as raw:
            raw.execute("BEGIN IMMEDIATE")
            assert len(await journal.find()) == 1
            with pytest.raises(JournalError, match="locked by another process"):
                await journal.append(printed("t", 2))
            raw.execute("ROLLBACK")
        await journal.append(printed("t", 2))

    async def test_damaged_event_is_reported(self, sqlite_place, open_journal):
        journal = open_journal(sqlite_place)
        await journal.append(started("t"))
        with contextlib.closing(sqlite3.connect(sqlite_place, isolation_level=None)) as raw:
            raw.execute("UPDATE delf_events SET data = '{'")
        with pytest.raises(UnreadableEventError, match="event 1 of task t is damaged"):
            await journal.read("t")


class TestVersions:
    async def test_newer_journal_is_refused(self, journal_url, open_journal):
        database = open_database(JournalSettings(url=journal_url))
        schema.migrate(database, [*schema.MIGRATIONS, "CREATE TABLE delf_later (x INTEGER)"])
        database.close()
        journal = open_journal(journal_url)
        known = schema.newest()
        says = f"is of version {known + 1}, and this delf knows {known}"
        with pytest.raises(JournalSetupError, match=says):
            await journal.find()

    async def test_unreleased_journal_version_is_refused(self, tmp_path, open_journal):
        place = tmp_path / "journal.db"
        with contextlib.closing(sqlite3.connect(place, isolation_level=None)) as raw:
            raw.execute("CREATE TABLE delf_schema_version (version INTEGER NOT NULL)")
            raw.execute("INSERT INTO delf_schema_version VALUES (3)")
        with pytest.raises(JournalSetupError, match="version 3, which was never released"):
            await open_journal(str(place)).find()

    async def test_failed_migration_step_changes_nothing(self, journal_url):
        broken = "CREATE TABLE delf_half (x INTEGER); SELECT nonsense FROM nowhere"
        database = open_database(JournalSettings(url=journal_url))
        schema.migrate(database)
        with pytest.raises(JournalError):
            schema.migrate(database, [*schema.MIGRATIONS, broken])
        with database.reader() as connection:
            assert not connection.has_table("delf_half")
        schema.migrate(database)
        database.close()


class TestPostgres:
    async def test_lost_connection_is_reopened(self, postgres_database, open_journal):
        journal = open_journal(postgres_database.url)
        live = journal.subscribe("t")
        await journal.append(started("t"))
        await anext(live)
        waiting = asyncio.ensure_future(anext(live))
        await asyncio.sleep(0)
        end = (
            "SELECT pg_terminate_backend(pid, 20000) FROM pg_stat_activity "
            "WHERE application_name = 'delf-journal' AND datname = current_database()"
        )
        await asyncio.to_thread(postgres_database.run, end)
        await journal.append(printed("t", 2))
        assert (await waiting).seq == 2
        assert [event.seq for event in await journal.read("t")] == [1, 2]

    async def test_interrupted_read_is_repeated(self, postgres_database, open_journal, monkeypatch):
        journal = open_journal(postgres_database.url)
        await journal.append(started("t"))
        seen = []

        def read(connection, now):
            seen.append(connection)
            if len(seen) == 1:
                connection.execute("SELECT pg_terminate_backend(pg_backend_pid())")
            return count(connection, now)

        count = store.count_tasks

        monkeypatch.setattr(store, "count_tasks", read)
        assert await journal.count() == {"running": 1}
        assert len(seen) == 2


async def test_closing_ends_subscriptions(journal_url, open_journal):
    before = set(threading.enumerate())
    journal = open_journal(journal_url)
    live = journal.subscribe()
    waiting = asyncio.ensure_future(anext(live))
    await journal.append(started("t"))
    assert (await waiting).task_id == "t"
    rest = asyncio.ensure_future(anext(live))
    await asyncio.sleep(0)
    await journal.aclose()
    with pytest.raises(StopAsyncIteration):
        await rest
    assert not [t for t in set(threading.enumerate()) - before if "journal" in t.name]


@pytest.mark.parametrize("written", ["sqlite:///a%20b.db", "a b.db", "sqlite:///{here}/a%20b.db"])
async def test_relative_journal_path_is_next_to_its_config_file(tmp_path, written):
    journal = SqlJournal(url=FileText(written.format(here=tmp_path), tmp_path))
    await journal.append(started("t"))
    await journal.aclose()
    assert (tmp_path / "a b.db").is_file()


async def test_pruning_shrinks_the_journal_file(tmp_path):
    """All free pages are released, not only one at a time."""
    path = tmp_path / "journal.db"
    journal = SqlJournal(str(path))
    try:
        for number in range(200):
            await journal.append(started(f"t{number}", at=1000.0 + number))
            await journal.append(printed(f"t{number}", 2, "x" * 20_000))
            await journal.append(finished(f"t{number}", 3, at=2000.0 + number))
        await journal.prune(keep=200)  # what is in the write-ahead log goes into the file
        before = path.stat().st_size
        assert len((await journal.prune(keep=20)).tasks) == 180
        assert path.stat().st_size < before / 5
    finally:
        await journal.aclose()


@pytest.mark.parametrize("size", [100, 200_000], ids=["small", "apart"])
async def test_pruning_removes_only_old_prompts(journal_url, open_journal, size):
    journal = open_journal(journal_url, keep_prompts="1h")
    now = time.time()
    for name, at in (("old", now - 7200), ("new", now - 60)):
        await journal.append(started(name, at=at))
        prompt = os.urandom(size).hex()
        call = ModelCalled(
            task_id=name, seq=2, at=at, model="m", purpose="generate", number=1, prompt=prompt
        )
        await journal.append(call)
        await journal.append(finished(name, 3, at=at + 1))
    assert (await journal.prune(keep=10)).tasks == ()
    calls = {name: (await journal.read(name))[1] for name in ("old", "new")}
    assert calls["old"].prompt is None
    assert (calls["old"].number, calls["old"].model) == (1, "m")
    assert len(calls["new"].prompt) == 2 * size
    assert [event.seq for event in await journal.read("old")] == [1, 2, 3]
