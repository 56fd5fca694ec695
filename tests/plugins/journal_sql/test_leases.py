"""Leases: whose process is silent loses its tasks, and keeps no event of them when it wakes."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from delf.errors import TaskTimeoutError
from delf.events import Printed, TaskFinished, TaskPostponed, TaskQueued, TaskStarted
from delf.types import TaskState
from delf_journal_sql import SqlJournal
from delf_journal_sql.errors import ConnectionLostError, JournalConflictError, JournalError
from delf_journal_sql.owners import birth_of
from delf_journal_sql.postgresql import PostgresConnection, PostgresDatabase
from delf_journal_sql.settings import JournalSettings
from delf_journal_sql.sqlite import SqliteConnection
from support import program
from support.until import until

OWNER = """
import asyncio, sys
from delf.errors import DelfError
from delf.events import Printed, TaskStarted
from delf_journal_sql import SqlJournal

async def main():
    journal = SqlJournal(sys.argv[1])
    journal.lease(0.4)
    await journal.append(TaskStarted(task_id="t", seq=1, at=1.0, task="Do it."))
    print("begun", flush=True)
    sys.stdin.readline()
    try:
        await journal.append(Printed(task_id="t", seq=2, at=2.0, text="the old one"))
        print("kept", flush=True)
    except DelfError as error:
        print(type(error).__name__, error, flush=True)

asyncio.run(main())
"""

CLAIMER = """
import asyncio, os, signal, sys
from delf_journal_sql import SqlJournal
from delf_journal_sql.errors import JournalConflictError

async def main():
    journal = SqlJournal(sys.argv[1])
    journal.lease(0.4)
    while True:
        try:
            await journal.claim("t")
        except JournalConflictError:
            await asyncio.sleep(0.05)
        else:
            os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""
FINISHED = TaskFinished(task_id="t", seq=2, at=3.0, status=True, text="", duration_ms=1.0)


@pytest.fixture
def owner(journal_url: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", OWNER, journal_url]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with program.start(command, text=True, **pipes) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        yield process
        process.kill()


def goes_on(owner: subprocess.Popen[str]) -> str:
    owner.send_signal(signal.SIGCONT)
    assert owner.stdin is not None
    assert owner.stdout is not None
    owner.stdin.write("\n")
    owner.stdin.flush()
    return owner.stdout.readline()


async def taken(journal: SqlJournal) -> None:
    """Claim the task as soon as its owner has been silent for a lease."""

    async def claimed() -> bool:
        with contextlib.suppress(JournalConflictError):
            await journal.claim("t")
            return True
        return False

    await until(claimed)


def printed(text: str, seq: int = 2) -> Printed:
    return Printed(task_id="t", seq=seq, at=2.0, text=text)


async def test_suspended_process_appends_nothing(
    owner: subprocess.Popen[str], journal_url: str
) -> None:
    journal = SqlJournal(journal_url)
    owner.send_signal(signal.SIGSTOP)
    await taken(journal)
    message = await asyncio.to_thread(goes_on, owner)
    assert message.startswith("JournalConflictError task t belongs to another process now")
    await journal.append(printed("the new one"))
    assert [event.seq for event in await journal.read("t")] == [1, 2]
    await journal.aclose()


async def test_process_stopped_in_a_transaction_blocks_nobody(postgres_url: str) -> None:
    journal = SqlJournal(postgres_url)
    await journal.append(TaskStarted(task_id="t", seq=1, at=1.0, task="Do it."))
    scheme_and_rest = postgres_url.split("://", 1)
    stopped = PostgresDatabase(scheme_and_rest[1], JournalSettings())
    connection = stopped.connect()
    connection.begin(write=True)
    await journal.append(printed("from another"))
    with pytest.raises(ConnectionLostError):
        connection.execute("SELECT 1")
    connection.close()
    stopped.close()
    await journal.aclose()


async def test_live_process_keeps_its_tasks(owner: subprocess.Popen[str], journal_url: str) -> None:
    journal = SqlJournal(journal_url)
    await asyncio.sleep(1.0)  # more than two leases
    with pytest.raises(JournalConflictError, match="being worked on"):
        await journal.claim("t")
    assert await asyncio.to_thread(goes_on, owner) == "kept\n"
    await journal.aclose()


async def test_queued_task_has_no_owner_until_claimed(journal_url: str) -> None:
    submitting, working = SqlJournal(journal_url), SqlJournal(journal_url)
    queued = TaskQueued(task_id="t", seq=1, at=1.0, task="Do it.", queue="night")
    await submitting.append(queued)
    await submitting.append(queued)
    assert [record.state for record in await working.find(state=TaskState.QUEUED)] == ["queued"]
    await working.claim("t")
    await working.append(TaskStarted(task_id="t", seq=2, at=2.0, task="Do it."))
    assert [record.state for record in await submitting.find()] == ["running"]
    with pytest.raises(JournalConflictError, match=r"being worked on|belongs to another process"):
        await submitting.append(printed("not mine", 3))
    await working.aclose()
    await submitting.aclose()


async def test_task_finished_during_a_claim_stays_finished(journal_url: str) -> None:
    first, second = SqlJournal(journal_url), SqlJournal(journal_url)
    await first.append(TaskStarted(task_id="t", seq=1, at=1.0, task="Do it."))
    await first.append(FINISHED)
    await second.claim("t")  # it saw no end of it yet
    await second.release("t")
    assert (await second.task("t")).state == "done"
    await first.aclose()
    await second.aclose()


async def test_former_owner_cannot_end_a_task(
    owner: subprocess.Popen[str], journal_url: str
) -> None:
    owner.send_signal(signal.SIGSTOP)
    with program.start([sys.executable, "-c", CLAIMER, journal_url], text=True) as claimer:
        assert await asyncio.to_thread(claimer.wait, 60) == -signal.SIGKILL
    message = await asyncio.to_thread(goes_on, owner)
    assert message.startswith("JournalConflictError")
    journal = SqlJournal(journal_url)
    await taken(journal)
    await journal.append(FINISHED)
    record = await journal.task("t")
    assert (record.state, record.losses) == ("done", 2)
    await journal.aclose()


@pytest.fixture
def connection_class(journal_url: str) -> Any:
    return PostgresConnection if journal_url.startswith("postgresql") else SqliteConnection


@pytest.fixture
def break_commit(
    connection_class: Any, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., list[Any]]:
    """Let the next commit raise an error, after the database has committed or before."""
    commit = connection_class.commit

    def prepare(error: Exception, *, is_committed: bool = True) -> list[Any]:
        broken: list[Any] = []

        def break_once(self: Any) -> None:
            if broken or is_committed:
                commit(self)
            if not broken:
                broken.append(self)
                raise error

        monkeypatch.setattr(connection_class, "commit", break_once)
        return broken

    return prepare


POSTPONED = TaskPostponed(task_id="t", seq=2, at=2.0, error="x", code="x", tries=1, not_before=3.0)
TOO_LATE = replace(FINISHED, status=False, code=TaskTimeoutError.code)


@pytest.mark.parametrize("queue", [None, "night"])
@pytest.mark.parametrize("end", [POSTPONED, TOO_LATE], ids=["postponed", "at its timeout"])
async def test_task_is_released_if_the_connection_breaks_while_its_end_is_stored(
    journal_url: str, break_commit: Callable[..., list[Any]], end: Any, queue: str | None
) -> None:
    first, second = SqlJournal(journal_url), SqlJournal(journal_url)
    await first.append(TaskQueued(task_id="t", seq=1, at=1.0, task="Do it.", queue=queue))
    await first.claim("t") if queue else None
    broken = break_commit(ConnectionLostError(JournalError("the connection broke")))
    await first.append(end)
    assert broken
    for journal in (first, second):
        await journal.reopen("t")
        await journal.release("t")
    await first.aclose()
    await second.aclose()


@pytest.mark.parametrize("step", ["claim", "release"])
async def test_claim_that_failed_is_released_by_a_heartbeat(
    journal_url: str, break_commit: Callable[..., list[Any]], step: str
) -> None:
    first, second = SqlJournal(journal_url), SqlJournal(journal_url)
    first.lease(0.2)
    for name in ("t", "other"):  # the other task keeps the heartbeats alive
        await first.append(TaskStarted(task_id=name, seq=1, at=1.0, task="Do it."))
    if step == "claim":
        await first.release("t")
    is_committed = step == "claim"  # a release that was committed needs no other
    with pytest.raises(JournalError, match="the disk is full"):
        while True:
            break_commit(JournalError("the disk is full"), is_committed=is_committed)
            await getattr(first, step)("t")
            # The commit that failed was a heartbeat's. Undo the step, and try again.
            await (first.release("t") if step == "claim" else first.claim("t"))
    await taken(second)
    with pytest.raises(JournalConflictError):
        await second.claim("other")
    await first.aclose()
    await second.aclose()


async def test_failed_claim_of_a_task_that_its_process_holds_releases_no_task(
    journal_url: str, connection_class: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_connection: Any, **_options: Any) -> None:
        raise JournalError("the disk is full")

    first, second = SqlJournal(journal_url), SqlJournal(journal_url)
    first.lease(0.2)
    for name in ("t", "other"):
        await first.append(TaskStarted(task_id=name, seq=1, at=1.0, task="Do it."))
    with monkeypatch.context() as outage:
        outage.setattr(connection_class, "begin", refuse)
        for step in (first.claim("other"), first.release("t")):
            with pytest.raises(JournalError, match="the disk is full"):
                await step
    await taken(second)  # after the heartbeat that makes up for the failed release
    with pytest.raises(JournalConflictError):
        await second.claim("other")
    await first.aclose()
    await second.aclose()


_RENAMED_PROCESS = """
import sys
with open("/proc/self/comm", "w") as name:
    name.write("a) R\\nb")
print("renamed", flush=True)
sys.stdin.readline()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_process_with_a_line_break_in_its_name_is_alive():
    with subprocess.Popen(
        [sys.executable, "-c", _RENAMED_PROCESS], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        process.stdout.readline()
        birth = birth_of(process.pid)
        process.kill()
    assert birth is not None
    assert birth.isdigit()
