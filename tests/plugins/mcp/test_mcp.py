"""Tools and resources of a real MCP server, and what happens to it."""

import asyncio
import json
import os
import sys
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from delf import Agent
from delf.errors import (
    ConnectionConfigurationError,
    ConnectionFileNotFoundError,
    ConnectionUnavailableError,
    EnvironmentKeyError,
    OutcomeUnknownError,
    ToolExecutionError,
    ToolRefusedError,
)
from delf.testing import ScriptedModel, TestHost
from delf_mcp import MCP
from delf_mcp.link import Link
from plugins.mcp.conftest import SERVER, invoke, run
from support.until import until

pytestmark = pytest.mark.slow  # nearly every test starts a server

# -- what a script sees -------------------------------------------------------------------------


async def test_tools_become_actions_with_types_and_effects(remote) -> None:
    actions = {action.name: action for action in await remote.actions()}
    assert actions["add"].signature.startswith("(a: int, b: int)")
    assert actions["add"].summary == "Add two numbers."
    effects = {action.name: action.effect for action in actions.values()}
    reading = {"list_resources", "read_resource"}
    assert {name for name, effect in effects.items() if effect == "read"} == reading
    assert {effects[name] for name in set(effects) - reading} == {"irreversible"}
    declared = {name: remote.claimed_effects[name] for name in ("add", "note", "wipe", "say-hello")}
    assert declared == {
        "add": "read",
        "note": "write",
        "wipe": "irreversible",
        "say-hello": "irreversible",
    }


async def test_results_become_values(open_mcp) -> None:
    srv = open_mcp(env={"GREETING": "welcome"})
    assert await invoke(srv, "add", a=1, b=2) == {"result": 3}
    hello = await invoke(srv, "say_hello", name="Ada")
    assert "Hello Ada, welcome!" in str(hello)
    title, image = await invoke(srv, "picture")
    assert title == "a dot"
    assert image == {"type": "image", "media_type": "image/png", "data": b"\x89PNG\r"}


async def test_invalid_arguments_do_not_reach_the_server(remote) -> None:
    with pytest.raises(ToolRefusedError, match="b"):
        await invoke(remote, "add", a=1)
    with pytest.raises(ToolRefusedError):
        await invoke(remote, "add", a=1, b="x")


async def test_failing_tool_error_has_its_reason(remote) -> None:
    with pytest.raises(ToolExecutionError, match="the lamp is broken"):
        await invoke(remote, "broken")


async def test_resources_can_be_read(remote) -> None:
    srv = remote
    listed = {item["uri"]: item for item in await srv.list_resources()}
    assert set(listed) == {"notes://today", "notes://{day}"}
    assert await srv.read_resource("notes://today") == "buy lamps"
    assert await srv.read_resource("notes://monday") == "notes of monday"
    with pytest.raises(ToolExecutionError, match="nowhere://"):
        await srv.read_resource("nowhere://x")


async def test_server_instructions_are_shown_to_the_model(remote) -> None:
    assert await remote.context("anything") == "srv: Greet before you add."


# -- its life -----------------------------------------------------------------------------------


async def test_server_crash_during_a_call_is_an_error_and_restarts_it(open_mcp) -> None:
    srv = open_mcp()
    with pytest.raises(OutcomeUnknownError, match="ended during die; the outcome is not known"):
        await invoke(srv, "die")
    assert await invoke(srv, "add", a=1, b=2) == {"result": 3}


async def test_server_crash_fails_only_open_calls(open_mcp) -> None:
    srv = open_mcp()
    actions = {action.name: action for action in await srv.actions()}
    waiting = [asyncio.ensure_future(actions["silent"].call(seconds=30.0)) for _ in range(3)]
    with pytest.raises(ToolExecutionError):
        await actions["die"].call()
    results = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(result) for result in results] == [OutcomeUnknownError] * 3
    again = await asyncio.gather(*(actions["add"].call(a=n, b=1) for n in range(20)))
    assert again == [{"result": n + 1} for n in range(20)]


async def test_server_may_fail_to_start_any_number_of_times(monkeypatch) -> None:
    def fail(_: Any) -> Any:
        raise OSError("no such server")

    async def skip_the_pause(_: float) -> None:
        pass

    monkeypatch.setattr(asyncio, "sleep", skip_the_pause)
    server = Link("srv", fail, 1.0)
    for _ in range(1100):
        with pytest.raises(ConnectionUnavailableError, match="no such server"):
            await server.run()


async def test_start_that_ignores_its_cancellation_does_not_delay_the_next_start(
    monkeypatch,
) -> None:
    ended = asyncio.Event()
    starts = []

    @asynccontextmanager
    async def never_start(run: Any) -> Any:
        starts.append(run)
        while not ended.is_set():
            with suppress(asyncio.CancelledError):
                await ended.wait()
        yield

    monkeypatch.setattr("delf_mcp.link.CLOSE_SECONDS", 0.1)
    server = Link("srv", never_start, 0.1)
    with pytest.raises(ConnectionUnavailableError, match="did not start"):
        await server.run()
    monkeypatch.setattr("delf_mcp.link.CLOSE_SECONDS", 60.0)
    next_start = asyncio.create_task(server.run())
    try:
        await until(lambda: len(starts) == 2)
    finally:
        ended.set()
        await asyncio.gather(next_start, return_exceptions=True)
        await server.aclose()


async def test_failing_server_start_shows_its_stderr(open_mcp) -> None:
    with pytest.raises(ConnectionUnavailableError, match="no licence"):
        await open_mcp(env={"BREAKS": "1"}).actions()


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("sleep 60", "did not start within 0.5 s"),
        ("echo Welcome; sleep 60", "did not start within 0.5 s; it wrote: Welcome"),
        ("echo usage: serve PORT", "it closed its output; it wrote: usage: serve PORT"),
    ],
)
async def test_program_that_is_not_a_server_is_reported_in_time(open_mcp, script, says) -> None:
    srv = open_mcp(command="sh", args=["-c", script], start_timeout=0.5)
    with pytest.raises(ConnectionUnavailableError) as caught:
        await srv.actions()
    assert caught.value.message.endswith(says)


@pytest.mark.parametrize("then", ["", "; sys.exit(3)"])
@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_refusal_of_a_server_is_reported_as_the_server_says_it(open_mcp, mode, then) -> None:
    """The program is stopped after the refusal, or ends itself."""
    script = """
import json, sys
for line in sys.stdin:
    request = json.loads(line)
    if request.get("method") == "initialize":
        error = {"code": -32000, "message": "the licence has expired"}
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "error": error}), flush=True)THEN
    elif "id" in request:
        error = {"code": -32601, "message": "unknown method"}
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "error": error}), flush=True)
"""
    srv = open_mcp(args=["-c", script.replace("THEN", then)], protocol=mode)
    with pytest.raises(ConnectionUnavailableError, match="the licence has expired"):
        await srv.actions()


async def test_cancelled_call_is_cancelled_at_the_server(open_mcp, tmp_path) -> None:
    marker = tmp_path / "marker"
    srv = open_mcp(env={"MARKER": str(marker)})
    actions = {action.name: action for action in await srv.actions()}
    work = asyncio.ensure_future(actions["slow"].call(seconds=30.0))
    await until(tmp_path.joinpath("marker-begun").exists)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    await until(marker.exists)
    assert await actions["add"].call(a=1, b=1) == {"result": 2}


async def test_silent_call_times_out_and_progress_extends_it(open_mcp) -> None:
    srv = open_mcp(timeout=0.6)
    with pytest.raises(OutcomeUnknownError, match=r"did not end within 0\.6 s"):
        await invoke(srv, "silent", seconds=30.0)
    assert await invoke(srv, "slow", seconds=1.2) == {"result": "done"}


async def test_closing_the_connection_stops_the_server(open_mcp) -> None:
    srv = open_mcp(args=["-u", SERVER])  # which is no fork, but started as users start it
    await srv.actions()
    (child,) = [pid for pid in _children() if _command(pid).endswith(f"{SERVER}\0")]
    await srv.aclose()
    await until(lambda: SERVER not in _command(child))
    assert SERVER not in _command(child)


def _children() -> list[str]:
    with open(f"/proc/self/task/{os.getpid()}/children") as file:
        return file.read().split()


def _command(pid: str) -> str:
    try:
        with open(f"/proc/{pid}/cmdline") as file:
            return file.read()
    except OSError:
        return ""


@pytest.mark.parametrize("protocol", ["legacy", "auto"])
async def test_added_tool_is_available_to_the_next_task(open_mcp, protocol) -> None:
    srv = open_mcp(protocol=protocol)
    host = TestHost.discover(environ={})
    model = ScriptedModel()
    host.provide(model.spec, model.factory)
    model.writes("print((await srv.grow('ivy'))['result'])", "print((await srv.ivy())['result'])")
    async with Agent(tools=[srv], llm="scripted", host=host, on_confirm=lambda _: True) as agent:
        assert (await agent.arun("Plant.")).text == "grown"
        await until(srv.is_stale)
        response = await agent.arun("Look.")
        assert response.text == "ivy has grown", response
        assert not srv.is_stale()


# -- what it may ask ----------------------------------------------------------------------------


async def test_server_question_becomes_an_approval_with_a_form(remote) -> None:
    from delf.protocols.approval import Edited

    def answer(request):
        if request.action == "srv.elicitation":
            assert "    Which lamp?" in request.preview.split("\n")
            assert request.arguments == {"colour": "red", "pieces": None}
            return Edited(arguments={"colour": "blue", "pieces": 3})
        return True

    response, asked, _ = await run(remote, "print((await srv.order())['result'])", answer)
    assert response.text == "3 in blue"
    assert [request.action for request in asked] == ["srv.order", "srv.elicitation"]


async def test_form_without_required_fields_is_not_sent(remote) -> None:
    response, _, _ = await run(remote, "print((await srv.order())['result'])")
    assert response.text == "the user said cancel"


async def test_rejection_reaches_the_caller(remote) -> None:
    response, _, _ = await run(
        remote,
        "print((await srv.order())['result'])",
        lambda request: request.action != "srv.elicitation",
    )
    assert response.text == "the user said decline"


THINK = "print((await srv.think('lamps'))['result'])"


async def test_server_may_ask_the_model_after_approval(remote) -> None:
    response, asked, model = await run(remote, THINK)
    assert response.text == "the model says: they glow"
    assert asked[-1].action == "srv.sampling"
    assert "lamps" in asked[-1].preview
    assert "Be short." in model.prompts[-1]
    assert response.trace.usage.total_tokens > 0


async def test_paths_may_begin_with_the_home_folder(open_mcp, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    servers = {"srv": {"command": sys.executable, "args": [SERVER]}}
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
    srv = open_mcp(config="~/mcp.json", command=None, args=[], roots=["~"], cwd="~")
    assert await invoke(srv, "folders") == {"result": [tmp_path.as_uri()]}
    assert [each.settings.command for each in MCP.from_file("~/mcp.json")] == [sys.executable]


async def test_home_folder_of_an_unknown_user_is_a_missing_path(open_mcp) -> None:
    missing = "~nobody-here/mcp.json"
    for settings in ({"cwd": missing}, {"config": missing, "command": None, "args": []}):
        with pytest.raises(
            (ConnectionUnavailableError, ConnectionFileNotFoundError), match=missing
        ):
            await open_mcp(**settings).actions()
    with pytest.raises(ConnectionFileNotFoundError, match=missing):
        MCP.from_file(missing)
    (root,) = (await invoke(open_mcp(roots=[missing]), "folders"))["result"]
    assert root.endswith("nobody-here/mcp.json")


async def test_roots_are_sent_to_the_server(open_mcp, tmp_path) -> None:
    srv = open_mcp(roots=[str(tmp_path)])
    assert await invoke(srv, "folders") == {"result": [tmp_path.as_uri()]}


# -- where it is named --------------------------------------------------------------------------


def file_of(tmp_path, **entry):
    path = tmp_path / "mcp.json"
    path.write_text(json.dumps({"mcpServers": {"my-server": entry}}))
    return path


async def test_servers_are_read_from_a_file(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("WORD", "good day")
    path = file_of(
        tmp_path, command=sys.executable, args=[SERVER], env={"GREETING": "${WORD}"}, disabled=False
    )
    (srv,) = MCP.from_file(path, protocol="legacy")
    assert srv.name == "my_server"
    assert "good day" in str(await invoke(srv, "say_hello", name="Ada"))
    await srv.aclose()


ENVIRONMENT = """
import json
import os

from mcp.server import MCPServer

server = MCPServer("environment")


@server.tool()
def environment() -> str:
    return json.dumps(dict(os.environ))


server.run()
"""


async def test_server_gets_certificates_and_proxies_of_the_environment(
    open_mcp, tmp_path, monkeypatch
) -> None:
    (tmp_path / "environment.py").write_text(ENVIRONMENT)
    monkeypatch.setenv("SSL_CERT_FILE", "/ours.pem")
    monkeypatch.setenv("https_proxy", "http://proxy.example:3128")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-user")
    srv = open_mcp(args=[str(tmp_path / "environment.py")])
    seen = str(await invoke(srv, "environment"))
    assert "/ours.pem" in seen
    assert "http://proxy.example:3128" in seen
    assert "OPENAI_API_KEY" not in seen


def test_unknown_server_name_gets_a_suggestion(tmp_path) -> None:
    path = file_of(tmp_path, command="x")
    with pytest.raises(ConnectionConfigurationError, match="did you mean 'my-server'"):
        MCP(config=str(path), server="my-servr")
    with pytest.raises(ConnectionFileNotFoundError):
        MCP(config=str(tmp_path / "none.json"), server="x")


def test_unset_variable_raises(tmp_path, monkeypatch) -> None:
    monkeypatch.delenv("NO_SUCH_WORD", raising=False)
    path = file_of(tmp_path, command="x", env={"A": "${NO_SUCH_WORD}"})
    with pytest.raises(EnvironmentKeyError, match="NO_SUCH_WORD"):
        MCP(config=str(path), server="my-server")


@pytest.mark.parametrize("settings", [{}, {"command": "x", "url": "http://x/"}])
def test_server_needs_either_a_command_or_a_url(settings) -> None:
    with pytest.raises(ConnectionConfigurationError, match="either command or url"):
        MCP(**settings)
