"""Decisions about calls: by the mode, by remembered decisions, by the channels in order."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, replace
from fnmatch import fnmatchcase
from typing import Any, Final

from delf.errors import AgentConfirmationError
from delf.events import (
    ApprovalDecided,
    ApprovalRemembered,
    ApprovalRequested,
    content_of,
)
from delf.protocols.approval import (
    AlreadyDone,
    ApprovalRequest,
    Approved,
    Decision,
    Edited,
    Rejected,
    SupportsPresence,
)
from delf.protocols.connection import Allowed, NeedsApproval
from delf.protocols.people import name_of_holder
from delf.tools.action import strictest
from delf_engine.approvals.asking import Asking
from delf_engine.approvals.channels import NamedChannel, copy_of
from delf_engine.approvals.decision import (
    Answer,
    decision_data,
    recorded,
    unanswered,
    why_not,
    with_secrets,
)
from delf_engine.approvals.identity import call_digest
from delf_engine.approvals.remembered import (
    RememberedDecisions,
    call_key,
    is_refusal,
    refused_calls,
)
from delf_engine.approvals.shared import Approvals
from delf_engine.approvals.task_flows import TaskFlows
from delf_engine.calls.call import Call
from delf_engine.changes import situation
from delf_engine.journal.log import TaskLog
from delf_engine.journal.recording import RecordedCall
from delf_engine.task import TaskRequest
from delf_engine.toolset import BoundAction
from delf_engine.waiting import Permit, TaskClock

_log = logging.getLogger(__name__)

SCRIPT: Final = "script"
"""The action of a request for a whole script."""
Question = tuple[ApprovalRequested | None, ApprovalDecided | None]
"""A request and its decision, as far as a journal has them."""


class TaskApprovals:
    """Decides about the calls of one task. Each request is journalled and used once.

    A request can be answered by a channel or, at any time, through the agent: what comes
    first counts. Nobody waits on a terminal for a task that runs in the background.

    Args:
        shared: What the agent's tasks share.
        task: The task.
        log: Where requests and decisions are recorded.
        permit: The task's place among those that run, given up while a person decides.
        clock: The task's time, which stands still meanwhile.
        flows: Finds where values of calls came from; None where nobody wants to know.
    """

    def __init__(
        self,
        shared: Approvals,
        task: TaskRequest,
        log: TaskLog,
        permit: Permit,
        clock: TaskClock,
        flows: TaskFlows | None = None,
    ) -> None:
        self._shared = shared
        self._config = shared.config
        self._task = task
        self._log = log
        self.permit = permit
        self._clock = clock
        self._remembered = RememberedDecisions(
            shared.journal, log.task_id, task.on_behalf_of, shared.project, log.redactor, task.past
        )
        self._refused = refused_calls(task.past)
        self._plans: dict[int, frozenset[str]] = {}
        self._granted: frozenset[str] = frozenset()
        self._flows = flows
        self._asking = Asking(shared, task, log)
        self._looking = asyncio.Lock()

    # -- scripts ------------------------------------------------------------------------

    async def decide_script(
        self,
        code: str,
        attempt: int,
        actions: Sequence[BoundAction],
        past: Question = (None, None),
    ) -> str | None:
        """Ask about a whole script; while it runs, calls of what it names need nobody.

        Args:
            code: The script.
            attempt: Its number.
            actions: Those that it names of the actions that need approval.
            past: The request and the decision in the journal of a resumed task; they count
                only for the same script with the same actions.

        Returns:
            Why it must not run; None when it may.
        """
        request = self._request(
            0,
            action=SCRIPT,
            permission=SCRIPT,
            effect=strictest(bound.action.effect for bound in actions),
            arguments={},
            digest=call_digest(SCRIPT, {"code": code}),
            action_digest=call_digest(SCRIPT, {bound.name: bound.digest for bound in actions}),
            code=self._log.redactor.text(code),
            actions=tuple(bound.name for bound in actions),
            effects={bound.name: bound.action.effect for bound in actions},
        )
        past = _question_about(request, past)
        answer = await self._known(request) if past[1] is None else None
        if answer is None:
            answer = await self._decide(request, None, past)
        if isinstance(answer.decision, Approved):
            self._plans[attempt] = frozenset(bound.digest for bound in actions)
            return None
        return why_not(answer.decision)

    def begin_script(self, attempt: int) -> None:
        """A script is about to run: what was approved with it passes, and nothing else."""
        self._granted = self._plans.get(attempt, frozenset())

    def script_ended(self) -> None:
        """End the approval of the calls that were approved with a script."""
        self._granted = frozenset()

    # -- calls --------------------------------------------------------------------------

    async def must_look(self, bound: BoundAction, arguments: Mapping[str, Any]) -> bool:
        """Tell whether a person has to look at a call for its flow, that needs no approval else."""
        flows = self._flows if self._shared.guards else None
        return flows is not None and await flows.reason_left(bound, arguments) is not None

    async def decide(
        self,
        call: Call,
        verdict: NeedsApproval | Allowed | None = None,
        *,
        past: RecordedCall | None = None,
        outcome_unknown: bool = False,
        changed: bool = False,
    ) -> Answer:
        """The answer about a call.

        Args:
            call: The call.
            verdict: What its connection says about it.
            past: The call in the journal of a resumed task: a decision there is the decision,
                and a request there is the request that waits, unless something else is shown now.
            outcome_unknown: The question is whether to make a call again that was begun.
            changed: Whether it was asked about before, and is another one now.
        """
        bound = call.bound
        flows, guards = self._flows, self._shared.guards
        flow = None
        if flows is not None and guards:
            flow = await flows.reason_left(
                bound,
                call.arguments,
                lambda: self._remembered.flow_rules(bound.name, bound.digest, self._task.worker),
            )
        # By digest: a question in the midst of a call may have the name of an action.
        rule = self._shared.rule_of(bound.name)
        is_free = not (outcome_unknown or flow or rule)
        if is_free and self._granted and bound.digest in self._granted:
            return Answer.given(Approved(reason="approved with its script"), "policy")
        needs_approval = isinstance(verdict, NeedsApproval)
        if is_free and self._is_pre_approved(bound) and not needs_approval:
            return Answer.given(Approved(reason="pre-approved"), "policy")
        if flows is not None and not guards:
            flow = flows.reason(bound, call.arguments)
        safe = self._log.redactor.text
        left_out = {n: v for n, v in bound.action.defaults.items() if n not in call.arguments}
        request = self._request(
            call.number,
            action=bound.name,
            permission=bound.action.permission,
            effect=bound.action.effect,
            arguments=copy_of(self._log.redactor.value(call.arguments)),
            defaults=copy_of(self._log.redactor.value(left_out)),
            description=None if call.description is None else safe(call.description),
            digest=call.digest,
            action_digest=bound.digest,
            shown_digest=None if verdict is None else verdict.digest,
            files_digest=call.files_digest,
            reason=safe(verdict.reason) if isinstance(verdict, NeedsApproval) else None,
            preview=None if verdict is None or verdict.preview is None else safe(verdict.preview),
            files={safe(name): size for name, size in _sizes(call, verdict).items()},
            outcome_unknown=outcome_unknown,
            changed=changed,
            fit=bound.action.validate,
            line=call.line,
            origins={} if flows is None else copy_of(flows.sources(bound, call.arguments)),
            flow=flow,
            rule={} if rule is None else rule.data(),
        )
        question = await self._question_of(request, past)
        if question == (None, None):
            async with self._looking:  # so that those that are asked keep the order of their calls
                known = await self._known(request)
            if known is not None:
                return known
        lapsed = past is not None and past.lapsed
        return await self._decide(request, call, question, lapsed=lapsed)

    async def _question_of(self, request: ApprovalRequest, past: RecordedCall | None) -> Question:
        """The recorded request and decision, unless what they were about is shown otherwise now."""
        if past is None:
            return None, None
        asked, decided = past.question_of(outcome_unknown=request.outcome_unknown)
        if asked is None:
            return None, decided
        was_about = asked.shown_digest, asked.files_digest
        if was_about == (request.shown_digest, request.files_digest):
            return asked, decided
        if decided is None:
            reason = "what is to be done has changed since it was shown"
            await self._log.record(
                ApprovalDecided,
                request_id=asked.request_id,
                by="agent",
                source="changed",
                **decision_data(Rejected(reason=reason)),
            )
            return None, None
        is_yes = decided.decision in ("approved", "edited")
        return (None, None) if is_yes else (asked, decided)

    def _is_pre_approved(self, bound: BoundAction) -> bool:
        """Tell whether the user let it pass; a worker's tool of that name may be another one."""
        patterns = () if self._task.worker else self._config.pre_approved
        return any(fnmatchcase(bound.name, pattern) for pattern in patterns)

    def check_answerable(self, tools: Iterable[BoundAction]) -> None:
        """Refuse a task that is to ask a person, and could ask nobody.

        Args:
            tools: What it may call.

        Raises:
            AgentConfirmationError: Naming what needs approval.
        """
        config, task = self._config, self._task
        if not self._shared.must_ask or config.approval_mode != "interactive":
            return
        if task.patient or config.wait_approvals:
            return
        asking = [bound.name for bound in tools if bound.asks and not self._is_pre_approved(bound)]
        if not asking or any(_can_ask(named) for named in self._shared.channels):
            return
        listed = ", ".join(asking[:5]) + (f" and {len(asking) - 5} more" if asking[5:] else "")
        raise AgentConfirmationError(
            f"approval_mode is interactive, and nobody can be asked about {listed}",
            hint="run it on a terminal, pass on_confirm=…, let it wait with --wait-approvals, or "
            "choose approve_all or strict; pre_approved names actions that need no approval",
        )

    def _request(self, call_id: int, **fields: Any) -> ApprovalRequest:
        stands = situation(self._log.events, fields["digest"], call_id)
        outcome_unknown = fields.get("outcome_unknown", False)  # it has no expiry
        common: dict[str, Any] = {
            "request_id": f"req_{secrets.token_hex(8)}",
            "task_id": self._log.task_id,
            "task": self._log.redactor.text(self._task.task),
            "call_id": call_id,
            **asdict(stands),
            "worker": self._task.worker,
            "parent": None if self._task.child is None else self._task.child.parent,
            "expires_after": None if outcome_unknown else self._config.approval_timeout,
            "asked_by": name_of_holder(self._task.on_behalf_of),
        }
        return ApprovalRequest(**{**common, **fields})

    async def _known(self, request: ApprovalRequest) -> Answer | None:
        """Look up an earlier decision about the same call, or about the action."""
        if request.outcome_unknown:
            return None
        refused = self._refused.get(call_key(request))
        if refused is not None:
            why = f"{refused} (refused before in this task, and not asked again)"
            return Answer.given(Rejected(reason=why), "policy")
        if self._said_by_mode(request) is not None or self._is_suspicious(request):
            return None
        if request.rule:  # a rule is about each call
            return None
        found = await self._remembered.covering(request)
        if found is None:
            return None
        await self._log.record(
            ApprovalRemembered,
            call_id=request.call_id,
            action=request.action,
            digest=request.digest,
            by=found.by,
            decided_at=found.at,
            from_task=found.task_id,
            from_request=found.request_id,
        )
        return Answer.given(Approved(reason="remembered"), "policy", found.by)

    # -- one request ----------------------------------------------------------------------

    async def _decide(
        self,
        request: ApprovalRequest,
        call: Call | None,
        past: Question,
        *,
        lapsed: bool = False,
    ) -> Answer:
        """The answer to a request, with all that is recorded of it.

        Args:
            request: The request, as it may be shown.
            call: The call; None for a whole script.
            past: The request and the decision in the journal of a resumed task.
            lapsed: Whether its sandbox died while it waited.
        """
        asked, decided = past
        if decided is not None:
            decision = with_secrets(recorded(decided), request, _arguments_of(call))
            return Answer.given(decision, decided.source, decided.by)
        async with self._watched_inbox(request):
            if asked is not None:
                request = replace(request, request_id=asked.request_id)
            told = self._tell(request, None if lapsed else asked)
            said = self._said_by_mode(request)
            is_open = True
            try:
                if said is not None:
                    await told
                    is_open = False
                    return await self._take(request, said, call)
                with self._clock.stopped():
                    async with self.permit.given_up():
                        since = None if asked is None else asked.at
                        said = await self._asking.answer(request, told, since=since)
                        is_open = False
                        return await self._take(request, said, call)
            except asyncio.CancelledError:
                if is_open:
                    given_up = call is not None and call.given_up
                    await self._take(request, unanswered(given_up=given_up), call)
                raise

    def _said_by_mode(self, request: ApprovalRequest) -> Answer | None:
        """The answer to a request about which nobody is asked; None where somebody is."""
        mode = self._config.approval_mode
        if request.rule and mode != "strict":
            return None  # the people whom the rule names decide
        if request.outcome_unknown and self._task.settle != "ask":
            decided = Approved() if self._task.settle == "again" else AlreadyDone()
            return Answer.given(decided, "policy", f"settle {self._task.settle}")
        if self._is_suspicious(request):
            if self._config.flows == "deny":
                return Answer.given(Rejected(reason=str(request.flow)), "policy", "flows deny")
        elif mode == "approve_all" and not request.outcome_unknown:
            return Answer.given(Approved(), "policy", "mode approve_all")
        if mode == "strict":
            reason = "every action that needs approval is denied"
            return Answer.given(Rejected(reason=reason), "policy", "mode strict")
        return None

    def _is_suspicious(self, request: ApprovalRequest) -> bool:
        """Tell whether only a person may say yes to it, for where its values came from."""
        return request.flow is not None and self._shared.guards

    @asynccontextmanager
    async def _watched_inbox(self, request: ApprovalRequest) -> AsyncGenerator[None]:
        inbox = self._shared.inbox
        if inbox is None or self._said_by_mode(request) is not None:
            yield
            return
        async with inbox.watched():
            yield

    async def _tell(self, request: ApprovalRequest, asked: ApprovalRequested | None) -> None:
        """Journal a request, so that whoever reads the journal sees it wait, or show it again."""
        if asked is not None:
            self._log.show(asked)
            return
        await self._log.record(ApprovalRequested, **content_of(request))

    async def _take(self, request: ApprovalRequest, said: Answer, call: Call | None) -> Answer:
        """Journal an answer, remember it if it says so, and give it as it is carried out."""
        decision = with_secrets(self._as_it_counts(request, said), request, _arguments_of(call))
        if isinstance(decision, Edited):  # whoever edited it may change it once more
            decision = replace(decision, arguments=copy_of(decision.arguments))
        lasts = isinstance(decision, Approved) and decision.remember == "until_revoked"
        await self._log.record(
            ApprovalDecided,
            request_id=request.request_id,
            by=said.who.name,
            via=said.who.via,
            others=said.others,
            source=said.source,
            note=said.note,
            key=self._remembered.key if lasts else None,
            project=self._remembered.project if lasts else None,
            **decision_data(decision),
        )
        if isinstance(decision, Approved) and decision.remember == "task":
            self._remembered.add(request, decision, said.who.name)
        elif isinstance(decision, Rejected) and is_refusal(said.source, request):
            self._refused[call_key(request)] = decision.reason
        return replace(said, decision=decision)

    def _as_it_counts(self, request: ApprovalRequest, said: Answer) -> Decision:
        """A decision without what its request, or whoever gave it, cannot have."""
        decision = said.decision
        if not isinstance(decision, Approved) or decision.remember == "no":
            return decision
        if request.outcome_unknown or request.rule:
            return replace(decision, remember="no")  # it is about one call
        if decision.remember == "task":
            return decision
        # What one key of a server says holds for no other one's later tasks.
        is_theirs = said.who.key is None or said.who.key == self._remembered.key
        lasts = is_theirs and self._remembered.can_last
        return decision if lasts else replace(decision, remember="task")


def _arguments_of(call: Call | None) -> Mapping[str, Any] | None:
    """A call's arguments with the secrets that its request does not show."""
    return None if call is None else call.arguments


def _sizes(call: Call, verdict: NeedsApproval | Allowed | None) -> dict[str, int]:
    """The sizes of the task's files that a call reads, and of what its connection would send."""
    sizes = {name: len(data) for name, data in call.files.items()}
    return sizes | ({} if verdict is None else dict(verdict.files))


def _can_ask(named: NamedChannel) -> bool:
    channel = named.channel
    return channel.can_ask() if isinstance(channel, SupportsPresence) else True


def _question_about(request: ApprovalRequest, past: Question) -> Question:
    """Take the request and decision of a script from a journal, if script and plan are the same.

    Args:
        request: The request as it would be made now.
        past: The request and the decision that are recorded for the same attempt.
    """
    asked, decided = past
    if asked is None or call_key(asked) != call_key(request):
        return None, None
    if decided is not None and decided.request_id != asked.request_id:
        return asked, None
    return asked, decided
