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
    """Raise an error for a rule with a misspelt name; yield warnings about rules without effect.

    Args:
        rules: The patterns of actions, and the flows.
        tools: The agent's tools.
        other_connections: The project's connections that the agent does not use. Rules about
            them are not checked, because their actions are unknown.

    Raises:
        AgentConfirmationError: If a rule has a misspelt name, such as ``mail.sned`` or ``mial.*``,
            or a parameter that the action does not have.
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
            if not _may_be_target(target, tools):
                yield from names.warn_or_raise(rule, target)
        else:
            action, _, parameter = target.rpartition(".")
            yield from names.check(rule, action)
            _check_parameter(rule, action, parameter, tools)


def _check_parameter(rule: str, action: str, parameter: str, tools: Toolset) -> None:
    """Raise AgentConfirmationError if an allowed action does not have a parameter."""
    bound_action = tools.get(action)
    if bound_action is None:
        return
    parameters = [each.name for each in bound_action.action.parameters]
    if parameter not in parameters:
        raise AgentConfirmationError(
            f"approval_rules: {rule!r} names the parameter {parameter!r}, which {action} does not "
            f"have{did_you_mean(parameter, parameters)}",
            hint=f"its parameters: {', '.join(parameters) or 'none'}",
        )


def _may_be_target(pattern: str, tools: Toolset) -> bool:
    """Return whether a pattern may match a parameter of an action, such as ``mail.send.to``."""
    # The parameters of actions that are not allowed are unknown.
    not_allowed = set(tools.known_names).difference(each.name for each in tools.actions)
    if any(_may_concern(pattern, name) for name in not_allowed):
        return True
    names = [each.name for each in tools.actions]
    for bound_action in tools.actions:
        names += [f"{bound_action.name}.{each.name}" for each in bound_action.action.parameters]
    return any(fnmatchcase(name, pattern) for name in names)


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

    def check(self, rule: str, name: str) -> Iterator[str]:
        """Check the name or pattern of an action in a rule; yield a warning if it may be void.

        Raises:
            AgentConfirmationError: If the name is probably misspelt.
        """
        if not any(fnmatchcase(known, name) for known in self.known):
            yield from self.warn_or_raise(rule, name)

    def check_source(self, rule: str, source: str) -> Iterator[str]:
        """Check the source of a flow, such as ``mail.read.sender``; yield a warning if it is void.

        Only the action is checked, not the field of its result.

        Raises:
            AgentConfirmationError: If the action is probably misspelt.
        """
        if any(_may_concern(source, known) for known in self.known):
            return
        name = source if _is_pattern(source) else self._action_in(source)
        yield from self.warn_or_raise(rule, name)

    def _action_in(self, source: str) -> str:
        """Return the action in a source without wildcards, such as ``mail.read.subject``."""
        first, *others = source.split(".")
        if first not in self.connections and did_you_mean(first, self.functions):
            return first  # the misspelt function of ``lokup.name``
        return ".".join([first, *others[:1]])  # ``mail.read``

    def warn_or_raise(self, rule: str, name: str) -> Iterator[str]:
        """Yield a warning about a name or pattern in a rule that fits none of the known actions.

        Yield nothing if the rule may be about a connection that this agent does not use.

        Raises:
            AgentConfirmationError: If the name is probably misspelt.
        """
        connection, *_ = name.split(".")  # may be a pattern, such as ``*``
        if any(fnmatchcase(other, connection) for other in self.other_connections):
            return
        if _is_pattern(name):
            hint = "" if _is_pattern(connection) else self._hint_for_connection(connection)
            yield f"approval_rules: {rule!r} matches none of this agent's actions{hint}"
            return
        text = f"approval_rules: {rule!r} names {name!r}, which is not one of this agent's actions"
        suggestion = did_you_mean(name, sorted(self.known))
        is_probably_misspelt = bool(suggestion) or connection in self.connections
        if is_probably_misspelt:
            raise AgentConfirmationError(text + suggestion, hint=self._hint_for_misspelt(name))
        yield text

    def _hint_for_connection(self, name: str) -> str:
        return "" if name in self.connections else did_you_mean(name, self.connections)

    def _hint_for_misspelt(self, name: str) -> str:
        connection, *methods = name.split(".")
        names = [each for each in sorted(self.known) if each.split(".")[0] == connection]
        if not names:
            return f"correct the name; for a tool that only a worker has, write {name + '*'!r}"
        if methods:
            return f"actions of {connection!r}: {', '.join(names)}"
        return f"for all actions of the connection, write {connection + '.*'!r}"


def _may_concern(path: str, action: str) -> bool:
    """Return whether a path or pattern may name an action, or a field or parameter of the action.

    The comments show paths that may concern the action ``mail.read``.
    """
    if path == action:
        return True  # ``mail.read``
    text_before_wildcard = path[: _pattern_start(path)]
    if text_before_wildcard.startswith(f"{action}."):
        return True  # ``mail.read.sender`` and ``mail.read.*``
    return _is_pattern(path) and action.startswith(text_before_wildcard)  # ``mail.*``


def _is_pattern(name: str) -> bool:
    return _pattern_start(name) < len(name)


def _pattern_start(name: str) -> int:
    """Return the position of the first wildcard; the length of the name if it has none."""
    return next((at for at, letter in enumerate(name) if letter in _WILDCARDS), len(name))
