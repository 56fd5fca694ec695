"""A served project as clients meet it: a program on standard streams, or an address."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import ElicitResult

from delf import Agent
from delf_mcp.command import serve_on
from delf_mcp.serving import Served
from support.program import delf, write_recording
from support.server import free_port
from support.until import until, until_now

from .conftest import SERVED_PROJECT

GREETING = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}
READ, WAIT = "print(shop.price('anna'))", "print(shop.wait())"


class Place:
    """A project that is served, with the file in which its events are noted.

    Args:
        transport: Makes the client's side of a new connection.
        log: The file.
    """

    def __init__(self, transport: Callable[[], Any], log: Path) -> None:
        self._transport = transport
        self._log = log

    def client(self, mode: str, ask: Any = None) -> Client:
        """Return a client that answers questions to its user with ``ask``."""
        return Client(self._transport(), mode=mode, elicitation_callback=ask)

    @property
    def lines(self) -> list[str]:
        """Return the noted events."""
        return self._log.read_text().splitlines() if self._log.exists() else []

    async def until(self, line: str) -> None:
        """Wait until an event is noted."""
        await until(lambda: line in self.lines)


def listens(port: int) -> bool:
    """Return True if a process listens at a port of this machine."""
    with socket.socket() as knocking:
        return knocking.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, Path]]:
    """The port of a server for all tests of the module, and the file of its events."""
    log, port = tmp_path_factory.mktemp("served") / "log", free_port()
    with subprocess.Popen(
        [sys.executable, SERVED_PROJECT, str(log), str(port)], stderr=subprocess.DEVNULL
    ) as server:
        until_now(lambda: listens(port))
        yield port, log
        server.kill()


@pytest.fixture(params=["stdio", "http"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """A served project, once for each transport."""
    if request.param == "stdio":
        log = tmp_path / "log"
        started = StdioServerParameters(command=sys.executable, args=[SERVED_PROJECT, str(log)])
        return Place(lambda: stdio_client(started), log)
    port, log = request.getfixturevalue("served")
    log.write_text("")
    return Place(lambda: streamable_http_client(f"http://127.0.0.1:{port}/mcp"), log)


every_era = pytest.mark.parametrize("mode", ["legacy", "auto"])


async def have_done(client: Client, script: str) -> Any:
    """Run a task with a fixed script; return its answer."""
    return await client.call_tool("run", {"task": f"Do this:\n{script}"})


def test_server_ends_without_an_error_when_its_client_leaves(tmp_path: Path) -> None:
    llm = write_recording(tmp_path / "answers.jsonl")
    done = delf("mcp", "serve", "--llm", llm, cwd=tmp_path, stdin=json.dumps(GREETING) + "\n")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["result"]["serverInfo"]["name"] == "delf"


@every_era
async def test_client_is_asked_for_every_task(place: Place, mode: str) -> None:
    asked: list[str] = []

    async def yes(context: Any, params: Any) -> ElicitResult:
        asked.append(params.message)
        return ElicitResult(action="accept", content={"approve": True})

    async with place.client(mode, yes) as client:
        assert (await have_done(client, READ)).content[0].text == "40.0"
        for name in ("anna", "bert", "carl"):
            done = await have_done(client, f"print(shop.sell('{name}'))")
            assert done.content[0].text == f"sold {name}"
            assert f"lamp: {name}" in asked[-1]
    assert len(asked) == 3


@every_era
async def test_concurrent_clients_approve_their_own_calls(place: Place, mode: str) -> None:
    async def one(name: str) -> list[str]:
        asked: list[str] = []

        async def yes(context: Any, params: Any) -> ElicitResult:
            asked.append(params.message)
            return ElicitResult(action="accept", content={"approve": True})

        async with place.client(mode, yes) as client:
            for number in range(3):
                done = await have_done(client, f"print(shop.sell('{name}-{number}'))")
                assert done.content[0].text == f"sold {name}-{number}"
        return asked

    names = ("anna", "bert")
    for name, asked in zip(names, await asyncio.gather(*map(one, names)), strict=True):
        assert len(asked) == 3
        assert all(f"lamp: {name}-" in message for message in asked)


@every_era
async def test_client_without_elicitation_gets_an_error_each_time(place: Place, mode: str) -> None:
    async with place.client(mode) as client:
        assert (await have_done(client, READ)).content[0].text == "40.0"
        for _ in range(2):
            done = await have_done(client, "print(shop.sell('anna'))")
            assert done.is_error
            assert "cannot ask its user" in done.content[0].text
    assert "sold anna" not in place.lines


async def test_client_whose_question_fails_gets_an_error(place: Place) -> None:
    async def fail(context: Any, params: Any) -> ElicitResult:
        raise RuntimeError("there is no window")

    async with place.client("legacy", fail) as client:
        for _ in range(2):
            done = await have_done(client, "print(shop.sell('anna'))")
            assert done.is_error
            assert "cannot ask its user" in done.content[0].text
    assert "sold anna" not in place.lines


@every_era
@pytest.mark.parametrize("script", ["print(shop.sell('anna'))", WAIT], ids=["asked", "waiting"])
async def test_disconnecting_client_ends_its_pending_calls(
    place: Place, mode: str, script: str
) -> None:
    """A client of 2026 counts as gone if it sends no answer for too long."""

    async def think(context: Any, params: Any) -> ElicitResult:
        return await asyncio.get_running_loop().create_future()

    async def begin() -> None:
        async with place.client(mode, think) as client:
            await client.call_tool("run", {"task": READ})
            await client.call_tool("run", {"task": script})

    leaving = asyncio.create_task(begin())
    await place.until("waits" if script == WAIT else "asks")
    leaving.cancel()
    await asyncio.wait({leaving})
    await place.until("ended False")
    assert "sold anna" not in place.lines


async def test_question_is_sent_in_the_response_to_the_call(served: tuple[int, Path]) -> None:
    """Check that a client is asked although it opens no stream for the server's own messages."""
    port, _ = served
    headers = {"Accept": "application/json, text/event-stream"}
    greeting = {
        "protocolVersion": "2025-06-18",
        "capabilities": {"elicitation": {}},
        "clientInfo": {"name": "test", "version": "1"},
    }
    async with httpx.AsyncClient(timeout=20, headers=headers) as client:

        def rpc(**message: Any) -> dict[str, Any]:
            return {"url": f"http://127.0.0.1:{port}/mcp", "json": {"jsonrpc": "2.0", **message}}

        opened = await client.post(**rpc(id=1, method="initialize", params=greeting))
        client.headers["Mcp-Session-Id"] = opened.headers["Mcp-Session-Id"]
        await client.post(**rpc(method="notifications/initialized"))
        call = {"name": "shop_sell", "arguments": {"lamp": "anna"}}
        results: list[Any] = []
        async with client.stream("POST", **rpc(id=2, method="tools/call", params=call)) as response:
            async for line in response.aiter_lines():
                message = json.loads(line.removeprefix("data:")) if line.startswith("data:") else {}
                if message.get("method") == "elicitation/create":
                    answer = {"action": "accept", "content": {"approve": True}}
                    await client.post(**rpc(id=message["id"], result=answer))
                elif message.get("id") == 2:
                    results.append(message["result"])
    assert results[0]["content"][0]["text"] == '"sold anna"'


@pytest.mark.parametrize(
    ("address", "key", "message"),
    [
        ("²", "", "'²' is not a port"),
        ("70000", "", "'70000' is not a port"),
        ("127.0.0.1:taken", "", "cannot listen on 127.0.0.1"),
        ("é..b:8000", "key", "the host is not valid"),
        ("0.0.0.0:8000", "", "0.0.0.0 is not loopback, and there is no key"),
    ],
)
def test_invalid_address_is_a_configuration_error(
    tmp_path: Path, address: str, key: str, message: str
) -> None:
    command = ("mcp", "serve", "--llm", "gpt-4o-mini", "--http")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = address.replace("taken", str(taken.getsockname()[1]))
        done = delf(*command, address, cwd=tmp_path, env={"DELF_MCP_KEY": key})
    assert (done.returncode, message in done.stderr) == (2, True)
    assert "serving" not in done.stderr


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"POST /mcp HTTP/1.1\r\nHost: ",
        b"POST /mcp HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n{",
    ],
    ids=["nothing", "part of a head", "part of a refused body"],
)
async def test_connection_of_a_slow_client_is_closed(
    monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr("delf_mcp.slow_clients.HEAD_SECONDS", 0.1)
    monkeypatch.setenv("DELF_MCP_KEY", "key")
    port = free_port()
    served = Served(lambda **_: Agent(llm="gpt-4o-mini"))
    serving = asyncio.create_task(serve_on(served, str(port)))
    await until(lambda: listens(port))
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(sent)
    answer = await reader.read()
    assert b"401" in answer if b"Length" in sent else answer == b""
    writer.close()
    serving.cancel()
    await asyncio.wait({serving})


async def test_connection_stays_open_for_the_next_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("delf_mcp.slow_clients.HEAD_SECONDS", 0.4)
    port = free_port()
    served = Served(lambda **_: Agent(llm="gpt-4o-mini"))
    serving = asyncio.create_task(serve_on(served, str(port)))
    await until(lambda: listens(port))
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = (
        f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
        "Accept: application/json, text/event-stream\r\nContent-Length: 1\r\n\r\n"
    )
    writer.write(head.encode())
    with contextlib.suppress(TimeoutError):  # a request that takes longer than HEAD_SECONDS
        await asyncio.wait_for(reader.read(), 0.6)
    writer.write(b"{")
    assert b"400" in await reader.readline()
    answered_at = time.monotonic()
    await reader.read()
    assert time.monotonic() - answered_at > 0.4
    writer.close()
    serving.cancel()
    await asyncio.wait({serving})


@every_era
async def test_terminated_server_stops_its_calls(tmp_path: Path, mode: str) -> None:
    log, port = tmp_path / "log", free_port()
    place = Place(lambda: streamable_http_client(f"http://127.0.0.1:{port}/mcp"), log)

    async def begin() -> None:
        async with place.client(mode) as client:
            await client.call_tool("shop_wait", {})

    with subprocess.Popen(
        [sys.executable, SERVED_PROJECT, str(log), str(port)], stderr=subprocess.DEVNULL
    ) as server:
        await until(lambda: listens(port))
        waiting = asyncio.create_task(begin())
        await place.until("waits")
        server.terminate()
        try:
            code = await asyncio.to_thread(server.wait, 15)
        finally:
            server.kill()
            waiting.cancel()
            await asyncio.wait({waiting})
    assert code == -signal.SIGTERM
    assert place.lines[-1] == "ended False"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_ends_a_server_whose_client_is_silent(tmp_path: Path, number: int) -> None:
    log = tmp_path / "log"
    call = {"id": 2, "method": "tools/call", "params": {"name": "shop_wait", "arguments": {}}}
    messages = [GREETING, {"method": "notifications/initialized"}, call]
    with subprocess.Popen(
        [sys.executable, SERVED_PROJECT, str(log)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as server:
        assert server.stdin is not None
        for message in messages:
            server.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        server.stdin.flush()
        until_now(lambda: log.exists() and "waits" in log.read_text())
        server.send_signal(number)
        try:
            code = server.wait(50)
        finally:
            server.kill()
    assert code == -number
    assert log.read_text().splitlines()[-1] == "ended False"
