import asyncio.unix_events
import json
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from delf import Agent
from delf.testing import ScriptedModel, TestHost
from delf_mcp import MCP
from support import program
from support.server import free_port
from support.until import until_now

SERVER = str(Path(__file__).with_name("server.py"))
ROGUE = str(Path(__file__).with_name("rogue.py"))
SERVED_PROJECT = str(Path(__file__).with_name("serving_program.py"))
IMPORTED: dict[str, tuple[str, ...]] = {
    SERVER: ("mcp.server",),
    SERVED_PROJECT: (
        "delf.testing",
        "delf_engine.agent",
        "delf_engine.runtime",
        "delf_engine.views.trace",
        "delf_mcp.command",
        "delf_mcp.serving",
        "delf_sandbox_local.backend",
        "delf_strategy_codegen.strategy",
        "mcp.server.stdio",
        "mcp.server.mcpserver",
    ),
}
"""Programs of tests, with the modules that they need."""
PROGRAM: dict[str, Any] = {"command": sys.executable, "args": [SERVER], "protocol": "legacy"}

Open = Callable[..., MCP]


@pytest.fixture(autouse=True)
def quick_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Test servers are forked from a process that has imported what they need."""

    def start(command: Sequence[str], *, shell: bool, **options: Any) -> subprocess.Popen[Any]:
        assert not shell
        imported = IMPORTED.get(command[1]) if len(command) > 1 else None
        if imported is None:
            return subprocess.Popen(command, **options)
        options["cwd"] = options.get("cwd") or "."
        return program.start(command, imported=imported, **options)

    started = SimpleNamespace(Popen=start, PIPE=subprocess.PIPE)
    monkeypatch.setattr(asyncio.unix_events, "subprocess", started)


@pytest.fixture(scope="session")
def address() -> Iterator[str]:
    """The address of one running test server, shared by all tests."""
    port = free_port()
    url = f"http://127.0.0.1:{port}/mcp"
    with subprocess.Popen([sys.executable, SERVER, str(port)], stderr=subprocess.DEVNULL) as server:

        def answers() -> bool:
            try:
                urllib.request.urlopen(url, timeout=1).close()
            except urllib.error.HTTPError:
                return True
            except OSError:
                assert server.poll() is None, "the server ended"
            return False

        until_now(answers)
        yield url
        server.kill()


@pytest.fixture
def remote(address: str, open_mcp: "Open") -> MCP:
    """A connection to that server."""
    return open_mcp(url=address, command=None, args=[])


@pytest.fixture
async def open_mcp() -> AsyncIterator[Open]:
    """Makes connections to the server of the tests, and closes them after the test."""
    made: list[MCP] = []

    def make(**settings: Any) -> MCP:
        options: dict[str, Any] = {"name": "srv", **PROGRAM, **settings}
        made.append(MCP(**options))
        return made[-1]

    yield make
    for connection in made:
        await connection.aclose()


@pytest.fixture
def rogue(open_mcp: "Open", tmp_path: Path) -> Open:
    """Opens a connection to a server that misbehaves in a chosen way."""

    def open_rogue(mode: str, *, does: Any = None, **settings: Any) -> MCP:
        path = tmp_path / "does.json"
        path.write_text(json.dumps(does or {}))
        program = {"name": "rogue", "command": sys.executable, "args": [ROGUE, mode, str(path)]}
        return open_mcp(**program, **settings)

    return open_rogue


async def invoke(connection: MCP, action: str, /, **arguments: Any) -> Any:
    """Make a call as the gate does."""
    found = {each.name: each for each in await connection.actions()}[action]
    return await found.call(**found.validate(arguments))


async def run(
    connection: MCP, script: str, on_confirm: Callable[[Any], Any] | None = None, **options: Any
) -> tuple[Any, list[Any], ScriptedModel]:
    """Run a script as a task; return its response, the questions to the person, and the model."""
    host = TestHost.discover(environ={})
    model = ScriptedModel()
    host.provide(model.spec, model.factory)
    model.writes(script)
    model.says("they glow")
    asked: list[Any] = []

    def confirm(request: Any) -> Any:
        asked.append(request)
        return on_confirm(request) if on_confirm else True

    async with Agent(
        tools=[connection], llm="scripted", host=host, on_confirm=confirm, **options
    ) as agent:
        response = await agent.arun("Do it.")
    return response, asked, model
