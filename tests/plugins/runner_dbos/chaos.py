"""Failures of runners: killed, stopped or ended, and so is their database.

It crashes, or its clock is set back.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import subprocess
import time
from collections import Counter
from dataclasses import dataclass, field

from delf.events import TaskFinished, TaskResumed
from support.postgres import OwnPostgres

from .fleet import OVER, Fleet

_END_SECONDS = 30.0
"""The most seconds for a runner to end that got the signal to end."""


@dataclass
class Chaos:
    """Injects faults into a fleet until its tasks are over.

    Args:
        one: The fleet.
        server: The database server of the journal and of DBOS, if faults may hit it too.
        options: The options of the runners.
        seed: The seed of all random choices.
        done: The number of faults of each kind.
    """

    one: Fleet
    server: OwnPostgres | None = None
    options: tuple[str, ...] = ("--concurrency", "3", "--grace", "1")
    seed: int = 7
    done: Counter[str] = field(default_factory=Counter[str])
    _lost: list[tuple[float, str]] = field(default_factory=list[tuple[float, str]])

    async def shake(self, seconds: float) -> None:
        """Inject faults until all tasks are over: each kind once, then at random.

        Args:
            seconds: The time limit; in its last third no fault is injected.
        """
        chance = random.Random(self.seed)
        ways = [self._kill, self._stop, self._end]
        if self.server is not None:
            ways += [self._crash, self._set_clock_back]
        first, begun = iter(ways), time.monotonic()
        async with asyncio.timeout(seconds):
            while set(await self.one.states()) - OVER:
                await self.one.answer()
                await asyncio.sleep(chance.uniform(0.2, 1.0))
                if time.monotonic() - begun < seconds * 2 / 3:
                    way = next(first, None) or chance.choices(ways, (6, 6, 6, 1, 1)[: len(ways)])[0]
                    self.done[way.__name__.strip("_")] += 1
                    await way(chance)

    async def _kill(self, chance: random.Random) -> None:
        runner = self._one_of_them(chance)
        lost = await self.one.tasks_of(runner)
        os.killpg(runner.pid, signal.SIGKILL)
        self._lost += [(time.time(), task_id) for task_id in lost]
        self.one.start(*self.options)

    async def _end(self, chance: random.Random) -> None:
        """Stop a runner by a signal, perhaps repeated, and start another one."""
        runner = self._one_of_them(chance)
        for number in chance.choice(((signal.SIGTERM,), (signal.SIGINT,), (signal.SIGTERM,) * 2)):
            runner.send_signal(number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                await asyncio.to_thread(runner.wait, chance.uniform(0, 0.05))
        self.one.start(*self.options, "--grace", chance.choice(("0", "1")))
        await asyncio.to_thread(runner.wait, _END_SECONDS)

    async def _stop(self, chance: random.Random) -> None:
        runner = self._one_of_them(chance)
        runner.send_signal(signal.SIGSTOP)
        await asyncio.sleep(self.one.lease * chance.uniform(0.7, 2.7))
        runner.send_signal(signal.SIGCONT)

    async def _crash(self, _: random.Random) -> None:
        assert self.server is not None
        await asyncio.to_thread(self.server.restart)

    async def _set_clock_back(self, chance: random.Random) -> None:
        assert self.server is not None
        await asyncio.to_thread(self.server.shift, -chance.uniform(2, 4000))

    def _one_of_them(self, chance: random.Random) -> subprocess.Popen[bytes]:
        return chance.choice([runner for runner in self.one.runners if runner.poll() is None])

    async def delays(self) -> list[float]:
        """Return the seconds from each kill until another runner continued a task lost by it."""
        found: list[float] = []
        for at, task_id in self._lost:
            events = await self.one.journal.read(task_id)
            on = (e.at - at for e in events if isinstance(e, (TaskResumed, TaskFinished)))
            found += [next((delay for delay in on if delay > 0), 0.0)]
        return sorted(found)
