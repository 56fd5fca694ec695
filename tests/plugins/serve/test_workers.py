"""``delf serve --processes``: processes that share a socket, a journal, and the work of one that dies."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from delf_journal_sql.owners import birth_of
from support.openai_server import OpenAIServer, Reply
from support.program import DELF
from support.until import until

pytestmark = pytest.mark.slow

TOOLS = '''
import asyncio
from delf import tool

@tool(effect="read", confirm=False)
async def hold() -> str:
    """Wait until a file is there."""
    while not __import__("os").path.exists("go"):
        await asyncio.sleep(0.02)
    return "held"
'''


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Path]:
    """A project whose tasks wait until ``go`` is there."""
    reply = Reply(text="```python\nprint(await hold())\n```")
    with OpenAIServer(lambda request: reply) as model:
        (tmp_path / "tools.py").write_text(TOOLS)
        (tmp_path / "delf.toml").write_text(
            f'[agent]\nllm = {{ model = "gpt-4o-mini", base_url = "{model.base_url}" }}\n'
            f'providers = {{ openai = "test-key" }}\nsandbox = "local"\njournal = "sql"\n'
            f'[plugins.journal-sql]\nurl = "{tmp_path / "journal.db"}"\n'
        )
        yield tmp_path


@contextmanager
def served(folder: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """``delf serve``, and its address."""
    process = subprocess.Popen(
        [DELF, "serve", "--port", "0", "--tools", "tools.py", *options],
        cwd=folder,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert process.stderr is not None
        said = next((line for line in process.stderr if "serves" in line), "")
        found = re.search(r"http://\S+", said)
        assert found, f"it ended with {process.wait()}"
        yield process, found[0]
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@asynccontextmanager
async def client_of(url: str) -> AsyncIterator[Client]:
    async with httpx.AsyncClient(base_url=url, timeout=30) as opened:
        yield Client(opened)


class Client:
    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client

    async def ask(self, method: str, path: str, **more: Any) -> Any:
        """An answer, on a connection of its own; a worker that dies takes its connections along."""
        while True:
            try:
                headers = {"connection": "close"}
                answer = await self._client.request(method, path, headers=headers, **more)
            except httpx.TransportError:
                continue
            assert answer.is_success, answer.text
            return answer.json()

    async def until(self, task_id: str, accept: Any) -> dict[str, Any]:
        async with asyncio.timeout(30):
            while not accept(view := await self.ask("GET", f"/tasks/{task_id}")):
                await asyncio.sleep(0.02)
        return view

    async def owners(self, tasks: list[str]) -> dict[str, int]:
        """The processes that work on tasks, by their ids."""
        views = [await self.until(task, lambda view: view["state"] == "running") for task in tasks]
        return {view["task_id"]: int(view["owner"].split()[1]) for view in views}


async def hand_in(client: Client, pids: int) -> dict[str, int]:
    """Tasks that run in so many processes, and in which."""
    tasks: list[str] = []
    while True:
        tasks.append((await client.ask("POST", "/run", json={"task": "Hold."}))["task_id"])
        owners = await client.owners(tasks)
        if len(set(owners.values())) == pids:
            return owners


async def test_a_worker_that_dies_is_replaced_and_its_tasks_go_on(project):
    with served(project, "--processes", "2") as (process, url):
        async with client_of(url) as client:
            owners = await hand_in(client, 2)
            assert process.pid not in owners.values()
            task, victim = next(iter(owners.items()))
            os.kill(victim, signal.SIGKILL)
            await client.until(
                task, lambda view: view["owner"] and str(victim) not in view["owner"]
            )
            (project / "go").touch()
            for name in owners:
                view = await client.until(name, lambda view: view["is_terminal"])
                assert view["error"] is None


async def test_no_worker_outlives_its_parent(project):
    with served(project, "--processes", "2") as (process, url):
        async with client_of(url) as client:
            owners = await hand_in(client, 2)
            process.kill()
            process.wait()
            await until(lambda: not any(birth_of(pid) for pid in owners.values()))


async def test_workers_end_when_they_are_told_to(project):
    with served(project, "--processes", "2") as (process, url):
        async with client_of(url) as client:
            await hand_in(client, 1)
        process.terminate()
        assert await asyncio.to_thread(process.wait, 30) == 0


@pytest.mark.parametrize("processes", ["1", "2"])
def test_a_server_that_cannot_start_says_so_alone(project, processes):
    """It does not say where it serves, and processes are not started again and again."""
    (project / "journal.db").write_bytes(b"no database" * 1000)
    command = [DELF, "serve", "--port", "0", "--processes", processes]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert "is damaged, or no SQLite file" in done.stderr
    assert "takes its place" not in done.stderr
