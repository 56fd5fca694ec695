"""Approval requests as data, and answers sent to the waiting process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final, TypedDict, TypeVar

from delf.errors import (
    ApprovalRejectedError,
    DelfError,
    UnknownRequestError,
)
from delf.events import (
    DECISION_WORDS,
    ApprovalAssigned,
    ApprovalCommented,
    ApprovalDecided,
    ApprovalRequested,
    ApprovalVoted,
    CallFinished,
    CallStarted,
    Covers,
    DecisionKind,
    Remember,
    TaskFinished,
)
from delf.protocols.approval import Approved, Decider, Decision, Edited, RememberedDecision
from delf.protocols.facts import facts_data
from delf.protocols.journal import Journal, RequestRecord
from delf.protocols.people import Person
from delf.protocols.rules import ApprovalRule
from delf.protocols.shared_journal import SharedJournal
from delf.types import TaskState
from delf.values.encoding import to_jsonable_or_repr
from delf_cli.ids import check_id_prefix, short_id
from delf_engine.approvals.ballot import check_vote, deciders, votes_in, why_refused
from delf_engine.approvals.decision import check_fits
from delf_engine.approvals.inbox import ANSWER_KIND, answer_data
from delf_engine.approvals.remembered import require_remembered
from delf_engine.approvals.talk import (
    REMARK_KIND,
    Assignment,
    Comment,
    Remark,
    check_remark,
    encode_remark,
)

RESPONSE_SECONDS: Final = 15.0
"""Seconds to wait until the process that works on the task has recorded an answer.

The process usually responds immediately, unless it is suspended.
"""
_POLL_SECONDS: Final = 0.1
_MAX_SUGGESTIONS: Final = 5

E = TypeVar("E", bound=ApprovalDecided | ApprovalVoted | ApprovalCommented | ApprovalAssigned)


class DecisionRow(TypedDict):
    """A decision about a request as JSON, with the person who decided.

    Args:
        request_id: The id of the request.
        decision: The decision: ``approved``, ``rejected``, ``changes_requested``, ``edited``,
            ``already_done``, ``answered`` or ``expired``.
        by: The person who decided; ``cli`` for ``delf approvals``.
        reason: The note or the reason.
        remember: The duration for which the decision holds for later calls: ``no``, ``task`` or
            ``until_revoked``.
        covers: The later calls for which the decision holds: ``call`` (the same arguments) or
            ``action`` (all).
        arguments: The arguments, if they were edited.
        answer: The answer, if the request was a question.
        at: The Unix time of the decision.
        via: The place from which the decision was given, such as ``slack``.
        others: The people who approved the request before, if a rule requires two approvers.
        is_final: False if another person has to approve the request, too.
    """

    request_id: str
    decision: DecisionKind
    by: str
    reason: str | None
    remember: Remember
    covers: Covers
    arguments: dict[str, Any] | None
    answer: Any
    at: float
    via: str
    others: list[str]
    is_final: bool


class RememberedRow(TypedDict):
    """A remembered approval as JSON, which lets later calls pass.

    Args:
        request_id: The request that was approved; its id is also the id of the decision.
        task_id: The task of the request.
        worker: The worker whose task made the request, if any.
        action: The action that needs no approval.
        covers: The calls that pass: ``call`` (the same arguments) or ``action`` (all calls).
        arguments: The arguments of the calls that pass; null if all calls pass.
        flow_rules: The flows of untrusted data that are allowed, too, as ``source -> target``.
        by: The person who approved the request.
        user: The user of the tasks for which the decision holds; null for the local user.
        project: The folder of the project of these tasks.
        at: The Unix time of the decision.
    """

    request_id: str
    task_id: str
    worker: str | None
    action: str
    covers: Covers
    arguments: dict[str, Any] | None
    flow_rules: list[str]
    by: str
    user: str | None
    project: str | None
    at: float


def state_of_request(record: RequestRecord) -> str:
    """Return the state of an approval request.

    A decided request has its decision as state, such as ``approved`` or ``rejected``. Other states
    are ``waiting``, ``interrupted`` (the task can be resumed) and ``over`` (the task has ended).
    """
    if record.decided is not None:
        return record.decided.decision
    if record.waits:
        return TaskState.WAITING
    if record.task.state is TaskState.INTERRUPTED:
        return TaskState.INTERRUPTED
    return "over"


def request_data(record: RequestRecord) -> dict[str, Any]:
    """Return a request as JSON-ready data."""
    request = record.requested
    decision = record.decided
    fields = {**request.to_dict(), "facts": facts_data(request, record.discussion)}
    comments = [event for event in record.discussion if isinstance(event, ApprovalCommented)]
    return {
        **{name: to_jsonable_or_repr(value) for name, value in fields.items()},
        "state": state_of_request(record),
        "since": request.at,
        "folder": record.task.folder,
        "assignee": record.assignee,
        "comments": [
            {"by": event.by, "text": event.text, "at": event.at, "via": event.via}
            for event in comments
        ],
        "decided": None if decision is None else decided_data(record, decision),
    }


def decided_data(record: RequestRecord, decision: ApprovalDecided | ApprovalVoted) -> DecisionRow:
    """Return a decision, or one vote of two that a request needs, as JSON-ready data.

    ``covers`` says which later calls the decision approves as well. A vote always approves, covers
    only its call, and is not final.
    """
    row = DecisionRow(
        request_id=decision.request_id,
        decision="approved",
        by=decision.by,
        reason=decision.reason,
        remember="no",
        covers="call",
        arguments=None,
        answer=None,
        at=decision.at,
        via=decision.via,
        others=[],
        is_final=False,
    )
    if isinstance(decision, ApprovalVoted):
        return row
    row["decision"] = decision.decision
    row["remember"] = decision.remember
    row["covers"] = decision.covers
    if decision.arguments is not None:
        row["arguments"] = to_jsonable_or_repr(dict(decision.arguments))
    row["answer"] = decision.answer
    row["others"] = list(decision.others)
    rule = ApprovalRule.from_data(record.requested.rule)
    needs_others = rule is not None and rule.needs_others
    # An edited call is a new call, which another person has to approve under such a rule.
    row["is_final"] = not (needs_others and decision.decision == "edited")
    return row


def remembered_data(decision: RememberedDecision) -> RememberedRow:
    """Return a remembered decision as JSON-ready data."""
    arguments = None if decision.arguments is None else dict(decision.arguments)
    return RememberedRow(
        request_id=decision.request_id,
        task_id=decision.task_id,
        worker=decision.worker,
        action=decision.action,
        covers="action" if arguments is None else "call",
        arguments=to_jsonable_or_repr(arguments),
        flow_rules=list(decision.flow_rules),
        by=decision.by,
        user=decision.user,
        project=decision.project,
        at=decision.at,
    )


async def remembered_decisions(journal: Journal) -> Sequence[RememberedDecision]:
    """Return the remembered decisions of a journal.

    Raises:
        DelfError: If the journal does not support remembered decisions.
    """
    return await require_remembered(journal).remembered()


async def revoke(journal: Journal, id_prefix: str, by: str) -> RememberedDecision:
    """Revoke a remembered decision.

    Args:
        journal: The journal.
        id_prefix: The request's id, or a prefix of the id.
        by: The person who revokes.

    Raises:
        UnknownRequestError: If no decision, or more than one, matches.
    """
    decisions = require_remembered(journal)
    request_ids = [decision.request_id for decision in await decisions.remembered()]
    matching_ids: list[str] = []
    if id_prefix and id_prefix not in request_ids:
        prefixes = (id_prefix, f"req_{id_prefix}")  # ``req_`` may be left out
        matching_ids = [request_id for request_id in request_ids if request_id.startswith(prefixes)]
    if not matching_ids:  # a whole id; for an empty or unknown id, the journal raises
        return await decisions.revoke(id_prefix, by)
    if len(matching_ids) > 1:
        raise _several(id_prefix, matching_ids)
    check_id_prefix(id_prefix, matching_ids[0])  # raises if the prefix is too short
    return await decisions.revoke(matching_ids[0], by)


async def find_request(
    journal: SharedJournal, text: str, may_see: Callable[[str | None], bool] | None = None
) -> RequestRecord:
    """Find a request by a prefix of its id, pending or not.

    If several requests match, return the request with exactly this id, else the only pending one.

    Args:
        journal: The journal.
        text: The id, or a prefix.
        may_see: Returns True for each user whose tasks the person may see. When omitted, the
            requests of all tasks are found.

    Raises:
        UnknownRequestError: If no request matches, or several match, and this rule chooses none.
    """
    if not text:
        raise UnknownRequestError(
            "the id of a request is empty", hint="delf approvals list shows what waits"
        )
    records = list(await journal.find_requests(text))
    if may_see is not None:
        records = [record for record in records if may_see(record.task.user)]
    if len(records) > 1:
        exact = [record for record in records if record.requested.request_id == text]
        pending = [record for record in records if record.waits]
        records = exact or pending or records
    if len(records) == 1:
        return records[0]
    if not records:
        raise UnknownRequestError(
            f"no request {text!r} is known", hint="delf approvals list shows what waits"
        )
    raise _several(text, [record.requested.request_id for record in records])


def _several(text: str, names: Sequence[str]) -> UnknownRequestError:
    name_list = _name_list(names)
    return UnknownRequestError(
        f"more than one request begins with {text!r}", hint=f"one of: {name_list}"
    )


def _name_list(names: Sequence[str]) -> str:
    ellipsis = ", …" if len(names) > _MAX_SUGGESTIONS else ""
    return ", ".join(names[:_MAX_SUGGESTIONS]) + ellipsis


async def send(
    journal: SharedJournal,
    record: RequestRecord,
    decision: Decision,
    decider: Decider,
) -> ApprovalDecided | ApprovalVoted:
    """Answer a request and wait until the answer is processed.

    Args:
        journal: The journal.
        record: The request.
        decision: The decision.
        decider: The person who decides.

    Returns:
        The event of the decision; ``ApprovalVoted`` if another person must approve, too.

    Raises:
        UnknownRequestError: If the request was decided before.
        ApprovalRejectedError: If edited arguments were invalid, so that no call was made.
        DelfError: If the answer does not fit the request, the person may not give it, or the
            process that runs the task does not respond.
    """
    _require_waiting(record)
    request = record.requested
    check_fits(request, decision)
    if (refusal := refusal_reason(record, decider, decision)) is not None:
        raise DelfError(refusal, hint="the team's rules are in [agent.approval_rules]")
    if request.rule.get("two_of") and isinstance(decision, Approved):
        # Since ``record`` was read, people may have voted in other processes.
        events = await journal.read(request.task_id, request.seq)
        check_vote(decider, votes_in(events, request.request_id))
    data = answer_data(request.request_id, request.digest, decision, decider)
    position = await journal.post(request.task_id, ANSWER_KIND, data)
    event = await _wait_for_event(journal, record, position, (ApprovalDecided, ApprovalVoted))
    if isinstance(event, ApprovalDecided) and isinstance(decision, Edited):
        await _wait_for_validation(journal, request.call_id, event)
    return event


async def comment(
    journal: SharedJournal, record: RequestRecord, text: str, who: Decider
) -> RequestRecord:
    """Comment on a pending request, and wait until the comment is recorded.

    Args:
        journal: The journal.
        record: The request.
        text: The comment.
        who: The author.

    Returns:
        The request with the comment.

    Raises:
        UnknownRequestError: If the request is not pending.
        DelfError: If the comment is empty or too long, or the process that runs the request's task
            does not respond.
    """
    return await _post_and_wait(journal, record, Comment(text), who)


async def assign(
    journal: SharedJournal, record: RequestRecord, person: str | None, who: Decider
) -> RequestRecord:
    """Assign a pending request to a person, and wait until the assignment is recorded.

    Args:
        journal: The journal.
        record: The request.
        person: The name of a person who may approve the request; None for nobody.
        who: The person who makes the assignment.

    Returns:
        The request with the assignment.

    Raises:
        UnknownRequestError: If the request is not pending.
        DelfError: If the person may not approve the request, or the process that runs the
            request's task does not respond.
    """
    _require_waiting(record)
    if person is not None:
        approvers = [approver.name for approver in await assignable_people(journal, record)]
        if person not in approvers:
            hint = f"one of: {_name_list(approvers)}" if approvers else "delf users add NAME"
            raise DelfError(f"{person[:80]!r} may not approve this request", hint=hint)
    return await _post_and_wait(journal, record, Assignment(person), who)


async def _post_and_wait(
    journal: SharedJournal, record: RequestRecord, remark: Remark, decider: Decider
) -> RequestRecord:
    """Post a comment or an assignment to the task's process, and wait for the recorded event."""
    _require_waiting(record)
    request = record.requested
    check_remark(remark, record.discussion)
    position = await journal.post(
        request.task_id, REMARK_KIND, encode_remark(request.request_id, remark, decider)
    )
    kinds = (ApprovalCommented, ApprovalAssigned)
    await _wait_for_event(journal, record, position, kinds)
    return await find_request(journal, request.request_id)


async def assignable_people(journal: SharedJournal, record: RequestRecord) -> Sequence[Person]:
    """Return the people who may approve a request, and to whom it can be assigned."""
    return deciders(record.requested, record.task.user, await journal.people())


def _require_waiting(record: RequestRecord) -> None:
    if record.waits:
        return
    request_id = record.requested.request_id
    decision = record.decided
    task = record.task
    if decision is not None:
        words = DECISION_WORDS[decision.decision]
        if decision.decision != "expired":
            words += f" by {decision.by}"
        raise _not_pending_error(request_id, words)
    if task.state is TaskState.INTERRUPTED:
        raise UnknownRequestError(
            f"the request {request_id!r} does not wait: the process that worked on its task is "
            "gone",
            hint=f"once the task {task.task_id} is resumed, it can be answered",
        )
    raise _not_pending_error(request_id, f"its task is over ({task.state})")


def _not_pending_error(request_id: str, reason: str) -> UnknownRequestError:
    return UnknownRequestError(
        f"the request {request_id!r} is not pending any more: {reason}",
        hint="an answer that comes late has no effect",
    )


def refusal_reason(record: RequestRecord, decider: Decider, decision: Decision) -> str | None:
    """Return the reason that a person may not give a decision; None if allowed."""
    return why_refused(record.requested, record.task.user, decider, decision)


def why_not_approve(record: RequestRecord, decider: Decider) -> str | None:
    """Return the reason that a person's approval would not count; None if it would."""
    refusal = refusal_reason(record, decider, Approved())
    if refusal is None and record.discussion:
        try:
            check_vote(decider, votes_in(record.discussion, record.requested.request_id))
        except DelfError as error:
            refusal = error.message
    return refusal


async def _wait_for_event(
    journal: SharedJournal, record: RequestRecord, position: int, kinds: tuple[type[E], ...]
) -> E:
    """Wait until the task's process has recorded a message as an event, and return the event.

    Args:
        journal: The journal.
        record: The request.
        position: The position of the message in the journal's inbox.
        kinds: The possible classes of the event.

    Raises:
        UnknownRequestError: If the request is not pending any more.
        DelfError: If the task's process does not respond.
    """
    request_id, task_id = record.requested.request_id, record.requested.task_id
    last_seq = record.requested.seq
    current = record
    deadline = time.monotonic() + RESPONSE_SECONDS
    while time.monotonic() < deadline:
        # Read the state before the events: if the task is over, the events are then complete.
        current = replace(current, task=await journal.task(task_id))
        for event in await journal.read(task_id, last_seq):
            last_seq = event.seq
            # ``note`` is the position of the message that the process has turned into the event.
            is_of_request = getattr(event, "request_id", None) == request_id
            if is_of_request and isinstance(event, kinds) and event.note == position:
                return event
            if is_of_request and isinstance(event, ApprovalDecided):
                current = replace(current, decided=event)
        _require_waiting(current)
        await asyncio.sleep(_POLL_SECONDS)
    raise _no_response(request_id)


def _no_response(request_id: str) -> DelfError:
    return DelfError(
        f"the process of {request_id!r} has not taken the answer within {RESPONSE_SECONDS:g} s",
        hint=f"it may still: delf approvals show {short_id(request_id)}",
    )


async def _wait_for_validation(
    journal: SharedJournal, call_id: int, decision: ApprovalDecided
) -> None:
    """Wait until the task's process has validated the edited arguments.

    Return without an error if the process does not respond in time.

    Raises:
        ApprovalRejectedError: If the arguments are invalid, so that no call was made.
    """
    deadline = time.monotonic() + RESPONSE_SECONDS
    while time.monotonic() < deadline:
        for event in await journal.read(decision.task_id, decision.seq):
            if isinstance(event, (CallStarted, ApprovalRequested)) and event.call_id == call_id:
                return  # the edited arguments were valid
            if isinstance(event, CallFinished) and event.call_id == call_id:
                raise ApprovalRejectedError(
                    event.error or f"{event.action} was not called",
                    hint="the script received this error; no call was made",
                )
            if isinstance(event, TaskFinished):
                return
        await asyncio.sleep(_POLL_SECONDS)
