"""A case for the judges: a call that needs approval, a script or a question, and its ruling."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import cached_property
from typing import Any

from delf.events import ASK, ApprovalDecided, ApprovalRequested
from delf.protocols.approval import ApprovalRequest, RememberedDecision
from delf.protocols.connection import Allowed, NeedsApproval
from delf.protocols.rules import ApprovalRule
from delf.records import dataclass
from delf_engine.approvals.decision import Answer
from delf_engine.approvals.remembered import CallKey
from delf_engine.calls.call import Call


@dataclass(kw_only=True)
class Case:
    """A call that needs approval, or a whole script.

    Args:
        key: The id of the case within the task.
        make_request: Makes the request that a person is shown, without flow and rule.
        call: The call; None for a whole script.
        verdict: The verdict of the connection on the call.
        outcome_unknown: Whether the question is to repeat a call that was begun.
        asked: The recorded request, in a resumed task.
        decided: The recorded decision on that request.
        lapsed: Whether the sandbox of the task died while the request waited.
        changed: Whether a person was asked before about a different effect.
    """

    key: CallKey
    make_request: Callable[[], ApprovalRequest]
    call: Call | None = None
    verdict: NeedsApproval | Allowed | None = None
    outcome_unknown: bool = False
    asked: ApprovalRequested | None = None
    decided: ApprovalDecided | None = None
    lapsed: bool = False
    changed: bool = False

    @cached_property
    def request(self) -> ApprovalRequest:
        """The request as shown now; created lazily, because many cases are decided without one."""
        return self.make_request()

    @property
    def is_question(self) -> bool:
        """True for a question of a script, which only a person answers."""
        return self.call is not None and self.call.bound.name == ASK

    @property
    def arguments(self) -> Mapping[str, Any] | None:
        """The arguments of the call, including the secrets that the request hides."""
        return None if self.call is None else self.call.arguments


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruling:
    """The findings of a case's judges so far; at first, a person has to decide.

    Args:
        answer: The answer; None if a person has to answer.
        has_request: Whether the journal records the request with the answer, like for a person's
            answer.
        remembered: The earlier decision behind the answer.
        flow: Why a person should review the sources of the values.
        rule: The team's rule that names who decides.
    """

    answer: Answer | None = None
    has_request: bool = False
    remembered: RememberedDecision | None = None
    flow: str | None = None
    rule: ApprovalRule | None = None


Judge = Callable[[Case, Ruling], Awaitable[Ruling]]
"""Judges a case, given the ruling of the earlier judges; returns the new ruling."""
