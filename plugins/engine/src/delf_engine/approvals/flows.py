"""Flows: find calls that only others' words could have asked for.

A text that a task reads, such as a mail, may hold instructions of a stranger. A call is told apart
by what its script had read, and by where the values came from that decide where it goes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from delf.protocols.approval import flow_between
from delf_engine.approvals.sinks import decisive_values, parameter_of, sinks_of
from delf_engine.config import ARROW
from delf_engine.origins.fold import Origins
from delf_engine.origins.origin import Origin
from delf_engine.origins.texts import has_link
from delf_engine.origins.values import MOST_LEAVES, texts_in
from delf_engine.toolset import BoundAction


def origins_in(
    origins: Origins, bound: BoundAction, arguments: Mapping[str, Any]
) -> Mapping[str, dict[str, Any]]:
    """Find the sources of all of a call's values, as plain data by the path of each."""
    decisive = decisive_values(bound, arguments, sinks_of(bound, arguments))[:MOST_LEAVES]
    found = {**origins.of(arguments), **origins.of_values(decisive)}
    return {path: origin.data() for path, origin in found.items()}


def reason_of(
    origins: Origins, bound: BoundAction, arguments: Mapping[str, Any], allowed: Sequence[str]
) -> str | None:
    """Find the reason why a person should look at a call; None where nothing tells of a stranger.

    Args:
        origins: Those of the task, up to now.
        bound: What is called.
        arguments: Its arguments, without secrets.
        allowed: Flows that are no reason, as ``mail.read.sender -> mail.send.to``.
    """
    action = bound.action
    is_read = action.effect == "read"
    if not origins.has_read or bound.built_in or (is_read and not action.egress):
        return None
    sinks = sinks_of(bound, arguments)
    values = decisive_values(bound, arguments, sinks)
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
    is_stated = origins.outline.states(bound.name, others)
    why = f"the model wrote this call after it had read {origins.author.told()}"
    if not _was_meant(origins, bound):
        is_named = decisive and all(origin.kind == "task" for origin in decisive.values())
        is_own = is_named and not any(origin.kind == "result" for origin in found.values())
        return None if is_own else why
    for name, value in others.items() if decisive else ():
        told = [origin for path, origin in found.items() if parameter_of(path) == name]
        own = None if all(origin.is_own for origin in told) else origins.own_part(value)
        if own is not None and own.action not in origins.outline.sources_of(bound.name, name):
            return f"it passes on {name}, which the task does not say: {own.text}"
    for path, origin in found.items():
        if origin.is_sure or _is_foreseen(origins, bound, path, others, is_anchored=True):
            continue
        if not (decisive or is_stated):
            return f"{path}: {origin.text}"
        if origin.is_others and any(map(has_link, texts_in(others[parameter_of(path)]))):
            return f"{path} holds an address: {origin.text}"
    return None


def _was_meant(origins: Origins, bound: BoundAction) -> bool:
    """True if a script names the action, and its author had read nothing of others."""
    name = re.compile(rf"(?<![\w.]){re.escape(bound.name)}\s*\(")
    return any(name.search(code) for code in origins.clean_code)


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
    parameter = parameter_of(path)
    sources = origins.outline.sources_of(bound.name, parameter)
    placed = origins.are_from(sources, arguments[parameter]) if sources else "nowhere"
    return placed == "whole" or (placed == "in a text" and is_anchored)


def _is_allowed(action: str, path: str, origin: Origin, allowed: Sequence[str]) -> bool:
    """True if a rule lets a value go there."""
    if origin.kind != "result":
        return False
    source, goal = flow_between(str(origin.action), origin.path, action, path)
    for rule in allowed:
        left, _, right = (part.strip() for part in rule.partition(ARROW))
        if fnmatchcase(source, left) and fnmatchcase(goal, right):
            return True
    return False
