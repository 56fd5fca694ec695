"""An engine that takes requests and does not answer keeps nobody from ending."""

from __future__ import annotations

import asyncio
import socket
import threading
from pathlib import Path

import docker  # noqa: F401 - takes long, and a thread would do it while a test ends
import pytest

from delf_sandbox_docker.engine import Engine
from support.cli_fixtures import *  # noqa: F403 - here, run
from support.until import until


@pytest.fixture
def silent(tmp_path: Path):
    """The URL of a stopped engine, which accepts connections but reads nothing."""
    place = tmp_path / "docker.sock"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(place))
        server.listen(100)
        yield f"unix://{place}"
    for thread in asking():  # it is gone now, so they end
        thread.join()


def asking() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "delf-docker"]


async def test_finish_does_not_wait_for_a_silent_engine(silent):
    engine = Engine(silent, ping_seconds=0.05)
    requests = {asyncio.ensure_future(engine.run(engine.client)) for _ in range(3)}
    assert not await engine.wait_while_responding(requests)
    for request in requests:
        request.cancel()
    engine.close()
    assert len(asking()) >= 3
    assert all(thread.daemon for thread in asking()), "the process ends without them"


async def test_finish_waits_for_answered_requests(silent):
    engine, go_on = Engine(silent, ping_seconds=5), threading.Event()
    request = asyncio.ensure_future(engine.run(go_on.wait))
    asyncio.get_running_loop().call_soon(go_on.set)
    assert await engine.wait_while_responding({request})
    assert request.result()


async def test_concurrent_requests_are_limited(silent):
    engine, go_on, begun = Engine(silent), threading.Event(), list[int]()

    def ask(number: int) -> int:
        begun.append(number)
        go_on.wait()
        return number

    requests = [asyncio.ensure_future(engine.run(ask, number)) for number in range(20)]
    await until(lambda: len(begun) >= 8)
    for _ in range(100):
        await asyncio.sleep(0)
    assert len(begun) == 8
    go_on.set()
    assert await asyncio.gather(*requests) == [*range(20)]


def test_task_with_a_hanging_engine_ends_at_its_timeout(run, here, silent):
    environ = {"DELF_SANDBOX": "docker", "DOCKER_HOST": silent}
    ran = run("run", "x", "--llm", "none", "--timeout", "0.3", env=environ)
    assert ran.exit_code == 1
    assert "could not begin within 0.3 s" in ran.stderr
    assert "delf doctor" in ran.stderr
