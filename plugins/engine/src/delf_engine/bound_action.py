"""``BoundAction``: an action of a connection, under the name that scripts use."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from delf.errors import ToolRefusedError
from delf.protocols.connection import ConnectionLike, ProposedCall, SupportsResultTrust, Verdict
from delf.protocols.strategy import ToolDescription
from delf.records import dataclass
from delf.tools.action import Action
from delf.types import Trust
from delf.values.encoding import dumps
from delf_engine.secrets import without_secrets
from delf_engine.tolerance import with_spelling_of_parameters


@dataclass(frozen=True, slots=True)
class BoundAction:
    """An action together with its connection.

    Args:
        connection: The connection of the action.
        action: The action.
        name: ``connection.method``, or the bare name of a function.
        asks: Whether a person is asked before each call.
        built_in: Whether delf itself provides the action; such actions are always shown to the
            model.
        check: The connection's check of calls, if any.
    """

    connection: ConnectionLike
    action: Action
    name: str
    asks: bool
    built_in: bool = False
    check: Callable[[ProposedCall], Verdict | Awaitable[Verdict]] | None = None

    @property
    def digest(self) -> str:
        """The digest of the action and its connection, to which remembered decisions are bound.

        The digest changes with the connection's configuration and with the action's parameters or
        effect.
        """
        # If the action calls a bound method, take the function of the method.
        function = getattr(self.action.call, "__func__", self.action.call)
        content = [
            self.name,
            self.action.digest,
            [_place_of(type(self.connection)), _place_of(function)],
            without_secrets(getattr(self.connection, "settings", None)),
        ]
        return hashlib.sha256(dumps(content)).hexdigest()

    def trust_of(self, arguments: Mapping[str, Any]) -> Trust | Mapping[str, Trust] | None:
        """Return the trust of a call's result that the connection derives from the arguments.

        None if the connection does not derive a trust, or if the user has set one trust for all
        results of the connection.
        """
        connection = self.connection
        has_fixed_trust = isinstance(getattr(connection, "trust", None), str)
        if has_fixed_trust or not isinstance(connection, SupportsResultTrust):
            return None
        return connection.result_trust(self.action.name, arguments)

    def describe(self) -> ToolDescription:
        """Describe the action for the model."""
        action = self.action
        connection = self.connection
        return ToolDescription(
            name=self.name,
            summary=action.summary,
            effect=action.effect,
            asks=self.asks,
            make_schema=_any_object if action.schema is None else action.schema,
            parameters=action.parameters,
            returns=action.returns,
            connection="" if connection.is_function else connection.name,
            about=connection.summary,
            tags=action.tags,
            built_in=self.built_in,
            full_types=action.full_types,
            returns_doc=action.returns_doc,
            notes=action.notes,
        )

    def bind(
        self, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[dict[str, Any], str | None]:
        """Bind positional and keyword arguments of a call to parameter names.

        Other spellings of a name are accepted, such as ``customerId`` for ``customer_id``.

        Returns:
            The arguments by parameter name, and the call's description: the argument ``desc``,
            unless the action itself has a parameter ``desc``.

        Raises:
            ToolRefusedError: If there are too many positional arguments, or an argument is given
                twice.
        """
        parameters = self.action.parameters
        names = [parameter.name for parameter in parameters]
        keywords = dict(kwargs)
        description = None
        # Taken out first, so that ``desc`` is not read as a spelling of a parameter ``Desc``.
        if "desc" in keywords and "desc" not in names:
            description = str(keywords.pop("desc"))
        if keywords:
            keywords = with_spelling_of_parameters(keywords, names)
        if len(args) > len(parameters):
            raise ToolRefusedError(
                f"{self.name} takes at most {len(parameters)} arguments, {len(args)} were given. "
                f"Expected {self.name}{self.action.signature}"
            )
        for name, value in zip(names, args, strict=False):
            if name in keywords:
                raise ToolRefusedError(f"{self.name} got {name!r} twice")
            keywords[name] = value
        return keywords, description


def _place_of(item: object) -> str:
    """Return the module and qualified name of a class or a function."""
    return f"{getattr(item, '__module__', '')}.{getattr(item, '__qualname__', '')}"


def _any_object() -> dict[str, Any]:
    return {"type": "object"}
