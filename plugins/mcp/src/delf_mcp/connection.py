"""``MCP``: the tools and resources of one MCP server as actions."""

from __future__ import annotations

import asyncio
import functools
import logging
import time
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Final,
    Literal,
    NamedTuple,
    TypeAlias,
    TypedDict,
    TypeVar,
)
from weakref import WeakKeyDictionary

from pydantic import ValidationError

from delf import CallContext, Connection
from delf.environment import beside
from delf.errors import (
    ConnectionConfigurationError,
    ConnectionUnavailableError,
    DelfError,
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
from delf_mcp.known import known_tools_path
from delf_mcp.learning import Results
from delf_mcp.settings import MCPSettings
from delf_schemas.actions import action_from_schema
from delf_schemas.effects import Applied, DeclaredEffects, Match
from delf_schemas.names import action_name, unique

if TYPE_CHECKING:
    import mcp_types as types
    from mcp import Client, MCPError

    from delf_mcp.asking import IdleTimeout
    from delf_mcp.link import Link
    from delf_mcp.listing import ListError, Omitted, OmittedItem
    from delf_mcp.oauth import OpenURL
    from delf_mcp.sessions import Rejection

_log = logging.getLogger(__name__)

_Answer = TypeVar("_Answer")
_Ask: TypeAlias = "Callable[[Client, IdleTimeout], Awaitable[_Answer]]"
_RequestKind: TypeAlias = Literal["start", "call", "other"]
# The parameter of an action's function that gets the call's context.
CONTEXT: Final = "delf_call_context"
_READ: Final[Effect] = "read"
_SENDS_ARGUMENTS: Final[Mapping[str, Any]] = {"egress": True}
_IRREVERSIBLE: Final[Effect] = "irreversible"
_CHECK_FIRST: Final = "check before you repeat it"
_PARSE_ERROR: Final = -32700
# Messages of the client library about a response that came from a gateway, not from the server.
_GATEWAY_MESSAGES: Final = (
    "Server returned an error response",
    "Session terminated",  # for any response with the status 404 that has no JSON-RPC error
    "Unexpected content type",
)
# The errors for requests without a readable response: a called tool may have changed something.
_LOST_RESPONSE_ERRORS: Final[Mapping[_RequestKind, type[DelfError]]] = {
    "start": ConnectionUnavailableError,
    "call": OutcomeUnknownError,
    "other": ToolExecutionError,
}
_MAX_NOTICES: Final = 10
_MAX_INSTRUCTIONS_CHARACTERS: Final = 1000
UNDECLARED: Final = "str | list"
"""The result type of a tool without a result schema, until a first result shows the real type."""
_LIST_RESULT_NOTE: Final = (
    "a result that is a list has pieces: str, {type, media_type, data: bytes} for pictures and "
    "sounds, {type, uri, media_type, content} for resources; texts may be JSON"
)
_MORE_TOOLS: Final = "max_tools in the connection's settings allows more"


class Resource(TypedDict):
    """A resource of a server, such as a file, that scripts can read."""

    uri: str
    name: str
    description: str
    media_type: str | None


class _Inspect:
    """A descriptor for ``inspect`` that needs no connection to the server.

    On the class, ``inspect`` describes no actions. On an instance, it describes the actions that
    the server listed last.
    """

    def __get__(self, instance: MCP | None, owner: type[MCP]) -> Callable[..., dict[str, Any]]:
        """Return the function ``inspect`` for ``connection.inspect``, or for ``MCP.inspect``.

        Args:
            instance: The connection; None for the class.
            owner: The class.
        """

        def inspect(*, verbose: bool = False) -> dict[str, Any]:
            """Return the connection's actions as data, with notices about omitted tools."""
            if instance is None:  # the class has no server that could list tools
                return describe_actions(owner.type_name(), owner.summary, (), verbose=verbose)
            actions = instance.listed_actions
            description = describe_actions(
                instance.name, instance.summary, actions, verbose=verbose
            )
            return {**description, "notices": list(instance.notices())}

        return inspect


class MCP(Connection[MCPSettings]):
    """The tools of an MCP server.

    Args:
        command: The program of a local server. The options ``args``, ``env`` and ``cwd`` may be
            added.
        url: The address of a remote server. The options ``headers`` or ``oauth`` may be added.
        config: The path of an ``mcp.json``. The option ``server`` selects one of its servers.
        open_url: An async function that shows a login URL to the user; the browser is opened when
            omitted.
    """

    inspect: ClassVar[Any] = _Inspect()

    description_trust: ClassVar[Trust] = "outside"

    def __init__(self, *, open_url: OpenURL | None = None, **options: Any) -> None:
        super().__init__(**options)
        self._open_url = open_url
        self.settings = self._resolve_settings()
        self.listed_actions: tuple[Action, ...] = ()
        """The actions that :meth:`actions` returned last."""
        self.claimed_effects: dict[str, Effect] = {}
        """The effects that the server claims for its tools; only the user's setting counts."""
        self._notices: tuple[str, ...] = ()
        self._declared_effects = DeclaredEffects(
            self.settings.effects, known_tools_path(self.name, self.settings)
        )
        self._read_tools: frozenset[str | None] = frozenset()
        """The digests of the listed tools that the user has declared as ``read``."""
        self._servers: WeakKeyDictionary[asyncio.AbstractEventLoop, _Server] = WeakKeyDictionary()
        self._results = Results(self.name, self.settings)

    @classmethod
    def from_file(cls, path: str | Path, **options: Any) -> list[MCP]:
        """Return a connection for each server of an ``mcp.json``.

        Args:
            path: The path of the file.
            options: Further options of each connection.
        """
        return [
            cls(name=name.replace("-", "_"), config=str(path), server=name, **options)
            for name in servers_in(Path(beside(Path(), str(path))))
        ]

    async def actions(self) -> Sequence[Action]:
        """Return an action for each tool of the server, and actions for the server's resources.

        Unusable tools are omitted; :meth:`notices` has the reasons.

        Raises:
            ConnectionUnavailableError: If the server does not start, or its tool list is too large
                or does not arrive within ``start_timeout``.
        """
        from delf_mcp.listing import claimed_effect_of

        server = self._server()
        deadline = time.monotonic() + self.settings.start_timeout

        async def read_tools(
            client: Client, _: IdleTimeout
        ) -> tuple[types.ServerCapabilities, list[types.Tool], _MadeActions]:
            capabilities = client.server_capabilities
            tools = await self._list_tools(client, server)
            made = await asyncio.to_thread(self._make_actions, server, tools, deadline)
            return capabilities, tools, made

        # The timeout and the errors are those of the server's start.
        capabilities, tools, made = await self._ask_with_retry(
            server, "its list of tools", read_tools, kind="start"
        )
        actions = made.actions
        if capabilities.resources is not None:
            self._add_resource_actions(actions)
        # The item filter left out tools that the client library would refuse.
        omitted_tools = [*server.omitted.pop("tools", ()), *made.unusable_tools]
        self._report_notices(omitted_tools, made.applied_effects, tools, actions)
        self.claimed_effects = {tool.name: claimed_effect_of(tool) for tool in tools}
        self.listed_actions = tuple(actions.values())
        return self.listed_actions

    def notices(self) -> Sequence[str]:
        """Return notices about omitted and changed tools, and about the setting ``effects``."""
        return self._notices

    def is_stale(self) -> bool:
        """Return True if the tools must be listed again.

        The list is stale after the server has announced changed tools, or was restarted.
        """
        return self._server().is_tool_list_stale

    async def context(self, task: str) -> str | None:
        """Return the server's instructions, with a remark if a tool declares no result type.

        None if there are no instructions, and no remark is needed.
        """
        async with self._request(self._server(), "instructions") as (client, _):
            instructions = client.instructions
        text = clean(instructions, _MAX_INSTRUCTIONS_CHARACTERS)
        if any(action.returns == UNDECLARED for action in self.listed_actions):
            text = f"{text}\n{_LIST_RESULT_NOTE}" if text else _LIST_RESULT_NOTE
        return f"{self.name}: {text}" if text else None

    async def aclose(self) -> None:
        """Stop or disconnect the server; the next call starts the server again."""
        server = self._servers.pop(asyncio.get_running_loop(), None)
        if server is not None:
            await server.link.aclose()
        await self._results.aclose()

    # -- resources ----------------------------------------------------------------------

    async def list_resources(self) -> list[Resource]:
        """List the resources that the server offers; a uri with {…} is a pattern."""
        from delf_mcp.limits import MAX_ITEMS
        from delf_mcp.listing import whole_list

        async def read_lists(
            client: Client, _: IdleTimeout
        ) -> tuple[list[types.Resource], list[types.ResourceTemplate]]:
            resources = await whole_list(client.list_resources, "resources", MAX_ITEMS)
            list_templates = client.list_resource_templates
            return resources, await whole_list(list_templates, "resource_templates", MAX_ITEMS)

        server = self._server()
        resources, templates = await self._ask_with_retry(
            server, "its list of resources", read_lists
        )
        self._log_omitted(server, "resources", "resourceTemplates")
        return [
            *(_resource(str(item.uri), item) for item in resources),
            *(_resource(item.uri_template, item) for item in templates),
        ]

    async def read_resource(self, uri: str) -> Any:
        """Return a resource's text, or bytes.

        Args:
            uri: From list_resources.
        """
        from delf_mcp.results import resource_of

        async def read(client: Client, _: IdleTimeout) -> types.ReadResourceResult:
            return await client.read_resource(uri)

        result = await self._ask_with_retry(self._server(), f"resource {uri}", read)
        return resource_of(result.contents)

    def _add_resource_actions(self, actions: dict[str, Action]) -> None:
        for function in (self.list_resources, self.read_resource):
            action = action_from_function(
                function, effect=_READ, place=f"{self.name}.resources", flow=_SENDS_ARGUMENTS
            )
            actions.setdefault(action.name, action)  # a tool with this name takes precedence

    # -- tools --------------------------------------------------------------------------

    async def _list_tools(self, client: Client, server: _Server) -> list[types.Tool]:
        """Return the server's tools; forget the omitted tools of an earlier list."""
        from delf_mcp.listing import whole_list

        # Clear the flag before the listing: if tools change meanwhile, the list is stale again.
        server.is_tool_list_stale = False
        server.omitted.pop("tools", None)  # of an earlier listing
        if client.server_capabilities.tools is None:
            return []
        max_tools = self.settings.max_tools
        return await whole_list(
            client.list_tools, "tools", max_tools, _MORE_TOOLS, cache_mode="refresh"
        )

    def _make_actions(
        self, server: _Server, tools: Sequence[types.Tool], deadline: float
    ) -> _MadeActions:
        """Make an action for each usable tool, and collect the unusable tools.

        At the end, the setting ``effects`` is applied to the actions.

        Raises:
            TimeoutError: If the deadline passes.
        """
        from delf_mcp.listing import OmittedItem, digest_of, displayable, reason

        actions: dict[str, Action] = {}
        tool_name_by_action: dict[str, str] = {}
        unusable: list[OmittedItem] = []
        seen_names: set[str] = set()
        for tool in tools:
            # The timeout of the request cannot stop this function, which runs in a thread.
            if time.monotonic() > deadline:
                raise TimeoutError
            if tool.name in seen_names:
                why = "another tool has this name"
                unusable.append(OmittedItem("tools", displayable(tool.name), why))
                continue
            seen_names.add(tool.name)
            try:
                action = self._make_action(server, tool)
            except ToolDefinitionError as error:
                unusable.append(OmittedItem("tools", displayable(tool.name), reason(error)))
                continue
            name = unique(action.name, actions)
            tool_name_by_action[name] = tool.name
            # With the digest as version, a changed tool needs new approvals.
            actions[name] = replace(action, name=name, permission=name, version=digest_of(tool))
        selectors = self._effect_selectors(tool_name_by_action, seen_names)
        return _MadeActions(actions, unusable, self._apply_effects(actions, selectors))

    def _apply_effects(
        self, actions: dict[str, Action], selectors: Mapping[str, list[str]]
    ) -> Applied:
        """Set the effect of each action, and remember the tools that only read.

        Without a selector, an action counts as irreversible.

        Args:
            actions: The actions by name; updated.
            selectors: The selectors of actions, from :meth:`_effect_selectors`.
        """
        applied = self._declared_effects.apply(
            {name: Match(selectors[name], actions[name].version) for name in selectors}
        )
        for name, action in actions.items():
            effect = applied.effects.get(name, _IRREVERSIBLE)
            # A tool that only reads, such as ``search``, still sends its arguments to the server.
            only_reads = effect == _READ
            actions[name] = replace(action, effect=effect, egress=only_reads)
        # The version of an action is the digest of its tool.
        self._read_tools = frozenset(
            action.version for action in actions.values() if action.effect == _READ
        )
        return applied

    def _effect_selectors(
        self, tool_name_by_action: Mapping[str, str], tool_names: Collection[str]
    ) -> dict[str, list[str]]:
        """Return the keys of the setting ``effects`` that decide the effect of each action.

        The setting may name the tool ``get-user`` as the server does, or as scripts do,
        ``get_user``. A name for scripts is ignored if it can mean another tool, too.

        Args:
            tool_name_by_action: The server's name for the tool of each action.
            tool_names: The names of all tools at the server.

        Returns:
            A mapping from action name to selectors, without actions that no selector matches.
        """
        from delf_mcp.listing import deciding_selectors

        # Each tool counts for its name at the server and for its name in scripts; once if both
        # are the same.
        tool_count_by_name = Counter(
            name for tool_name in tool_names for name in {tool_name, action_name(tool_name)}
        )
        selectors_by_action: dict[str, list[str]] = {}
        for action, tool_name in tool_name_by_action.items():
            script_name = action_name(tool_name)
            # For example, ``get-user`` and ``get.user`` share the name ``get_user``.
            is_ambiguous = tool_count_by_name[script_name] > 1
            names = {tool_name} if is_ambiguous else {tool_name, script_name}
            if selectors := deciding_selectors(names, self.settings.effects):
                selectors_by_action[action] = selectors
        return selectors_by_action

    def accept_tools(self) -> None:
        """Accept the tools as last listed, so that the setting ``effects`` applies to them.

        The accepted digests are stored for later processes.
        """
        self._declared_effects.accept()

    def _make_action(self, server: _Server, tool: types.Tool) -> Action:
        """Make the action that calls a tool.

        While a task's call runs, the server may ask questions, which the call's context answers.
        """

        async def send(arguments: dict[str, Any]) -> Any:
            return await self._call(server, tool, arguments)

        action = action_from_schema(
            tool.name,
            send,
            tool.input_schema,
            description=tool.description or tool.title or "",
            result=tool.output_schema,
            observed_types=functools.partial(self._results.observed_types, tool),
            unknown_result_type=UNDECLARED,
        )
        call_without_context = action.call

        async def call_with_context(**arguments: Any) -> Any:
            context: CallContext | None = arguments.pop(CONTEXT, None)
            if context is None:
                return await call_without_context(**arguments)
            with server.questions.answered_by(context):
                return await call_without_context(**arguments)

        return replace(action, call=call_with_context, context=CONTEXT)

    def _report_notices(
        self,
        omitted: Sequence[OmittedItem],
        applied: Applied,
        tools: Sequence[types.Tool],
        actions: Mapping[str, Action],
    ) -> None:
        """Set the notices about the listed tools, and log the notices that are new.

        Args:
            omitted: The omitted tools.
            applied: The effects that the setting ``effects`` gave to tools.
            tools: All tools of the server.
            actions: A mapping from action name to action.
        """
        notices = [f"the tool {item.name!r} is left out: {item.why}" for item in omitted]
        names = {tool.name for tool in tools} | set(actions)
        for pattern in self.settings.effects:
            if not any(fnmatchcase(name, pattern) for name in names):
                suggestion = did_you_mean(pattern, names)
                notices.append(f"effects names {pattern!r}, which matches no tool{suggestion}")
        notices += self._notices_about_unknown_tools(applied)
        hidden_count = len(notices) - _MAX_NOTICES
        if hidden_count > 0:
            notices[_MAX_NOTICES:] = [f"and {hidden_count:,} more like these"]
        texts = tuple(f"{self.name}: {visible(notice)}" for notice in notices)
        for notice in texts:
            if notice not in self._notices:
                _log.warning("%s", notice, extra={"in_events": True})
        self._notices = texts

    def _notices_about_unknown_tools(self, applied: Applied) -> list[str]:
        """Return notices about new and changed tools, which are irreversible until accepted."""
        command = f"delf mcp effects {self.name} --accept"
        if applied.record_problem is None:
            return [
                f"the server has added or changed the tool {clean(name)!r}, so it counts as "
                f"irreversible; {command} accepts it as it is now"
                for name in applied.unknown
            ]
        if not applied.unknown:
            return []
        notice = (
            f"{applied.record_problem}, so the tools in the setting effects count as "
            f"irreversible; {command} accepts them as they are now"
        )
        return [notice]

    def _log_omitted(self, server: _Server, *kinds: str) -> None:
        """Log the items that were left out of the last lists, such as ``resources``."""
        omitted = [item for kind in kinds for item in server.omitted.pop(kind, ())]
        for item in omitted[:_MAX_NOTICES]:
            _log.warning(
                "%s: %r of its %s is left out: %s", self.name, item.name, item.kind, item.why
            )

    async def _call(self, server: _Server, tool: types.Tool, arguments: dict[str, Any]) -> Any:
        """Call a tool and return its result. Files in the result become files of the task."""
        from delf_mcp.listing import digest_of
        from delf_mcp.repair import note_losses
        from delf_mcp.results import UnreadableContentError, files_of, result_of

        async def call(client: Client, idle_timeout: IdleTimeout) -> types.CallToolResult:
            # The timeout restarts at each sign of progress, and is paused during questions.
            server.questions.set_timeout(idle_timeout)
            return await client.call_tool(
                tool.name, arguments, progress_callback=idle_timeout.restart_on_progress
            )

        may_change = digest_of(tool) not in self._read_tools
        result = await self._ask_with_retry(
            server, tool.name, call, kind="call", may_change_something=may_change
        )
        try:
            value = result_of(tool.name, result)
            files = list(files_of(result.content))
        except UnreadableContentError as error:
            raise OutcomeUnknownError(
                f"{self.name}: {tool.name}: {error.message}; the outcome is not known",
                hint=_CHECK_FIRST,
            ) from None
        note_losses(result.meta)  # values that could not be read from the server's JSON
        context = server.questions.context  # None if the call is not made by a task
        await self._report_wrong_types(tool, value, context)
        if context is not None:
            for name, data in files:
                context.add_output_file(f"{self.name}-{context.call_id}-{name}", data)
        return value

    async def _report_wrong_types(
        self, tool: types.Tool, value: Any, context: CallContext | None
    ) -> None:
        """Report the types in a result that contradict the tool's schema.

        The report is written to the log and to the script's output.
        """
        wrong_types = await self._results.record_types(tool, value)
        if not wrong_types:
            return
        message = f"{self.name}.{tool.name} answered with {wrong_types}, contrary to its schema"
        _log.warning("%s", message)
        if context is not None:
            context.say(f"{message}\n")

    # -- the server ---------------------------------------------------------------------

    async def _ask_with_retry(
        self,
        server: _Server,
        what: str,
        ask: _Ask[_Answer],
        kind: _RequestKind = "other",
        *,
        may_change_something: bool = False,
    ) -> _Answer:
        """Ask the server; if the server does not know the session, ask again in a new session.

        A request that may change something is sent again only if the server has certainly not
        executed it. This method raises the errors of :meth:`_request`.

        Args:
            server: The server.
            what: The purpose of the request, for messages.
            ask: Sends the request with the server's client, and returns the server's answer.
            kind: As for :meth:`_request`.
            may_change_something: Whether the request may change something.

        Raises:
            OutcomeUnknownError: If the server may have executed a request that may change
                something.
        """

        async def ask_once() -> _Answer:
            async with self._request(server, what, kind) as request:
                return await ask(*request)

        def unknown_outcome(rejection: _LostSessionError) -> OutcomeUnknownError:
            message = f"{self.name}: {what}: {rejection.server_message}; the outcome is not known"
            return OutcomeUnknownError(message, hint=_CHECK_FIRST)

        try:
            return await ask_once()
        except _LostSessionError as rejection:
            if may_change_something and not rejection.is_certain:
                raise unknown_outcome(rejection) from None
        try:
            return await ask_once()
        except _LostSessionError as rejection:
            if may_change_something:
                # The server rejects even a new session, so it may be wrong when it says that it has
                # certainly not executed the request.
                raise unknown_outcome(rejection) from None
            raise

    @asynccontextmanager
    async def _request(
        self, server: _Server, what: str, kind: _RequestKind = "other"
    ) -> AsyncGenerator[tuple[Client, IdleTimeout]]:
        """Yield the server's client, and the timeout of the requests in the block.

        Args:
            server: The server.
            what: The purpose of the block, for messages.
            kind: The kind of request, which decides the timeout and the errors.

        Raises:
            ConnectionUnavailableError: If the start fails.
            _LostSessionError: If the server rejects the session.
            OutcomeUnknownError: If the response to a tool's call is lost or unreadable.
            ToolExecutionError: If anything else fails.
        """
        import mcp_types as types
        from mcp import MCPError

        from delf_mcp.asking import IdleTimeout
        from delf_mcp.listing import ListError
        from delf_mcp.quiet import quietly
        from delf_mcp.sessions import rejection_in

        seconds = self.settings.start_timeout if kind == "start" else self.settings.timeout
        run = await server.link.run()
        try:
            # run.request() keeps the client open, even if another task ends the session meanwhile.
            with quietly(), run.request():
                async with asyncio.timeout(seconds) as limit:
                    yield run.client, IdleTimeout(limit, seconds)
        except MCPError as error:
            if rejection := rejection_in(error):
                server.link.end_session(run)
                raise self._lost_session_error(what, error, rejection) from None
            if error.code == types.CONNECTION_CLOSED:
                # Report the exit now. The task that reads the server's messages may notice the exit
                # only later, and until then the next call would go to the ended server.
                run.report_exit()
                raise self._lost_connection_error(what, kind, run.exit_cause) from None
            raise self._converted_error(error, what, kind) from None
        except (TimeoutError, ListError, ValidationError) as error:
            raise self._converted_error(error, what, kind) from None

    def _lost_session_error(
        self, what: str, error: MCPError, rejection: Rejection
    ) -> _LostSessionError:
        return _LostSessionError(
            f"{self.name}: {what} was not done, because the MCP server has ended the session; the "
            "next call begins a new session",
            server_message=_message_of(error),
            is_certain=rejection == "certain",
        )

    def _lost_connection_error(self, what: str, kind: _RequestKind, cause: str) -> DelfError:
        why = f" ({visible(cause)})" if cause else ""
        return _LOST_RESPONSE_ERRORS[kind](
            f"{self.name}: the MCP server ended during {what}; the outcome is not known{why}. The "
            "next call starts it again"
        )

    def _converted_error(
        self,
        error: MCPError | TimeoutError | ListError | ValidationError,
        what: str,
        kind: _RequestKind,
    ) -> DelfError:
        """Convert an exception of the client or this plugin to the error for a failed request."""
        from delf_mcp.listing import ListError

        error_type = ConnectionUnavailableError if kind == "start" else ToolExecutionError
        # Without a response, nobody knows whether the server has made the call.
        lost_response_type = _LOST_RESPONSE_ERRORS[kind]
        subject = f"{self.name}: {what}"
        if isinstance(error, TimeoutError):
            setting = "start_timeout" if kind == "start" else "timeout"
            return lost_response_type(
                f"{subject} did not end within {getattr(self.settings, setting):g} s",
                hint=f"{setting} in the connection's settings",
            )
        if isinstance(error, ListError):
            return error_type(f"{subject} cannot be used: {error}", hint=error.hint)
        if isinstance(error, ValidationError):  # the outcome is as unknown as without an answer
            faults = f"{error.error_count()} faults"
            return lost_response_type(
                f"{subject}: the server's answer is not of the protocol: {faults}"
            )
        message = f"{subject}: {_message_of(error)}"
        if kind == "call" and _is_unreadable_response(error):
            return OutcomeUnknownError(f"{message}; the outcome is not known", hint=_CHECK_FIRST)
        return error_type(message)

    def _server(self) -> _Server:
        """Return the server of the running event loop; each loop has a server of its own."""
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
        """Return the settings, merged with those in the file that ``config`` names.

        Raises:
            ConnectionConfigurationError: If the settings have no server, or two.
        """
        config = self.settings.config
        settings = self.settings if config is None else self._merged_settings(config)
        if (settings.command is None) == (settings.url is None):  # neither or both
            raise ConnectionConfigurationError(
                f"connection {self.name!r} needs either command or url",
                hint='command = "npx", args = ["-y", "…"]; or url = "https://host/mcp"; or config',
            )
        return settings

    def _merged_settings(self, config: str) -> MCPSettings:
        """Return the settings merged with those in an ``mcp.json``, which take precedence."""
        settings = self.settings
        server = settings.server or self.name
        path = Path(beside(Path(), config))
        from_file = server_settings(path, server, current_environ(), settings.source("config"))
        given = settings.model_dump(exclude_unset=True)
        # Leave out values from the environment, which for_instance() reads itself: if passed, they
        # would count as set in code.
        not_from_environment = {
            key: value for key, value in given.items() if settings.source(key) != "environment"
        }
        return MCPSettings.for_instance(
            self.name, {**not_from_environment, **from_file, "config": None}
        )


class _MadeActions(NamedTuple):
    """The actions made for a server's tools, and facts about these tools for notices."""

    actions: dict[str, Action]
    unusable_tools: list[OmittedItem]
    applied_effects: Applied


class _LostSessionError(ConnectionUnavailableError):
    """A server has rejected the session of a request.

    Args:
        message: As for the base class.
        server_message: The server's own message.
        is_certain: Whether the server has certainly not executed the request.
    """

    def __init__(self, message: str, *, server_message: str, is_certain: bool) -> None:
        super().__init__(message)
        self.server_message = server_message
        self.is_certain = is_certain


class _Server:
    """The connection to a server within one event loop."""

    def __init__(self, name: str, settings: MCPSettings, connection: MCP) -> None:
        from delf_mcp.asking import ServerQuestions
        from delf_mcp.link import Link
        from delf_mcp.target import Target

        self.is_tool_list_stale = False
        """True if the server has announced that its tools changed."""
        self.questions = ServerQuestions(name, settings.sampling, settings.roots)
        self.omitted: Omitted = defaultdict(list)
        target = Target(
            name,
            settings,
            self.questions.callbacks,
            connection.keep_secret,
            connection.show,
            self._mark_tool_list_stale,
            self.omitted,
        )
        self.link: Link = Link(name, target.open, settings.start_timeout)

    def _mark_tool_list_stale(self) -> None:
        self.is_tool_list_stale = True


def _message_of(error: MCPError) -> str:
    """Return the message of a server's error in one line, shortened and without control codes."""
    from delf_mcp.limits import MAX_ERROR_CHARACTERS

    return visible(" ".join(error.message[:MAX_ERROR_CHARACTERS].split()))


def _is_unreadable_response(error: MCPError) -> bool:
    """Return True if the client library raised an error because it could not read a response."""
    return error.code == _PARSE_ERROR or error.message.startswith(_GATEWAY_MESSAGES)


def _resource(uri: str, item: Any) -> Resource:
    return Resource(
        uri=uri,
        name=item.name,
        description=item.description or "",
        media_type=item.mime_type,
    )
