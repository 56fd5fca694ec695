"""``MCP``: the tools, resources and prompts of one MCP server as actions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypedDict
from weakref import WeakKeyDictionary

from delf import CallContext, Connection
from delf.errors import ConnectionConfigurationError, ToolExecutionError
from delf.settings import current_environ
from delf.tools.action import Action, action_from_function
from delf.types import Effect
from delf_mcp.config import server_settings, servers_in
from delf_mcp.settings import MCPSettings
from delf_schemas.actions import action_from_schema

if TYPE_CHECKING:
    import mcp_types as types
    from mcp import Client

    from delf_mcp.asking import Asking
    from delf_mcp.link import Link
    from delf_mcp.oauth import OpenURL

_CONTEXT: Final = "delf_call_context"
_MOST_PAGES: Final = 100
_READ: Final[Effect] = "read"


class Resource(TypedDict):
    """Something that a server lets be read."""

    uri: str
    name: str
    description: str
    media_type: str | None


class Prompt(TypedDict):
    """A prompt that a server has ready."""

    name: str
    description: str
    arguments: list[str]


class Line(TypedDict):
    """A message of a prompt."""

    role: str
    content: Any


class MCP(Connection):
    """The tools of an MCP server.

    Args:
        command: The program that is the server, with ``args``, ``env`` and ``cwd``.
        url: Its address, where it runs elsewhere, with ``headers`` or ``oauth``.
        config: A file that names it, with ``server``.
        open_url: Shows the address of a login to the user; in the browser when left out.
    """

    Settings = MCPSettings
    settings: MCPSettings

    def __init__(self, *, open_url: OpenURL | None = None, **options: Any) -> None:
        super().__init__(**options)
        self._open_url = open_url
        self._how = self._resolved()
        self._servers: WeakKeyDictionary[asyncio.AbstractEventLoop, _Server] = WeakKeyDictionary()

    @classmethod
    def from_file(cls, path: str | Path, **options: Any) -> list[MCP]:
        """A connection for each server of an ``mcp.json``.

        Args:
            path: The file.
            options: For all of them.
        """
        return [
            cls(name=name.replace("-", "_"), config=str(path), server=name, **options)
            for name in servers_in(Path(path))
        ]

    async def actions(self) -> Sequence[Action]:
        """The server's tools, and what reads its resources and prompts."""
        server = self._server()
        async with self._link(server, "tools") as client:
            server.stale = False
            offered = client.server_capabilities
            tools = await _tools(client) if offered.tools is not None else []
        actions: dict[str, Action] = {}
        for tool in tools:
            made = self._action(server, tool)
            name, number = made.name, 2
            while name in actions:  # names that differ in what no Python name can hold
                name, number = f"{made.name}_{number}", number + 1
            actions[name] = replace(made, name=name) if name != made.name else made
        if offered.resources is not None:
            for made in self._functions("resources", self.list_resources, self.read_resource):
                actions.setdefault(made.name, made)
        if offered.prompts is not None:
            for made in self._functions("prompts", self.list_prompts, self.get_prompt):
                actions.setdefault(made.name, made)
        return list(actions.values())

    def is_stale(self) -> bool:
        """Whether the server has said that its tools are others now, or was started again."""
        return self._server().stale

    async def context(self, task: str) -> str | None:
        """What the server says about its use, for the prompt."""
        async with self._link(self._server(), "instructions") as client:
            said = client.instructions
        return f"{self.name}: {' '.join(said.split())[:1000]}" if said else None

    async def aclose(self) -> None:
        """End the server, or leave it. The next call begins anew."""
        server = self._servers.pop(asyncio.get_running_loop(), None)
        if server is not None:
            await server.link.aclose()

    # -- resources and prompts ----------------------------------------------------------

    async def list_resources(self) -> list[Resource]:
        """What the server lets be read; a uri with {…} is a pattern."""
        async with self._link(self._server(), "resources") as client:
            found: list[Resource] = []
            async for page in _pages(client.list_resources):
                found += [_resource(str(item.uri), item) for item in page.resources]
            async for page in _pages(client.list_resource_templates):
                found += [_resource(item.uri_template, item) for item in page.resource_templates]
            return found

    async def read_resource(self, uri: str) -> Any:
        """A resource's text, or bytes.

        Args:
            uri: From list_resources.
        """
        from delf_mcp.results import resource_of

        async with self._link(self._server(), f"resource {uri}") as client:
            return resource_of((await client.read_resource(uri)).contents)

    async def list_prompts(self) -> list[Prompt]:
        """The prompts that the server has ready."""
        async with self._link(self._server(), "prompts") as client:
            return [
                Prompt(
                    name=item.name,
                    description=item.description or "",
                    arguments=[argument.name for argument in item.arguments or ()],
                )
                async for page in _pages(client.list_prompts)
                for item in page.prompts
            ]

    async def get_prompt(self, name: str, arguments: dict[str, str] | None = None) -> list[Line]:
        """A prompt's messages, filled in.

        Args:
            name: From list_prompts.
            arguments: What it asks for.
        """
        from delf_mcp.results import content_of

        async with self._link(self._server(), f"prompt {name}") as client:
            got = await client.get_prompt(name, arguments or {})
            return [Line(role=m.role, content=content_of([m.content])) for m in got.messages]

    def _functions(self, permission: str, *functions: Any) -> list[Action]:
        return [
            action_from_function(
                function, permission=permission, effect=_READ, where=f"{self.name}.{permission}"
            )
            for function in functions
        ]

    # -- tools --------------------------------------------------------------------------

    def _action(self, server: _Server, tool: types.Tool) -> Action:
        async def send(arguments: dict[str, Any]) -> Any:
            return await self._call(server, tool.name, arguments)

        made = action_from_schema(
            tool.name,
            send,
            tool.input_schema,
            description=tool.description or tool.title or "",
            result=tool.output_schema,
            effect=self._effect(tool),
        )
        inner = made.call

        async def call(**given: Any) -> Any:
            context: CallContext | None = given.pop(_CONTEXT, None)
            if context is None:
                return await inner(**given)
            with server.asking.calling(context):
                return await inner(**given)

        return replace(made, call=call, context=_CONTEXT)

    def _effect(self, tool: types.Tool) -> Effect:
        """What a tool does: as the user says, as the server says, or the worst."""
        told = self.settings.effects.get(tool.name)
        hints = tool.annotations
        if told is not None or hints is None or not self.settings.annotations:
            return told or "irreversible"
        if hints.read_only_hint:
            return "read"
        return "write" if hints.destructive_hint is False else "irreversible"

    async def _call(self, server: _Server, tool: str, arguments: dict[str, Any]) -> Any:
        from delf_mcp.results import result_of

        seconds = self.settings.timeout
        loop = asyncio.get_running_loop()
        async with self._link(server, tool) as client, asyncio.timeout(seconds) as limit:

            async def alive(progress: float, total: float | None, message: str | None) -> None:
                del progress, total, message  # that it comes is what counts
                limit.reschedule(loop.time() + seconds)

            result = await client.call_tool(tool, arguments, progress_callback=alive)
        return result_of(tool, result)

    # -- the server ---------------------------------------------------------------------

    @asynccontextmanager
    async def _link(self, server: _Server, what: str) -> AsyncGenerator[Client]:
        """The server's client; what goes wrong with it is told as delf's errors."""
        import mcp_types as types
        from mcp import MCPError
        from pydantic import ValidationError

        client = await server.link.client()
        try:
            yield client
        except MCPError as error:
            if error.code == types.CONNECTION_CLOSED:
                server.link.gone()
                raise ToolExecutionError(
                    f"{self.name}: the MCP server ended during {what}; whether it did it is not "
                    "known. The next call starts it again"
                ) from None
            raise ToolExecutionError(f"{self.name}: {what}: {error.message}") from None
        except TimeoutError:
            raise ToolExecutionError(
                f"{self.name}: {what} did not end within {self.settings.timeout:g} s",
                hint="timeout in the connection's settings",
            ) from None
        except ValidationError as error:
            raise ToolExecutionError(
                f"{self.name}: {what}: the server's answer is not of the protocol: "
                f"{error.error_count()} faults"
            ) from None

    def _server(self) -> _Server:
        loop = asyncio.get_running_loop()
        server = self._servers.get(loop)
        if server is None:
            server = self._servers[loop] = _Server(self.name, self._how, self)
        return server

    async def show(self, url: str) -> None:
        """Show the address of a login to the user."""
        from delf_mcp.oauth import open_browser

        await (self._open_url or open_browser)(url)

    def _resolved(self) -> MCPSettings:
        """The settings, with what a file says about the server."""
        settings = self.settings
        if settings.config is not None:
            server = settings.server or self.name
            found = server_settings(Path(settings.config), server, current_environ())
            settings = MCPSettings.for_instance(
                self.name, {**settings.model_dump(exclude_unset=True), **found, "config": None}
            )
        if (settings.command is None) == (settings.url is None):
            raise ConnectionConfigurationError(
                f"connection {self.name!r} needs either command or url",
                hint='command = "npx", args = ["-y", "…"]; or url = "https://host/mcp"; or config',
            )
        return settings


class _Server:
    """What belongs to a server within one event loop."""

    def __init__(self, name: str, settings: MCPSettings, connection: MCP) -> None:
        from delf_mcp.asking import Asking
        from delf_mcp.link import Link
        from delf_mcp.target import Target

        self.stale = False
        self.asking: Asking = Asking(settings.sampling, settings.roots)
        target = Target(
            name,
            settings,
            self.asking.callbacks,
            connection.keep_secret,
            connection.show,
            self._others,
        )
        self.link: Link = Link(name, target.open, settings.start_timeout)

    def _others(self) -> None:
        self.stale = True


async def _tools(client: Client) -> list[types.Tool]:
    return [tool async for page in _pages(client.list_tools) for tool in page.tools]


async def _pages(ask: Any) -> AsyncGenerator[Any]:
    """All pages of a list."""
    cursor: str | None = None
    for _ in range(_MOST_PAGES):
        page = await ask(cursor=cursor)
        yield page
        cursor = page.next_cursor
        if not cursor:
            return


def _resource(uri: str, item: Any) -> Resource:
    return Resource(
        uri=uri,
        name=item.name,
        description=item.description or "",
        media_type=item.mime_type,
    )
