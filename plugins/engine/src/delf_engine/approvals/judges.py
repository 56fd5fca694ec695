"""The judges of calls and scripts, each for one reason; ``docs/approvals.md`` tells their order.

A judge gets the ruling of the earlier judges, and returns this ruling or a new one. The first
judges find reasons to approve. The next judges find reasons for which a person must still review
the call. The last judge, :mod:`delf_engine.approvals.people`, asks a person.
"""

from __future__ import annotations

import ast
import asyncio
import warnings
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, Final

from delf.events import ASK, ApprovalDecided, ApprovalRequested
from delf.protocols.approval import (
    AlreadyDone,
    ApprovalRequest,
    Approved,
    Rejected,
    RememberedDecision,
)
from delf.protocols.connection import Allowed, NeedsApproval
from delf.protocols.rules import ApprovalRule
from delf.protocols.sandbox import check_script
from delf.records import dataclass
from delf_engine.approvals.decision import Answer
from delf_engine.approvals.flows import TaskFlows
from delf_engine.approvals.remembered import CallKey, RememberedDecisions
from delf_engine.approvals.shared import Approvals
from delf_engine.bound_action import BoundAction
from delf_engine.calls.call import Call
from delf_engine.task import TaskRequest
from delf_engine.toolset import Toolset

_READ_ONLY: Final = Rejected(reason="this task may only read: every change is denied")


@dataclass(frozen=True, kw_only=True)
class Case:
    """A call that needs approval, or a whole script.

    Args:
        key: The id of the case within the task.
        make_request: Makes the request to show to a person, without the fields ``flow`` and
            ``rule``, which the last judge adds.
        call: The call; None for a whole script.
        verdict: The verdict of the checks of the call; None without a check.
        outcome_unknown: Whether the call was begun before, so that approving repeats the call.
        request_event: The recorded request, in a resumed task.
        decision_event: The recorded decision on that request.
        request_has_lapsed: Whether the sandbox of the task died while the request waited.
    """

    key: CallKey
    make_request: Callable[[Case], ApprovalRequest]
    call: Call | None = None
    verdict: NeedsApproval | Allowed | None = None
    outcome_unknown: bool = False
    request_event: ApprovalRequested | None = None
    decision_event: ApprovalDecided | None = None
    request_has_lapsed: bool = False

    @cached_property
    def request(self) -> ApprovalRequest:
        """The request to show to a person; made on first use, as many cases need no person."""
        return self.make_request(self)

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
    """The common result of all judges that have checked a case so far.

    A judge checks the case for one reason, such as a rule of the team; the last one asks a person.

    Args:
        answer: The answer; None if a person has to answer.
        needs_journal: Whether the journal records the request together with the answer, although no
            person answered.
        remembered: The earlier decision that the answer repeats.
        flow: Why the origin of the call's values needs a review; None if the origin needs none.
        rule: The team's rule that names the people who decide.
    """

    answer: Answer | None = None
    needs_journal: bool = False
    remembered: RememberedDecision | None = None
    flow: str | None = None
    rule: ApprovalRule | None = None

    @property
    def is_shown(self) -> bool:
        """True if the request of the case is shown to a person or recorded in the journal."""
        return self.answer is None or self.needs_journal

    def answered(
        self,
        answer: Answer,
        *,
        needs_journal: bool = False,
        remembered: RememberedDecision | None = None,
    ) -> Ruling:
        """Return this ruling with an answer.

        Args:
            answer: The answer.
            needs_journal: As in :class:`Ruling`.
            remembered: As in :class:`Ruling`.
        """
        return replace(self, answer=answer, needs_journal=needs_journal, remembered=remembered)

    def left_to_people(self) -> Ruling:
        """Return this ruling without an answer, so that a person has to answer."""
        # The other two fields describe the removed answer.
        return replace(self, answer=None, needs_journal=False, remembered=None)


Judge = Callable[[Case, Ruling], Awaitable[Ruling]]
"""Returns the ruling on a case, from the ruling of the earlier judges.

A case passes all judges in order, so that a later judge can overrule an earlier one.
"""


class ModeJudge:
    """Decides by the agent's approval mode and the user's advance approvals.

    Args:
        approvals: The approvals that all tasks of the agent share.
        task: The task.
    """

    def __init__(self, approvals: Approvals, task: TaskRequest) -> None:
        self._approvals = approvals
        self._task = task

    async def judge(self, case: Case, ruling: Ruling) -> Ruling:
        """Approve or deny a call by the approval mode.

        A call whose outcome is unknown is decided by the task's option ``settle``: ``ask`` a
        person, make the call ``again``, or treat the call as ``done``. The ruling is returned
        unchanged if neither the mode nor the option decides.

        An answer by the mode or the option is recorded in the journal, unless the settings approve
        the action by name.
        """
        # Denials come first, so that the mode read_only overrules all approvals below.
        if case.call is not None and self.denies(case.call.bound):
            answer = Answer.given(_READ_ONLY, "policy", "mode read_only")
            return ruling.answered(answer, needs_journal=True)
        if case.outcome_unknown:
            settle = self._task.settle
            if settle == "ask":
                return ruling
            decision = Approved() if settle == "again" else AlreadyDone()
            answer = Answer.given(decision, "policy", f"settle {settle}")
            return ruling.answered(answer, needs_journal=True)
        if self._is_pre_approved_case(case):
            # Not recorded in the journal, because the settings name the approved action.
            return ruling.answered(Answer.given(Approved(reason="pre-approved"), "policy"))
        if self._approvals.config.approval_mode == "approve_all":
            answer = Answer.given(Approved(), "policy", "mode approve_all")
            return ruling.answered(answer, needs_journal=True)
        return ruling

    def _is_pre_approved_case(self, case: Case) -> bool:
        """Return whether the settings approve the call beforehand.

        False if the connection's check asks for approval of this call.
        """
        if case.call is None or isinstance(case.verdict, NeedsApproval):
            return False
        return self.is_pre_approved(case.call.bound)

    def denies(self, bound_action: BoundAction) -> bool:
        """Return whether the mode ``read_only`` denies an action."""
        is_change = bound_action.action.effect != "read"
        return is_change and self._approvals.config.approval_mode == "read_only"

    def is_pre_approved(self, bound_action: BoundAction) -> bool:
        """Return whether the settings approve an action beforehand.

        Always False in the task of a worker, which is an agent that a script calls.
        """
        return not self._task.worker and self._approvals.is_approved(bound_action.name)


class PlanJudge:
    """Approves calls of the running script if a person approved the script as a whole."""

    def __init__(self) -> None:
        # The digests of the actions that a person approved with a script, by the script's number.
        self._plans: dict[int, frozenset[str]] = {}
        self._granted: frozenset[str] = frozenset()  # the digests for the running script

    async def judge(self, case: Case, ruling: Ruling) -> Ruling:
        """Approve a call whose action a person approved together with the running script."""
        if case.call is None or case.outcome_unknown or case.call.bound.digest not in self._granted:
            return ruling
        return ruling.answered(Answer.given(Approved(reason="approved with its script"), "policy"))

    def approve(self, script_number: int, actions: Sequence[BoundAction]) -> None:
        """Record that a person approved a script with these actions."""
        self._plans[script_number] = frozenset(bound_action.digest for bound_action in actions)

    def begin(self, script_number: int) -> None:
        """Begin a script: approve calls of the actions that a person approved with this script."""
        self._granted = self._plans.get(script_number, frozenset())

    def end(self) -> None:
        """End a script: the actions that were approved with the script need approval again."""
        self._granted = frozenset()


class RememberedJudge:
    """Approves calls that an earlier decision covers, unless the mode is strict.

    Args:
        approvals: The approvals that all tasks of the agent share.
        decisions: The earlier decisions that were not revoked.
    """

    def __init__(self, approvals: Approvals, decisions: RememberedDecisions) -> None:
        self._is_strict = approvals.is_strict  # True if earlier decisions do not count
        self._decisions = decisions
        self._lock = asyncio.Lock()  # held during a look-up, to keep the order of the calls

    async def judge(self, case: Case, ruling: Ruling) -> Ruling:
        """Answer with an earlier decision about the same call or about its action, if there is one.

        Return the ruling unchanged if an earlier judge has answered, if the mode is strict, if the
        call's outcome is unknown, or if a person was asked before the task was resumed.
        """
        was_person_asked = case.request_event is not None
        if ruling.answer is not None or was_person_asked:
            return ruling
        must_ask_person = case.outcome_unknown or self._is_strict
        if must_ask_person:
            return ruling
        # Look up one case at a time. Otherwise one look-up may overtake another, and people would
        # get the requests in another order than the script makes the calls.
        async with self._lock:
            remembered = await self._decisions.decision_covering(case.request)
        if remembered is None:
            return ruling
        answer = Answer.given(Approved(reason="remembered"), "policy", remembered.by)
        return ruling.answered(answer, remembered=remembered)


class FlowsJudge:
    """Requires review of calls that instructions in untrusted data may have caused.

    Args:
        approvals: The approvals that all tasks of the agent share.
        flows: Finds the earlier results and texts that the values of a call come from; None with
            ``flows = "off"``.
        decisions: The earlier decisions that were not revoked; these may allow data flows.
        worker: The worker that makes the call, if any.
    """

    def __init__(
        self,
        approvals: Approvals,
        flows: TaskFlows | None,
        decisions: RememberedDecisions,
        worker: str | None,
    ) -> None:
        self._denies = approvals.config.flows == "deny"
        self._flows = flows
        # True if flows are only shown to people, and never require a review.
        self._only_shows = not approvals.guards
        self._decisions = decisions
        self._worker = worker

    async def judge(self, case: Case, ruling: Ruling) -> Ruling:
        """Let a person decide about a call with a suspicious data flow.

        The person is asked even if an earlier judge has approved the call. With ``flows = "deny"``,
        the call is denied instead. With ``flows = "show"``, the flow is only shown to people who
        are asked anyway.
        """
        call = case.call
        if call is None or self._flows is None:
            return ruling
        if self._only_shows:
            flow = self._flows.reason_to_show(call) if ruling.is_shown else None
            return replace(ruling, flow=flow)
        flow = await self._flows.reason_to_review(call, partial(self._flow_rules, call.bound))
        if flow is None:
            return ruling
        ruling = replace(ruling, flow=flow)
        if case.outcome_unknown and ruling.answer is not None:
            # The user's option ``settle`` has decided whether to repeat this interrupted call.
            return ruling
        if self._denies:
            answer = Answer.given(Rejected(reason=flow), "policy", "flows deny")
            return ruling.answered(answer, needs_journal=True)
        return ruling.left_to_people()

    async def _flow_rules(self, bound_action: BoundAction) -> Sequence[str]:
        """Return the data flows into an action that a person approved for this worker.

        An example is ``mail.read.sender -> mail.send.to``.
        """
        return await self._decisions.flow_rules(
            bound_action.name, bound_action.digest, self._worker
        )

    async def requires_review(self, call: Call) -> bool:
        """Return whether a person has to review a call that would otherwise need no approval."""
        if self._flows is None or self._only_shows:  # by the setting ``flows``
            return False
        return await self._flows.reason_to_review(call) is not None

    def sources(self, arguments: Mapping[str, Any]) -> Mapping[str, dict[str, Any]]:
        """Return where each value in a call's arguments comes from, as plain data by path.

        The mapping is empty if the setting ``flows`` is ``"off"``.
        """
        return {} if self._flows is None else self._flows.sources(arguments)


class RuleJudge:
    """Leaves calls to the people who must approve them according to the settings.

    Args:
        approvals: The approvals that all tasks of the agent share.
    """

    def __init__(self, approvals: Approvals) -> None:
        self._approvals = approvals

    async def judge(self, case: Case, ruling: Ruling) -> Ruling:
        """Leave a call to people if an :class:`ApprovalRule` names the people who must approve it.

        An approval of an earlier judge is then removed from the ruling; a denial stays. Without
        such a rule, the ruling is returned unchanged.
        """
        rule = None if case.call is None else self._approvals.rule_of(case.call.bound.name)
        if rule is None:
            return ruling
        is_denied = ruling.answer is not None and isinstance(ruling.answer.decision, Rejected)
        if not is_denied:
            ruling = ruling.left_to_people()
        return replace(ruling, rule=rule)


def named_actions(code: str, tools: Toolset) -> tuple[BoundAction, ...]:
    """Return the actions in a script that need approval, for display before it runs.

    This is not a security check: approval is enforced at each call, even if the script uses another
    name for an action.

    Args:
        code: The script; an invalid script names nothing.
        tools: The callable tools.
    """
    asking = [bound_action for bound_action in tools if bound_action.asks]
    if not asking:
        return ()
    is_too_large = check_script(code) is not None
    if is_too_large:
        return ()
    try:
        with warnings.catch_warnings(action="ignore"):
            tree = ast.parse(code)
    except (SyntaxError, SystemError, ValueError, RecursionError, MemoryError):
        return ()
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            names.add(f"{node.value.id}.{node.attr}")
        elif isinstance(node, ast.Name):
            names.add(node.id)
    return tuple(bound_action for bound_action in asking if bound_action.name in names)
