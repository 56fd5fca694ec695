"""``MCP``: the tools and resources of one MCP server as actions."""

from __future__ import annotations

import asyncio
import functools
import logging
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypedDict
from weakref import WeakKeyDictionary

from pydantic import ValidationError

from delf import CallContext, Connection
from delf.errors import (
    ConnectionConfigurationError,
    ConnectionUnavailableError,
    OutcomeUnknownError,
    ToolDefinitionError,
    ToolExecutionError,
    did_you_mean,
)
from delf.settings import current_environ
from delf.terminal import visible
from delf.tools.action import Action, action_from_function
from delf.tools.connection import describe_actions
from delf.tools.json_schema import clean
from delf.types import Effect, Trust
from delf_mcp.config import server_settings, servers_in
from delf_mcp.learning import Results
from delf_mcp.settings import MCPSettings
from delf_schemas.actions import action_from_schema

if TYPE_CHECKING:
    import mcp_types as types
    from mcp import Client, MCPError

    from delf_mcp.asking import Asking, SilenceTimeout
    from delf_mcp.link import Link
    from delf_mcp.listing import LeftOut, Sieve
    from delf_mcp.oauth import OpenURL

_log = logging.getLogger(__name__)

CONTEXT: Final = "delf_call_context"
_READ: Final[Effect] = "read"
_FLOW: Final[Mapping[str, Any]] = {"egress": True}
_IRREVERSIBLE: Final[Effect] = "irreversible"
_CHECK_FIRST: Final = "check before you repeat it"
_PARSE_ERROR: Final = -32700
_WORDS_OF_A_GATEWAY: Final = ("Server returned an error response", "Unexpected content type")
"""Messages of the library if something other than an MCP server answered, such as a gateway."""
_MAX_LISTED: Final = 10
_MAX_INSTRUCTIONS: Final = 1000
UNDECLARED: Final = "str | list"
"""The result type of tools without a declared schema, before a result was seen."""
_PIECES: Final = (
    "a result that is a list has pieces: str, {type, media_type, data: bytes} for pictures and "
    "sounds, {type, uri, media_type, content} for resources; texts may be JSON"
)
_MORE_TOOLS: Final = "max_tools in the connection's settings allows more"


class Resource(TypedDict):
    """A readable object of a server."""

    uri: str
    name: str
    description: str
    media_type: str | None


class _Inspect:
    """A descriptor for ``inspect`` that uses the tools as last listed."""

    def __get__(self, instance: MCP | None, owner: type[MCP]) -> Callable[..., dict[str, Any]]:
        def inspect(*, verbose: bool = False) -> dict[str, Any]:
            """Return the connection's actions as data, with the omitted tools."""
            if instance is None:
                return describe_actions(owner.type_name(), owner.summary, (), verbose=verbose)
            listed = instance.listed
            description = describe_actions(instance.name, instance.summary, listed, verbose=verbose)
            return {**description, "notices": list(instance.notices())}

        return inspect


class MCP(Connection[MCPSettings]):
    """The tools of an MCP server.

    Args:
        command: The server's program, with ``args``, ``env`` and ``cwd``.
        url: The address of a remote server, with ``headers`` or ``oauth``.
        config: The path of an ``mcp.json``, in which ``server`` names the server.
        open_url: Shows a login URL to the user; opens the browser when omitted.
    """

    inspect: ClassVar[Any] = _Inspect()

    description_trust: ClassVar[Trust] = "outside"

    def __init__(self, *, open_url: OpenURL | None = None, **options: Any) -> None:
        super().__init__(**options)
        self._open_url = open_url
        self.settings = self._resolve_settings()
        self.listed: tuple[Action, ...] = ()
        self.declared: dict[str, Effect] = {}
        """The server's claims about the effects of its tools, which have no effect by
        themselves.
        """
        self._notices: tuple[str, ...] = ()
        self._trusted_digests: dict[str, str] | None = None
        self._digests: dict[str, str] = {}
        self._servers: WeakKeyDictionary[asyncio.AbstractEventLoop, _Server] = WeakKeyDictionary()
        self._results = Results(self.name, self.settings)

    @classmethod
    def from_file(cls, path: str | Path, **options: Any) -> list[MCP]:
        """Return a connection for each server of an ``mcp.json``.

        Args:
            path: The file.
            options: The options apply to every server of the file.
        """
        return [
            cls(name=name.replace("-", "_"), config=str(path), server=name, **options)
            for name in servers_in(Path(path))
        ]

    async def actions(self) -> Sequence[Action]:
        """Return the server's tools, and the actions for its resources.

        An unusable tool is omitted; :meth:`notices` has the reason.

        Raises:
            ConnectionUnavailableError: If the server does not start, or its tool list is too large
                or does not arrive within ``start_timeout``.
        """
        from delf_mcp.listing import declared_by, whole_list

        server = self._server()
        max_tools, seconds = self.settings.max_tools, self.settings.start_timeout
        deadline = time.monotonic() + seconds
        async with self._link(server, "its list of tools", starting=True) as (client, _):
            server.stale = False
            server.sieve.taken_out("tools")
            capabilities = client.server_capabilities
            tools: list[types.Tool] = []
            if capabilities.tools is not None:
                tools = await whole_list(
                    client.list_tools, "tools", max_tools, _MORE_TOOLS, cache_mode="refresh"
                )
            actions, omitted, changed = await asyncio.to_thread(
                self._make_actions, server, tools, deadline
            )
        if capabilities.resources is not None:
            for function in (self.list_resources, self.read_resource):
                action = action_from_function(
                    function,
                    effect=_READ,
                    place=f"{self.name}.resources",
                    flow=_FLOW,
                )
                actions.setdefault(action.name, action)
        self._report_notices([*server.sieve.taken_out("tools"), *omitted], changed, tools, actions)
        self.declared = {tool.name: declared_by(tool) for tool in tools}
        self.listed = tuple(actions.values())
        return self.listed

    def notices(self) -> Sequence[str]:
        """Return notices about omitted tools, with the reasons."""
        return self._notices

    def is_stale(self) -> bool:
        """Return True if the server announced changed tools or was restarted."""
        return self._server().stale

    async def context(self, task: str) -> str | None:
        """Return the server's instructions, and learned result types."""
        async with self._link(self._server(), "instructions") as (client, _):
            instructions = client.instructions
        text = clean(instructions, _MAX_INSTRUCTIONS)
        if any(action.returns == UNDECLARED for action in self.listed):
            text = f"{text}\n{_PIECES}" if text else _PIECES
        return f"{self.name}: {text}" if text else None

    async def aclose(self) -> None:
        """Stop or disconnect the server; the next call starts it again."""
        server = self._servers.pop(asyncio.get_running_loop(), None)
        if server is not None:
            await server.link.aclose()
        await self._results.aclose()

    # -- resources ----------------------------------------------------------------------

    async def list_resources(self) -> list[Resource]:
        """List the resources that the server offers; a uri with {…} is a pattern."""
        from delf_mcp.limits import MAX_ITEMS
        from delf_mcp.listing import whole_list

        server = self._server()
        async with self._link(server, "its list of resources") as (client, _):
            plain = await whole_list(client.list_resources, "resources", MAX_ITEMS)
            ask = client.list_resource_templates
            patterns = await whole_list(ask, "resource_templates", MAX_ITEMS)
        self._log_left_out(server, "resources", "resourceTemplates")
        return [
            *(_resource(str(item.uri), item) for item in plain),
            *(_resource(item.uri_template, item) for item in patterns),
        ]

    async def read_resource(self, uri: str) -> Any:
        """Return a resource's text, or bytes.

        Args:
            uri: From list_resources.
        """
        from delf_mcp.results import resource_of

        async with self._link(self._server(), f"resource {uri}") as (client, _):
            return resource_of((await client.read_resource(uri)).contents)

    # -- tools --------------------------------------------------------------------------

    def _make_actions(
        self, server: _Server, tools: Sequence[types.Tool], deadline: float
    ) -> tuple[dict[str, Action], list[LeftOut], list[str]]:
        """Return actions by name, omitted tools, and the names of tools whose description changed.

        Raises:
            TimeoutError: If the deadline passes.
        """
        from delf_mcp.known import KnownTools
        from delf_mcp.listing import LeftOut, digest_of, effect_of, reason, shown

        digests = {
            tool.name: digest_of(tool) for tool in reversed(tools)
        }  # of tools with the same name the first counts
        effects, known_tools = self.settings.effects, KnownTools(self.name, self.settings)
        recorded = known_tools.read() if effects and self._trusted_digests is None else {}
        is_first_listing, new_digests = self._trusted_digests is None, dict[str, str]()
        self._trusted_digests = trusted = (
            {**digests, **recorded} if self._trusted_digests is None else self._trusted_digests
        )
        self._digests = digests
        changed: list[str] = []
        actions: dict[str, Action] = {}
        omitted: list[LeftOut] = []
        seen_names: set[str] = set()
        for tool in tools:
            if time.monotonic() > deadline:
                raise TimeoutError
            if tool.name in seen_names:
                omitted.append(LeftOut("tools", shown(tool.name), "another tool has this name"))
                continue
            seen_names.add(tool.name)
            try:
                action = self._action(server, tool)
            except ToolDefinitionError as error:
                omitted.append(LeftOut("tools", shown(tool.name), reason(error)))
                continue
            name, number = action.name, 2
            while name in actions:  # different names may be equal as Python names
                name, number = f"{action.name}_{number}", number + 1
            version = digests[tool.name]  # a changed tool needs new approvals
            effect = effect_of((tool.name, name), effects)
            if effect != _IRREVERSIBLE and trusted.get(tool.name) != version:
                effect = _IRREVERSIBLE  # declared for the unchanged tool only
                changed.append(tool.name)
            elif effect != _IRREVERSIBLE and is_first_listing and tool.name not in recorded:
                new_digests[tool.name] = version
            actions[name] = replace(
                action,
                name=name,
                permission=name,
                effect=effect,
                version=version,
                egress=effect == _READ,  # the server may send data anywhere
            )
        if new_digests:
            known_tools.keep({**recorded, **new_digests})
        return actions, omitted, changed

    def accept_tools(self) -> None:
        """Record that ``effects`` apply to the tools as last listed, also in later runs."""
        from delf_mcp.known import KnownTools

        known_tools = KnownTools(self.name, self.settings)
        known_tools.keep({**known_tools.read(), **self._digests})
        self._trusted_digests = dict(self._digests)

    def _action(self, server: _Server, tool: types.Tool) -> Action:
        async def send(arguments: dict[str, Any]) -> Any:
            return await self._call(server, tool, arguments)

        action = action_from_schema(
            tool.name,
            send,
            tool.input_schema,
            description=tool.description or tool.title or "",
            result=tool.output_schema,
            learned_types=functools.partial(self._results.seen, tool),
            unknown=UNDECLARED,
        )
        call_without_context = action.call

        async def call(**given: Any) -> Any:
            context: CallContext | None = given.pop(CONTEXT, None)
            if context is None:
                return await call_without_context(**given)
            with server.asking.calling(context):
                return await call_without_context(**given)

        return replace(action, call=call, context=CONTEXT)

    def _report_notices(
        self,
        omitted: Sequence[LeftOut],
        changed: Sequence[str],
        tools: Sequence[types.Tool],
        actions: Mapping[str, Action],
    ) -> None:
        """Show notices that are new to the user."""
        notices = [f"the tool {item.name!r} is left out: {item.why}" for item in omitted]
        names = {tool.name for tool in tools} | set(actions)
        for pattern in self.settings.effects:
            if not any(fnmatchcase(name, pattern) for name in names):
                close = did_you_mean(pattern, names)
                notices.append(f"effects names {pattern!r}, which is not one of its tools{close}")
        notices += [
            f"the server has changed the tool {clean(name)!r}, so its calls need approval again; "
            f"delf mcp effects {self.name} --accept accepts the change"
            for name in changed
        ]
        not_listed = len(notices) - _MAX_LISTED
        messages = [
            *notices[:_MAX_LISTED],
            *([f"and {not_listed:,} more like these"] if not_listed > 0 else ()),
        ]
        texts = tuple(f"{self.name}: {visible(notice)}" for notice in messages)
        for notice in texts:
            if notice not in self._notices:
                _log.warning("%s", notice, extra={"in_events": True})
        self._notices = texts

    def _log_left_out(self, server: _Server, *kinds: str) -> None:
        for item in [item for kind in kinds for item in server.sieve.taken_out(kind)][:_MAX_LISTED]:
            _log.warning(
                "%s: %r of its %s is left out: %s", self.name, item.name, item.kind, item.why
            )

    async def _call(self, server: _Server, tool: types.Tool, arguments: dict[str, Any]) -> Any:
        from delf_mcp.repair import note_losses
        from delf_mcp.results import files_of, result_of

        async with self._link(server, tool.name, calling=True) as (client, silence):
            server.asking.waiting(silence)
            result = await client.call_tool(tool.name, arguments, progress_callback=silence.alive)
        value = result_of(tool.name, result)
        note_losses(result.meta)
        context = server.asking.context
        if faults := await self._results.learn(tool, value):
            message = f"{self.name}.{tool.name} answered with {faults}, contrary to its schema"
            _log.warning("%s", message)
            if context is not None:
                context.say(f"{message}\n")
        if context is not None:
            for name, data in files_of(result.content):
                context.add_output_file(f"{self.name}-{context.call_id}-{name}", data)
        return value

    # -- the server ---------------------------------------------------------------------

    @asynccontextmanager
    async def _link(
        self, server: _Server, what: str, *, starting: bool = False, calling: bool = False
    ) -> AsyncGenerator[tuple[Client, SilenceTimeout]]:
        """Yield the server's client, and its timeout.

        Errors of the library become delf's errors. If the answer of a tool's call is lost or
        unreadable, its outcome is unknown.
        """
        import mcp_types as types
        from mcp import MCPError

        from delf_mcp.asking import SilenceTimeout
        from delf_mcp.limits import MAX_TEXT
        from delf_mcp.listing import ListError
        from delf_mcp.quiet import quietly

        settings, kind = self.settings, ToolExecutionError
        name, seconds = "timeout", settings.timeout
        if starting:
            kind, name, seconds = (
                ConnectionUnavailableError,
                "start_timeout",
                settings.start_timeout,
            )
        lost_kind = OutcomeUnknownError if calling else kind
        client = await server.link.client()
        try:
            with quietly():
                async with asyncio.timeout(seconds) as limit:
                    yield client, SilenceTimeout(limit, seconds)
        except MCPError as error:
            if error.code == types.CONNECTION_CLOSED:
                ending = server.link.ending
                ending.over()
                why = f" ({visible(ending.why)})" if ending.why else ""
                raise lost_kind(
                    f"{self.name}: the MCP server ended during {what}; whether it did it is not "
                    f"known{why}. The next call starts it again"
                ) from None
            message = visible(" ".join(error.message[:MAX_TEXT].split()))
            if calling and _is_of_the_client(error):
                raise lost_kind(
                    f"{self.name}: {what}: {message}; whether it did it is not known",
                    hint=_CHECK_FIRST,
                ) from None
            raise kind(f"{self.name}: {what}: {message}") from None
        except TimeoutError:
            raise lost_kind(
                f"{self.name}: {what} did not end within {seconds:g} s",
                hint=f"{name} in the connection's settings",
            ) from None
        except ListError as error:
            raise kind(f"{self.name}: {what} cannot be used: {error}", hint=error.hint) from None
        except ValidationError as error:
            raise lost_kind(
                f"{self.name}: {what}: the server's answer is not of the protocol: "
                f"{error.error_count()} faults"
            ) from None

    def _server(self) -> _Server:
        loop = asyncio.get_running_loop()
        server = self._servers.get(loop)
        if server is None:
            server = self._servers[loop] = _Server(self.name, self.settings, self)
        return server

    async def show(self, url: str) -> None:
        """Show a login URL to the user."""
        from delf_mcp.oauth import open_browser

        await (self._open_url or open_browser)(url)

    def _resolve_settings(self) -> MCPSettings:
        """Return the settings, merged with a file's settings of the server."""
        settings = self.settings
        if settings.config is not None:
            server = settings.server or self.name
            source = settings.source("config")
            from_file = server_settings(Path(settings.config), server, current_environ(), source)
            from_options = {
                key: value
                for key, value in settings.model_dump(exclude_unset=True).items()
                if settings.source(key) != "environment"  # for_instance reads it again
            }
            settings = MCPSettings.for_instance(
                self.name, {**from_options, **from_file, "config": None}
            )
        if (settings.command is None) == (settings.url is None):
            raise ConnectionConfigurationError(
                f"connection {self.name!r} needs either command or url",
                hint='command = "npx", args = ["-y", "…"]; or url = "https://host/mcp"; or config',
            )
        return settings


class _Server:
    """The state of a server within one event loop."""

    def __init__(self, name: str, settings: MCPSettings, connection: MCP) -> None:
        from delf_mcp.asking import Asking
        from delf_mcp.link import Link
        from delf_mcp.listing import Sieve
        from delf_mcp.target import Target

        self.stale = False
        self.asking: Asking = Asking(name, settings.sampling, settings.roots)
        self.sieve: Sieve = Sieve(settings.max_tools)
        target = Target(
            name,
            settings,
            self.asking.callbacks,
            connection.keep_secret,
            connection.show,
            self._mark_stale,
            self.sieve,
        )
        self.link: Link = Link(name, target.open, settings.start_timeout)

    def _mark_stale(self) -> None:
        self.stale = True


def _is_of_the_client(error: MCPError) -> bool:
    """Return True if an error comes from the client library, which could not read a response."""
    message = error.message
    return error.code == _PARSE_ERROR or message.startswith(_WORDS_OF_A_GATEWAY)


def _resource(uri: str, item: Any) -> Resource:
    return Resource(
        uri=uri,
        name=item.name,
        description=item.description or "",
        media_type=item.mime_type,
    )
