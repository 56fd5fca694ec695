"""Checks that the rules of approval name actions that exist, so that no misspelt rule is void."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase

from delf.errors import AgentConfirmationError, did_you_mean
from delf_engine.config import ARROW
from delf_engine.toolset import Toolset


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
        AgentConfirmationError: If a rule has a misspelt name, such as ``mail.sned``, or a parameter
            that the action does not have.
    """
    # Built-in actions count, too: a rule such as "*" or "files" may be about them.
    actions = sorted(tools.known_names)
    parameters = [
        f"{bound_action.name}.{parameter.name}"
        for bound_action in tools.actions
        for parameter in bound_action.action.parameters
    ]
    not_allowed = sorted({*actions}.difference(each.name for each in tools.actions))
    for rule in rules:
        if ARROW in rule:
            source, target = (part.strip() for part in rule.split(ARROW, 1))
            # The source may be any field of a result, because the fields of results are unknown.
            yield from _check_pattern(source, actions, other_connections, open_actions=actions)
            # The target is a parameter. The parameters of actions that are not allowed are unknown.
            yield from _check_pattern(
                target, parameters, other_connections, open_actions=not_allowed
            )
        else:
            yield from _check_pattern(rule, actions, other_connections)


def _check_pattern(
    pattern: str,
    names: Sequence[str],
    other_connections: Collection[str],
    open_actions: Sequence[str] = (),
) -> Iterator[str]:
    """Yield a warning about a name or pattern that matches nothing, or raise for a misspelt name.

    Args:
        pattern: The name or pattern of actions, or of one end of a flow.
        names: The names that the pattern may match.
        other_connections: The names of connections whose actions are unknown.
        open_actions: Actions of which any field or parameter may match.

    Raises:
        AgentConfirmationError: If the pattern is a name that is probably misspelt.
    """
    connection, *_ = pattern.split(".")  # may be a pattern, such as ``*``
    may_match = (
        any(fnmatchcase(name, pattern) for name in names)
        or any(_may_be_in(pattern, action) for action in open_actions)
        or any(fnmatchcase(other, connection) for other in other_connections)
    )
    if may_match:
        return
    connections = sorted({name.split(".")[0] for name in (*names, *open_actions)})
    suggestion = did_you_mean(pattern, names)
    if not suggestion and connection not in connections:
        suggestion = did_you_mean(connection, connections)
    text = f"approval_rules: {pattern!r} matches none of this agent's actions{suggestion}"
    has_wildcard = _before_wildcard(pattern) != pattern
    is_probably_misspelt = bool(suggestion) or connection in connections
    if has_wildcard or not is_probably_misspelt:
        yield text  # only a warning: the rule may be about tools that only a worker has
        return
    known = ", ".join(name for name in names if name.split(".")[0] == connection)
    if known:
        hint = f"known: {known}; 'NAME.*' stands for all actions of a connection"
    else:
        hint = f"correct the name; for a tool that only a worker has, write {pattern + '*'!r}"
    raise AgentConfirmationError(text, hint=hint)


def _may_be_in(pattern: str, action: str) -> bool:
    """Return whether a pattern may name a field or parameter of an action.

    The patterns ``mail.read.sender``, ``mail.read.*`` and ``mail.*`` may be in ``mail.read``.
    """
    start = _before_wildcard(pattern)
    has_wildcard = start != pattern
    names_field = start.startswith(f"{action}.")  # ``mail.read.sender`` or ``mail.read.*``
    includes_action = has_wildcard and action.startswith(start)  # ``mail.*``
    return names_field or includes_action


def _before_wildcard(pattern: str) -> str:
    return re.split(r"[*?[]", pattern, maxsplit=1)[0]
