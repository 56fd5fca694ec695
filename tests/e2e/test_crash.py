"""A task is killed again and again, and ends as if nothing had happened.

Some kills for each database; ``DELF_CRASH_KILLS=250`` for a long run, with ``DELF_CRASH_SEED`` for
other moments.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path
from typing import Any, Self

import pytest

from support.fixtures import Database, sqlite_file
from support.program import start

WORKER = Path(__file__).with_name("crash_worker.py")
KILLS = int(os.environ.get("DELF_CRASH_KILLS", "10"))
SEED = int(os.environ.get("DELF_CRASH_SEED", "20260"))
KILLS_OF_A_TASK = 5
CALLS = 40
SECONDS_OF_A_KILL = 20

pytestmark = [
    pytest.mark.services,
    pytest.mark.slow,
    pytest.mark.timeout(120 + SECONDS_OF_A_KILL * KILLS),
]


@dataclass(frozen=True)
class Death:
    """The moment of a kill: so many microseconds after so many further events."""

    events: int
    microseconds: int
    whom: str

    def __str__(self) -> str:
        return f"{self.events}:{self.microseconds}:{self.whom}"


@dataclass(frozen=True)
class End:
    """The end of one process."""

    status: int
    task: str
    deaths: int
    text: str = ""
    calls: int = 0


@dataclass(frozen=True)
class Life:
    """The history of a task that was killed."""

    plan: str
    deaths: int
    processes: int
    other: str

    def __str__(self) -> str:
        return f"{self.plan:<30} {self.deaths:>6} {self.processes:>10}   {self.other or 'the same'}"


class Workers:
    """Starts one process after the other; a context manager."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir()
        self._parent = start(
            [WORKER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "DELF_JOURNAL_SQL_URL": f"sqlite:///{folder / 'journal.db'}"},
        )

    def run(self, url: str, task: str, plan: str) -> tuple[int, list[str]]:
        """Run one to its end.

        Returns:
            Its exit status and the lines that it wrote.
        """
        output, files = self._folder / "output", self._folder / "files"
        order = {"url": url, "task": task, "plan": plan, "output": f"{output}", "files": f"{files}"}
        print(json.dumps(order), file=self._parent.stdin, flush=True)
        status = int(self._parent.stdout.readline())
        return status, output.read_text().splitlines()

    def files(self) -> dict[str, str]:
        """The delivered items."""
        return {path.name: path.read_text() for path in (self._folder / "files").iterdir()}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self._parent.communicate(timeout=50)


class Runs:
    """One task in one database with one journal, worked on by process after process."""

    def __init__(self, database: Database, workers: Workers) -> None:
        self._database, self._workers = database, workers
        database.run("CREATE TABLE steps (n INTEGER, v INTEGER)")

    def work(self, task: str, deaths: list[Death]) -> End:
        plan = ",".join(map(str, deaths)) or "-"
        status, lines = self._workers.run(self._database.url, task, plan)
        assert status in (0, -9), lines
        names = [line.removeprefix("task ") for line in lines if line.startswith("task ")]
        name, died = names[-1] if names else task, lines.count("death")
        if status:
            return End(status, name, died)
        return End(0, name, died, *json.loads(lines[-1]))

    def survive(self, deaths: list[Death]) -> tuple[End, int, int]:
        """Work until the task is done.

        Returns:
            How the last process ended, how many there were, and how many deaths.
        """
        task, processes, died, left = "new", 0, 0, list(deaths)
        while True:
            hosts = [place for place, death in enumerate(left) if death.whom == "host"]
            cut = hosts[0] + 1 if hosts else len(left)
            end = self.work(task, left[:cut])
            task, processes, died, left = end.task, processes + 1, died + end.deaths, left[cut:]
            if end.status == 0:
                return end, processes, died

    def left(self) -> dict[str, Any]:
        """The effects of the task."""
        rows = self._database.run("SELECT n, v FROM steps ORDER BY n, v").split()
        return {"rows": rows, "files": self._workers.files()}


def plans() -> Iterator[list[Death]]:
    """For each task when to kill whom."""
    chance = random.Random(SEED)
    while True:
        yield [
            Death(
                chance.randint(1, 20),
                chance.randint(0, 6000),
                chance.choice(("host", "guest", "template")),
            )
            for _ in range(KILLS_OF_A_TASK)
        ]


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_killed_task_ends_with_the_same_result(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    numbers = count()

    def live(deaths: list[Death]) -> tuple[dict[str, Any], End, int, int]:
        folder = tmp_path / str(next(numbers))
        with Workers(folder) as workers:
            if kind == "sqlite":
                runs = Runs(sqlite_file(folder / "truth.db"), workers)
                end, processes, died = runs.survive(deaths)
                return {"text": end.text, **runs.left()}, end, processes, died
            server = request.getfixturevalue("postgres_server")
            with server.database() as name:
                database = Database(kind, server.url(name), lambda text: server.run(text, name))
                runs = Runs(database, workers)
                end, processes, died = runs.survive(deaths)
                return {"text": end.text, **runs.left()}, end, processes, died

    whole, end, _, _ = live([])
    assert (end.calls, len(whole["rows"]), sorted(whole["files"])) == (
        CALLS,
        20,
        ["half.csv", "whole.json"],
    )

    def compare(deaths: list[Death]) -> Life:
        ended, _, processes, died = live(deaths)
        plan = " ".join(f"{death.events}{death.whom[0]}" for death in deaths)
        other = [f"{name}: {ended[name]!r}" for name in whole if ended[name] != whole[name]]
        return Life(plan, died, processes, "; ".join(other))

    starts: list[Life] = []
    moments = plans()
    with ThreadPoolExecutor(2) as threads:
        while sum(life.deaths for life in starts) < KILLS:
            starts += threads.map(compare, islice(moments, 2))
    table = [f"{'killed after events':<30} deaths  processes   same end"]
    table += map(str, starts)
    died = sum(life.deaths for life in starts)
    table += [
        f"{len(starts)} tasks, {died} deaths, {sum(life.processes for life in starts)} processes"
    ]
    print("\n".join(["", *table]))
    assert not [life for life in starts if life.other], "\n".join(table)
