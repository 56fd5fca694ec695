"""Decisions: their sources, and their form in events and notes of the journal."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import field, fields, replace
from typing import Any, Final, cast, get_args

from delf.errors import DelfError
from delf.events import ApprovalDecided, Covers, DecisionSource, Remember
from delf.protocols.approval import (
    NO_REASON,
    AlreadyDone,
    Answered,
    ApprovalRequest,
    Approved,
    ChangesRequested,
    Decider,
    Decision,
    Edited,
    Expired,
    Rejected,
)
from delf.protocols.rules import ApprovalRule
from delf.records import dataclass
from delf_engine.redact import restore_secrets

SCRIPT_HINT: Final = "reject it, and say in the reason what to change: the model reads it"
_INTERRUPTED_HINT: Final = (
    "approve makes it again, settle says that it did happen, reject gives it up"
)
# The types of answers to questions; bool is a subclass of int.
_ANSWERS: Final = (str, int, float)


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer to a request, with its author.

    Args:
        decision: The decision.
        who: The person who answered, or the channel that answered.
        inbox_position: The position of the answer in the journal's inbox; None for an answer that
            did not come through the inbox.
        source: Whether a person, the policy, a timeout or nobody gave the answer.
        earlier_voters: The people whose earlier votes count together with this approval.
        needs_other_approver: Whether another person has to approve the call, because the person who
            answered edited the call.
    """

    decision: Decision
    who: Decider = field(default_factory=Decider)
    inbox_position: int | None = None
    source: DecisionSource = "person"
    earlier_voters: tuple[str, ...] = ()
    needs_other_approver: bool = False

    @classmethod
    def given(
        cls,
        decision: Decision,
        source: DecisionSource,
        by: str = "agent",
        *,
        needs_other_approver: bool = False,
    ) -> Answer:
        """Return an answer of a timeout, a rule or an earlier decision.

        Args:
            decision: The decision.
            source: The kind of decider, such as ``policy`` or ``timeout``.
            by: The name of the rule, or of the person who decided earlier; ``agent`` for a timeout
                or another answer of the agent itself.
            needs_other_approver: As in :class:`Answer`.
        """
        return cls(
            decision, Decider(name=by), source=source, needs_other_approver=needs_other_approver
        )

    def data(self) -> dict[str, Any]:
        """Return the fields of the answer in its event; the caller adds those of the request."""
        return {
            "by": self.who.name,
            "via": self.who.via,
            "others": self.earlier_voters,
            "source": self.source,
            # The event's field ``note`` is the position of the answer in the journal's inbox.
            "note": self.inbox_position,
            # The person is recorded only if the person saw the effect of the call.
            "person": self.who.user if self.was_shown else None,
            **decision_data(self.decision),
        }

    @property
    def was_shown(self) -> bool:
        """True if a person gave the answer, and so was shown what the call may change."""
        return self.source == "person"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancelled(Expired):
    """The call was cancelled before an answer."""

    after_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedByCheck(Rejected):
    """The rejection of a call that was approved, but that the connection's check now refuses."""


def unanswered(*, abandoned: bool) -> Answer:
    """Return the answer that closes a request whose call was cancelled before anybody answered.

    Args:
        abandoned: True if the script abandoned the call; False if the script's sandbox died.
    """
    source: DecisionSource = "abandoned" if abandoned else "sandbox_died"
    return Answer.given(Cancelled(), source, "script")


def decision_data(decision: Decision) -> dict[str, Any]:
    """Encode a decision as fields of an event or of a note in the journal's inbox."""
    if isinstance(decision, Cancelled):  # recorded like a request that nobody answered
        reason = "the call was given up before anybody answered"
        return {"decision": "expired", "reason": reason}
    if isinstance(decision, Expired):
        return {"decision": "expired", "reason": why_not_made(decision)}
    names = [each.name for each in fields(decision)]
    data = {name: getattr(decision, name) for name in names}
    if data.get("arguments") is not None:
        data["arguments"] = dict(data["arguments"])
    return {"decision": decision.kind, **data}


def decision_of(data: Mapping[str, Any]) -> Decision | None:
    """Decode a decision from the fields of a journal event, or of a stored answer.

    An expiry becomes a rejection with the recorded reason. None if the fields are invalid.
    """
    reason = data.get("reason")
    reason = None if reason is None else str(reason)
    match data.get("decision"):
        case "approved":
            remember = data.get("remember", "no")
            covers = data.get("covers", "call")
            if remember not in get_args(Remember) or covers not in get_args(Covers):
                return None
            return Approved(remember=remember, covers=covers, reason=reason)
        case "edited" if isinstance(data.get("arguments"), Mapping):
            return Edited(arguments=cast("Mapping[str, Any]", data["arguments"]))
        case "rejected" | "expired" as kind:
            return Rejected(reason=reason or kind)
        case "changes_requested" if reason and reason.strip():
            return ChangesRequested(reason=reason)
        case "answered" if isinstance(data.get("answer"), _ANSWERS):
            return Answered(data["answer"])
        case "already_done":
            return AlreadyDone(result=data.get("result"), reason=reason)
        case _:
            return None


def checked_decision(value: object) -> Decision:
    """Validate a decision of a channel or a program.

    Only decision objects count: neither True nor "approved" is a yes.

    Raises:
        DelfError: If the answer is not a decision, or a field of the decision is invalid.
    """
    # By type, not isinstance: a subclass may mean something else.
    if type(value) not in get_args(Decision):
        raise DelfError(f"{type(value).__name__} is not a decision")
    match value:
        case Expired() | AlreadyDone() | ChangesRequested():
            # Not validated, because no field of these decides whether the call is made.
            return value
        # Check the approval as the journal will store it and read it back: decision_of() returns
        # None, or a different approval, if a field has an invalid value.
        case Approved() if decision_of(decision_data(value)) == value:
            return value
        case Edited(arguments=arguments) if _are_named(arguments):
            return value
        case Answered(answer=answer) if isinstance(answer, _ANSWERS):  # pyright: ignore[reportUnnecessaryIsInstance] - a channel may pass any value
            return value
        case Rejected(reason=reason):
            return Rejected(reason=str(reason or NO_REASON))
        case _:
            raise DelfError(f"the fields of this {type(value).__name__} are invalid")


def _are_named(arguments: object) -> bool:
    if not isinstance(arguments, Mapping):
        return False
    return all(isinstance(name, str) for name in cast("Mapping[object, object]", arguments))


def recorded(event: ApprovalDecided) -> Decision:
    """Return the decision that an event records; :class:`Rejected` if it cannot be read."""
    names = [each.name for each in fields(event)]
    data = {name: getattr(event, name) for name in names}
    return decision_of(data) or Rejected(reason="its decision cannot be read")


def why_not_made(decision: Decision) -> str:
    """Explain to the script why a call is not made."""
    if isinstance(decision, Expired):
        return f"nobody answered within {decision.after_seconds:g} s"
    if isinstance(decision, ChangesRequested):
        return f"changes were requested: {decision.reason}"
    if isinstance(decision, Rejected):
        return decision.reason
    return "it was not approved"


def copy_of(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Copy arguments deeply, so that a recipient cannot change the call.

    A value that cannot be copied is replaced by its ``repr``.
    """
    copied: dict[str, Any] = {}
    for name, value in arguments.items():
        try:
            copied[name] = copy.deepcopy(value)
        except Exception:  # a class of the tool's author may raise anything
            copied[name] = repr(value)
    return copied


def copy_of_request(request: ApprovalRequest) -> ApprovalRequest:
    """Copy a request for a channel or a program, so that neither can change the call."""
    copies: dict[str, Any] = {}
    for item in fields(request):
        value = getattr(request, item.name)
        if isinstance(value, Mapping):
            copies[item.name] = copy_of(cast("Mapping[str, Any]", value))
    return replace(request, **copies)


def with_secrets(
    decision: Decision, request: ApprovalRequest, arguments: Mapping[str, Any] | None
) -> Decision:
    """Put the secrets that were redacted in a request back into the arguments that a person edited.

    Other decisions are returned unchanged. The edited arguments are copied, because the program
    that passed them may still change the original.

    Args:
        decision: The decision.
        request: The request, as the person saw it.
        arguments: The arguments of the call with their secrets; None for a script.
    """
    if not isinstance(decision, Edited) or arguments is None:
        return decision
    shown_arguments = request.arguments
    edited_arguments = restore_secrets(decision.arguments, shown_arguments, arguments)
    return Edited(arguments=copy_of(edited_arguments))


def needs_other_approver(request: ApprovalRequest, decision: Decision) -> bool:
    """Return whether another person has to approve a call after a person edited it."""
    rule = ApprovalRule.from_data(request.rule)
    return isinstance(decision, Edited) and rule is not None and rule.needs_others


def check_fits(request: ApprovalRequest, decision: Decision) -> None:
    """Check that a request accepts a decision.

    - A question accepts only a fitting answer, a rejection or an expiry. No other request accepts
      an answer.
    - A script cannot be edited, or approved for all calls of an action.
    - An interrupted call cannot be edited, and no changes of such a call can be requested. Only an
      interrupted call can be declared as already done.
    - Changes can be requested only if ``request.takes_changes`` is true.

    Raises:
        DelfError: If the request does not accept the decision.
    """
    if request.question is not None:
        if isinstance(decision, Answered):
            request.question.read(decision.answer)
        elif not isinstance(decision, (Rejected, Expired)):
            raise DelfError(
                "the request is a question, and takes an answer or a rejection",
                hint="answer the question, or reject it to decline",
            )
        return
    is_script = request.code is not None
    match decision:
        case Answered():
            raise DelfError(
                "the request asks for approval and is no question", hint="approve it, or reject it"
            )
        case Edited() if is_script:
            raise DelfError("a script cannot be edited", hint=SCRIPT_HINT)
        case Edited() if request.outcome_unknown:
            raise DelfError(
                "the arguments of an interrupted call cannot be changed", hint=_INTERRUPTED_HINT
            )
        case ChangesRequested() if request.outcome_unknown:
            raise DelfError(
                "changes of an interrupted call cannot be requested", hint=_INTERRUPTED_HINT
            )
        case ChangesRequested() if not request.takes_changes:
            raise DelfError(
                "no model works on this task that could change anything",
                hint="reject it, or edit it",
            )
        case AlreadyDone() if not request.outcome_unknown:
            raise DelfError("only an interrupted call can be settled as already done")
        case Approved(covers="action") if is_script:
            raise DelfError("a script has no arguments: only the same script can be remembered")
        case _:
            pass


def fitting_decision(request: ApprovalRequest, value: object) -> Decision:
    """Validate the decision of a channel on a request.

    A decision of a kind that the request does not accept is returned as a rejection with the
    reason.

    Raises:
        DelfError: If the value is not a decision.
    """
    decision = checked_decision(value)
    try:
        check_fits(request, decision)
    except DelfError as error:
        return Rejected(reason=f"{error.message}; {error.hint}" if error.hint else error.message)
    return decision
