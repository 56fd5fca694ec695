"""Checks that the rules of approval name actions that exist, so that no misspelt rule is void."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Final

from delf.errors import AgentConfirmationError, did_you_mean
from delf.records import dataclass
from delf_engine.config import ARROW
from delf_engine.toolset import Toolset

_WILDCARDS: Final = "*?["


def check_rule_names(
    rules: Iterable[str], tools: Toolset, other_connections: Collection[str]
) -> Iterator[str]:
    """Check that rules name actions of an agent; yield a warning for each rule that may be void.

    Args:
        rules: The patterns of actions, and the flows.
        tools: The agent's tools.
        other_connections: The project's connections that the agent does not use. Rules about
            them are not checked, because their actions are unknown.

    Raises:
        AgentConfirmationError: If a rule names an action that a connection of the agent does not
            have, a name that is similar to an action's, or a parameter that does not exist.
    """
    # Built-in actions count, too: a rule such as "*" or "files" may be about them.
    names = _Names(frozenset(tools.known_names), frozenset(other_connections))
    for rule in rules:
        if ARROW not in rule:
            yield from names.check(rule, rule)
            continue
        source, target = (part.strip() for part in rule.split(ARROW, 1))
        yield from names.check_source(rule, source)
        if _is_pattern(target):
            # Actions that are not allowed count with any parameter.
            targets = [*tools.known_names, *_parameter_names(tools)]
            yield from names.check(rule, target, targets)
            continue
        action, _, parameter = target.rpartition(".")
        yield from names.check(rule, action)
        bound_action = tools.get(action)
        if bound_action is not None:
            parameters = [each.name for each in bound_action.action.parameters]
            if parameter not in parameters:
                raise AgentConfirmationError(
                    f"approval_rules: {rule!r} names the parameter {parameter!r}, which {action} "
                    f"does not have{did_you_mean(parameter, parameters)}",
                    hint=f"its parameters: {', '.join(parameters) or 'none'}",
                )


def _parameter_names(tools: Toolset) -> Iterator[str]:
    """Yield the names of all parameters as the targets of flows, such as ``mail.send.to``."""
    for bound_action in tools.actions:
        for parameter in bound_action.action.parameters:
            yield f"{bound_action.name}.{parameter.name}"


@dataclass(frozen=True)
class _Names:
    """The names of actions that rules can be about.

    Args:
        known: The names of the agent's actions, those that are not allowed included.
        other_connections: The names of connections whose actions are unknown.
    """

    known: frozenset[str]
    other_connections: frozenset[str]

    @property
    def connections(self) -> Sequence[str]:
        """The names of the agent's connections, functions included."""
        return sorted({name.split(".")[0] for name in self.known})

    @property
    def functions(self) -> Sequence[str]:
        """The names of actions without a dot."""
        return sorted(name for name in self.known if "." not in name)

    def check(
        self, rule: str, name: str, candidates: Collection[str] | None = None
    ) -> Iterator[str]:
        """Check the name or pattern of an action in a rule; yield a warning if it may be void.

        Args:
            rule: The rule.
            name: The name or pattern.
            candidates: The names that the pattern may match; those of actions when omitted.

        Raises:
            AgentConfirmationError: If the name is probably misspelt.
        """
        known_names = self.known if candidates is None else candidates
        if not any(fnmatchcase(known, name) for known in known_names):
            yield from self._warn_or_raise(rule, name)

    def check_source(self, rule: str, source: str) -> Iterator[str]:
        """Check the source of a flow: an action, perhaps with the path of a field in its result.

        Raises:
            AgentConfirmationError: If the action is probably misspelt.
        """
        # Fields of results are unknown, so of a pattern only the text before it can be compared.
        text = source[: _pattern_start(source)]
        for known in self.known:
            is_this_action = source == known or text.startswith(f"{known}.")
            may_be_this_action = _is_pattern(source) and known.startswith(text)
            if is_this_action or may_be_this_action:
                return
        if not _is_pattern(source):
            # The action is ``connection.method`` or a function; the rest is the path of a field.
            connection, *methods = source.split(".")
            is_function = connection not in self.connections and did_you_mean(
                connection, self.functions
            )
            source = connection if is_function else ".".join([connection, *methods[:1]])
        yield from self._warn_or_raise(rule, source)

    def _warn_or_raise(self, rule: str, name: str) -> Iterator[str]:
        connection, *methods = name.split(".")
        if any(fnmatchcase(other, connection) for other in self.other_connections):
            return
        if _is_pattern(name):
            suggestion = ""
            if not _is_pattern(connection) and connection not in self.connections:
                suggestion = did_you_mean(connection, self.connections)
            yield f"approval_rules: {rule!r} matches none of this agent's actions{suggestion}"
            return
        suggestion = did_you_mean(name, sorted(self.known))
        text = f"approval_rules: {rule!r} names {name!r}, which is not one of this agent's actions"
        is_probably_misspelt = bool(suggestion) or connection in self.connections
        if not is_probably_misspelt:
            yield text
            return
        names = [each for each in sorted(self.known) if each.split(".")[0] == connection]
        if not names:
            hint = f"correct the name; for a tool that only a worker has, write {name + '*'!r}"
        elif methods:
            hint = f"actions of {connection!r}: {', '.join(names)}"
        else:
            hint = f"for all actions of the connection, write {connection + '.*'!r}"
        raise AgentConfirmationError(text + suggestion, hint=hint)


def _is_pattern(name: str) -> bool:
    return _pattern_start(name) < len(name)


def _pattern_start(name: str) -> int:
    """Return the position of the first wildcard; the length of the name if it has none."""
    return next((at for at, letter in enumerate(name) if letter in _WILDCARDS), len(name))
