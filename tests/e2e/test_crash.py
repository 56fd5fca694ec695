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


class Runs:
    """One task in one database with one journal, worked on by process after process."""

    def __init__(self, server: PostgresServer, database: str, folder: Path) -> None:
        self._server, self._database = server, database
        self._url = server.url(database)
        journal = f"sqlite:///{folder}/{database}.db"
        self._environ = {**os.environ, "DELF_JOURNAL_SQL_URL": journal}
        server.run("CREATE TABLE steps (n INTEGER, v INTEGER)", database)

    def work(self, task: str, deaths: Sequence[Death] = ()) -> End:
        plan = ",".join(map(str, deaths)) or "-"
        done = subprocess.run(
            [sys.executable, str(WORKER), self._url, task, plan],
            capture_output=True,
            text=True,
            env=self._environ,
            timeout=120,
        )
        assert done.returncode in (0, -9), done.stderr
        lines = done.stdout.splitlines()
        names = [line.removeprefix("task ") for line in lines if line.startswith("task ")]
        name, died = names[-1] if names else task, lines.count("death")
        if done.returncode:
            return End(done.returncode, name, died)
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
    with postgres_server.database() as database:
        runs = Runs(postgres_server, database, tmp_path)
        whole, rows = runs.work("new"), runs.rows()
    assert (whole.status, whole.calls, len(rows)) == (0, CALLS, 20)

    def live(deaths: Sequence[Death]) -> tuple[str, int, bool]:
        with postgres_server.database() as database:
            runs = Runs(postgres_server, database, tmp_path)
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
