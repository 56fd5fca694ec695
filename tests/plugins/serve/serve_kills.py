"""Kills servers at random moments while they work and are watched, and looks at what is left.

    cd tests && python -m plugins.serve.serve_kills FOLDER KILLS SEED SERVERS JOURNAL ENDINGS

Hands tasks in, answers what they ask, follows each by its event stream, each time at any of the
servers; ends one of them and starts it again. ``ENDINGS`` names the ways in which servers are
ended, in turn: signals joined by ``+``, and the seconds of grace, as ``TERM/0,INT+INT/5,KILL/0``.
Journals are slow at random. Prints what it saw as JSON; ``faults`` is empty if all is well: each
task that was accepted ended right, none of its steps was made twice, and no stream left an event
out, reported one twice, or reported another one than the journal's.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import random
import signal
import sqlite3
import sys
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any, Self

import httpx

from delf import Agent, tool
from delf.events import Event
from delf.protocols.states import StateTracker
from delf.specs import JournalSpec
from delf_devkit.testing.hosts import TestHost
from delf_devkit.testing.models import ScriptedModel
from delf_journal_sql import SqlJournal
from delf_serve.streams import frame
from support.server import free_port
from support.serving import doing, scripts_of

OPEN = 6
"""Tasks under way at once."""
STEPS = 12
CODE = """name = {name!r}
for step in range({steps}):
    print(step)
    await (mark if step % 2 else mark_in_thread)(name, step)
print(await send(name))"""
ANSWER = "\n".join([*map(str, range(STEPS)), "sent {name}"])
LONGEST_LIFE = 1.5
LEFT_ALONE = 6
"""Looks, a second apart, after which a task is one that no server takes up by itself."""
SECONDS = 300.0
"""For the tasks to end after the last kill."""
_LOST = (httpx.TransportError,)
_END_SECONDS = 20.0
"""Seconds after the grace in which a server has to end."""
_BETWEEN = 0.02
"""The most seconds between two signals to one server."""
_SLOWEST = 0.03
"""The most seconds that a slow journal takes for an event."""


@dataclass(frozen=True)
class Ending:
    """A way to end a server.

    Args:
        signals: The signals to send, in order.
        grace: The seconds that its tasks have to end.
    """

    signals: tuple[signal.Signals, ...]
    grace: float

    @classmethod
    def of(cls, text: str) -> Self:
        """Read ``TERM/0`` or ``INT+INT/5``."""
        names, _, grace = text.partition("/")
        return cls(tuple(signal.Signals[f"SIG{name}"] for name in names.split("+")), float(grace))


class SlowJournal(SqlJournal):
    """A journal that waits a random time after it has stored an event."""

    async def append(self, event: Event) -> None:
        await super().append(event)
        await asyncio.sleep(random.uniform(0, _SLOWEST))


class Truth:
    """The calls that really happened, recorded outside the journal."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "truth.db"
        with closing(self._open()) as connection:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("CREATE TABLE IF NOT EXISTS done (name TEXT, step INTEGER)")

    def _open(self) -> sqlite3.Connection:
        return sqlite3.connect(self._path, timeout=60, isolation_level=None)

    def note(self, name: str, step: int) -> None:
        with closing(self._open()) as connection:
            connection.execute("INSERT INTO done VALUES (?, ?)", (name, step))

    def has(self, name: str, step: int) -> bool:
        return (name, step) in self.all()

    def all(self) -> Counter[tuple[str, int]]:
        with closing(self._open()) as connection:
            return Counter(connection.execute("SELECT name, step FROM done").fetchall())


def serve(folder: Path, journal: str, port: int, grace: float) -> None:
    """Run a server; the main function of its process."""
    truth = Truth(folder)

    @tool(effect="irreversible", confirm=False)
    async def mark(name: str, step: int) -> None:
        """Write a step down."""
        truth.note(name, step)
        await asyncio.sleep(0.01)

    @tool(effect="irreversible", confirm=False)
    def mark_in_thread(name: str, step: int) -> None:
        """Write a step down."""
        truth.note(name, step)

    @tool(effect="irreversible", confirm=True)
    async def send(name: str) -> str:
        """Send it."""
        truth.note(name, STEPS)
        return f"sent {name}"

    os.environ["DELF_JOURNAL_SQL_URL"] = journal
    host = TestHost.discover(environ={})
    model = ScriptedModel(default=scripts_of)
    host.provide(model.spec, model.factory)
    spec = JournalSpec(name="slow", factory="x:y", summary="x", durable=True)
    host.provide(spec, lambda: SlowJournal(journal))
    agent = Agent(
        tools=[mark, mark_in_thread, send], llm="scripted", sandbox="local", host=host, journal="slow",
        approvals=["web"], timeout=600, max_tasks=OPEN, retry_count=0,
    )  # fmt: skip
    agent.serve(port=port, files_folder=str(folder / "files"), grace_seconds=grace)


class Story:
    """One task, as its client saw it.

    Args:
        name: The task's name.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.task_id = ""
        self.events: list[dict[str, Any]] = []
        self.at: httpx.AsyncClient | None = None
        self.opened = 0

    def take(self, data: str, number: int) -> str | None:
        """Add a received event; return what is wrong with it."""
        event = json.loads(data)
        wanted = len(self.events) + 1
        if event["seq"] != number or number != wanted:
            return f"{self.name}: event {number} came where {wanted} was to come"
        self.events.append(event)
        return None


class Trial:
    """Servers that are killed repeatedly, and their clients.

    Args:
        folder: For all files.
        journal: The journal's URL.
        servers: The number of servers.
        seed: The seed of the times of kills.
        endings: The ways to end a server.
    """

    def __init__(
        self, folder: Path, journal: str, servers: int, seed: int, endings: list[Ending]
    ) -> None:
        self._folder, self._journal = folder, journal
        self._endings = cycle(endings)
        self._random = random.Random(seed)
        self._truth = Truth(folder)
        self._processes = multiprocessing.get_context("forkserver")
        self._processes.set_forkserver_preload(["support.serving", "delf_journal_sql.journal"])
        self._clients = [
            httpx.AsyncClient(base_url=f"http://127.0.0.1:{free_port()}", timeout=30)
            for _ in range(servers)
        ]
        self.stories: list[Story] = []
        self.faults: list[str] = []
        self.streams_cut: list[int] = []
        self.resumed_by_hand = 0
        self.answers_lost = 0
        self.kills = 0
        self._started: list[Any] = []

    def end(self) -> None:
        """Kill the running processes."""
        for server in self._started:
            server.kill()
            server.join()

    async def run(self, kills: int) -> dict[str, Any]:
        """Kill a server a number of times, let all tasks end, and check the result."""
        endings = [next(self._endings) for _ in self._clients]
        servers = [
            await self._start(client, ending)
            for client, ending in zip(self._clients, endings, strict=True)
        ]
        helpers = [asyncio.create_task(self._decide()), asyncio.create_task(self._resume())]
        clients = [asyncio.create_task(self._hand_in(kills)) for _ in range(OPEN)]
        while self.kills < kills:
            await asyncio.sleep(self._random.uniform(0, LONGEST_LIFE))
            number = self._random.randrange(len(servers))
            client = self._clients[number]
            self.streams_cut.append(sum(story.at is client for story in self.stories))
            await self._end(servers[number], endings[number])
            self.kills += 1
            endings[number] = next(self._endings)
            servers[number] = await self._start(client, endings[number])
        try:
            async with asyncio.timeout(SECONDS):
                await asyncio.gather(*clients)
        except TimeoutError:
            self.faults.append("some tasks have not ended")
        for work in (*helpers, *clients):
            work.cancel()
        await asyncio.gather(*helpers, *clients, return_exceptions=True)
        for client, server in zip(self._clients, servers, strict=True):
            await client.aclose()
            server.terminate()
            await asyncio.to_thread(server.join, 30)
        return await self._look()

    async def _end(self, server: Any, ending: Ending) -> None:
        for number in ending.signals:
            if server.is_alive():
                os.kill(server.pid, number)
                await asyncio.to_thread(server.join, self._random.uniform(0, _BETWEEN))
        await asyncio.to_thread(server.join, ending.grace + _END_SECONDS)
        if server.is_alive():
            self.faults.append(f"a server did not end: {ending}")
            server.kill()
            await asyncio.to_thread(server.join)

    async def _start(self, client: httpx.AsyncClient, ending: Ending) -> Any:
        order = (self._folder, self._journal, client.base_url.port, ending.grace)
        server = self._processes.Process(target=serve, args=order)
        server.start()
        self._started.append(server)
        while server.is_alive():
            try:
                if (await client.get("/ready")).is_success:
                    return server
            except _LOST:
                await asyncio.sleep(0.01)
        raise RuntimeError(f"the server ended by itself: {server.exitcode}")

    def _any(self) -> httpx.AsyncClient:
        return self._random.choice(self._clients)

    async def _ask(self, method: str, path: str, **more: Any) -> httpx.Response:
        """Send a request, repeatedly until a server answers it."""
        while True:
            try:
                answer = await self._any().request(method, path, **more)
            except _LOST:
                self.answers_lost += method == "POST"
                await asyncio.sleep(0.02)
                continue
            if answer.status_code < 500:
                return answer

    async def _hand_in(self, kills: int) -> None:
        """Submit one task after another, until servers were killed often enough."""
        while self.kills < kills:
            story = Story(f"t{len(self.stories)}")
            self.stories.append(story)
            order = {"task": doing(CODE.format(name=story.name, steps=STEPS))}
            headers = {"idempotency-key": story.name}
            answer = await self._ask("POST", "/run", json=order, headers=headers)
            if answer.status_code != 202:
                self.faults.append(f"{story.name} was not accepted: {answer.text}")
                return
            story.task_id = answer.json()["task_id"]
            while not await self._follow(story):
                await asyncio.sleep(0.02)

    async def _follow(self, story: Story) -> bool:
        """Read a task's events from the client's position; return True at the end."""
        headers = {"last-event-id": str(len(story.events))} if story.events else {}
        path, number, client = f"/tasks/{story.task_id}/events", 0, self._any()
        try:
            async with client.stream("GET", path, headers=headers) as answer:
                if answer.status_code == 204:
                    return True
                if answer.status_code == 503:  # the server ends
                    return False
                if answer.status_code != 200:
                    self.faults.append(f"{story.name}: its stream is a {answer.status_code}")
                    return answer.status_code < 500
                story.at = client
                story.opened += 1
                async for line in answer.aiter_lines():
                    if line == "event: end":
                        return True
                    if line.startswith("id: "):
                        number = int(line[4:])
                    elif line.startswith("data: ") and (fault := story.take(line[6:], number)):
                        self.faults.append(fault)
                        return True
        except _LOST:
            return False
        finally:
            story.at = None
        return False

    async def _decide(self) -> None:
        """Answer questions; for interrupted calls, by what really happened."""
        while True:
            for asked in (await self._ask("GET", "/approvals")).json()["approvals"]:
                name = asked["arguments"]["name"]
                step = asked["arguments"].get("step", STEPS)
                decision: dict[str, Any] = {"decision": "approve"}
                if asked["outcome_unknown"] and self._truth.has(name, step):
                    result = f"sent {name}" if step == STEPS else None
                    decision = {"decision": "settle", "result": result}
                await self._ask("POST", f"/approvals/{asked['request_id']}", json=decision)
            await asyncio.sleep(0.05)

    async def _resume(self) -> None:
        """Resume tasks whose processes died so often that the server left them to people."""
        seen: Counter[str] = Counter()
        while True:
            await asyncio.sleep(1)
            found = await self._ask("GET", "/tasks", params={"state": "interrupted"})
            names = [task["task_id"] for task in found.json()["tasks"]]
            seen = Counter({name: seen[name] + 1 for name in names})
            for name in names:
                if seen[name] >= LEFT_ALONE:
                    answer = await self._ask("POST", f"/tasks/{name}/resume")
                    self.resumed_by_hand += answer.is_success

    async def _look(self) -> dict[str, Any]:
        """Compare the clients' view, the journal and what really happened."""
        journal = SqlJournal(self._journal)
        known = {record.task_id: record for record in await journal.find(100_000)}
        resumed = events = 0
        if set(known) != {story.task_id for story in self.stories}:
            self.faults.append(f"{len(known)} tasks are there of {len(self.stories)}")
        for story in self.stories:
            record = known.get(story.task_id)
            if record is None or record.state != "done":
                self.faults.append(f"{story.name} is {record and record.state}")
                continue
            kept = _streamed(await journal.read(story.task_id))
            events += len(kept)
            resumed += any(event["type"] == "TaskResumed" for event in kept)
            if story.events != kept:
                self.faults.append(f"{story.name}: {len(story.events)} events of {len(kept)}")
            if kept[-1]["data"]["text"] != ANSWER.format(name=story.name):
                self.faults.append(f"{story.name} answered {kept[-1]['data']['text']!r}")
        await journal.aclose()
        done = self._truth.all()
        wanted = {(story.name, step) for story in self.stories for step in range(STEPS + 1)}
        self.faults += [f"{key} was done {n} times" for key, n in done.items() if n != 1]
        self.faults += [f"{key} was not done" for key in sorted(wanted - set(done))]
        return {
            "kills": self.kills,
            "tasks": len(self.stories),
            "resumed": resumed,
            "resumed_by_hand": self.resumed_by_hand,
            "answers_lost": self.answers_lost,
            "events": events,
            "streams_opened": sum(story.opened for story in self.stories),
            "streams_cut": sum(self.streams_cut),
            "faults": self.faults,
        }


def _streamed(events: Iterable[Event]) -> list[dict[str, Any]]:
    """Return the parts of a task's events that a stream sends."""
    tracker, sent = StateTracker(), list[dict[str, Any]]()
    for event in events:
        tracker.add(event)
        sent.append(json.loads(frame(event, tracker.state).partition(b"data: ")[2]))
    return sent


def main(
    folder: Path, kills: int, seed: int, servers: int, journal: str, endings: list[Ending]
) -> None:
    started = time.monotonic()
    trial = Trial(folder, journal, servers, seed, endings)
    try:
        found = asyncio.run(trial.run(kills))
    finally:
        trial.end()
    print(json.dumps({**found, "seconds": round(time.monotonic() - started, 1)}))


if __name__ == "__main__":
    place, total, start, count, url, ways = sys.argv[1:]
    endings = [Ending.of(way) for way in ways.split(",")]
    main(Path(place), int(total), int(start), int(count), url, endings)
