"""Processes share a journal in a simulated world: crashes, pauses, clocks that jump, lost answers.

Everything that is random comes from a seed, and one process moves at a time, so that a seed that
fails can be run again: ``DELF_TEST_SEEDS=4711:4712``. The journal, its claims and SQLite are real.
A call changes the world right after the journal has kept that it begins; a process that finds a
call begun and not ended asks a person, who looks at the world.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from delf.errors import DelfError
from delf.events import CallFinished, CallStarted, Event, Printed, TaskFinished, TaskStarted
from delf_engine.journal.claims import Claims, is_over
from delf_journal_sql import SqlJournal
from delf_journal_sql import writer as writers
from delf_journal_sql.errors import ConnectionLostError, JournalConflictError, JournalError
from delf_journal_sql.sqlite import SqliteConnection

LEASE = 4.0
PROCESSES = 3
CALLS = 3
MAX_TURNS = 2000
OVER = {"done", "failed", "stopped"}
SEEDS = range(*map(int, os.environ.get("DELF_TEST_SEEDS", "0:40").split(":")))


class CrashedError(Exception):
    """The simulated process has crashed."""


@dataclass
class World:
    """The state that simulated processes share besides the journal.

    Args:
        path: The journal's file.
        seed: The seed of all random choices.
    """

    path: Path
    seed: int
    clock: float = 1_000_000.0
    calm: bool = False
    effects: Counter[tuple[str, int]] = field(default_factory=Counter[tuple[str, int]])
    seen: Counter[str] = field(default_factory=Counter[str])
    waiting: dict[str, asyncio.Future[None]] = field(
        default_factory=dict[str, asyncio.Future[None]]
    )

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)

    def happens(self, what: str, share: float) -> bool:
        """Return True if a rare event happens now."""
        if self.calm or self.chance.random() >= share:
            return False
        self.seen[what] += 1
        return True

    def sleep(self, seconds: float) -> None:
        """Advance the time while a writer waits."""
        self.clock += seconds


class Process:
    """A process that works on tasks until all are over or it crashes."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.claims = Claims()
        self.journal = SqlJournal(str(world.path))
        self.journal.lease(LEASE)

    async def turn(self) -> None:
        """Let the world choose the process that goes on."""
        future = asyncio.get_running_loop().create_future()
        self.world.waiting[self.name] = future
        await future

    async def begin(self, task_id: str) -> None:
        await self.turn()
        try:
            await self.append(TaskStarted, task_id, 1, task="Do it.")
        except JournalError:
            self.world.seen["gave up"] += 1
        else:
            await self.work_on(task_id, [])
        await self.live()

    async def live(self) -> None:
        """Claim and continue unfinished tasks until all are over."""
        while True:
            await self.turn()
            try:
                found = await self.journal.find()
            except JournalError:
                self.world.seen["gave up"] += 1
                continue
            left = [task.task_id for task in found if task.state not in OVER]
            if not left:
                return
            task_id = self.world.chance.choice(sorted(left))
            try:
                events = await self.claims.claim(self.journal, task_id)
            except DelfError:
                self.world.seen["held by another"] += 1
                self.world.clock += 0.5
                continue
            if not is_over(events):
                self.world.seen["taken up"] += 1
                await self.work_on(task_id, events)

    async def append(
        self, kind: Callable[..., Event], task_id: str, seq: int, **values: Any
    ) -> None:
        """Append an event that no other process could have appended."""
        self.world.clock += 0.001
        await self.journal.append(kind(task_id=task_id, seq=seq, at=self.world.clock, **values))

    async def work_on(self, task_id: str, events: Sequence[Event]) -> None:
        try:
            await self.do_calls(task_id, events)
        except JournalConflictError:
            self.world.seen["refused"] += 1
        except JournalError:
            self.world.seen["gave up"] += 1
        await self.turn()
        await self.claims.release(self.journal, task_id)

    async def do_calls(self, task_id: str, events: Sequence[Event]) -> None:
        seq = events[-1].seq if events else 1
        begun = {event.call_id for event in events if isinstance(event, CallStarted)}
        ended = {event.call_id for event in events if isinstance(event, CallFinished)}

        async def keep(kind: Callable[..., Event], **values: Any) -> None:
            nonlocal seq
            await self.turn()
            seq += 1
            await self.append(kind, task_id, seq, **values)

        for number in range(1, CALLS + 1):
            call = {"call_id": number, "action": "pay"}
            if number in ended:
                continue
            done = False
            if number in begun:
                done = bool(self.world.effects[task_id, number])
                self.world.seen["asked"] += 1
                await keep(Printed, text=f"{number}: {'it is done' if done else 'again'}")
            else:
                await keep(CallStarted, arguments={}, effect="irreversible", digest="d", **call)
            if not done:
                if self.world.happens("crash before the effect", 0.03):
                    raise CrashedError
                self.world.effects[task_id, number] += 1
            await keep(CallFinished, status="ok", duration_ms=1.0, **call)
        await keep(TaskFinished, status=True, text="", duration_ms=1.0)


async def simulate(world: World) -> None:
    """Run a world to its end, and check the result."""
    made: list[Process] = []
    starts: dict[str, asyncio.Task[None]] = {}
    names = [f"t{number}" for number in range(PROCESSES)]

    def start(work: Callable[[Process], Awaitable[None]]) -> None:
        process = Process(world, f"p{len(made)}")
        made.append(process)

        async def run() -> None:
            try:
                await work(process)
            except CrashedError:
                world.seen["crashes"] += 1

        starts[process.name] = asyncio.ensure_future(run())

    async def first(process: Process, task_id: str) -> None:
        await process.begin(task_id)
        await process.live(names[:1])

    try:
        for task_id in names:
            start(lambda process, task_id=task_id: process.begin(task_id))
        for _ in range(MAX_TURNS):
            await _all_wait(world, starts)
            if not starts:
                break
            name = world.chance.choice(sorted(starts))
            world.clock += world.chance.random() / 10
            if world.happens("time passes", 0.15):
                world.clock += world.chance.random() * 2 * LEASE
            future = world.waiting.pop(name)
            if world.happens("crash", 0.05):
                future.set_exception(CrashedError())
            else:
                future.set_result(None)
        assert not starts, f"seed {world.seed} comes to no end"
        # Whoever is left finds nothing to do, or does it.
        world.calm, world.clock = True, world.clock + 2 * LEASE
        start(lambda process: process.live())
        while starts:
            await _all_wait(world, starts)
            for future in [*world.waiting.values()]:
                future.set_result(None)
            world.waiting.clear()
        known = [task.task_id for task in await made[-1].journal.find()]
        await _judge(world, made[-1].journal, known)
    finally:
        for life in starts.values():
            life.cancel()
        for process in made:
            await process.journal.aclose()


async def _all_wait(world: World, starts: dict[str, asyncio.Task[None]]) -> None:
    """Let the chosen process run to its next turn or to its end."""
    while True:
        for name, life in [*starts.items()]:
            if life.done():
                del starts[name]
                world.waiting.pop(name, None)
                life.result()
        moving = [life for name, life in starts.items() if name not in world.waiting]
        if not moving:
            return
        await asyncio.sleep(0)
        if [life for name, life in starts.items() if name not in world.waiting and not life.done()]:
            await asyncio.sleep(0.0002)


async def _judge(world: World, journal: SqlJournal, task_ids: Sequence[str]) -> None:
    for task_id in task_ids:
        events = await journal.read(task_id)
        story = f"seed {world.seed}: " + ", ".join(type(event).__name__ for event in events)
        assert [event.seq for event in events] == list(range(1, len(events) + 1)), story
        assert [type(event) for event in events].count(TaskFinished) == 1, story
        assert isinstance(events[-1], TaskFinished), story
        for number in range(1, CALLS + 1):
            assert world.effects[task_id, number] == 1, f"call {number} of {task_id}, {story}"
    assert {task for task, _ in world.effects} <= set(task_ids), f"seed {world.seed}"


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[range], Counter[str]]:
    """Simulate some seeds; return the events that happened."""
    world = World(tmp_path / "none", 0)
    commit = SqliteConnection.commit

    def perhaps_lost(self: SqliteConnection) -> None:
        if world.happens("lost before it was kept", 0.02):
            raise ConnectionLostError(JournalError("lost"))
        commit(self)
        if world.happens("lost after it was kept", 0.02):
            raise ConnectionLostError(JournalError("lost"))

    monkeypatch.setattr(SqliteConnection, "commit", perhaps_lost)
    monkeypatch.setattr(SqliteConnection, "now", lambda _self: world.clock)
    time = SimpleNamespace(monotonic=lambda: world.clock, sleep=lambda s: world.sleep(s))
    monkeypatch.setattr(writers, "time", time)

    def run(seeds: range) -> Counter[str]:
        nonlocal world
        seen: Counter[str] = Counter()
        for seed in seeds:
            world = World(tmp_path / f"{seed}.db", seed)
            asyncio.run(simulate(world))
            seen += world.seen
            for file in tmp_path.glob(f"{seed}.db*"):
                file.unlink()
        return seen

    return run


@pytest.mark.slow
def test_simulation_neither_repeats_nor_loses_an_effect(play) -> None:
    seen = play(SEEDS)
    if len(SEEDS) >= 40:
        missing = {
            *("crash", "crash before the effect", "time passes", "held by another", "taken up"),
            *("asked", "refused", "lost before it was kept", "lost after it was kept"),
        } - seen.keys()
        assert not missing, "the worlds are too quiet to show anything"


def test_journal_that_loses_confirmed_events_is_detected(play, monkeypatch) -> None:
    commit, chance = SqliteConnection.commit, random.Random(1)

    def forgets(self: SqliteConnection) -> None:
        if chance.random() < 0.05:
            self.rollback()
        else:
            commit(self)

    monkeypatch.setattr(SqliteConnection, "commit", forgets)
    with pytest.raises(AssertionError, match=r"^(call|seed)"):
        play(range(100))
