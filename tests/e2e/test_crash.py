"""A task is killed again and again, and ends as if nothing had happened."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import pytest

from support.postgres import PostgresServer

pytestmark = pytest.mark.service

WORKER = Path(__file__).parents[1] / "support" / "crash_worker.py"
SEED = 20260
ROUNDS = 13
KILLS = 5
DEATHS = 60
CALLS = 40


@dataclass(frozen=True)
class Death:
    """When to kill whom: so many microseconds after so many further events."""

    events: int
    microseconds: int
    whom: str

    def __str__(self) -> str:
        return f"{self.events}:{self.microseconds}:{self.whom}"


@dataclass(frozen=True)
class End:
    """How one process ended."""

    status: int
    task: str
    deaths: int
    text: str = ""
    calls: int = 0


class Workers:
    """Starts one process after the other; a context manager."""

    def __init__(self, journal: Path) -> None:
        environ = {**os.environ, "DELF_JOURNAL_SQL_URL": f"sqlite:///{journal}"}
        self._output = journal.with_suffix(".output")
        self._parent = subprocess.Popen(
            [sys.executable, str(WORKER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environ,
        )

    def run(self, url: str, task: str, plan: str) -> tuple[int, list[str]]:
        """Run one to its end.

        Returns:
            Its exit status and the lines that it wrote.
        """
        order = {"url": url, "task": task, "plan": plan, "output": str(self._output)}
        print(json.dumps(order), file=self._parent.stdin, flush=True)
        status = int(self._parent.stdout.readline())
        return status, self._output.read_text().splitlines()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self._parent.communicate(timeout=20)


class Runs:
    """One task in one database with one journal, worked on by process after process."""

    def __init__(self, server: PostgresServer, database: str, workers: Workers) -> None:
        self._server, self._database, self._workers = server, database, workers
        server.run("CREATE TABLE steps (n INTEGER, v INTEGER)", database)

    def work(self, task: str, deaths: Sequence[Death] = ()) -> End:
        plan = ",".join(map(str, deaths)) or "-"
        status, lines = self._workers.run(self._server.url(self._database), task, plan)
        assert status in (0, -9), lines
        names = [line.removeprefix("task ") for line in lines if line.startswith("task ")]
        name, died = names[-1] if names else task, lines.count("death")
        if status:
            return End(status, name, died)
        return End(0, name, died, *json.loads(lines[-1]))

    def survive(self, deaths: Sequence[Death]) -> tuple[End, int, int]:
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

    def rows(self) -> list[str]:
        return self._server.run("SELECT n, v FROM steps ORDER BY n, v", self._database).split()


@pytest.mark.timeout(400)
def test_sixty_deaths(postgres_server: PostgresServer, tmp_path: Path) -> None:
    chance = random.Random(SEED)
    rounds = [
        [
            Death(chance.randint(1, 20), chance.randint(0, 6000), chance.choice(("host", "guest")))
            for _ in range(KILLS)
        ]
        for _ in range(ROUNDS)
    ]
    with postgres_server.database() as database, Workers(tmp_path / "whole.db") as workers:
        runs = Runs(postgres_server, database, workers)
        whole, rows = runs.work("new"), runs.rows()
    assert (whole.status, whole.calls, len(rows)) == (0, CALLS, 20)

    def live(deaths: Sequence[Death]) -> tuple[str, int, bool]:
        with (
            postgres_server.database() as database,
            Workers(tmp_path / f"{database}.db") as workers,
        ):
            runs = Runs(postgres_server, database, workers)
            end, processes, died = runs.survive(deaths)
            ended = {"text": end.text, "rows": runs.rows()}
            wanted = {"text": whole.text, "rows": rows}
            other = [f"{name}: {ended[name]!r}" for name in wanted if ended[name] != wanted[name]]
        plan = " ".join(f"{death.events}{death.whom[0]}" for death in deaths)
        line = f"{plan:<30} {died:>6} {processes:>10}   {'; '.join(other) or 'the same'}"
        return line, died, not other

    with ThreadPoolExecutor(2) as threads:
        lived = list(threads.map(live, rounds))
    table = [f"{'killed after events: host, guest':<30} deaths  processes   same end"]
    table += [line for line, _, _ in lived]
    print("\n".join(["", *table]))
    assert sum(died for _, died, _ in lived) >= DEATHS
    assert all(same for _, _, same in lived), "\n".join(table)
