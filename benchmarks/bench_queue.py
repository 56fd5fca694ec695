"""Queues and runners: tasks a second, delays, what a step costs, and a journal with 20,000 tasks.

    python benchmarks/bench_queue.py [TASKS [QUEUED]]

Runners are processes of `delf runner` with a recorded model, on a PostgreSQL of their own (a SQLite
file where it is not installed). About five minutes on two quiet cores.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from delf import Agent
from delf.events import CallStarted, TaskFinished, TaskResumed, TaskStarted
from delf_journal_sql import SqlJournal

DELF = str(Path(sys.executable).with_name("delf"))
SCRIPTS = {
    "hello": "print('hello')",
    "steps": "for n in range(200):\n    await note(n)",
    "long": "await wait(600.0)",
}
TOOLS = '''
import asyncio
from delf import tool

@tool(effect="write", confirm=False)
async def note(number: int) -> int:
    """Write a number down."""
    return number

@tool(effect="write", confirm=False)
async def wait(seconds: float) -> None:
    """Wait."""
    await asyncio.sleep(seconds)
'''


def line(name: str, text: str) -> None:
    print(f"{name:<46} {text}", flush=True)


def processor_seconds(roots: Iterable[int]) -> float:
    """Return the CPU seconds of processes and their children, ended ones included."""
    found: dict[int, tuple[int, int]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it ended in this moment
            fields = entry.read_text().rpartition(")")[2].split()
            found[int(entry.parent.name)] = int(fields[1]), sum(map(int, fields[11:15]))
    wanted, before = set(roots), 0
    while len(wanted) > before:
        before = len(wanted)
        wanted |= {pid for pid, (parent, _) in found.items() if parent in wanted}
    return sum(found[pid][1] for pid in wanted if pid in found) / os.sysconf("SC_CLK_TCK")


class Place:
    """A project with its journal.

    Args:
        folder: Where it is.
        url: The journal's, and DBOS's where it is a server.
        server: The number of that server's process.
    """

    def __init__(self, folder: Path, url: str, server: int | None) -> None:
        self.folder, self.url, self.server = folder, url, server
        folder.mkdir(parents=True, exist_ok=True)
        for name, script in SCRIPTS.items():
            entry = {"request": {"contains": []}, "reply": {"text": f"```python\n{script}\n```"}}
            (folder / f"{name}.jsonl").write_text(f"{json.dumps(entry)}\n" * 3000)
        (folder / "tools.py").write_text(TOOLS)
        dbos = url if "://" in url and not url.startswith("sqlite") else f"sqlite:///{folder}/dbos"
        (folder / "delf.toml").write_text(
            f'[agent]\nllm = "recorded:hello.jsonl"\nsandbox = "local"\njournal = "sql"\n'
            f'[plugins.journal-sql]\nurl = "{url}"\n'
            f'[plugins.runner-dbos]\nlease = 5\ndatabase = "{dbos}"\n'
        )
        own = {"XDG_DATA_HOME": str(folder / "data"), "DELF_TRUST": str(folder.resolve())}
        self.environ = {**os.environ, **own}

    def setup(self, script: str) -> dict[str, Any]:
        return {
            "folder": str(self.folder),
            "config": None,
            "flags": {"llm": f"recorded:{self.folder}/{script}.jsonl"},
            "connections": [],
            "tool_files": ["tools.py"],
            "overrides": [],
        }

    def command(self, *words: str) -> None:
        """Run a command of delf."""
        place: dict[str, Any] = {"cwd": self.folder, "env": self.environ}
        subprocess.run([DELF, *words], check=True, capture_output=True, **place)

    @contextlib.contextmanager
    def runners(self, count: int, concurrency: int = 4) -> Iterator[list[subprocess.Popen[str]]]:
        """Start runners; yield them once they are ready."""
        command = [DELF, "runner", "--concurrency", str(concurrency), "--grace", "0"]
        pipes: dict[str, Any] = {"stderr": subprocess.PIPE, "text": True, "env": self.environ}
        made = [
            subprocess.Popen(command, cwd=self.folder, start_new_session=True, **pipes)
            for _ in range(count)
        ]
        try:
            for runner in made:
                while "takes" not in (runner.stderr.readline() if runner.stderr else "takes"):
                    if runner.poll() is not None:
                        raise SystemExit("a runner does not start")
            yield made
        finally:
            for runner in made:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(runner.pid, signal.SIGKILL)
                runner.communicate()

    @contextlib.asynccontextmanager
    async def journal(self) -> AsyncIterator[SqlJournal]:
        journal = SqlJournal(self.url)
        try:
            yield journal
        finally:
            await journal.aclose()


@contextlib.asynccontextmanager
async def ready(place: Place) -> AsyncIterator[tuple[Agent, SqlJournal]]:
    """Yield an agent that submits tasks, and the journal."""
    async with Agent.from_project(place.folder, trust=True) as agent, place.journal() as journal:
        yield agent, journal


async def over(journal: SqlJournal, names: list[str]) -> float:
    """Wait until tasks are over; return the end of the last one as Unix time."""
    last = 0.0
    for name in names:
        coming = journal.subscribe(name)
        events = await journal.read(name)
        end = next((e for e in events if isinstance(e, TaskFinished)), None)
        while end is None:
            event = await anext(coming)
            end = event if isinstance(event, TaskFinished) else None
        if not end.status:
            raise SystemExit(f"{name} failed: {end.error}")
        last = max(last, end.at)
    return last


async def throughput(place: Place, tasks: int) -> None:
    """Print the tasks per second with one runner and with more."""
    for count in (1, 2, 4, 8):
        async with ready(place) as (agent, journal):
            with place.runners(count) as runners:
                warm = [await agent.asubmit("w", queue="default", setup=place.setup("hello"))]
                warm += [await agent.asubmit("w", queue="default") for _ in range(4 * count)]
                await over(journal, warm)
                begin = time.time() + 3 + tasks / 100
                setup = place.setup("hello")
                names = []
                for _ in range(tasks):
                    wait = begin - time.time()
                    names.append(await agent.asubmit("x", queue="default", delay=wait, setup=setup))
                await asyncio.sleep(max(0.0, begin - time.time()))
                at_work = [runner.pid for runner in runners]
                database = [] if place.server is None else [place.server]
                before = processor_seconds(at_work), processor_seconds(database)
                seconds = await over(journal, names) - begin
                own = processor_seconds(at_work) - before[0]
                served = processor_seconds(database) - before[1]
        line(
            f"{count} runner{'s' if count > 1 else ''}, 4 at once each",
            f"{tasks / seconds:6.1f} tasks/s; processor for each: {own / tasks * 1000:.0f} ms, "
            f"the database {served / tasks * 1000:.0f} ms; {(own + served) / seconds:.2f} cores",
        )


async def delay(place: Place) -> None:
    """Print the delay from submitting a task to its start with an idle runner."""
    waits = []
    async with ready(place) as (agent, journal):
        with place.runners(1):
            for _ in range(21):
                name = await agent.asubmit("x", queue="default", setup=place.setup("hello"))
                await over(journal, [name])
                events = await journal.read(name)
                first = next(e.at for e in events if isinstance(e, TaskStarted))
                waits.append((first - events[0].at) * 1000)
    waits = sorted(waits[1:])
    line(
        "from submit to start, a runner is free",
        f"{statistics.median(waits):.0f} ms median, {waits[-1]:.0f} ms at most of {len(waits)}",
    )


async def steps(place: Place) -> None:
    """Print the cost of a call in a runner's task, including the journal."""
    fastest: dict[str, float] = {}
    async with ready(place) as (agent, journal):
        with place.runners(1, concurrency=1):
            for script in ("hello", "steps", "hello", "steps", "hello", "steps"):
                name = await agent.asubmit("x", queue="default", setup=place.setup(script))
                await over(journal, [name])
                events = await journal.read(name)
                took = events[-1].at - next(e.at for e in events if isinstance(e, TaskStarted))
                fastest[script] = min(took, fastest.get(script, took))
    cost = (fastest["steps"] - fastest["hello"]) / 200 * 1000
    line("a step (one call, two events kept)", f"{cost:.2f} ms of 200 in one script")


async def owner_of(journal: SqlJournal, name: str) -> str:
    """Wait for a task's first call; return the runner that owns the task."""
    coming = journal.subscribe(name)
    events = await journal.read(name)
    while not any(isinstance(event, CallStarted) for event in events):
        events = [await anext(coming)]
    return (await journal.task(name)).owner or ""


async def taking_over(place: Place) -> None:
    """Print the delays until another runner takes over after a kill, and after a stop."""
    waits, stops = [], []
    async with ready(place) as (agent, journal):
        for _ in range(3):
            with place.runners(2) as both:
                name = await agent.asubmit("x", queue="default", setup=place.setup("long"))
                owner = await owner_of(journal, name)
                (runner,) = [w for w in both if owner.startswith(f"pid {w.pid} ")]
                killed = time.time()
                os.killpg(runner.pid, signal.SIGKILL)
                coming = journal.subscribe(name)
                event = await anext(coming)
                while not isinstance(event, TaskResumed):
                    event = await anext(coming)
                waits.append(event.at - killed)
                asked = time.time()
                await journal.stop(name, "benchmark")
                stops.append((await journal.read(name))[-1].at - asked)
    line(
        "from kill -9 until another goes on, lease 5 s",
        f"{statistics.median(waits):.1f} s median, {max(waits):.1f} s at most of {len(waits)}",
    )
    line("from delf runs stop to the end of the task", f"{statistics.median(stops):.2f} s median")


async def many(place: Place, queued: int) -> None:
    """Measure a journal with many queued tasks."""
    begun = time.perf_counter()
    async with ready(place) as (agent, journal):
        setup = place.setup("hello")
        for number in range(queued):
            await agent.asubmit(f"Do number {number}.", queue="default", setup=setup)
        rate = queued / (time.perf_counter() - begun)
        line(f"{queued:,} tasks are submitted", f"{rate:,.0f} a second by one process")
        times = []
        for _ in range(5):
            started = time.perf_counter()
            await journal.find(20)
            times.append((time.perf_counter() - started) * 1000)
        line("  the newest 20 of them, in the journal", f"{min(times):.1f} ms")
        for options in ((), ("--state", "queued")):
            times, used = [], 0.0
            for _ in range(3):
                started, before = time.perf_counter(), children_seconds()
                await asyncio.to_thread(place.command, "runs", "list", *options)
                times.append(time.perf_counter() - started)
                used = min(used or 1e9, children_seconds() - before)
            message = f"{min(times):.2f} s, of a processor {used:.2f} s"
            line(f"  {' '.join(['delf runs list', *options])}, whole", message)
        with place.runners(1) as (runner,):
            await asyncio.sleep(15)
            states = [record.state for record in await journal.find(queued, state="done")]
            line(
                "  a runner among them", f"{peak_of(runner.pid):.0f} MB; {len(states)} done in 15 s"
            )


def peak_of(pid: int) -> float:
    """Return the peak memory of a process in MB."""
    rows = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(row.split()[1]) for row in rows if row.startswith("VmHWM")) / 1024


def children_seconds() -> float:
    """Return the CPU seconds of processes that were waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def places(folder: Path, stack: contextlib.ExitStack) -> Iterator[tuple[str, Place]]:
    """Yield a fresh project for each part of the benchmark."""
    from support.postgres import own_postgres, postgres_is_installed

    for name in ("throughput", "delay", "steps", "taking over", "many"):
        at, server = folder / name.replace(" ", "-"), None
        url = f"sqlite:///{at}/journal.db"
        if postgres_is_installed():
            own = stack.enter_context(own_postgres(clock=False))
            url, server = own.url, own.pid
        yield name, Place(at, url, server)


async def main(tasks: int, queued: int) -> None:
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory() as text, contextlib.ExitStack() as stack:
        at = dict(places(Path(text), stack))
        print(f"journal on {at['many'].url.partition(':')[0]}; load {os.getloadavg()[0]:.1f}")
        await throughput(at["throughput"], tasks)
        await delay(at["delay"])
        await steps(at["steps"])
        await taking_over(at["taking over"])
        await many(at["many"], queued)
    line("all of it", f"{time.perf_counter() - begun:.0f} s")


if __name__ == "__main__":
    asyncio.run(main(*(int(text) for text in [*sys.argv[1:], "400", "20000"][:2])))
