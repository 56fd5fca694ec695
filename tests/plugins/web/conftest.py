from collections.abc import AsyncIterator, Callable

import pytest

from delf_web import Web
from support.raw_http import RawServer, Reply, Seen, raw_server

Serve = Callable[[str, Reply], str]


@pytest.fixture
async def site() -> AsyncIterator[RawServer]:
    """A site whose pages a test puts in place with ``serve``."""
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
