"""Kills a task of the strategy `stream` at random moments and resumes it in another process.

    cd tests && python -m plugins.strategy_stream.stream_worker replay|session FOLDER ROUNDS SEED

Prints for each kill, as JSON: after how many seconds, whether it hit, the answer, what was written.
The servers that it asks are in a process of their own; the others are forked from this one, which
has imported all that they need.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

from delf import Agent, AlreadyDone, Approved, LLMConfig, tool
from delf_devkit.testing.hosts import TestHost
from delf_sandbox_local.backend import LocalBackend
from delf_strategy_stream.strategy import StreamStrategy
from support.live_servers import RealtimeServer
from support.openai_server import OpenAIServer, Reply, Request

NAMES = ("Ann", "Bob", "Cem", "Dan")
END = "All are noted."


def answers(received: str) -> list[str]:
    """Return an answer with two names, the first of which begins while the second is written."""
    left = [name for name in NAMES if f"noted {name}" not in received]
    if not left:
        return [END]
    calls: list[dict[str, Any]] = [{"name": "look", "args": {}}]
    calls += [{"name": "note", "args": {"text": name}} for name in left[:2]]
    return [f"<think>Next.</think>Now {left[0]}.<execute>{json.dumps(calls)}</execute>"]


def over_http(request: Request) -> Reply:
    text = answers(request.body.decode())[0]
    pieces = [text[start : start + 7] for start in range(0, len(text), 7)]
    return Reply(text=text, chunks=pieces, chunk_delay=0.002)


def serve() -> tuple[int, str, str]:
    """Start the process with both servers; return their addresses."""
    read, write = os.pipe()
    pid = os.fork()
    if not pid:

        async def both() -> None:
            with OpenAIServer(over_http) as http:
                async with RealtimeServer(answers) as live:
                    os.write(write, json.dumps([http.base_url, live.address]).encode())
                    await asyncio.get_running_loop().create_future()

        asyncio.run(both())
    http_url, live_url = json.loads(os.read(read, 4096))
    return pid, http_url, live_url


async def _no_warm_up(self: LocalBackend, spec: Any) -> None:
    """Do nothing."""


async def work(config: LLMConfig, way: str, folder: Path, task: str | None) -> None:
    """Do the task, or resume it."""
    notes = folder / "notes"

    @tool(effect="read", confirm=False)
    async def look() -> str:
        """Look around."""
        return "all is well"

    @tool(effect="write", confirm=False)
    async def note(text: str) -> str:
        """Write something down."""
        with notes.open("a") as file:
            file.write(f"{text}\n")
        return f"noted {text}"

    def decide(request: Any) -> Any:
        text = request.arguments["text"]
        is_done = notes.exists() and text in notes.read_text().split()
        return AlreadyDone(result=f"noted {text}") if is_done else Approved()

    def listen(event: Any) -> None:
        if event.seq == 1:
            (folder / "first").touch()
            (folder / "written").write_text(event.task_id)
            (folder / "written").rename(folder / "task")

    # No script runs here, and a process for one would take most of the time.
    LocalBackend.warm_up = _no_warm_up
    environ = {"DELF_JOURNAL_SQL_URL": f"sqlite:///{folder / 'journal.db'}"}
    async with Agent(
        tools=[look, note],
        llm=config,
        host=TestHost.discover(environ=environ),
        sandbox="local",
        journal="sql",
        strategy=StreamStrategy(mode=way),
        on_confirm=decide,
    ) as agent:
        if task is None:
            response = await agent.arun("Note them.", listeners=[listen])
        else:
            response = await agent.aresume(task)
        response.raise_for_status()
    (folder / "answer").write_text(response.text)


def fork(
    config: LLMConfig, way: str, folder: Path, task: str | None, seconds: float | None = None
) -> int:
    """The exit status of a process that did it, negative for a signal; killed so long after its
    first event."""
    pid = os.fork()
    if pid:
        if seconds is not None:
            while not (folder / "task").exists():
                ended, status = os.waitpid(pid, os.WNOHANG)
                if ended:
                    return os.waitstatus_to_exitcode(status)
                time.sleep(0.002)
            time.sleep(seconds)
            os.kill(pid, signal.SIGKILL)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    status = 1
    try:
        os.environ["DELF_JOURNAL_SQL_URL"] = f"sqlite:///{folder / 'journal.db'}"
        asyncio.run(work(config, way, folder, task))
        status = 0
    finally:
        os._exit(status)


def main(kind: str, root: Path, rounds: int, seed: int) -> None:
    TestHost.discover(environ={}).records()  # forks know them
    server, http_url, live_url = serve()
    try:
        settings = {"live_model": live_url} if kind == "session" else {}
        config = LLMConfig("gpt-4o-mini", base_url=http_url, api_key="k", settings=settings)
        way = "auto" if kind == "session" else "replay"
        for name in ("first", "whole"):  # in the first, all that the others need is imported
            whole = root / name
            whole.mkdir()
            asyncio.run(work(config, way, whole, None))
        took = (whole / "answer").stat().st_mtime - (whole / "first").stat().st_mtime
        chance = random.Random(seed)
        number = killed = 0
        while number < rounds or (not killed and number < 10 * rounds):  # it may end before
            folder = root / str(number)
            folder.mkdir()
            seconds = chance.random() * took
            status = fork(config, way, folder, None, seconds)
            is_killed = status == -signal.SIGKILL
            if is_killed:
                status = fork(config, way, folder, (folder / "task").read_text())
            answer = (folder / "answer").read_text() if status == 0 else f"status {status}"
            notes = folder / "notes"
            written = notes.read_text().split() if notes.exists() else []
            print(json.dumps([round(seconds, 3), is_killed, answer, written]), flush=True)
            killed += is_killed
            number += 1
    finally:
        os.kill(server, signal.SIGKILL)
        os.waitpid(server, 0)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
