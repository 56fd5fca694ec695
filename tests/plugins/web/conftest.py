import asyncio.unix_events
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from delf_web import Web
from support import program
from support.raw_http import RawServer, Reply, Seen, raw_server

Serve = Callable[[str, Reply], str]


@pytest.fixture(autouse=True)
def quick_readers(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes that read pages are forks of one that has imported the parsers.

    Tests that are slow start them as users do.
    """
    if request.node.get_closest_marker("slow"):
        return

    def start(command: Sequence[str], *, shell: bool, **options: Any) -> subprocess.Popen[Any]:
        assert not shell
        if list(command[:3]) != [sys.executable, "-I", "-c"]:
            return subprocess.Popen(command, **options)
        return program.start(command[2:], imported=("delf_web.child",), **options)

    started = SimpleNamespace(Popen=start, PIPE=subprocess.PIPE, DEVNULL=subprocess.DEVNULL)
    monkeypatch.setattr(asyncio.unix_events, "subprocess", started)


@pytest.fixture
async def site() -> AsyncIterator[RawServer]:
    """A site without a robots.txt whose pages a test puts in place with ``serve``."""
    async with raw_server() as running:
        running.answer = lambda seen: Reply(404, b"nothing here")
        yield running


@pytest.fixture
def serve(site: RawServer) -> Serve:
    """Puts a page in place and gives its address."""
    pages: dict[str, Reply] = {}

    def answer(seen: Seen) -> Reply:
        return pages.get(seen.target, Reply(404, b"nothing here"))

    def put(path: str, reply: Reply) -> str:
        site.answer = answer
        pages[path] = reply
        return f"{site.url}{path}"

    return put


@pytest.fixture
async def open_web() -> AsyncIterator[Callable[..., Web]]:
    """Makes connections that may reach loopback, and closes them after the test."""
    made: list[Web] = []

    def make(**settings: object) -> Web:
        options = {"private": ["127.0.0.1"], "ports": [], "rate": 0, **settings}
        made.append(Web(**options))
        return made[-1]

    yield make
    for web in made:
        await web.aclose()


@pytest.fixture
def web(open_web: Callable[..., Web]) -> Web:
    return open_web()
