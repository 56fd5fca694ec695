"""The actions of an agent's connections, by the names that scripts use."""

from __future__ import annotations

import builtins
import functools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from delf.errors import ConfigurationError, ToolDefinitionError, ToolRefusedError, did_you_mean
from delf.events import ANSWER, ASK
from delf.plugins.factories import check_protocol
from delf.protocols.connection import (
    ConnectionLike,
    SupportsCheck,
    SupportsContext,
    SupportsResultTrust,
)
from delf.protocols.prefilter import Catalog, CatalogEntry
from delf.protocols.sandbox import ToolNames
from delf.protocols.strategy import TOOLS_BUDGET, ToolChoice, ToolDescription
from delf.tools.action import Action
from delf.tools.permissions import (
    check_groups,
    check_permission_names,
    is_allowed,
    needs_confirmation,
)
from delf.tools.stubs import whole_size
from delf.tools.type_texts import values_in
from delf_engine.bound_action import BoundAction
from delf_engine.bounded import START_SECONDS, within

RESERVED: Final = frozenset(
    {"rerun", "add_to_output_files", "asyncio", "files", "llm", "ToolError", "ToolException"}
    | {"ToolArgumentError", "ToolNotAllowed", "ApprovalRejected", "main", "find_tools", ANSWER, ASK}
)


# Errors truncate an unknown name to this number of characters, because a script chose the name.
_MAX_NAME_LENGTH = 100


class _CustomTools:
    """The allowed actions of the agent's own tools, without delf's built-in actions.

    The catalog and the size are slow to compute for many tools. So the copies of a toolset, which
    differ in built-in and shown actions only, share one object of this class.

    Args:
        actions: The actions.
    """

    def __init__(self, actions: Iterable[BoundAction]) -> None:
        self._actions = tuple(actions)
        self._fits_by_max_size: dict[int, bool] = {}

    def __len__(self) -> int:
        return len(self._actions)

    @functools.cached_property
    def catalog(self) -> Catalog:
        """An entry for each action, for prefilters."""
        return Catalog(_catalog_entry(each.name, each.action) for each in self._actions)

    def fit(self, max_size: int) -> bool:
        """Return whether ``max_size`` characters are enough to describe all actions completely."""
        if max_size not in self._fits_by_max_size:
            descriptions = [each.describe() for each in self._actions]
            self._fits_by_max_size[max_size] = whole_size(descriptions, max_size) <= max_size
        return self._fits_by_max_size[max_size]


class Toolset:
    """The callable actions of an agent or task, and the actions that the model is shown.

    An allowed action that is not shown can still be called and found. ``ask`` is shown only in
    tasks whose questions somebody can answer. Forbidden actions are stored so that their calls are
    refused with a clear message.

    Args:
        allowed_actions: Allowed actions by connection and method (``""`` for a function).
        forbidden_names: The names of actions that exist but are not allowed.
        shown_names: The names of the shown actions, besides built-in ones; None for all.
        shows_questions: Whether ``ask`` is shown.
        custom_tools: The actions in ``allowed_actions`` that are not built in, if another set has
            collected them.
    """

    def __init__(
        self,
        allowed_actions: Mapping[tuple[str, str], BoundAction],
        forbidden_names: frozenset[str],
        shown_names: frozenset[str] | None = None,
        *,
        shows_questions: bool = False,
        custom_tools: _CustomTools | None = None,
    ) -> None:
        self._allowed = dict(allowed_actions)
        self._forbidden_names = forbidden_names
        self._shown = shown_names
        self._shows_questions = shows_questions
        if custom_tools is None:
            actions = self._allowed.values()
            custom_tools = _CustomTools(each for each in actions if not each.built_in)
        self._custom_tools = custom_tools

    def __len__(self) -> int:
        return len(self._allowed)

    def __iter__(self) -> Iterator[BoundAction]:
        return iter(self._allowed.values())

    @property
    def actions(self) -> tuple[BoundAction, ...]:
        """All allowed actions in the order of the agent's tools."""
        return tuple(self._allowed.values())

    @property
    def custom_count(self) -> int:
        """The number of allowed actions of the agent's own tools, without built-in actions."""
        return len(self._custom_tools)

    @property
    def known_names(self) -> Collection[str]:
        """The names of all actions, including those that are not allowed."""
        return {bound_action.name for bound_action in self.actions} | self._forbidden_names

    @property
    def shown(self) -> tuple[BoundAction, ...]:
        """The actions that are shown to the model, in the order of :attr:`actions`."""
        return tuple(filter(self._is_shown, self.actions))

    @property
    def is_chosen(self) -> bool:
        """True if the model is shown only a selection of the tools."""
        return self._shown is not None

    def choice(self, budget: int = TOOLS_BUDGET) -> ToolChoice:
        """Return the tools that the model is shown, and the omitted ones.

        Args:
            budget: The maximum number of characters of tool descriptions in the prompt.
        """
        shown_tools = [bound_action.describe() for bound_action in self.shown]
        shown_custom_count = sum(not tool.built_in for tool in shown_tools)
        return ToolChoice(
            shown=shown_tools,
            # Built-in actions are always shown.
            left_out=self.custom_count - shown_custom_count,
            catalog=self.catalog(),
            describe=self._describe,
            budget=budget,
        )

    def fits(self, budget: int) -> bool:
        """Return whether the complete descriptions of all tools fit a budget.

        Args:
            budget: The maximum number of characters.
        """
        return self._custom_tools.fit(budget)

    def _describe(self, name: str) -> ToolDescription:
        connection, _, method = name.partition(".")
        return self._allowed[connection, method].describe()

    def _is_shown(self, bound_action: BoundAction) -> bool:
        """Return whether the model's prompt describes an action."""
        if bound_action.name == ASK:
            return self._shows_questions
        return self._shown is None or bound_action.built_in or bound_action.name in self._shown

    @property
    def connections(self) -> tuple[ConnectionLike, ...]:
        """The connections with at least one shown action."""
        connections = [bound_action.connection for bound_action in self.shown]
        return tuple({id(connection): connection for connection in connections}.values())

    @functools.cached_property
    def with_context(self) -> Mapping[str, SupportsContext]:
        """The connections that provide live facts for the prompt, by name."""
        return {each.name: each for each in self.connections if isinstance(each, SupportsContext)}

    def get(self, name: str) -> BoundAction | None:
        """Return an allowed action by the name that scripts use; None if there is none."""
        connection, _, method = name.partition(".")
        return self._allowed.get((connection, method))

    def find(self, connection: str, method: str) -> BoundAction:
        """Return the action that a call names.

        Args:
            connection: The name of the connection, or of a plain function.
            method: The name of the method; empty for a function.

        Raises:
            ToolRefusedError: If the action is unknown or not allowed.
        """
        bound_action = self._allowed.get((connection, method))
        if bound_action is not None:
            return bound_action
        name = _script_name(connection, method)
        if name in self._forbidden_names:
            raise ToolRefusedError(
                f"{name} is not allowed here",
                hint=f"the setting allow of {connection} names the allowed actions",
            )
        candidates = [each for each in self.actions if each.connection.name == connection]
        if not candidates:
            candidates = [each for each in self.actions if not each.built_in]
        action_names = [each.name for each in candidates]
        name_list = ", ".join(action_names[:40]) or "none"
        shown_name = name[:_MAX_NAME_LENGTH]
        suggestion = did_you_mean(shown_name, action_names)
        raise ToolRefusedError(
            f"there is no tool {shown_name!r}; available: {name_list}{suggestion}"
        )

    def catalog(self) -> Catalog:
        """Return a catalog entry for each allowed action except built-in ones, for prefilters."""
        return self._custom_tools.catalog

    def showing(self, names: frozenset[str]) -> Toolset:
        """Return a copy in which the model is shown only these actions and the built-in ones."""
        return self._copy(self._allowed, names)

    def showing_questions(self) -> Toolset:
        """Return a copy whose prompt includes the function ``ask``."""
        return self._copy(self._allowed, self._shown, shows_questions=True)

    def _copy(
        self,
        allowed_actions: Mapping[tuple[str, str], BoundAction],
        shown_names: frozenset[str] | None,
        *,
        shows_questions: bool = False,
    ) -> Toolset:
        """Return a copy of this set.

        Args:
            allowed_actions: The actions of this set, and possibly further built-in actions.
            shown_names: The names of the shown actions, besides built-in ones; None for all.
            shows_questions: Whether to show ``ask`` even if this set does not.
        """
        return Toolset(
            allowed_actions,
            self._forbidden_names,
            shown_names,
            shows_questions=shows_questions or self._shows_questions,
            custom_tools=self._custom_tools,
        )

    async def with_builtins(self, connections: Sequence[ConnectionLike]) -> Toolset:
        """Return a copy with further built-in connections, whose calls need no approval."""
        builtins_by_key: dict[tuple[str, str], BoundAction] = {}
        for connection in connections:
            for action in await connection.actions():
                method = _method_name(connection, action)
                builtins_by_key[connection.name, method] = BoundAction(
                    connection,
                    action,
                    _script_name(connection.name, method),
                    asks=False,
                    built_in=True,
                )
        return self._copy({**self._allowed, **builtins_by_key}, self._shown)

    def with_builtins_of(self, other: Toolset) -> Toolset:
        """Return a copy of this set that also has the built-in actions of the ``other`` set.

        The copy shows ``ask`` if one of the two sets does.
        """
        builtins_by_key = {
            key: bound_action
            for key, bound_action in other._allowed.items()
            if bound_action.built_in
        }
        allowed_actions = {**self._allowed, **builtins_by_key}
        return self._copy(allowed_actions, self._shown, shows_questions=other._shows_questions)

    async def with_reloaded(self, connection: ConnectionLike) -> Toolset:
        """Return a copy with the reloaded actions of one connection, in the same position.

        Raises:
            ToolDefinitionError: If a permission group has the name of an action, or the user has
                declared a parameter or an action that does not exist.
            ConnectionConfigurationError: If ``allow`` names an unknown action.
            AgentConfirmationError: If ``confirm`` names an unknown action.
        """
        new_actions, forbidden_names = await _allowed_and_forbidden(connection)
        # The new actions come where the first old action was.
        kept_before: dict[tuple[str, str], BoundAction] = {}
        kept_after: dict[tuple[str, str], BoundAction] = {}
        kept = kept_before
        for key, bound_action in self._allowed.items():
            if bound_action.connection is connection:
                kept = kept_after
            else:
                kept[key] = bound_action
        for name in self._forbidden_names:
            if name.partition(".")[0] != connection.name:
                forbidden_names.add(name)
        return Toolset(
            kept_before | new_actions | kept_after,
            frozenset(forbidden_names),
            self._shown,
            shows_questions=self._shows_questions,
        )

    def names_for_sandbox(self) -> tuple[ToolNames, ...]:
        """Return the names under which scripts find the tools."""
        methods: dict[str, list[str]] = {}
        changing: dict[str, list[str]] = {}
        for (connection, method), bound_action in self._allowed.items():
            method_names = methods.setdefault(connection, [])
            # A function that is given as a tool has the method "". ``methods`` leaves out this
            # method; ``changing`` has "" if the function has side effects.
            if method:
                method_names.append(method)
            if bound_action.action.effect != "read":
                changing.setdefault(connection, []).append(method)
        names: list[ToolNames] = []
        for connection, method_names in methods.items():
            changing_names = tuple(changing.get(connection, ()))
            names.append(
                ToolNames(name=connection, methods=tuple(method_names), changing=changing_names)
            )
        return tuple(names)


async def load_toolset(connections: Sequence[ConnectionLike]) -> Toolset:
    """Collect the actions of all connections.

    Raises:
        ToolDefinitionError: If two names are equal, a name is reserved, or a permission group has
            the name of an action.
        ConnectionConfigurationError: If ``allow`` names an unknown action.
        AgentConfirmationError: If ``confirm`` names an unknown action.
        ConfigurationError: If a connection has a plain method where an async method is required.
    """
    check_connection_names(connections)
    allowed_actions: dict[tuple[str, str], BoundAction] = {}
    all_forbidden_names: set[str] = set()
    for connection in connections:
        check_protocol("connection", connection, f"the connection {connection.name!r}")
        actions_of_connection, forbidden_names = await _allowed_and_forbidden(connection)
        allowed_actions |= actions_of_connection
        all_forbidden_names |= forbidden_names
    return Toolset(allowed_actions, frozenset(all_forbidden_names))


async def _allowed_and_forbidden(
    connection: ConnectionLike,
) -> tuple[dict[tuple[str, str], BoundAction], set[str]]:
    """Return the allowed actions of a connection, and the names of its forbidden actions."""
    bound_actions: dict[tuple[str, str], BoundAction] = {}
    forbidden_names: set[str] = set()
    owner = f"the connection {connection.name!r}"
    actions = await within(START_SECONDS, owner, "actions", connection.actions)
    check_permissions(connection, actions)
    _check_contents_names(connection, actions)
    check = connection.check if isinstance(connection, SupportsCheck) else None
    declared_actions = [_with_declarations_of_user(connection, each) for each in actions]
    if any(action.effect == "read" and action.trust == "own" for action in declared_actions):
        # A script may store a stranger's text as a note. When a later task reads the note, the text
        # is trusted as if the user had written it. So people review the note's text, and not only
        # its title.
        declared_actions = [*map(_with_all_parameters_reviewed, declared_actions)]
    for action in declared_actions:
        method = _method_name(connection, action)
        name = _script_name(connection.name, method)
        if not is_allowed(connection.allow, action):
            forbidden_names.add(name)
            continue
        asks = needs_confirmation(connection.confirm, action)
        bound_actions[connection.name, method] = BoundAction(
            connection, action, name, asks, check=check
        )
    return bound_actions, forbidden_names


def _check_contents_names(connection: ConnectionLike, actions: Sequence[Action]) -> None:
    """Raise ToolDefinitionError if ``contents`` names an action that does not exist."""
    action_names = [action.name for action in actions]
    for name in getattr(connection, "contents", {}):
        if name not in action_names:
            raise ToolDefinitionError(
                f"contents of {connection.name!r} names {name!r}, which is not one of its actions"
                f"{did_you_mean(name, action_names)}",
                hint=f"its actions: {', '.join(action_names)}",
            )


def _method_name(connection: ConnectionLike, action: Action) -> str:
    """Return the method in an action's name: ``read`` in ``files.read``; "" for a function."""
    return "" if connection.is_function else action.name


def _script_name(connection: str, method: str) -> str:
    return f"{connection}.{method}" if method else connection


def _with_all_parameters_reviewed(action: Action) -> Action:
    """Return an action with all its parameters reviewed by people, if it is a write.

    A read, and an action that itself declares which parameters to review, is returned unchanged.
    """
    declares_review = action.sinks is not None or action.contents is not None
    if action.effect == "read" or declares_review:
        return action
    # Contents, such as the body of a mail, are not reviewed: declare that no parameter is content.
    return replace(action, contents=())


def _with_declarations_of_user(connection: ConnectionLike, action: Action) -> Action:
    """Apply the user's declarations to an action.

    The user may declare the trust of the action's results, and which parameters hold content.
    """
    action = _with_contents_of_user(connection, action)
    trust = getattr(connection, "trust", None)
    # The user may declare a trust for each table. The connection itself then applies these
    # declarations to each result.
    tells_trust_itself = isinstance(connection, SupportsResultTrust) and not isinstance(trust, str)
    if trust is None or tells_trust_itself:
        return action
    return replace(action, trust=trust)


def _with_contents_of_user(connection: ConnectionLike, action: Action) -> Action:
    """Apply the user's declaration of parameters with content, such as the body of a mail.

    Contents need no review, because they do not decide the effect of a call.

    Raises:
        ToolDefinitionError: If the user declares a parameter that the action does not have.
    """
    content_parameters = getattr(connection, "contents", {}).get(action.name)
    if content_parameters is None:
        return action
    parameter_names = [parameter.name for parameter in action.parameters]
    for each in content_parameters:
        if each not in parameter_names:
            raise ToolDefinitionError(
                f"contents of {connection.name}.{action.name} names the parameter "
                f"{each!r}, which does not exist{did_you_mean(each, parameter_names)}"
            )
    # The user's declaration replaces the action's own list of reviewed parameters (sinks).
    return replace(action, contents=content_parameters, sinks=None)


def _catalog_entry(name: str, action: Action) -> CatalogEntry:
    """Describe an action for the search in the catalog of all tools."""
    values: list[str] = []
    for parameter in action.parameters:
        values += values_in(parameter.type_text)
    return CatalogEntry(
        name=name,
        summary=action.summary,
        tags=action.tags,
        parameters=tuple((each.name, each.doc or "") for each in action.parameters),
        values=tuple(values),
        reads=action.effect == "read",
        description=action.description,
    )


def check_connection_names(connections: Sequence[ConnectionLike]) -> None:
    """Check that the names of connections differ, and that no name is reserved or a builtin's.

    Raises:
        ToolDefinitionError: If names conflict; the message names the first conflict.
    """
    seen_names: set[str] = set()
    for connection in connections:
        name = connection.name
        if name in seen_names:
            raise ToolDefinitionError(
                f"two tools are named {name!r}", hint="give one of them another name=…"
            )
        if name in RESERVED or hasattr(builtins, name):
            raise ToolDefinitionError(
                f"a tool cannot be named {name!r}: scripts need that name",
                hint="give it another name: [connections.NAME] in delf.toml, name=… in a program",
            )
        seen_names.add(name)


def check_variable_names(variables: Iterable[str], tools: Toolset) -> None:
    """Check that the variables of a task hide no tool, and nothing else that scripts need.

    Raises:
        ConfigurationError: If a variable hides a needed name; the message names the variable.
    """
    tool_names = {name.partition(".")[0] for name in tools.known_names}
    for name in variables:
        if name in RESERVED or name in tool_names:
            raise ConfigurationError(
                f"a variable cannot be named {name!r}: scripts need that name",
                hint="give it another name in variables={…}",
            )


def check_permissions(connection: ConnectionLike, actions: Sequence[Action]) -> None:
    """Check the permission groups of a connection, and the names in ``allow`` and ``confirm``.

    Args:
        connection: The connection.
        actions: All actions of the connection.

    Raises:
        ToolDefinitionError: If a permission group has the name of an action.
        ConnectionConfigurationError: If ``allow`` names an unknown action.
        AgentConfirmationError: If ``confirm`` names an unknown action.
    """
    check_groups(actions, connection.name)
    check_permission_names(connection.allow, "allow", connection.name, actions)
    check_permission_names(connection.confirm, "confirm", connection.name, actions)
