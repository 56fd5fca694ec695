"""Decisions of people as the journal tells of them, and as they are carried out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from delf.engine.redaction import put_back
from delf.events import ApprovalDecided, ApprovalRequested, Event
from delf.protocols.approval import (
    ApprovalRequest,
    Approved,
    Decision,
    Edited,
    Rejected,
    Settled,
)


def remembered_calls(past: Sequence[Event]) -> set[str]:
    """The calls that need no approval any more, as the journal of a resumed task tells.

    What was to be remembered for the session counts for the task, too: its session has ended.
    """
    digests = {e.request_id: e.digest for e in past if isinstance(e, ApprovalRequested)}
    return {
        digests[event.request_id]
        for event in past
        if isinstance(event, ApprovalDecided)
        and event.remember != "no"
        and event.request_id in digests
    }


def with_secrets(
    decision: Decision, request: ApprovalRequest, arguments: Mapping[str, Any] | None
) -> Decision:
    """A decision whose edited arguments have again the secrets that were not shown."""
    if not isinstance(decision, Edited) or arguments is None:
        return decision
    return Edited(arguments=put_back(decision.arguments, request.arguments, arguments))


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
