"""What people decide about: its identity, and decisions as the journal tells of them."""

from __future__ import annotations

import asyncio
import datetime as dt
import decimal
import hashlib
import pathlib
import secrets
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from delf.engine.approvals.pending import Answer
from delf.engine.journal.recording import CUT_OFF
from delf.engine.secrets.redaction import put_back
from delf.events import ApprovalDecided, ApprovalRequested, Event
from delf.protocols.approval import (
    ApprovalRequest,
    Approved,
    Decision,
    Edited,
    Expired,
    Rejected,
    Settled,
)
from delf.protocols.sandbox import GIVEN_UP
from delf.types import ApprovalMode
from delf.values import UnsupportedValueError, dumps

Question = tuple[ApprovalRequested | None, ApprovalDecided | None]
"""A request and its decision, as far as a journal has them."""
_SIMPLE: Final = frozenset(
    {str, int, float, bool, type(None), complex, bytes, decimal.Decimal, uuid.UUID}
    | {dt.datetime, dt.date, dt.time, dt.timedelta, type(pathlib.Path())}
)
_type_of: Callable[[Any], Any] = type
_COLLECTIONS: Final = frozenset({list, tuple, set, frozenset})


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancelled(Expired):
    """Nobody answered before the call was cancelled."""

    after_seconds: float = 0.0


def call_digest(name: str, arguments: Mapping[str, Any]) -> str:
    """SHA-256 over an action's name and its arguments, the identity of a call."""
    content = dumps([name, dict(sorted(arguments.items()))])
    return hashlib.sha256(content).hexdigest()


def identity(name: str, arguments: Mapping[str, Any], given: Mapping[str, Any]) -> str:
    """What tells a call from every other one that a person would have to be asked about.

    An object may show less than it holds, as a secret does, a pattern, or a model with fields
    that it keeps to itself: a call with such arguments is known by what they were made from.

    Args:
        name: The action.
        arguments: Its validated arguments.
        given: The same as the script gave them.
    """
    try:
        if _is_plain(arguments):
            return call_digest(name, arguments)
        if _is_plain(given):
            return call_digest(f"{name} as given", given)
    except (RecursionError, UnsupportedValueError):
        pass
    return secrets.token_hex(32)  # like no other call


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


def memory_key(request: ApprovalRequest | ApprovalRequested) -> str:
    """What an approval is remembered by; for a script, also the actions that pass with it."""
    if request.code is None:
        return request.digest
    return call_digest(request.digest, {"actions": sorted({*request.actions})})


def question_about(request: ApprovalRequest, past: Question) -> Question:
    """What a journal tells of a script's request, unless it was another script or another plan.

    Args:
        request: The request as it would be made now.
        past: The request and the decision that are recorded for the same attempt.
    """
    asked, decided = past
    if asked is None or memory_key(asked) != memory_key(request):
        return None, None
    if decided is not None and decided.request_id != asked.request_id:
        return asked, None
    return asked, decided


def remembered_calls(past: Sequence[Event]) -> set[str]:
    """The calls that need no approval any more, as the journal of a resumed task tells.

    What was to be remembered for the session counts for the task, too: its session has ended.
    A yes to making an interrupted call again is about that one only.
    """
    asked = (e for e in past if isinstance(e, ApprovalRequested) and not e.unsettled)
    keys = {event.request_id: memory_key(event) for event in asked}
    return {
        keys[event.request_id]
        for event in past
        if isinstance(event, ApprovalDecided)
        and event.remember != "no"
        and event.request_id in keys
    }


def with_secrets(
    decision: Decision, request: ApprovalRequest, arguments: Mapping[str, Any] | None
) -> Decision:
    """A decision whose edited arguments have again the secrets that were not shown."""
    if not isinstance(decision, Edited) or arguments is None:
        return decision
    return Edited(arguments=put_back(decision.arguments, request.arguments, arguments))


def said_by_mode(mode: ApprovalMode, request: ApprovalRequest) -> Answer | None:
    """The answer to a request about which nobody is asked; None where somebody is."""
    if mode == "approve_all" and not request.unsettled:
        return Answer(Approved(), "mode approve_all")
    if mode == "strict":
        reason = "every action that needs approval is denied"
        return Answer(Rejected(reason=reason), "mode strict")
    return None


def given_up(error: asyncio.CancelledError) -> Answer:
    """What counts as the answer where a script gave a call up, or its sandbox died."""
    return Answer(Cancelled(), "script" if GIVEN_UP in error.args else CUT_OFF)


def recorded(event: ApprovalDecided) -> Decision:
    """The decision that an event tells of."""
    match event.decision:
        case "approved":
            return Approved(reason=event.reason)
        case "edited":
            return Edited(arguments=event.arguments or {})
        case "settled":
            return Settled(result=event.result, reason=event.reason)
        case "rejected" | "expired":
            return Rejected(reason=event.reason or event.decision)


def fields_of(decision: Decision) -> dict[str, Any]:
    """The fields of the event that tells of a decision."""
    match decision:
        case Approved(reason=reason, remember=remember):
            return {"decision": "approved", "reason": reason, "remember": remember}
        case Edited(arguments=arguments):
            return {"decision": "edited", "arguments": dict(arguments)}
        case Rejected(reason=reason):
            return {"decision": "rejected", "reason": reason}
        case Settled(result=result, reason=reason):
            return {"decision": "settled", "reason": reason, "result": result}
        case Cancelled():
            reason = "the call was given up before anybody answered"
            return {"decision": "expired", "reason": reason}
        case Expired(after_seconds=seconds):
            return {"decision": "expired", "reason": f"nobody answered within {seconds:g} s"}
