"""Earlier decisions that apply to later calls."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from delf.errors import DelfError
from delf.events import ApprovalDecided, ApprovalRequested, DecisionSource, Event
from delf.protocols.approval import ApprovalRequest, Approved, RememberedDecision
from delf.protocols.journal import Journal, SupportsRemembered
from delf_engine.redact import Redactor

_log = logging.getLogger(__name__)

CallKey = tuple[str, str, str | None]
"""The key of a remembered refusal: the call, the action, and the worker that asks."""


class RememberedDecisions:
    """The decisions that allow later calls of one task.

    Decisions for the task are read from its events. Lasting decisions are in the journal, which is
    read at each call: a revocation by any process takes effect at once.

    Args:
        journal: The journal; if it stores no decisions, they hold within their task only.
        task_id: The task.
        key: The owner of the task; None for the local user.
        project: The folder of its project.
        redactor: Redacts log messages.
        past: The journal of the task, when it is resumed.
    """

    def __init__(
        self,
        journal: Journal | None,
        task_id: str,
        key: str | None,
        project: str,
        redactor: Redactor,
        past: Sequence[Event] = (),
    ) -> None:
        self._journal = journal
        self._task_id = task_id
        self._redactor = redactor
        self.key = key
        self.project = project
        self.refused = refused_calls(past)
        """The calls that a person refused in this task, with the reason."""
        self._task_decisions: list[RememberedDecision] = []
        for asked, decided in _decided(past):
            decision = RememberedDecision.from_events(asked, decided)
            if decision is not None and decided.remember == "task":
                self._task_decisions.append(decision)

    @property
    def can_last(self) -> bool:
        """True if a decision can hold for later tasks."""
        return isinstance(self._journal, SupportsRemembered)

    def add(self, request: ApprovalRequest, decision: Approved, by: str) -> None:
        """Record a decision for the rest of this task."""
        self._task_decisions.append(
            RememberedDecision.from_request(request, decision, by=by, at=time.time())
        )

    async def covering(self, request: ApprovalRequest) -> RememberedDecision | None:
        """Return the decision that covers a call; None if the call needs approval."""
        decisions = (*self._task_decisions, *await self._lasting())
        return next((decision for decision in decisions if decision.covers(request)), None)

    async def flow_rules(
        self, action: str, action_digest: str, worker: str | None
    ) -> tuple[str, ...]:
        """Return the remembered approvals of data flows into an action's arguments."""
        decisions = (*self._task_decisions, *await self._lasting())
        matching = [
            decision.flow_rules
            for decision in decisions
            if (decision.action, decision.action_digest, decision.worker)
            == (action, action_digest, worker)
        ]
        return tuple(chain.from_iterable(matching))

    async def _lasting(self) -> Sequence[RememberedDecision]:
        """Return the lasting decisions; none if the journal is unreadable."""
        if not isinstance(self._journal, SupportsRemembered):
            return ()
        try:
            found = await self._journal.remembered()
        except DelfError as error:
            self._redactor.log_failure(_log, "remembered decisions cannot be read", error)
            return ()
        own = (self.key, self.project)
        return [d for d in found if d.task_id == self._task_id or (d.key, d.project) == own]


def remembering(journal: Journal) -> SupportsRemembered:
    """Return a journal that keeps decisions.

    Raises:
        DelfError: If the journal does not keep decisions.
    """
    if not isinstance(journal, SupportsRemembered):
        raise DelfError("the journal keeps no decisions", hint='use one that does: journal = "sql"')
    return journal


def refused_calls(past: Sequence[Event]) -> dict[CallKey, str]:
    """Return the calls that a person rejected, with the reasons, from a resumed task's journal."""
    return {
        call_key(asked): decided.reason or "rejected"
        for asked, decided in _decided(past)
        if decided.decision == "rejected" and is_refusal(decided.source, asked)
    }


def answer_before(events: Iterable[Event], question: ApprovalRequest) -> ApprovalDecided | None:
    """Return a person's answer to the same question of an earlier script of the task, if any.

    A script that replaces a failed script asks nothing that the person has answered.

    Args:
        events: The task's events.
        question: The question now.
    """
    found: ApprovalDecided | None = None
    for asked, decided in _decided(events):
        is_same = asked.is_question and call_key(asked) == call_key(question)
        if is_same and decided.decision == "answered" and decided.source == "person":
            found = decided if asked.script < question.script else None
    return found


def is_refusal(source: DecisionSource, request: ApprovalRequest) -> bool:
    """Return whether a person rejected a new call; such a refusal holds for the whole task."""
    return source == "person" and not request.outcome_unknown


def call_key(request: ApprovalRequest) -> CallKey:
    """Make the key of a remembered refusal."""
    return request.digest, request.action_digest, request.worker


def _decided(past: Iterable[Event]) -> Iterator[tuple[ApprovalRequested, ApprovalDecided]]:
    """Yield the requests of a task that were decided, with the decisions."""
    asked: dict[str, ApprovalRequested] = {}
    for event in past:
        if isinstance(event, ApprovalRequested):
            asked[event.request_id] = event
        elif isinstance(event, ApprovalDecided) and event.request_id in asked:
            yield asked[event.request_id], event
