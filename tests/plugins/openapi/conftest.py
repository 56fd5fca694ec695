"""APIs for the tests of the openapi plugin: a server that shows what came, and its tool."""

from __future__ import annotations

import pathlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from delf_openapi import APITool
from support.raw_http import RawServer, raw_server

SPECS = pathlib.Path(__file__).parents[4] / "shared/data/openapi"

Open = Callable[..., APITool]
Invoke = Callable[..., Awaitable[Any]]


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    """Each test has a cache of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "own-cache"))


@pytest.fixture
async def server() -> AsyncIterator[RawServer]:
    """A server that answers every request with an empty JSON object."""
    async with raw_server() as running:
        yield running


@pytest.fixture
async def open_api(server: RawServer) -> AsyncIterator[Open]:
    """Makes tools for the server and closes them after the test."""
    made: list[APITool] = []

    def make(spec: Any, **settings: Any) -> APITool:
        settings.setdefault("base_url", server.url)
        settings.setdefault("name", "api")
        made.append(APITool(spec, **settings))
        return made[-1]

    yield make
    for tool in made:
        await tool.aclose()


@pytest.fixture
def invoke() -> Invoke:
    """Makes a call as the gate does."""

    async def make(tool: APITool, action: str, /, **arguments: Any) -> Any:
        found = {a.name: a for a in await tool.actions()}[action]
        return await found.call(**found.validate(arguments))

    return make


@pytest.fixture
def specs() -> pathlib.Path:
    """The folder of real specifications."""
    if not SPECS.is_dir():
        pytest.skip("needs ../shared/data/openapi")
    return SPECS
