"""Flows: find calls that only others' words could have asked for.

A text that a task reads, such as a mail, may hold instructions of a stranger. A call is told apart
by what its script had read, and by where the values came from that decide where it goes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import islice
from typing import Any, Final

from delf.engine.origins import MOST_LEAVES, Origin, Origins, has_link, leaves_of
from delf.engine.toolset import BoundAction
from delf.protocols.approval import flow_between
from delf.records import dataclass

_SINKS: Final = re.compile(
    r"(?:^|_)(?:to|cc|bcc|ur[il]s?|href|links?|hosts?|domains?|webhook|callback|iban|bic|accounts?"
    r"|recipients?|receivers?|payee|beneficiary|users?|usernames?|e?mails?|address(?:es)?|phone"
    r"|channels?|paths?|folders?|file_?names?|participants?|attendees?|guests?|members?|owners?"
    r"|invitees?|who|dest|destination|target|ids?|password|secret|statement|sql|query|command|code)$"
)
"""Names of parameters that decide where something goes or what is done, where none is declared."""
_NESTED: Final = re.compile(
    r"(?:^|[._])(?:to|cc|bcc|webhook|callback|iban|bic|accounts?|recipients?|receivers?|payee"
    r"|beneficiary|participants?|attendees?|invitees?|guests?|dest|destination|target)(?=[.[]|$)"
)
"""Names that decide it in a record, too, where others are columns of data."""
_MOST_NESTED: Final = 20_000
"""Values in records of one call whose names are looked at."""
_DEEDS: Final = re.compile(r"(?:^|_)(?:password|secret|statement|sql|query|command|code)$")
"""Names of those that say what is done there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """The sources of a call's values.

    Args:
        origins: By the path of the value in the arguments.
        reason: Why a person should look at it; None where nothing points at a stranger.
    """

    origins: Mapping[str, Origin]
    reason: str | None = None

    def data(self) -> dict[str, dict[str, Any]]:
        """The origins as plain data."""
        return {path: origin.data() for path, origin in self.origins.items()}


def flow_of(
    origins: Origins, bound: BoundAction, arguments: Mapping[str, Any], allowed: Sequence[str]
) -> Flow:
    """Find the sources of all of a call's values, and the reason why a person should look at it.

    Args:
        origins: Those of the task, up to now.
        bound: What is called.
        arguments: Its arguments, without secrets.
        allowed: Flows that are no reason, as ``mail.read.sender -> mail.send.to``.
    """
    reason = reason_of(origins, bound, arguments, allowed)
    decisive = _decisive_in(bound, arguments, _sinks_of(bound, arguments))[:MOST_LEAVES]
    found = {**origins.of(arguments), **origins.of_values(decisive)}
    return Flow(origins=found, reason=reason)


def reason_of(
    origins: Origins, bound: BoundAction, arguments: Mapping[str, Any], allowed: Sequence[str]
) -> str | None:
    """Find the reason why a person should look at a call, and search no more than that needs.

    Args:
        origins: Those of the task, up to now.
        bound: What is called.
        arguments: Its arguments, without secrets.
        allowed: Flows that are no reason.
    """
    action = bound.action
    if not origins.has_read or bound.built_in:
        return None
    is_read = action.effect == "read"
    if is_read and not action.egress:
        return None
    sinks = _sinks_of(bound, arguments)
    values = _decisive_in(bound, arguments, sinks)
    if len(values) > MOST_LEAVES:
        return "it has too many values to look for each of them"
    decisive = origins.of_values(values)
    is_anchored = is_read or any(origin.is_own for origin in decisive.values())
    for path, origin in decisive.items():
        is_right = (
            origin.is_sure
            or _is_allowed(bound.name, path, origin, allowed)
            or (
                not origin.is_named
                and _is_foreseen(origins, bound, path, arguments, is_anchored=is_anchored)
            )
        )
        if not is_right:
            return f"{path}: {origin.text}"
    if action.egress:
        for path, origin in origins.of(arguments).items():
            is_private = origin.kind == "result" and origin.trust == "own"
            if is_private and not _is_allowed(bound.name, path, origin, allowed):
                return f"it sends {path} out: {origin.text}"
    if is_read or not origins.author.read:
        return None
    others = {name: item for name, item in arguments.items() if name not in sinks}
    return _reason_after_reading(origins, bound, decisive, others)


def _reason_after_reading(
    origins: Origins,
    bound: BoundAction,
    decisive: Mapping[str, Origin],
    others: Mapping[str, Any],
) -> str | None:
    """Find the reason that a call has whose author had read others' words.

    Args:
        origins: Those of the task, up to now.
        bound: What is called.
        decisive: The origins of what decides where something goes; nothing is wrong with them.
        others: The other arguments.
    """
    found = origins.of(others)
    is_stated = _is_stated(origins, bound, others)
    why = f"the model wrote this call after it had read {origins.author.told()}"
    if not _was_meant(origins, bound):
        is_named = decisive and all(origin.kind == "task" for origin in decisive.values())
        is_own = is_named and not any(origin.kind == "result" for origin in found.values())
        return None if is_own else why
    for name, value in others.items() if decisive else ():
        told = [origin for path, origin in found.items() if _parameter(path) == name]
        own = None if all(origin.is_own for origin in told) else origins.own_part(value)
        if own is not None and own.action not in _sources_of(origins, bound, name):
            return f"it passes on {name}, which the task does not say: {own.text}"
    for path, origin in found.items():
        if origin.is_sure or _is_foreseen(origins, bound, path, others, is_anchored=True):
            continue
        if not (decisive or is_stated):
            return f"{path}: {origin.text}"
        if origin.is_others and has_link(others[_parameter(path)]):
            return f"{path} holds an address: {origin.text}"
    return None


def _sinks_of(bound: BoundAction, arguments: Mapping[str, Any]) -> frozenset[str]:
    declared = bound.action.sinks
    if declared is not None:
        return frozenset(declared)
    return frozenset(name for name in arguments if _SINKS.search(name.lower()))


def addresses_of(bound: BoundAction, arguments: Mapping[str, Any]) -> Sequence[tuple[str, str]]:
    """The values that decide where something goes, each with its path; what is done is none."""
    values = _decisive_in(bound, arguments, _sinks_of(bound, arguments))
    return [value for value in values if not _DEEDS.search(_parameter(value[0]).lower())]


def _decisive_in(
    bound: BoundAction, arguments: Mapping[str, Any], sinks: frozenset[str]
) -> Sequence[tuple[str, str]]:
    """The values that decide where something goes, each with its path, at any depth."""
    chosen = {name: item for name, item in arguments.items() if name in sinks}
    values = [*islice(leaves_of(chosen, has_keys=True), MOST_LEAVES + 1)]
    if bound.action.sinks is None:
        nested: dict[str, Any] = {
            name: item
            for name, item in arguments.items()
            if name not in sinks and isinstance(item, (Mapping, list, tuple))
        }
        seen = [*islice(leaves_of(nested), _MOST_NESTED + 1)]
        is_all = len(seen) <= _MOST_NESTED
        values += [leaf for leaf in seen if _NESTED.search(leaf[0].lower())] if is_all else seen
    return values


def _was_meant(origins: Origins, bound: BoundAction) -> bool:
    """True if a script names the action, and its author had read nothing of others."""
    name = re.compile(rf"(?<![\w.]){re.escape(bound.name)}\s*\(")
    return any(name.search(code) for code in origins.clean_code)


def _is_stated(origins: Origins, bound: BoundAction, arguments: Mapping[str, Any]) -> bool:
    """True if the outline has a call with literals, and each of them is the argument here."""
    stated = () if origins.outline is None else origins.outline.stated
    return any(
        action == bound.name
        and literals
        and all(arguments.get(name) == value for name, value in literals.items())
        for action, literals in stated
    )


def _is_foreseen(
    origins: Origins,
    bound: BoundAction,
    path: str,
    arguments: Mapping[str, Any],
    *,
    is_anchored: bool,
) -> bool:
    """True if the user's words ask for what a call returned to go there, as the outline tells.

    A whole value of a record may. What is in a text that somebody wrote may only look up
    something, or go along with a value of the user's own that decides the call as well.
    """
    if origins.outline is None:
        return False
    parameter = _parameter(path)
    sources = _sources_of(origins, bound, parameter)
    placed = origins.are_from(sources, arguments[parameter]) if sources else "nowhere"
    return placed == "whole" or (placed == "in a text" and is_anchored)


def _sources_of(origins: Origins, bound: BoundAction, parameter: str) -> frozenset[str]:
    """The actions whose results the user's words ask for as a parameter."""
    flows = () if origins.outline is None else origins.outline.flows
    goal = (bound.name, parameter)
    return frozenset(source for source, *where in flows if tuple(where) == goal)


def _parameter(path: str) -> str:
    """The parameter of a value's path, as of ``to[0]``."""
    return re.split(r"[.[]", path, maxsplit=1)[0]


def _is_allowed(action: str, path: str, origin: Origin, allowed: Sequence[str]) -> bool:
    """True if a rule lets a value go there."""
    if origin.kind != "result":
        return False
    source, goal = flow_between(str(origin.action), origin.path, action, path)
    for rule in allowed:
        left, _, right = (part.strip() for part in rule.partition("->"))
        if fnmatchcase(source, left) and fnmatchcase(goal, right):
            return True
    return False
