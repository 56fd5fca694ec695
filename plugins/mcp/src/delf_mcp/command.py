"""``delf mcp``: a project as an MCP server."""

from __future__ import annotations

import asyncio
import json
import os
import re
import secrets
import signal
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, TypedDict

import click

from delf.errors import ConfigurationError
from delf.values.numbers import parse_count
from delf_cli.as_json import as_json_option
from delf_cli.listening import address_of, listening
from delf_cli.state import state_of

if TYPE_CHECKING:
    from delf_engine.project.project import Project
    from delf_mcp.serving import Served

_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_KEY_VARIABLE = "DELF_MCP_KEY"
_MAX_PORT = 65535
_SHUTDOWN_SECONDS = 3
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


class EffectsRow(TypedDict):
    """The JSON of ``delf mcp effects``, and of ``delf openapi effects``.

    Args:
        effects: The effects by action, as the connection's setting ``effects`` takes them.
        actions: The number of all actions.
    """

    effects: dict[str, str]
    actions: int


@click.group("mcp")
def mcp() -> None:
    """Serve the project to MCP clients, and check the servers that it uses."""


@mcp.command()
@click.argument("connection")
@click.option(
    "--accept",
    is_flag=True,
    help="Trust the tools as they are now: `effects` in delf.toml applies to them.",
)
@as_json_option(EffectsRow)
@click.pass_context
def effects(ctx: click.Context, connection: str, accept: bool, as_json: bool) -> None:
    """Print the hints of CONNECTION's server about its tools, as a line for delf.toml.

    Copy the line into delf.toml, and delete the hints that you do not believe. Each call of a tool
    that the line does not name needs approval. So does each call of a tool that the server has
    changed or added since you wrote the line.

    \b
    delf mcp effects git
    delf mcp effects git --accept
    """  # noqa: D301 - click's mark for lines that stay as they are
    state = state_of(ctx)
    project = state.load_project()
    mcp_connection: Any = project.connector(state.discover(project.environ))(connection)
    claimed_effects, notices = asyncio.run(_claimed_effects(mcp_connection, accept=accept))
    for notice in notices:
        click.echo(f"# {state.redact(notice)}", err=True)
    # A tool without a hint counts as irreversible.
    hints = {name: effect for name, effect in claimed_effects.items() if effect != "irreversible"}
    if as_json:
        row = EffectsRow(effects=hints, actions=len(claimed_effects))
        click.echo(json.dumps(row, indent=2))
        return
    click.echo(
        f"# The server gives hints about {len(hints)} of its {len(claimed_effects)} tools. "
        "Delete the hints that you do not believe.",
        err=True,
    )
    # Control characters in a name would act on the terminal.
    entries = [
        f'{toml_key(name)} = "{hints[name]}"' for name in sorted(hints) if name.isprintable()
    ]
    click.echo(f"effects = {{ {', '.join(entries)} }}" if entries else "effects = {}")


async def _claimed_effects(
    connection: Any, *, accept: bool
) -> tuple[dict[str, str], Sequence[str]]:
    """Return the effects that a server claims for its tools, and notices about the tools.

    Args:
        connection: The connection to the server.
        accept: Whether to record the current tools as trusted, so that the setting ``effects``
            applies to them.

    Raises:
        ConfigurationError: If the connection is not to an MCP server.
    """
    from delf_mcp.connection import MCP

    if not isinstance(connection, MCP):
        raise ConfigurationError(
            f"{connection.name} is not an MCP server", hint='in delf.toml it has type = "mcp"'
        )
    try:
        await connection.actions()  # sets the claimed effects and the notices
        if accept:
            await asyncio.to_thread(connection.accept_tools)
            await connection.actions()  # sets both again, now that the tools are trusted
        return dict(connection.claimed_effects), connection.notices()
    finally:
        await connection.aclose()


def toml_key(name: str) -> str:
    """Quote a name for use as a TOML key, if necessary."""
    if _BARE_KEY.fullmatch(name):
        return name
    return json.dumps(name, ensure_ascii=False)


@mcp.command()
@click.option(
    "-c",
    "--connection",
    "connections",
    metavar="NAME",
    multiple=True,
    help="A connection of delf.toml; by default all. May be repeated.",
)
@click.option("--llm", metavar="MODEL", help="The model for the tool `run`.")
@click.option("--http", metavar="[HOST:]PORT", help="Serve streamable HTTP, at the path /mcp.")
@click.pass_context
def serve(
    ctx: click.Context, connections: tuple[str, ...], llm: str | None, http: str | None
) -> None:
    """Start an MCP server with the project's connections as tools, and `run` for whole tasks.

    Without --http it uses the standard input and output. If a call needs approval, the client
    asks its user (elicitation). An address outside this machine needs a key in DELF_MCP_KEY,
    which clients send as a bearer token.

    \b
    delf mcp serve
    delf mcp serve --http 8000 -c shop
    """  # noqa: D301 - click's mark for lines that stay as they are
    project = state_of(ctx).load_project()
    options: dict[str, Any] = {"connections": connections or None}
    if llm is not None:
        options["llm"] = llm
    asyncio.run(_serve(project, options, http_address=http))


async def _serve(project: Project, options: dict[str, Any], http_address: str | None) -> None:
    """Serve the agents of a project at an HTTP address, or by stdio if the address is None.

    Args:
        project: The project.
        options: Arguments of :meth:`delf.Agent.from_project`.
        http_address: The address, such as ``[HOST:]PORT``.
    """
    from delf import Agent
    from delf_mcp.serving import Served

    def make_agent(**overrides: Any) -> Agent:
        return Agent.from_project(project, **{**options, **overrides})

    await serve_on(Served(make_agent), http_address)


async def serve_on(served: Served, http_address: str | None) -> None:
    """Serve by stdio or HTTP until the client disconnects or the process is stopped.

    Args:
        served: The tools, which are closed at the end.
        http_address: The address, such as ``[HOST:]PORT``; None for the standard input and output.
    """
    try:
        if http_address is None:
            await _on_streams(served)
        else:
            await _on_http(served, http_address)
    finally:
        await served.aclose()


async def _on_streams(served: Served) -> None:
    """Serve on standard input and standard output."""
    import anyio
    from mcp.server.stdio import stdio_server

    from delf_cli.streams import real_stdout

    server = served.server()
    for number in (signal.SIGINT, signal.SIGTERM):
        with suppress(NotImplementedError):  # on Windows
            asyncio.get_running_loop().add_signal_handler(number, _stop_at_signal, served, number)
    # Closing this file leaves the standard output open, which the command line flushes at its end.
    standard_output = real_stdout().fileno()
    protocol_file = await anyio.open_file(standard_output, "w", encoding="utf-8", closefd=False)
    async with protocol_file, stdio_server(stdout=protocol_file) as (read, write):
        await server.run(read, write, server.create_initialization_options())


def _stop_at_signal(served: Served, number: int) -> None:
    """Stop all work, then let a signal end the process; a second signal ends the process at once.

    The event loop cannot end by itself, because it waits for the thread that reads the standard
    input, and that thread waits for the client.
    """

    def end(_: object) -> None:
        signal.raise_signal(number)

    loop = asyncio.get_running_loop()
    for each in (signal.SIGINT, signal.SIGTERM):
        loop.remove_signal_handler(each)
        signal.signal(each, signal.SIG_DFL)
    asyncio.ensure_future(served.aclose()).add_done_callback(end)


async def _on_http(served: Served, address: str) -> None:
    """Serve at an address such as ``8000`` or ``HOST:8000``, which needs a key if not loopback."""
    import uvicorn

    from delf_mcp.slow_clients import TimedProtocol

    host, _, port_text = address.rpartition(":")
    host = host.strip("[]") or "127.0.0.1"
    key = os.environ.get(_KEY_VARIABLE)
    if host not in _LOOPBACK and not key:
        raise ConfigurationError(
            f"{host} is not loopback, and there is no key",
            hint=f"set {_KEY_VARIABLE}, or serve 127.0.0.1",
        )
    port = parse_count(port_text)
    if port is None or port > _MAX_PORT:
        raise ConfigurationError(f"{address!r} is not a port", hint="--http 8000, or HOST:8000")
    app: Any = served.server().streamable_http_app(host=host)
    app.router.lifespan_context = _closing_after(app.router.lifespan_context, served)
    app_with_key_check = _RequireKey(app, key) if key else app
    config = uvicorn.Config(
        app_with_key_check,
        http=TimedProtocol,
        ws="none",
        log_level="warning",
        timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
    )
    with listening(host, port) as listeners:
        click.echo(f"serving {address_of(listeners[0])}/mcp", err=True)
        await uvicorn.Server(config).serve(sockets=listeners)


def _closing_after(lifespan: Callable[[Any], Any], served: Served) -> Callable[[Any], Any]:
    """Wrap the lifespan of an ASGI application, to stop all work at the end of the lifespan.

    Work is stopped there, because uvicorn repeats the signal that stopped the server after the
    lifespan, and a repeated SIGTERM ends the process without any clean-up.
    """

    @asynccontextmanager
    async def closing(app: Any) -> AsyncGenerator[Any]:
        async with lifespan(app) as state:
            yield state
        await served.aclose()

    return closing


class _RequireKey:
    """ASGI middleware that answers 401 to HTTP requests without the right bearer token."""

    def __init__(self, app: Any, key: str) -> None:
        self._app = app
        # The scheme is compared in lower case, because HTTP ignores the case of its letters.
        self._expected_authorization = b"bearer " + os.fsencode(key)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer 401 to a request without the key; pass any other request to the application."""
        if scope["type"] == "http" and not self._has_key(scope):
            headers = [(b"www-authenticate", b"Bearer")]
            await send({"type": "http.response.start", "status": 401, "headers": headers})
            await send({"type": "http.response.body", "body": b""})
            return
        await self._app(scope, receive, send)

    def _has_key(self, scope: Any) -> bool:
        header = dict(scope["headers"]).get(b"authorization", b"")
        scheme, _, token = header.partition(b" ")
        return secrets.compare_digest(scheme.lower() + b" " + token, self._expected_authorization)
