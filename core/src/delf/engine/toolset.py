"""The tools of an agent: every connection's actions under the names that scripts use."""

from __future__ import annotations

import builtins
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from delf.actions import Action
from delf.errors import ToolDefinitionError, ToolRefusedError, did_you_mean
from delf.permissions import check_permission_names, is_allowed, needs_confirmation
from delf.protocols.connection import ConnectionLike
from delf.protocols.prefilter import CatalogEntry
from delf.protocols.sandbox import ToolNames

RESERVED: Final = frozenset(
    {"rerun", "add_to_output_files", "asyncio", "files", "llm", "ToolError", "ToolException"}
    | {"ToolArgumentError", "ToolNotAllowed", "ApprovalRejected", "main"}
)


_MAX_NAME = 100


@dataclass(frozen=True, slots=True)
class BoundAction:
    """An action of a connection.

    Args:
        connection: Whose action it is.
        action: The action.
        name: ``connection.method``, or the bare name of a function.
        asks: Whether a person is asked before each call.
    """

    connection: ConnectionLike
    action: Action
    name: str
    asks: bool

    def bind(
        self, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[dict[str, Any], str | None]:
        """Arguments by name, and the call's ``desc=`` apart unless the action has its own.

        Raises:
            ToolRefusedError: When positional arguments do not fit.
        """
        parameters = self.action.parameters
        named = dict(kwargs)
        description = None
        if "desc" in named and all(parameter.name != "desc" for parameter in parameters):
            description = str(named.pop("desc"))
        if len(args) > len(parameters):
            raise ToolRefusedError(
                f"{self.name} takes at most {len(parameters)} arguments, {len(args)} were given. "
                f"Expected {self.name}{self.action.signature}"
            )
        for parameter, value in zip(parameters, args, strict=False):
            if parameter.name in named:
                raise ToolRefusedError(f"{self.name} got {parameter.name!r} twice")
            named[parameter.name] = value
        return named, description


class Toolset:
    """What scripts may call. What is not allowed is known only to be refused.

    Args:
        allowed: Allowed actions by connection and method (``""`` for a function).
        hidden: Names of actions that exist and are not allowed.
    """

    def __init__(
        self, allowed: Mapping[tuple[str, str], BoundAction], hidden: frozenset[str]
    ) -> None:
        self._allowed = dict(allowed)
        self._hidden = hidden

    def __len__(self) -> int:
        return len(self._allowed)

    def __iter__(self) -> Iterator[BoundAction]:
        return iter(self._allowed.values())

    @property
    def actions(self) -> tuple[BoundAction, ...]:
        """All allowed actions in the order of the agent's tools."""
        return tuple(self._allowed.values())

    @property
    def connections(self) -> tuple[ConnectionLike, ...]:
        """The connections with at least one allowed action."""
        return tuple({id(b.connection): b.connection for b in self.actions}.values())

    def find(self, connection: str, method: str) -> BoundAction:
        """The action behind a call.

        Raises:
            ToolRefusedError: When there is none, or it is not allowed.
        """
        found = self._allowed.get((connection, method))
        if found is not None:
            return found
        name = f"{connection}.{method}" if method else connection
        if name in self._hidden:
            raise ToolRefusedError(f"{name} is not allowed here")
        siblings = [b.name for b in self.actions if b.connection.name == connection]
        known = siblings or [b.name for b in self.actions]
        listed = ", ".join(known[:40]) or "none"
        name = name[:_MAX_NAME]
        raise ToolRefusedError(
            f"there is no tool {name!r}{did_you_mean(name, known)}. Available: {listed}"
        )

    def catalog(self) -> tuple[CatalogEntry, ...]:
        """Every allowed action with its line, for prefilters."""
        return tuple(CatalogEntry(name=b.name, summary=b.action.summary) for b in self.actions)

    def only(self, names: frozenset[str]) -> Toolset:
        """A part of the set; what is left out counts as unknown."""
        kept = {key: bound for key, bound in self._allowed.items() if bound.name in names}
        return Toolset(kept, self._hidden)

    def names_for_sandbox(self) -> tuple[ToolNames, ...]:
        """The names that scripts find."""
        grouped: dict[str, list[str]] = {}
        for connection, method in self._allowed:
            methods = grouped.setdefault(connection, [])
            if method:
                methods.append(method)
        return tuple(ToolNames(name=name, methods=tuple(m)) for name, m in grouped.items())


async def load_toolset(connections: Sequence[ConnectionLike]) -> Toolset:
    """Collect the actions of all connections.

    Raises:
        ToolDefinitionError: When two have one name, or a name that scripts need.
        ConnectionConfigurationError: When ``allow`` names an unknown action.
        AgentConfirmationError: When ``confirm`` does.
    """
    check_connection_names(connections)
    allowed: dict[tuple[str, str], BoundAction] = {}
    hidden: set[str] = set()
    for connection in connections:
        actions = await connection.actions()
        check_permission_names(connection.allow, "allow", connection.name, actions)
        check_permission_names(connection.confirm, "confirm", connection.name, actions)
        for action in actions:
            method = "" if connection.is_function else action.name
            name = f"{connection.name}.{method}" if method else connection.name
            if not is_allowed(connection.allow, action):
                hidden.add(name)
                continue
            asks = needs_confirmation(connection.confirm, action)
            allowed[connection.name, method] = BoundAction(connection, action, name, asks)
    return Toolset(allowed, frozenset(hidden))


def check_connection_names(connections: Sequence[ConnectionLike]) -> None:
    """Refuse names that clash.

    Raises:
        ToolDefinitionError: Naming both, or the reserved name.
    """
    seen: set[str] = set()
    for connection in connections:
        name = connection.name
        if name in seen:
            raise ToolDefinitionError(
                f"two tools are named {name!r}", hint="give one of them another name=…"
            )
        if name in RESERVED or hasattr(builtins, name):
            raise ToolDefinitionError(
                f"a tool cannot be named {name!r}: scripts need that name",
                hint="give it another name=…",
            )
        seen.add(name)
