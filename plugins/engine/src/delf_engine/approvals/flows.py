"""Flows: detection of calls that only other people's words could have asked for.

A text that a task reads, such as a mail, may hold instructions of a stranger. A call passes if all
that decides it is known to be the user's own. Values of unknown origin count as a stranger's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from itertools import islice
from typing import Any

from delf.protocols.approval import flow_between
from delf_engine.approvals.deciding import is_content
from delf_engine.config import ARROW
from delf_engine.origins.fold import Origins
from delf_engine.origins.origin import Origin
from delf_engine.origins.texts import has_code, has_link
from delf_engine.origins.values import MOST_LEAVES, parameter_of, whole
from delf_engine.toolset import BoundAction


def origins_in(
    origins: Origins, bound: BoundAction, arguments: Mapping[str, Any]
) -> Mapping[str, dict[str, Any]]:
    """Find the sources of all values of a call, as plain data by path."""
    leaves = (leaf for name, item in arguments.items() for leaf in whole(item, name))
    deciding = islice((leaf for leaf in leaves if not is_content(bound, *leaf)), MOST_LEAVES)
    found = {**origins.of_values(deciding), **origins.of(arguments)}
    return {path: origin.data() for path, origin in found.items()}


def reason_of(
    origins: Origins,
    bound: BoundAction,
    arguments: Mapping[str, Any],
    allowed: Sequence[str],
    line: int | None = None,
) -> str | None:
    """Return why a person should review a call; None if nothing suggests a stranger's influence.

    Args:
        origins: The origins in the task so far.
        bound: The action.
        arguments: The arguments, without secrets.
        allowed: Flows that are no reason, such as ``mail.read.sender -> mail.send.to``.
        line: The line of the script with the call, if known.
    """
    action = bound.action
    is_read = action.effect == "read"
    if not origins.has_read or bound.built_in or (is_read and not action.egress):
        return None
    every = (leaf for name, item in arguments.items() for leaf in whole(item, name))
    leaves = [*islice(every, MOST_LEAVES + 1)]
    if len(leaves) > MOST_LEAVES:
        return "it has too many values to look for each of them"
    is_clean = not origins.author.read
    deciding = [leaf for leaf in leaves if not is_content(bound, *leaf)]
    # Where nothing else decides, contents do: such a call may carry them out.
    is_alone = not deciding and action.sinks is None and action.contents is None
    checked = leaves if is_alone else deciding
    foreign = [leaf for leaf in checked if not _is_own(origins, bound, *leaf, line)]
    if is_clean:
        if is_alone and len(foreign) < len(leaves):
            return None
        foreign = [
            (path, text)
            for path, text in foreign
            if not (allowed and _is_allowed(bound.name, path, origins.find(text), allowed))
        ]
        if not foreign:
            return None
    is_free = partial(is_content, bound)
    misfits = origins.planned.misfits(
        bound.name,
        arguments,
        is_free,
        is_alone=is_alone,
        names={parameter_of(path) for path, _ in foreign} if is_clean else None,
    )
    texts = dict(leaves)
    if misfits is None:
        if not (is_clean or deciding):
            return f"the model wrote this call after it had read {origins.author.described()}"
        unstated = (path for path, text in foreign if not origins.is_stated(text))
        misfits = [next(unstated, foreign[0][0])]
    for path in misfits:
        origin = origins.find(texts.get(path, ""))
        if not (allowed and _is_allowed(bound.name, path, origin, allowed)):
            return _reason_of(origins, bound, path, texts.get(path))
    if is_clean:
        return None
    contents = {
        path: text
        for path, text in leaves
        if is_content(bound, path, text)
        and not origins.planned.states(
            bound.name, parameter_of(path), arguments[parameter_of(path)]
        )
    }
    reason = _reason_of_contents(origins, bound, contents)
    if reason is None and origins.planned.uses_up(bound.name, arguments, is_free):
        return "the task does not ask to do this once more"
    return reason


def _is_own(origins: Origins, bound: BoundAction, path: str, text: str, line: int | None) -> bool:
    """Return whether a value is the user's own and stays within the user's services."""
    if bound.action.egress and origins.sources(bound.name, path, line):
        return False
    return origins.is_own(bound.name, path, text, line)


def _reason_of(origins: Origins, bound: BoundAction, path: str, text: str | None) -> str:
    if text is None:
        return f"it leaves out {path}, which the task asks for"
    origin = origins.find(text)
    if origin.kind == "result" and origin.trust == "own":
        if bound.action.effect == "read":
            return f"it sends {path} out: {origin.text}"
        return f"{path}: {origin.text}; the task does not say that it is this one"
    if origin.kind == "task":
        return f"{path}: {origin.text}, which does not ask for it here"
    return f"{path}: {origin.text}"


def _reason_of_contents(
    origins: Origins, bound: BoundAction, contents: Mapping[str, str]
) -> str | None:
    """Return the reason to review contents whose author had read other people's words, if any."""
    for path, text in contents.items():
        if origins.is_stated(text):
            continue
        if (read := origins.unplanned_read()) is not None:
            return (
                f"{path} may tell what {read.action} (call {read.number}) returned, which the "
                "task does not ask for"
            )
        own = origins.own_part(text)
        if own is not None and own.action not in origins.planned.sources_of(
            bound.name, parameter_of(path)
        ):
            return f"it passes on {path}, which the task does not say: {own.text}"
        if has_code(text):
            return f"{path} holds a word that nobody writes by hand: {origins.find(text).text}"
        if has_link(text) and (origin := origins.find(text)).is_others:
            return f"{path} holds an address: {origin.text}"
    return None


def _is_allowed(action: str, path: str, origin: Origin, allowed: Sequence[str]) -> bool:
    """Return whether a rule allows a value to flow to an argument."""
    if origin.kind != "result":
        return False
    source, goal = flow_between(str(origin.action), origin.path, action, path)
    for rule in allowed:
        left, _, right = (part.strip() for part in rule.partition(ARROW))
        if fnmatchcase(source, left) and fnmatchcase(goal, right):
            return True
    return False
