"""Queues: which tasks a journal gives to workers, to one of them each, within limits."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from itertools import chain

import pytest

from delf.events import Printed, TaskFinished, TaskQueued, TaskStarted
from delf.protocols.queues import QueueLimits
from delf_journal_sql import SqlJournal
from delf_journal_sql.errors import JournalConflictError
from support import program

Open = Callable[..., SqlJournal]
NONE = QueueLimits()

TAKER = """
import asyncio, sys
from delf.protocols.queues import QueueLimits
from delf_journal_sql import SqlJournal
from delf_journal_sql.errors import JournalConflictError

async def main():
    journal = SqlJournal(sys.argv[1])
    journal.lease(0.4)
    taken = await journal.take({"q": QueueLimits()}, 9)
    print(*(record.task_id for record in taken), flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


async def hand_in(
    journal: SqlJournal,
    *names: str,
    queue: str = "q",
    key: str | None = None,
    priority: int = 0,
    not_before: float | None = None,
) -> None:
    for name in names:
        await journal.append(
            TaskQueued(
                task_id=name,
                seq=1,
                at=time.time(),
                task="Do it.",
                queue=queue,
                key=key,
                priority=priority,
                not_before=not_before,
            )
        )


async def taken(journal: SqlJournal, limits: QueueLimits = NONE, most: int = 99) -> list[str]:
    return [record.task_id for record in await journal.take({"q": limits}, most)]


async def begin(journal: SqlJournal, name: str) -> None:
    await journal.claim(name)
    await journal.append(TaskStarted(task_id=name, seq=2, at=time.time(), task="Do it."))


async def end(journal: SqlJournal, name: str) -> None:
    event = TaskFinished(task_id=name, seq=3, at=time.time(), status=True, text="", duration_ms=1)
    await journal.append(event)


async def given_in_time(journal: SqlJournal) -> Sequence[str]:
    async with asyncio.timeout(30):
        while not (found := await taken(journal)):
            await asyncio.sleep(0.05)
    return found


async def test_each_task_is_given_to_one_and_in_order(open_journal: Open, journal_url: str) -> None:
    first, second = open_journal(journal_url), open_journal(journal_url)
    await hand_in(first, "a", "b", "c")
    await hand_in(first, "last", priority=1)
    await hand_in(first, "first", priority=-1)
    await hand_in(first, "elsewhere", queue="other")
    await hand_in(first, "later", not_before=time.time() + 3600)
    assert await taken(first, most=2) == ["first", "a"]
    seen = await second.take({"q": NONE}, 9, without=["c"], dry_run=True)
    assert [record.task_id for record in seen] == ["b", "last"]
    both = await asyncio.gather(*(taken(one, most=2) for one in (first, second)))
    assert sorted(chain(*both)) == ["b", "c", "last"]
    assert await taken(second) == []
    record = await second.task("a")
    assert (record.state, record.losses) == ("queued", 0)


async def test_what_is_given_back_is_given_again_and_what_was_claimed_is_not(
    open_journal: Open, journal_url: str
) -> None:
    first, second = open_journal(journal_url), open_journal(journal_url)
    await hand_in(first, "a", "b")
    assert await taken(first) == ["a", "b"]
    await begin(first, "a")
    await second.give_back(["a", "b"])  # they are not this one's
    assert await taken(second) == []
    await first.give_back(["a", "b"])
    assert await taken(second) == ["b"]
    assert (await second.task("b")).losses == 0
    await first.release("a")  # whoever worked on it stops
    assert await taken(second) == ["a"]
    await begin_again(second, "a")


async def begin_again(journal: SqlJournal, name: str) -> None:
    await journal.claim(name)
    await end(journal, name)
    assert (await journal.task(name)).state == "done"


async def test_a_closed_journal_has_taken_nothing(open_journal: Open, journal_url: str) -> None:
    first, second = open_journal(journal_url), open_journal(journal_url)
    await hand_in(first, "a")
    assert await taken(first) == ["a"]
    await first.aclose()
    assert await taken(second) == ["a"]


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
async def test_what_a_process_took_that_died_before_it_began_is_given_on_after_its_lease(
    open_journal: Open, journal_url: str, how: signal.Signals
) -> None:
    journal = open_journal(journal_url)
    await hand_in(journal, "a", "b")
    command = [sys.executable, "-c", TAKER, journal_url]
    with program.start(command, text=True, stdout=subprocess.PIPE) as taker:
        try:
            assert taker.stdout is not None
            assert await asyncio.to_thread(taker.stdout.readline) == "a b\n"
            taker.send_signal(how)
            assert await given_in_time(journal) == ["a", "b"]
        finally:
            taker.kill()
    await begin(journal, "a")
    await end(journal, "a")
    assert (await journal.task("a")).state == "done"


async def test_who_took_tasks_and_lives_keeps_them(open_journal: Open, journal_url: str) -> None:
    first, second = open_journal(journal_url), open_journal(journal_url)
    first.lease(12.0)
    await hand_in(first, "a")
    assert await taken(first) == ["a"]
    before = await heartbeat(first)
    async with asyncio.timeout(30):
        while await heartbeat(first) == before:
            await asyncio.sleep(0.05)
    assert await taken(second) == []


async def shift(journal: SqlJournal, seconds: float) -> None:
    """Let tasks have begun at another time."""
    sql = "UPDATE delf_tasks SET begun_at = begun_at + :by"
    await journal._write(lambda c: c.execute(sql, {"by": seconds}))  # pyright: ignore[reportPrivateUsage]


async def heartbeat(journal: SqlJournal) -> float:
    sql = "SELECT MAX(heartbeat) FROM delf_owners"
    rows = await journal._read(lambda c: c.execute(sql))  # pyright: ignore[reportPrivateUsage]
    return float(rows[0][0])


async def test_a_queue_has_so_many_at_work_at_once(open_journal: Open, journal_url: str) -> None:
    first, second = open_journal(journal_url), open_journal(journal_url)
    limits = QueueLimits(at_once=2)
    await hand_in(first, "a", "b", "c", "d")
    assert await taken(first, limits, most=1) == ["a"]
    assert await taken(second, limits) == ["b"]
    assert await taken(first, limits) == []
    await begin(first, "a")
    assert await taken(second, limits) == []
    await end(first, "a")
    assert await taken(second, limits) == ["c"]


async def test_a_key_has_so_many_at_work_at_once(open_journal: Open, journal_url: str) -> None:
    first, second = open_journal(journal_url), open_journal(journal_url)
    limits = QueueLimits(key_at_once=1)
    await hand_in(first, *(f"seven{number}" for number in range(300)), key="7")
    await hand_in(first, "eight0", "eight1", key="8")
    await hand_in(first, "free0", "free1")
    assert await taken(first, limits) == ["seven0", "eight0", "free0", "free1"]
    assert await taken(second, limits) == []
    await begin(first, "seven0")
    await begin(first, "eight0")
    assert await taken(second, limits) == []
    await end(first, "seven0")
    assert await taken(second, limits) == ["seven1"]
    await first.release("eight0")  # it goes on before another one of its key begins
    assert await taken(second, limits) == ["eight0"]
    assert (await second.task("eight0")).key == "8"


async def test_of_a_queue_and_a_key_only_so_many_begin_in_a_time(
    open_journal: Open, journal_url: str
) -> None:
    journal = open_journal(journal_url)
    hourly = 1 / 3600
    await hand_in(journal, "a", "b")
    await hand_in(journal, "c", "d", key="7")
    assert await taken(journal, QueueLimits(key_per_second=hourly)) == ["a", "b", "c"]
    assert await taken(journal, QueueLimits(key_per_second=hourly)) == []
    assert await taken(journal, QueueLimits(per_second=hourly)) == []
    await journal.give_back(["a"])
    await shift(journal, -3601)
    assert await taken(journal, QueueLimits(per_second=hourly, key_per_second=hourly)) == ["a"]
    await shift(journal, 9999)
    assert await taken(journal, QueueLimits(per_second=hourly)) == ["d"]  # the clock was set back


async def test_a_task_that_ended_while_somebody_took_it_stays_over(
    open_journal: Open, journal_url: str
) -> None:
    first, second = open_journal(journal_url), open_journal(journal_url)
    await hand_in(first, "a")
    await begin(first, "a")
    await end(first, "a")
    await second.claim("a")  # it saw no end of it yet
    await second.release("a")
    assert (await second.task("a")).state == "done"
    assert await taken(second) == []


async def test_who_lost_a_task_does_not_end_it_even_where_the_next_one_died(
    open_journal: Open, journal_url: str
) -> None:
    first, second, third = (open_journal(journal_url) for _ in range(3))
    await hand_in(first, "a")
    await begin(first, "a")
    await shift_owner(first, "a")
    printed = Printed(task_id="a", seq=3, at=3.0, text="the old one")
    with pytest.raises(JournalConflictError):
        await first.append(printed)
    with pytest.raises(JournalConflictError):
        await end(first, "a")
    assert (await third.task("a")).state == "interrupted"
    assert await taken(second) == ["a"]
    await second.claim("a")
    await end(second, "a")
    assert (await third.task("a")).state == "done"


async def shift_owner(journal: SqlJournal, name: str) -> None:
    """Somebody took a task over, and died."""
    sql = "UPDATE delf_tasks SET owner = 'who died' WHERE task_id = :name"
    await journal._write(lambda c: c.execute(sql, {"name": name}))  # pyright: ignore[reportPrivateUsage]
