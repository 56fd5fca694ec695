"""Flows: find calls that only others' words could have asked for.

A text that a task reads, such as a mail, may hold instructions of a stranger. A call passes if all
that decides it is known to be the user's own. Whatever is not known counts as a stranger's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import islice
from typing import Any

from delf.protocols.approval import flow_between
from delf.tools.action import Action
from delf_engine.approvals.deciding import deciding_values
from delf_engine.config import ARROW
from delf_engine.origins.fold import Origins
from delf_engine.origins.origin import Origin
from delf_engine.origins.texts import has_link
from delf_engine.origins.values import MOST_LEAVES, leaves_of, parameter_of
from delf_engine.toolset import BoundAction


def origins_in(
    origins: Origins, bound: BoundAction, arguments: Mapping[str, Any]
) -> Mapping[str, dict[str, Any]]:
    """Find the sources of all of a call's values, as plain data by the path of each."""
    deciding = deciding_values(bound, arguments)[:MOST_LEAVES]
    found = {**origins.of(arguments), **origins.of_values(deciding)}
    return {path: origin.data() for path, origin in found.items()}


def reason_of(
    origins: Origins, bound: BoundAction, arguments: Mapping[str, Any], allowed: Sequence[str]
) -> str | None:
    """Return why a person should review a call; None if nothing suggests a stranger's influence.

    Args:
        origins: The origins in the task so far.
        bound: The action.
        arguments: Its arguments, without secrets.
        allowed: Flows that are no reason, as ``mail.read.sender -> mail.send.to``.
    """
    action = bound.action
    is_read = action.effect == "read"
    if not origins.has_read or bound.built_in or (is_read and not action.egress):
        return None
    deciding = deciding_values(bound, arguments)
    if len(deciding) > MOST_LEAVES:
        return "it has too many values to look for each of them"
    reason = _reason_of_values(origins, bound, deciding, allowed)
    if reason is not None or is_read or not origins.author.read:
        return reason
    if not (origins.asked_for.has_call(bound.name) or origins.is_planned(bound.name)):
        return f"the model wrote this call after it had read {origins.author.described()}"
    names = {parameter_of(path) for path, _ in deciding}
    contents = {name: item for name, item in arguments.items() if name not in names}
    return _reason_of_contents(origins, bound, contents, is_decided=bool(deciding))


def _passes(action: Action, origin: Origin | None) -> bool:
    """Return whether a value is the user's own, and does not leave their services."""
    return origin is not None and not (action.egress and origin.kind == "result")


def _reason_of_values(
    origins: Origins,
    bound: BoundAction,
    deciding: Sequence[tuple[str, str]],
    allowed: Sequence[str],
) -> str | None:
    """Find the first value that neither the user's words ask for nor a rule lets pass."""
    is_read = bound.action.effect == "read"
    unknown = [
        (path, text)
        for path, text in deciding
        if not _passes(bound.action, origins.own(text))
        and not (allowed and _is_allowed(bound.name, path, origins.find(text), allowed))
    ]
    path = origins.asked_for.first_unasked(bound.name, unknown, deciding, in_text=is_read)
    if path is None:
        for where, text in unknown:
            # The task asks for a record of a call, and a stranger may have chosen which.
            is_stated = origins.asked_for.is_stated(bound.name, where, text)
            if not is_stated and (named := origins.named_by_others(text)) is not None:
                return f"{where}: {named.text}"
        return None
    origin = origins.find(dict(unknown)[path])
    if origin.kind != "result" or origin.trust != "own":
        return f"{path}: {origin.text}"
    if is_read:
        return f"it sends {path} out: {origin.text}"
    return f"{path}: {origin.text}; the task does not say that it is this one"


def _reason_of_contents(
    origins: Origins, bound: BoundAction, contents: Mapping[str, Any], *, is_decided: bool
) -> str | None:
    """Find the reason in the contents of a call whose author had read others' words.

    Args:
        origins: Those of the task, up to now.
        bound: What is called.
        contents: The arguments that decide nothing.
        is_decided: Some value decides what the call does; nothing is wrong with these. Where there
            is none, the contents are all that the call does.
    """
    asked_for, action = origins.asked_for, bound.name
    values = [
        (path, text)
        for path, text in islice(leaves_of(contents), MOST_LEAVES)
        if origins.own(text) is None and not asked_for.is_stated(action, path, text)
    ]
    if not (is_decided or asked_for.states(action, [*leaves_of(contents)])):
        path = asked_for.first_unasked(action, values, values, in_text=True)
        if path is not None:
            return f"{path}: {origins.find(dict(values)[path]).text}"
    for path, text in values:
        name = parameter_of(path)
        own = origins.own_part(text)
        if own is not None and own.action not in asked_for.sources_of(action, name):
            return f"it passes on {name}, which the task does not say: {own.text}"
        origin = origins.find(text)
        if origin.is_others and has_link(text):
            return f"{path} holds an address: {origin.text}"
    return None


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
