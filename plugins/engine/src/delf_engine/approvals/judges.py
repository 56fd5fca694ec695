"""The judges of calls and scripts, each for one reason; ``docs/approvals.md`` tells their order.

A judge gets the ruling of the earlier judges, and returns it unchanged if it has no opinion. The
first judges find reasons to approve. The next ones find reasons for which a person must still
review the call. The last judge, :mod:`delf_engine.approvals.people`, asks a person.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from delf.protocols.approval import AlreadyDone, Approved, Rejected
from delf.protocols.connection import NeedsApproval
from delf_engine.approvals.case import Case, Ruling
from delf_engine.approvals.decision import Answer
from delf_engine.approvals.flows import TaskFlows
from delf_engine.approvals.remembered import RememberedDecisions
from delf_engine.approvals.shared import Approvals
from delf_engine.bound_action import BoundAction
from delf_engine.calls.call import Call
from delf_engine.task import TaskRequest

_READ_ONLY: Final = Rejected(reason="this task may only read: every change is denied")


class ModeJudge:
    """Decides by the agent's approval mode and the user's advance approvals.

    Args:
        shared: The approvals that all tasks of the agent share.
        task: The task.
    """

    def __init__(self, shared: Approvals, task: TaskRequest) -> None:
        self._shared = shared
        self._task = task

    async def judge(self, case: Case, ruling: Ruling) -> Ruling:
        """Approve or deny a call by the mode; decide an interrupted call by ``settle``."""
        # First: the mode read_only overrules every later reason to approve.
        if case.call is not None and self.denies(case.call.bound):
            return _journalled(Answer.given(_READ_ONLY, "policy", "mode read_only"))
        if case.outcome_unknown:
            settle = self._task.settle
            if settle == "ask":
                return ruling
            decision = Approved() if settle == "again" else AlreadyDone()
            return _journalled(Answer.given(decision, "policy", f"settle {settle}"))
        is_wanted = case.call is None or isinstance(case.verdict, NeedsApproval)
        if case.call is not None and not is_wanted and self.is_pre_approved(case.call.bound):
            return Ruling(answer=Answer.given(Approved(reason="pre-approved"), "policy"))
        if self._shared.config.approval_mode == "approve_all":
            return _journalled(Answer.given(Approved(), "policy", "mode approve_all"))
        return ruling

    def denies(self, bound_action: BoundAction) -> bool:
        """Return whether the mode denies a call, whether or not the call needs approval."""
        is_change = bound_action.action.effect != "read"
        return is_change and self._shared.config.approval_mode == "read_only"

    def is_pre_approved(self, bound_action: BoundAction) -> bool:
        """Return whether the user approved a call in advance, except for workers' actions."""
        return not self._task.worker and self._shared.is_approved(bound_action.name)


class PlanJudge:
    """Approves the calls that a person approved with their script, while that script runs."""

    def __init__(self) -> None:
        self._plans: dict[int, frozenset[str]] = {}
        self._granted: frozenset[str] = frozenset()

    async def judge(self, case: Case, ruling: Ruling) -> Ruling:
        """Approve a call whose action was approved with the running script.

        Compares digests, because a question during a call may have the name of an action.
        """
        if case.call is None or case.outcome_unknown or case.call.bound.digest not in self._granted:
            return ruling
        return Ruling(answer=Answer.given(Approved(reason="approved with its script"), "policy"))

    def approve(self, attempt: int, actions: Sequence[BoundAction]) -> None:
        """Record that a person approved a script with these actions."""
        self._plans[attempt] = frozenset(bound_action.digest for bound_action in actions)

    def begin(self, attempt: int) -> None:
        """Start a script: only its approved actions pass from now on."""
        self._granted = self._plans.get(attempt, frozenset())

    def end(self) -> None:
        """End the approval of the script's calls."""
        self._granted = frozenset()


class RememberedJudge:
    """Approves calls that an earlier decision covers, unless the mode is strict.

    Args:
        shared: The parts that the agent's tasks share.
        decisions: The decisions that hold.
    """

    def __init__(self, shared: Approvals, decisions: RememberedDecisions) -> None:
        self._is_strict = shared.is_strict
        self._decisions = decisions
        self._lock = asyncio.Lock()

    async def judge(self, case: Case, ruling: Ruling) -> Ruling:
        """Look up an earlier decision about the same call or about its action."""
        is_open = ruling.answer is None and case.asked is None
        if not is_open or case.outcome_unknown or self._is_strict:
            return ruling
        async with self._lock:  # so that requests keep the order of their calls
            remembered = await self._decisions.covering(case.request)
        if remembered is None:
            return ruling
        answer = Answer.given(Approved(reason="remembered"), "policy", remembered.by)
        return Ruling(answer=answer, remembered=remembered)


class FlowsJudge:
    """Requires review of calls that a stranger's words may have caused.

    Args:
        shared: The parts that the agent's tasks share.
        flows: Finds the origins of values; None if origins are off.
        decisions: The valid decisions, which may allow flows.
        worker: The worker that makes the call, if any.
    """

    def __init__(
        self,
        shared: Approvals,
        flows: TaskFlows | None,
        decisions: RememberedDecisions,
        worker: str | None,
    ) -> None:
        self._denies = shared.config.flows == "deny"
        self._flows = flows
        self._guarding_flows = flows if shared.guards else None
        self._decisions = decisions
        self._worker = worker

    async def judge(self, case: Case, ruling: Ruling) -> Ruling:
        """Leave a call with a suspicious flow to a person, or deny it."""
        call = case.call
        if call is None or self._flows is None:
            return ruling
        if self._guarding_flows is None:
            is_shown = ruling.answer is None or ruling.has_request
            return replace(ruling, flow=self._flows.reason(call) if is_shown else None)
        bound_action = call.bound
        flow = await self._guarding_flows.reason_left(
            call,
            lambda: self._decisions.flow_rules(
                bound_action.name, bound_action.digest, self._worker
            ),
        )
        if flow is None:
            return ruling
        if case.outcome_unknown and ruling.answer is not None:  # decided by the option ``settle``
            return replace(ruling, flow=flow)
        if not self._denies:
            return Ruling(flow=flow)
        denial = Answer.given(Rejected(reason=flow), "policy", "flows deny")
        return replace(_journalled(denial), flow=flow)

    async def requires_review(self, call: Call) -> bool:
        """Return whether a person has to review a call that would otherwise need no approval."""
        return (
            self._guarding_flows is not None
            and await self._guarding_flows.reason_left(call) is not None
        )

    def sources(self, arguments: Mapping[str, Any]) -> Mapping[str, dict[str, Any]]:
        """Return the sources of a call's values; empty if origins are off."""
        return {} if self._flows is None else self._flows.sources(arguments)


class RuleJudge:
    """Leaves calls with a team rule to the people whom the rule names.

    Args:
        shared: The parts that the agent's tasks share.
    """

    def __init__(self, shared: Approvals) -> None:
        self._shared = shared

    async def judge(self, case: Case, ruling: Ruling) -> Ruling:
        """Overrule all earlier judges if a team rule covers the call."""
        rule = None if case.call is None else self._shared.rule_of(case.call.bound.name)
        return ruling if rule is None else Ruling(flow=ruling.flow, rule=rule)


def _journalled(answer: Answer) -> Ruling:
    """Return a ruling whose answer is journalled with its request."""
    return Ruling(answer=answer, has_request=True)
