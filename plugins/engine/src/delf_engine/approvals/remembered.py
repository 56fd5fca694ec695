"""Earlier decisions that apply to later calls."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Sequence

from delf.errors import DelfError
from delf.events import ApprovalDecided, ApprovalRequested, DecisionSource, Event
from delf.protocols.approval import ApprovalRequest, Approved, RememberedDecision
from delf.protocols.journal import Journal, SupportsRemembered
from delf_engine.redact import Redactor

_log = logging.getLogger(__name__)

CallKey = tuple[str, str, str | None]
"""The key of a call: the call's digest, the action's digest, and the name of the worker.

The worker is the agent from a ``.worker`` file that made the call; None for the agent itself.
"""


class RememberedDecisions:
    """The earlier decisions that allow calls of one task.

    A decision for the rest of the task is read from the task's events. A lasting decision is read
    from the journal at each call, so that a revocation by any process takes effect at once.

    Args:
        journal: The journal; if it cannot store decisions, no decision outlasts the task.
        task_id: The task.
        user: The user of the task; None for the local user.
        project: The folder of the task's project.
        redactor: Redacts log messages.
        events: The recorded events of a resumed task.
    """

    def __init__(
        self,
        journal: Journal | None,
        task_id: str,
        user: str | None,
        project: str,
        redactor: Redactor,
        events: Sequence[Event] = (),
    ) -> None:
        self._journal = journal
        self._task_id = task_id
        self._redactor = redactor
        self.user = user
        self.project = project
        self.refused = refused_calls(events)
        """The calls that a person refused in this task, with the reasons."""
        self._task_decisions: list[RememberedDecision] = []
        for request_event, decision_event in _decided_requests(events):
            decision = RememberedDecision.from_events(request_event, decision_event)
            if decision is not None and decision_event.remember == "task":
                self._task_decisions.append(decision)

    @property
    def can_outlive_task(self) -> bool:
        """True if a decision can hold for later tasks."""
        return isinstance(self._journal, SupportsRemembered)

    def add(self, request: ApprovalRequest, decision: Approved, by: str) -> None:
        """Record a decision for the rest of this task."""
        self._task_decisions.append(
            RememberedDecision.from_request(request, decision, by=by, at=time.time())
        )

    async def decision_covering(self, request: ApprovalRequest) -> RememberedDecision | None:
        """Return the decision that covers a call; None if the call needs approval."""
        decisions = (*self._task_decisions, *await self._stored_decisions())
        return next((decision for decision in decisions if decision.covers(request)), None)

    async def flow_rules(
        self, action: str, action_digest: str, worker: str | None
    ) -> tuple[str, ...]:
        """Return the remembered approvals of data flows into an action's arguments."""
        rules: list[str] = []
        for decision in (*self._task_decisions, *await self._stored_decisions()):
            is_same_action = decision.action == action and decision.action_digest == action_digest
            if is_same_action and decision.worker == worker:
                rules += decision.flow_rules
        return tuple(rules)

    async def _stored_decisions(self) -> Sequence[RememberedDecision]:
        """Return the decisions in the journal that apply to this task.

        A decision applies if it was made in this task, or if its ``user`` and ``project`` are those
        of this task's user and folder. Empty if the journal cannot be read.
        """
        if not isinstance(self._journal, SupportsRemembered):
            return ()
        try:
            decisions = await self._journal.remembered()
        except DelfError as error:
            self._redactor.log_failure(_log, "remembered decisions cannot be read", error)
            return ()
        scope = (self.user, self.project)

        def applies(decision: RememberedDecision) -> bool:
            is_of_this_task = decision.task_id == self._task_id
            return is_of_this_task or (decision.user, decision.project) == scope

        return list(filter(applies, decisions))


def require_remembered(journal: Journal) -> SupportsRemembered:
    """Return the journal, typed as one that stores lasting decisions.

    Raises:
        DelfError: If the journal does not store decisions.
    """
    if not isinstance(journal, SupportsRemembered):
        raise DelfError("the journal keeps no decisions", hint='use one that does: journal = "sql"')
    return journal


def refused_calls(events: Sequence[Event]) -> dict[CallKey, str]:
    """Return the calls that a person rejected, with the reasons, from a resumed task's journal.

    Requests that expired, and rejected repetitions of interrupted calls, are left out.
    """
    reasons: dict[CallKey, str] = {}
    for request_event, decision_event in _decided_requests(events):
        if decision_event.decision != "rejected":
            continue
        if is_lasting_refusal(decision_event.source, request_event):
            reasons[call_key(request_event)] = decision_event.reason or "rejected"
    return reasons


def answer_before(events: Iterable[Event], question: ApprovalRequest) -> ApprovalDecided | None:
    """Return a person's answer to the same question of an earlier script; None without an answer.

    A script that replaces a failed script need not ask again.

    Args:
        events: The task's events.
        question: The question that the current script asks.
    """
    answers: list[tuple[int, ApprovalDecided]] = []
    for request_event, decision_event in _decided_requests(events):
        is_same = request_event.is_question and call_key(request_event) == call_key(question)
        is_answer = decision_event.decision == "answered" and decision_event.source == "person"
        if is_same and is_answer:
            answers.append((request_event.script, decision_event))
    if not answers:
        return None
    last_script, last_answer = answers[-1]
    # A script that asks the question a second time wants a second answer.
    return last_answer if last_script < question.script else None


def is_lasting_refusal(source: DecisionSource, request: ApprovalRequest) -> bool:
    """Return whether the rejection of a request also rejects all later equal calls of the task.

    True for a rejection by a person, unless the request was about repeating an interrupted call.
    """
    return source == "person" and not request.outcome_unknown


def call_key(request: ApprovalRequest) -> CallKey:
    """Return a key that is equal for two requests about the same call of the same agent."""
    return request.digest, request.action_digest, request.worker


def _decided_requests(
    events: Iterable[Event],
) -> Iterator[tuple[ApprovalRequested, ApprovalDecided]]:
    """Yield each approval request that has a decision, with this decision."""
    requests_by_id: dict[str, ApprovalRequested] = {}
    for event in events:
        if isinstance(event, ApprovalRequested):
            requests_by_id[event.request_id] = event
        elif isinstance(event, ApprovalDecided) and event.request_id in requests_by_id:
            yield requests_by_id[event.request_id], event
