"""Which calls are the same call, and which need no approval any more."""

from __future__ import annotations

import asyncio
import datetime as dt
import decimal
import hashlib
import pathlib
import secrets
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from delf.chunks import dump_chunks, in_turns
from delf.errors import DelfError
from delf.events import ApprovalDecided, ApprovalRequested, Event
from delf.protocols.approval import ApprovalRequest, fits_pattern
from delf.values import UnsupportedValueError, dumps

_SIMPLE: Final = frozenset(
    {str, int, float, bool, type(None), complex, bytes, decimal.Decimal, uuid.UUID}
    | {dt.datetime, dt.date, dt.time, dt.timedelta, type(pathlib.Path())}
)
_EQUAL_IF_SAME: Final = frozenset({str, int, bool, type(None)})
"""Of two values of such a type that are equal, the same is written down."""
NOBODY_BY: Final = "nobody"
"""Who decided where nobody could be asked."""
_type_of: Callable[[Any], Any] = type
_Asker = tuple[str | None, str]
_COLLECTIONS: Final = frozenset({list, tuple, set, frozenset})


def call_digest(name: str, arguments: Mapping[str, Any]) -> str:
    """SHA-256 over an action's name and its arguments, the identity of a call."""
    return hashlib.sha256(dumps(_content(name, arguments))).hexdigest()


def identity(
    name: str,
    arguments: Mapping[str, Any],
    given: Mapping[str, Any],
    defaults: Mapping[str, Any] | None = None,
) -> str:
    """What tells a call from every other one that a person would have to be asked about.

    An object may show less than it holds, as a secret does, a pattern, or a model with fields
    that it keeps to itself: a call with such arguments is known by what they were made from.

    Args:
        name: The action.
        arguments: Its validated arguments.
        given: The same as the script gave them.
        defaults: What arguments are that are left out; one that is spelled out is left out here.
    """
    try:
        known = _known_by(name, arguments, given, defaults)
        if known is not None:
            return call_digest(*known)
    except (RecursionError, UnsupportedValueError):
        pass
    return secrets.token_hex(32)  # like no other call


async def large_identity(
    name: str,
    arguments: Mapping[str, Any],
    given: Mapping[str, Any],
    defaults: Mapping[str, Any] | None = None,
) -> str:
    """The same, for arguments that are large: others have their turns meanwhile."""
    try:
        known = await asyncio.to_thread(_known_by, name, arguments, given, defaults)
        if known is not None:
            digest = hashlib.sha256()
            await in_turns(map(digest.update, dump_chunks(_content(*known))))
            return digest.hexdigest()
    except (RecursionError, UnsupportedValueError):
        pass
    return secrets.token_hex(32)


def _content(name: str, arguments: Mapping[str, Any]) -> list[Any]:
    return [name, dict(sorted(arguments.items()))]


def _known_by(
    name: str,
    arguments: Mapping[str, Any],
    given: Mapping[str, Any],
    defaults: Mapping[str, Any] | None,
) -> tuple[str, Mapping[str, Any]] | None:
    """Under which name and by which arguments a call is known; None if it is like no other."""
    if defaults:
        spelled = {n for n, v in arguments.items() if n in defaults and _is_same(v, defaults[n])}
        if spelled:
            arguments = {n: v for n, v in arguments.items() if n not in spelled}
            given = {n: v for n, v in given.items() if n not in spelled}
    if _are_plain(arguments.values()):
        return name, arguments
    return (f"{name} as given", given) if _are_plain(given.values()) else None


def _is_plain(value: Any) -> bool:
    """Whether a value is written down with all that is in it."""
    kind = _type_of(value)
    if kind in _SIMPLE:
        return True
    if kind is dict:
        return _are_plain(value) and _are_plain(value.values())
    return kind in _COLLECTIONS and _are_plain(value)


def _are_plain(values: Iterable[Any]) -> bool:
    return {*map(type, values)} <= _SIMPLE or all(map(_is_plain, values))


def _is_same(value: Any, other: Any) -> bool:
    """Whether two values are equal, of one type, and written down with all that is in them."""
    kind = _type_of(value)
    if kind is not _type_of(other):
        return False
    if kind in _EQUAL_IF_SAME:
        return value == other
    try:
        return _is_plain(value) and _is_plain(other) and dumps(value) == dumps(other)
    except (RecursionError, UnsupportedValueError):
        return False


class Remembered:
    """The calls that need no approval any more, for a task or for a session."""

    def __init__(self) -> None:
        self._keys: set[str] = set()
        self._like: list[tuple[_Asker, dict[str, Any], Mapping[str, str]]] = []

    def add(
        self, request: ApprovalRequest | ApprovalRequested, like: Mapping[str, str] | None
    ) -> None:
        """Let a call pass from now on.

        Args:
            request: The request that was approved.
            like: Patterns of the arguments that may differ.
        """
        self._keys.add(memory_key(request))
        if like and request.code is None:
            self._like.append((_asker(request), dict(request.arguments), like))

    def covers(
        self,
        request: ApprovalRequest,
        arguments: Mapping[str, Any] | None,
        defaults: Mapping[str, Any],
    ) -> bool:
        """Whether a call passes.

        Args:
            request: What would be asked.
            arguments: The call's arguments as they are.
            defaults: What arguments are that are left out.
        """
        if memory_key(request) in self._keys:
            return True
        if arguments is None:
            return False
        whole = {**defaults, **arguments}
        return any(
            asker == _asker(request) and _is_like(whole, {**defaults, **seen}, like)
            for asker, seen, like in self._like
        )


def _is_like(
    arguments: Mapping[str, Any], seen: Mapping[str, Any], like: Mapping[str, str]
) -> bool:
    return arguments.keys() == seen.keys() and all(
        fits_pattern(value, like[name]) if name in like else _is_same(value, seen[name])
        for name, value in arguments.items()
    )


def memory_key(request: ApprovalRequest | ApprovalRequested) -> str:
    """What an approval is remembered by.

    For a script, also the actions that pass with it; for a worker's request, also the worker:
    its tools may be others of the same name.
    """
    about: dict[str, Any] = {}
    if request.code is not None:
        about["actions"] = sorted({*request.actions})
    if request.worker is not None:
        about["worker"] = request.worker
    return call_digest(request.digest, about) if about else request.digest


def _asker(request: ApprovalRequest | ApprovalRequested) -> _Asker:
    return request.worker, request.action


def remembered_calls(past: Sequence[Event]) -> Remembered:
    """The calls that need no approval any more, as the journal of a resumed task tells.

    What was to be remembered for the session counts for the task, too: its session has ended.
    A yes to making an interrupted call again is about that one only.
    """
    asked = {
        e.request_id: e for e in past if isinstance(e, ApprovalRequested) and not e.outcome_unknown
    }
    remembered = Remembered()
    for event in past:
        if isinstance(event, ApprovalDecided) and event.remember != "no":
            request = asked.get(event.request_id)
            if request is not None:
                remembered.add(request, event.like)
    return remembered


def refused_calls(past: Sequence[Event]) -> dict[str, str]:
    """The calls that a person refused, with the reason, as the journal of a resumed task tells."""
    asked = {
        e.request_id: e for e in past if isinstance(e, ApprovalRequested) and not e.outcome_unknown
    }
    return {
        memory_key(asked[e.request_id]): e.reason or "rejected"
        for e in past
        if isinstance(e, ApprovalDecided)
        and e.decision == "rejected"
        and is_refusal(e.by)
        and e.request_id in asked
    }


def is_refusal(by: str) -> bool:
    """Whether a no came from somebody: neither from the mode nor because nobody was there."""
    return by != NOBODY_BY and not by.startswith("mode ")


def check_patterns(request: ApprovalRequest | ApprovalRequested, like: Mapping[str, str]) -> None:
    """Refuse patterns that a call does not fit itself.

    Raises:
        DelfError: Naming the argument.
    """
    for name, pattern in like.items():
        if name not in request.arguments:
            known = ", ".join(request.arguments) or "none"
            raise DelfError(
                f"{request.action} was not called with an argument {name!r}",
                hint=f"a pattern can be given for: {known}",
            )
        if not fits_pattern(request.arguments[name], pattern):
            raise DelfError(
                f"the pattern {pattern!r} does not cover {name} of the call that is approved",
                hint="* is anything; other patterns are for text, as *@example.com",
            )
