"""Decisions about calls and scripts by a series of judges, the last of which asks people.

:mod:`delf_engine.calls.gate` describes the whole way of a call.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, Final

from delf.errors import AgentConfirmationError
from delf.events import ApprovalDecided, ApprovalRemembered, ApprovalRequested
from delf.protocols.approval import ApprovalRequest, Approved, Rejected, RememberedDecision
from delf.protocols.connection import Allowed, NeedsApproval
from delf.protocols.facts import root_of
from delf.protocols.people import name_of_user
from delf.protocols.rules import ApprovalRule
from delf.tools.action import strictest
from delf.tools.type_texts import mentions_no_name, shorten
from delf_engine.approvals.decision import (
    Answer,
    copy_of,
    needs_other_approver,
    recorded,
    with_secrets,
)
from delf_engine.approvals.flows import TaskFlows
from delf_engine.approvals.judges import (
    Case,
    FlowsJudge,
    Judge,
    ModeJudge,
    PlanJudge,
    RememberedJudge,
    RuleJudge,
    Ruling,
)
from delf_engine.approvals.people import PeopleJudge
from delf_engine.approvals.remembered import RememberedDecisions, answer_before, call_key
from delf_engine.approvals.shared import Approvals
from delf_engine.bound_action import BoundAction
from delf_engine.calls.call import Call, call_digest
from delf_engine.changes import OTHER_AUTHORS_KEY, Course, shapers_of
from delf_engine.journal.log import TaskLog
from delf_engine.journal.recording import RecordedCall, RecordedRequest
from delf_engine.task import TaskRequest
from delf_engine.waiting import Permit, TaskClock

SCRIPT: Final = "script"
"""The value of ``ApprovalRequest.action`` if the request is for a whole script, not for a call."""
# The number of characters of a result's type from which on inner keys are left out.
_MAX_RESULT_TYPE: Final = 600
# The number of actions that a message names.
_MAX_NAMED_ACTIONS: Final = 5
_NOTHING_RECORDED: Final = RecordedRequest()


class TaskApprovals:
    """Decides whether the calls of a task may be made.

    Args:
        approvals: The approvals that all tasks of the agent share.
        task: The task.
        log: The log that records requests and decisions.
        permit: The task's permit to run, released while a person decides.
        clock: The task's clock, paused while a person decides.
        flows: Finds out where the values of calls came from; None if this is switched off.
        can_request_changes: Whether the strategy of the task can act on requested changes.
    """

    def __init__(
        self,
        approvals: Approvals,
        task: TaskRequest,
        log: TaskLog,
        permit: Permit,
        clock: TaskClock,
        flows: TaskFlows | None = None,
        *,
        can_request_changes: bool = False,
    ) -> None:
        self._approvals = approvals
        self._task = task
        self._log = log
        self._decisions = RememberedDecisions(
            approvals.journal,
            log.task_id,
            task.user,
            approvals.project,
            log.redactor,
            task.past,
        )
        # The scripts and changes of the task so far. Each event is read once, because a script may
        # make thousands of calls that need approval.
        self._course = Course()
        self._shaper_names: list[str] = []
        # The number of events whose shapers are in ``_shaper_names``.
        self._processed_event_count = 0
        self._can_request_changes = can_request_changes
        self._mode = ModeJudge(approvals, task)
        self._plan = PlanJudge()
        self._flows = FlowsJudge(approvals, flows, self._decisions, task.worker)
        self.judges: Sequence[Judge] = (
            self._mode.judge,
            self._plan.judge,
            RememberedJudge(approvals, self._decisions).judge,
            self._flows.judge,
            RuleJudge(approvals).judge,
            PeopleJudge(approvals, task, log, permit, clock, self._decisions).judge,
        )

    # -- scripts ------------------------------------------------------------------------

    async def decide_script(
        self,
        code: str,
        attempt: int,
        actions: Sequence[BoundAction],
        recorded_request: RecordedRequest = _NOTHING_RECORDED,
    ) -> Answer:
        """Ask about a whole script; while it runs, calls of its approved actions are allowed.

        Args:
            code: The script.
            attempt: The number of the script in the task.
            actions: The actions in the script that need approval.
            recorded_request: The request and the decision in the journal of a resumed task; they
                count only for the same script with the same actions.
        """
        action_digests = {bound_action.name: bound_action.digest for bound_action in actions}
        request = self._build_request(
            call_id=0,
            action=SCRIPT,
            permission=SCRIPT,
            effect=strictest(bound_action.action.effect for bound_action in actions),
            arguments={},
            digest=call_digest(SCRIPT, {"code": code}),
            # A later change of an action changes this digest, so that the approval is void.
            action_digest=call_digest(SCRIPT, action_digests),
            code=self._log.redactor.redact_text(code),
            actions=tuple(bound_action.name for bound_action in actions),
            effects={bound_action.name: bound_action.action.effect for bound_action in actions},
        )
        request_event, decision_event = _applicable_record(request, recorded_request)
        case = Case(
            key=call_key(request),
            make_request=lambda _: request,
            request_event=request_event,
            decision_event=decision_event,
        )
        answer = await self._answer_to(case)
        if isinstance(answer.decision, Approved):
            self._plan.approve(attempt, actions)
        return answer

    def begin_script(self, attempt: int) -> None:
        """Start a script.

        Calls of the actions that a person approved with the script need no further approval.
        """
        self._plan.begin(attempt)

    def script_ended(self) -> None:
        """End a script: its approved actions need approval again."""
        self._plan.end()

    # -- calls --------------------------------------------------------------------------

    async def requires_review(self, call: Call) -> bool:
        """Return whether :meth:`decide` must be asked about a call whose action needs no approval.

        True if the approval mode ``read_only`` forbids the call, or if untrusted data may have
        caused the call.
        """
        return self._mode.denies(call.bound) or await self._flows.requires_review(call)

    async def decide(
        self,
        call: Call,
        verdict: NeedsApproval | Allowed | None = None,
        *,
        recorded_call: RecordedCall | None = None,
        outcome_unknown: bool = False,
    ) -> Answer:
        """Decide whether a call may be made.

        An earlier decision of the task about the same call or question counts first, such as the
        recorded decision of a resumed task. Without it, the judges decide: the approval mode, the
        approved script, remembered decisions, the checks of data flows, team rules, and people.

        Args:
            call: The call.
            verdict: The verdict of the checks of the call; None for a question of a script.
            recorded_call: The same call in the journal, if the task is resumed. The recorded
                decision and request count, unless the call would be shown differently now.
            outcome_unknown: Whether the call was begun before, so that approving repeats the call.
        """
        case = Case(
            key=(call.digest, call.bound.digest, self._task.worker),
            make_request=self._request_for_call,
            call=call,
            verdict=verdict,
            outcome_unknown=outcome_unknown,
            request_has_lapsed=recorded_call is not None and recorded_call.request_has_lapsed,
        )
        if recorded_call is not None:
            case = await self._with_record(case, recorded_call)
        return await self._answer_to(case)

    async def _answer_to(self, case: Case) -> Answer:
        """Return the answer to a case, from earlier decisions of the task or from the judges."""
        earlier_answer = self._earlier_answer(case)
        if earlier_answer is not None:
            return earlier_answer
        # Only people, asked by the last judge, answer a script's question.
        judges = self.judges[-1:] if case.is_question else self.judges
        ruling = Ruling()
        for judge in judges:
            ruling = await judge(case, ruling)
        if ruling.remembered is not None:
            await self._record_remembered(case, ruling.remembered)
        assert ruling.answer is not None  # noqa: S101 - the last judge always sets an answer
        return ruling.answer

    def _earlier_answer(self, case: Case) -> Answer | None:
        """Return an answer that was given in this task and also decides this case, if any."""
        if case.decision_event is not None:
            return _recorded_answer(case, case.decision_event)
        return self._answer_to_earlier_script(case) or self._earlier_refusal(case)

    def _answer_to_earlier_script(self, case: Case) -> Answer | None:
        """Return a person's answer to the same question of an earlier script, if any."""
        if not case.is_question:
            return None
        # The task was resumed while a person had this question open: that person answers it.
        if case.request_event is not None:
            return None
        event = answer_before(self._log.events, case.request)
        return None if event is None else Answer.given(recorded(event), "policy", event.by)

    def _earlier_refusal(self, case: Case) -> Answer | None:
        """Return a rejection if a person has rejected an equal call in this task, else None."""
        # The earlier rejection says nothing about repeating a call after an interruption.
        if case.outcome_unknown or case.key not in self._decisions.refused:
            return None
        refusal = self._decisions.refused[case.key]
        reason = f"{refusal} (refused before in this task, and not asked again)"
        return Answer.given(Rejected(reason=reason), "policy")

    async def _record_remembered(self, case: Case, remembered: RememberedDecision) -> None:
        """Record in this task that an earlier decision allows a call."""
        await self._log.record(
            ApprovalRemembered,
            call_id=case.request.call_id,
            action=case.request.action,
            digest=case.request.digest,
            by=remembered.by,
            decided_at=remembered.at,
            from_task=remembered.task_id,
            from_request=remembered.request_id,
        )

    async def _with_record(self, case: Case, recorded_call: RecordedCall) -> Case:
        """Return a case with the recorded request and decision about its call, if these apply.

        The record applies if the call, with its preview and its rule, is still as it was when
        requested. Otherwise a pending request is closed, and the call is marked as changed. A
        decision that permits no call, such as a rejection, applies in any case.
        """
        request_event, decision_event = recorded_call.request_for(
            outcome_unknown=case.outcome_unknown
        )
        # The policy decides its own requests at once. If the process died before the decision was
        # recorded, no person has seen the request, and the case is decided like a new one.
        if request_event is None or _is_policy_pending(request_event, decision_event):
            return case
        change = self._what_changed(case, request_event)
        kind = None if decision_event is None else decision_event.decision
        permits_no_call = kind not in (None, "approved", "edited")
        if change is None or permits_no_call:
            return replace(case, request_event=request_event, decision_event=decision_event)
        if kind is None:  # people still see the request: close it
            await self._void(request_event, change)
        assert case.call is not None  # noqa: S101 - only a call has a recorded call
        case.call.has_changed_since_request = True
        return case

    def _what_changed(self, case: Case, request_event: ApprovalRequested) -> str | None:
        """Return how a call differs from its recorded request; None if they are equal."""
        call = case.call
        assert call is not None  # noqa: S101 - only cases with a call are compared
        has_same_arguments = request_event.digest == call.digest
        has_same_preview = request_event.shown_digest == _preview_digest(case)
        has_same_files = request_event.files_digest == call.files_digest
        is_shown_alike = has_same_arguments and has_same_preview and has_same_files
        if not is_shown_alike:
            return "what is to be done has changed since it was shown"
        if case.is_question:  # asks a person something, and has no rule and no effect
            return None
        if ApprovalRule.from_data(request_event.rule) != self._approvals.rule_of(call.bound.name):
            return "the team's rule has changed since it was shown"
        if request_event.effect != call.bound.action.effect:
            return "the effect of the action has changed since it was shown"
        return None

    async def close(
        self, recorded_call: RecordedCall, reason: str, *, outcome_unknown: bool = False
    ) -> None:
        """Close the pending request for approval of a call that needs no answer any more.

        Args:
            recorded_call: The call.
            reason: The reason, for people who still see the request.
            outcome_unknown: Whether to close the question whether to repeat an interrupted call,
                which a person answers otherwise, and not the ordinary request for approval.
        """
        request_event, decision_event = recorded_call.request_for(outcome_unknown=outcome_unknown)
        is_pending = decision_event is None and not recorded_call.request_has_lapsed
        if request_event is not None and is_pending:
            await self._void(request_event, reason)

    async def _void(self, request_event: ApprovalRequested, reason: str) -> None:
        """Close a pending request by a recorded rejection, so that no late approval counts.

        The source ``changed`` distinguishes this rejection from the rejection by a person.
        """
        answer = Answer.given(Rejected(reason=reason), "changed")
        await self._log.record(
            ApprovalDecided, request_id=request_event.request_id, **answer.data()
        )

    @property
    def can_answer(self) -> bool:
        """False if certainly nobody can answer the task's questions; otherwise True."""
        return self._approvals.can_answer(self._task)

    def check_answerable(self, tools: Iterable[BoundAction]) -> None:
        """Check that a person can be asked, if the user chose the mode ``interactive`` explicitly.

        Args:
            tools: The callable tools.

        Raises:
            AgentConfirmationError: If an action needs approval and nobody can be asked; names the
                actions.
        """
        config = self._approvals.config
        task = self._task
        # In the default mode, let the task begin: it may succeed without the calls that need
        # approval.
        is_mode_explicit = "approval_mode" in config.model_fields_set
        if not is_mode_explicit or config.approval_mode != "interactive":
            return
        if task.wait_approvals or config.wait_approvals:
            return
        is_pre_approved = self._mode.is_pre_approved
        asking_actions = [
            bound_action.name
            for bound_action in tools
            if bound_action.asks and not is_pre_approved(bound_action)
        ]
        if not asking_actions:
            return
        if any(channel.can_ask for channel in self._approvals.channels):
            return
        action_list = ", ".join(asking_actions[:_MAX_NAMED_ACTIONS])
        if len(asking_actions) > _MAX_NAMED_ACTIONS:
            action_list += f" and {len(asking_actions) - _MAX_NAMED_ACTIONS} more"
        raise AgentConfirmationError(
            f"approval_mode is interactive, and nobody can be asked about {action_list}",
            hint="run it on a terminal, pass on_confirm=…, let it wait with --wait-approvals, or "
            "choose approve_all or strict; approval_rules names actions to approve",
        )

    # -- what a person is shown ---------------------------------------------------------

    def _request_for_call(self, case: Case) -> ApprovalRequest:
        """Make the request that a person is shown about a call, with secrets redacted."""
        call = case.call
        assert call is not None  # noqa: S101 - requests for scripts are made elsewhere
        verdict = case.verdict
        redactor = self._log.redactor
        bound_action = call.bound
        defaults = bound_action.action.defaults
        omitted = {name: defaults[name] for name in defaults if name not in call.arguments}
        preview: dict[str, Any] = {}
        if verdict is not None:
            preview = verdict.request_fields()
        preview["files"] = _file_sizes(call, verdict)  # the files of the verdict and of the call
        description = call.description
        if description is not None:
            description = redactor.redact_text(description)
        reason = None
        if isinstance(verdict, NeedsApproval):
            reason = redactor.redact_text(verdict.reason)
        # The answer to a question is no argument, so the action cannot validate it.
        validate_edited_arguments = None if case.is_question else bound_action.action.validate
        return self._build_request(
            call.number,
            **redactor.redact_value(preview),
            action=bound_action.name,
            permission=bound_action.action.permission,
            effect=bound_action.action.effect,
            arguments=copy_of(redactor.redact_value(call.arguments)),
            defaults=copy_of(redactor.redact_value(omitted)),
            description=description,
            digest=call.digest,
            action_digest=bound_action.digest,
            shown_digest=_preview_digest(case),
            files_digest=call.files_digest,
            reason=reason,
            outcome_unknown=case.outcome_unknown,
            returns=_result_type(bound_action) if case.outcome_unknown else None,
            changed=call.has_changed_since_request,
            is_question=case.is_question,
            fit=validate_edited_arguments,
            line=call.line,
            origins=copy_of(self._sources(call)),
        )

    def _sources(self, call: Call) -> Mapping[str, dict[str, Any]]:
        """Return the origin of each value in a call's arguments, by the value's path.

        Values that a person edited are left out.
        """
        sources = self._flows.sources(call.arguments)
        return {path: item for path, item in sources.items() if root_of(path) not in call.edited}

    def _shapers(self, asker: str) -> tuple[str, ...]:
        """Return the names of the people who influenced this task, or a task above this task.

        Args:
            asker: The name of the task's user, whose answers do not count.
        """
        from_parent_tasks = self._task.setup.get(OTHER_AUTHORS_KEY, ())
        new_events = self._log.events[self._processed_event_count :]
        self._processed_event_count += len(new_events)
        self._shaper_names += shapers_of(new_events, asker)
        return tuple(dict.fromkeys((*from_parent_tasks, *self._shaper_names)))

    def _build_request(self, call_id: int, **fields: Any) -> ApprovalRequest:
        """Build a request, with the fields that all requests of the task share.

        Args:
            call_id: The number of the call in the task; 0 for a script.
            fields: The fields of the call or the script.
        """
        # What the person should know of the task so far, such as earlier equal calls.
        self._course.follow(self._log.events)
        situation = asdict(self._course.situation(fields["digest"], call_id))
        outcome_unknown = fields.get("outcome_unknown", False)
        is_question = fields.get("is_question", False)
        asker = name_of_user(self._task.user)
        # A request about an interrupted call never expires.
        expires_after = None if outcome_unknown else self._approvals.config.approval_timeout
        takes_changes = self._can_request_changes and not outcome_unknown and not is_question
        common: dict[str, Any] = {
            "request_id": f"req_{secrets.token_hex(8)}",
            "task_id": self._log.task_id,
            "task": self._log.redactor.redact_text(self._task.task),
            "call_id": call_id,
            **situation,
            "worker": self._task.worker,
            "parent": None if self._task.child is None else self._task.child.parent,
            "expires_after": expires_after,
            "asked_by": asker,
            # The people whose edits, answers or changes influenced the task.
            "shaped_by": self._shapers(asker),
            "takes_changes": takes_changes,
        }
        return ApprovalRequest(**{**common, **fields})


def _recorded_answer(case: Case, event: ApprovalDecided) -> Answer:
    """Return the answer to a case that the journal has."""
    decision = with_secrets(recorded(event), case.request, case.arguments)
    needs_another = case.request_event is not None and needs_other_approver(
        case.request_event, decision
    )
    return Answer.given(decision, event.source, event.by, needs_other_approver=needs_another)


def _result_type(bound_action: BoundAction) -> str:
    """Return the type of an action's result, without inner keys if it is long."""
    return shorten(bound_action.action.returns, _MAX_RESULT_TYPE, is_mentioned=mentions_no_name)


def _preview_digest(case: Case) -> str | None:
    """Return the digest of the preview that a person sees; None without a preview."""
    return None if case.verdict is None else case.verdict.digest


def _file_sizes(call: Call, verdict: NeedsApproval | Allowed | None) -> dict[str, int]:
    """Return the size in bytes of each file that a call reads or sends, by file name."""
    sizes = {name: len(data) for name, data in call.files.items()}
    if verdict is not None:
        sizes.update(verdict.files)
    return sizes


def _applicable_record(
    request: ApprovalRequest, recorded_request: RecordedRequest
) -> RecordedRequest:
    """Return the recorded request and decision about a script, as far as they still apply.

    None takes the place of a request or a decision that does not apply.

    Args:
        request: The request for the script now.
        recorded_request: The request and the decision that are recorded for the same attempt.
    """
    request_event, decision_event = recorded_request
    if request_event is None:
        return _NOTHING_RECORDED
    has_script_changed = call_key(request_event) != call_key(request)
    if has_script_changed:
        return _NOTHING_RECORDED
    if _is_policy_pending(request_event, decision_event):
        return _NOTHING_RECORDED  # no person saw the request, so the policy decides again
    if decision_event is not None and decision_event.request_id != request_event.request_id:
        return RecordedRequest(request_event)  # the decision is about another request
    return recorded_request


def _is_policy_pending(
    request_event: ApprovalRequested, decision_event: ApprovalDecided | None
) -> bool:
    """Return whether the policy was to decide a recorded request, but no decision is recorded.

    The earlier process then ended between the request and the decision.
    """
    return request_event.by_policy and decision_event is None
