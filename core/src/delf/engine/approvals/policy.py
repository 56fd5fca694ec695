"""Decisions about calls: by the mode, by remembered decisions, by the channels in order."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, replace
from fnmatch import fnmatchcase
from typing import Any, Final

from delf.engine.approvals.ballot import Ballot, votes_in
from delf.engine.approvals.channels import NamedChannel, ask_channels, copy_of
from delf.engine.approvals.decision import (
    Answer,
    decision_data,
    recorded,
    unanswered,
    why_not,
    with_secrets,
)
from delf.engine.approvals.flows import Flow, addresses_of, flow_of, reason_of
from delf.engine.approvals.identity import call_digest
from delf.engine.approvals.inbox import Inbox
from delf.engine.approvals.novelty import with_novelty
from delf.engine.approvals.pending import Count, PendingRequests
from delf.engine.approvals.remembered import (
    RememberedDecisions,
    call_key,
    is_refusal,
    refused_calls,
)
from delf.engine.calls.call import Call
from delf.engine.changes import situation
from delf.engine.journal.log import TaskLog
from delf.engine.journal.recording import RecordedCall
from delf.engine.origins import Origins
from delf.engine.task import TaskRequest
from delf.engine.toolset import BoundAction
from delf.engine.waiting import Permit, TaskClock
from delf.errors import AgentConfirmationError, UndecidedCallError
from delf.events import (
    ApprovalDecided,
    ApprovalEscalated,
    ApprovalRemembered,
    ApprovalRequested,
    ApprovalVoted,
    content_of,
)
from delf.protocols.approval import (
    AlreadyDone,
    ApprovalRequest,
    Approved,
    Decision,
    Expired,
    Rejected,
    SupportsEscalation,
    SupportsPresence,
)
from delf.protocols.connection import Allowed, NeedsApproval
from delf.protocols.journal import Journal
from delf.protocols.people import name_of_holder
from delf.protocols.rules import ApprovalRule
from delf.tools.action import strictest
from delf.types import ApprovalMode, FlowMode

_log = logging.getLogger(__name__)

_UNASKED: Final = "it needs a person's approval and nobody could be asked"
_TO_DO: Final = (
    "run it on a terminal, let it wait for `delf approvals` (--wait-approvals), allow it "
    "(--approve all), or give a program on_confirm"
)
NOBODY: Final = f"{_UNASKED}; {_TO_DO}"
SCRIPT: Final = "script"
"""The action of a request for a whole script."""
Question = tuple[ApprovalRequested | None, ApprovalDecided | None]
"""A request and its decision, as far as a journal has them."""
_QUIET_SECONDS: Final = 0.1
_MOST_QUIET_SECONDS: Final = 5.0


class Approvals:
    """The approvals of one agent.

    Args:
        mode: Ask, approve everything, or deny everything.
        channels: Who is asked, in order.
        timeout: Seconds until a request expires, which counts as no.
        pending: Where requests wait, for answers through the agent.
        inbox: Where other processes leave answers.
        wait: Where nobody can be asked, wait for an answer through the agent or the inbox
            instead of taking that for a no.
        pre_approved: Names or patterns of actions that need no approval.
        must_ask: A task that could ask nobody is not begun.
        journal: Where decisions are that hold until they are revoked.
        project: The folder of the project whose later tasks they hold for.
        flows: What is made of where values came from.
        flow_rules: Flows that are no reason to ask.
        rules: The team's rules, by patterns of actions.
    """

    def __init__(
        self,
        mode: ApprovalMode,
        channels: Sequence[NamedChannel],
        timeout: float,
        pending: PendingRequests,
        inbox: Inbox | None = None,
        *,
        wait: bool = False,
        pre_approved: Sequence[str] = (),
        must_ask: bool = False,
        journal: Journal | None = None,
        project: str = "",
        flows: FlowMode = "show",
        flow_rules: Sequence[str] = (),
        rules: Mapping[str, ApprovalRule] | None = None,
    ) -> None:
        self.rules = dict(rules or {})
        self.flows: FlowMode = flows
        self.flow_rules = tuple(flow_rules)
        self.mode: ApprovalMode = mode
        self.channels = tuple(channels)
        self.timeout = timeout
        self.pending = pending
        self.inbox = inbox
        self.wait = wait
        self.pre_approved = tuple(pre_approved)
        self.must_ask = must_ask
        self.journal = journal
        self.project = project

    def rule_of(self, action: str) -> ApprovalRule | None:
        """The team's rule for an action: of those that match, the one with the longest pattern."""
        found = [pattern for pattern in self.rules if fnmatchcase(action, pattern)]
        return self.rules[max(found, key=len)] if found else None

    def for_task(
        self,
        task: TaskRequest,
        log: TaskLog,
        permit: Permit,
        clock: TaskClock | None = None,
        origins: Origins | None = None,
        outline: Callable[[], Awaitable[None]] | None = None,
    ) -> TaskApprovals:
        """The same for one task; without ``origins`` nobody knows where values came from."""
        clock = clock or TaskClock(task.timeout)
        return TaskApprovals(self, task, log, permit, clock, origins, outline)


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
        origins: Finds where values of calls came from.
        outline: Asks a model which calls the task itself asks for.
    """

    def __init__(
        self,
        shared: Approvals,
        task: TaskRequest,
        log: TaskLog,
        permit: Permit,
        clock: TaskClock,
        origins: Origins | None = None,
        outline: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._shared = shared
        self.must_ask = shared.must_ask
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
        self._origins = origins
        self._outline = outline
        self._outlining = asyncio.Lock()
        self._came_at = 0.0
        self._voting: set[asyncio.Future[Any]] = set()
        self._in_turn = asyncio.Lock()
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

    # -- flows --------------------------------------------------------------------------

    def flow(
        self, bound: BoundAction, arguments: Mapping[str, Any], learned: Sequence[str] = ()
    ) -> Flow | None:
        """Find the sources of a call's values; None where flows are off.

        Args:
            bound: What is called.
            arguments: Its validated arguments.
            learned: Rules that a person's yes made, beside those of the settings.
        """
        origins, shared = self._origins, self._shared
        if origins is None or shared.flows == "off":
            return None
        origins.follow(self._log.events)
        safe = self._log.redactor.value(arguments)
        return flow_of(origins, bound, safe, (*shared.flow_rules, *learned))

    async def must_look(self, bound: BoundAction, arguments: Mapping[str, Any]) -> bool:
        """Tell whether a person has to look at a call for its flow, that needs no approval else."""
        origins = self._origins
        if not self._guards or origins is None:
            return False
        if bound.action.effect == "read" and not bound.action.egress:
            return False
        origins.follow(self._log.events)
        safe = self._log.redactor.value(arguments)
        reason = reason_of(origins, bound, safe, self._shared.flow_rules)
        if reason is not None and await self._has_outline():
            reason = reason_of(origins, bound, safe, self._shared.flow_rules)
        return reason is not None

    async def _guarded_flow(self, bound: BoundAction, arguments: Mapping[str, Any]) -> Flow | None:
        """Find a call's flow by all that may let it pass, from the cheapest on."""
        flow = self.flow(bound, arguments)
        if flow is None or flow.reason is None:
            return flow
        learned = await self._remembered.flow_rules(bound.name, bound.digest, self._task.worker)
        flow = self.flow(bound, arguments, learned) if learned else flow
        if flow is not None and flow.reason is not None and await self._has_outline():
            flow = self.flow(bound, arguments, learned)
        return flow

    async def _has_outline(self) -> bool:
        """Have the task's outline, and tell whether there is one; it is asked for once."""
        origins = self._origins
        if origins is None or not origins.own_words:
            return False
        async with self._outlining:
            if origins.outline is None and self._outline is not None:
                ask, self._outline = self._outline, None
                await ask()
                origins.follow(self._log.events)
        return origins.outline is not None

    # -- calls --------------------------------------------------------------------------

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
        flow = await self._guarded_flow(bound, call.arguments) if self._guards else None
        suspicious = flow is not None and flow.reason is not None
        # By digest: a question in the midst of a call may have the name of an action.
        rule = self._shared.rule_of(bound.name)
        is_free = not (outcome_unknown or suspicious or rule)
        if is_free and self._granted and bound.digest in self._granted:
            return Answer(Approved(reason="approved with its script"), source="policy")
        needs_approval = isinstance(verdict, NeedsApproval)
        if is_free and self._is_pre_approved(bound) and not needs_approval:
            return Answer(Approved(reason="pre-approved"), source="policy")
        if not self._guards:
            flow = self.flow(bound, call.arguments)
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
            reason=safe(verdict.reason) if isinstance(verdict, NeedsApproval) else None,
            preview=None if verdict is None or verdict.preview is None else safe(verdict.preview),
            outcome_unknown=outcome_unknown,
            changed=changed,
            fit=bound.action.validate,
            line=call.line,
            origins={} if flow is None else copy_of(flow.data()),
            flow=None if flow is None else flow.reason,
            rule={} if rule is None else rule.data(),
        )
        question = await self._question_of(request, past)
        if question == (None, None):
            async with self._looking:  # so that those that are asked keep the order of their calls
                known = await self._known(request)
                if known is None and self._said_by_mode(request) is None:
                    request = await self._with_novelty(request, call)
            if known is not None:
                return known
            if not call.alone and self._said_by_mode(request) is None:
                await self._script_is_quiet()
        lapsed = past is not None and past.lapsed
        return await self._decide(request, call, question, lapsed=lapsed)

    async def _with_novelty(self, request: ApprovalRequest, call: Call) -> ApprovalRequest:
        """Say in a request which addresses are new to the person whose task it is."""
        safe = self._log.redactor.value(call.arguments)
        addresses = () if call.bound.built_in else addresses_of(call.bound, safe)
        journal, key = self._shared.journal, self._task.on_behalf_of
        origins = await with_novelty(request, addresses, journal, key, self._log.events)
        return replace(request, origins=origins)

    async def _question_of(self, request: ApprovalRequest, past: RecordedCall | None) -> Question:
        """The recorded request and decision, unless what they were about is shown otherwise now."""
        if past is None:
            return None, None
        asked, decided = past.question_of(outcome_unknown=request.outcome_unknown)
        if asked is None or asked.shown_digest == request.shown_digest:
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
        patterns = () if self._task.worker else self._shared.pre_approved
        return any(fnmatchcase(bound.name, pattern) for pattern in patterns)

    def check_answerable(self, tools: Iterable[BoundAction]) -> None:
        """Refuse a task that is to ask a person, and could ask nobody.

        Args:
            tools: What it may call.

        Raises:
            AgentConfirmationError: Naming what needs approval.
        """
        shared, task = self._shared, self._task
        if not self.must_ask or shared.mode != "interactive" or task.patient or shared.wait:
            return
        asking = [bound.name for bound in tools if bound.asks and not self._is_pre_approved(bound)]
        if not asking or any(_can_ask(named) for named in shared.channels):
            return
        listed = ", ".join(asking[:5]) + (f" and {len(asking) - 5} more" if asking[5:] else "")
        raise AgentConfirmationError(
            f"approval_mode is interactive, and nobody can be asked about {listed}",
            hint="run it on a terminal, pass on_confirm=…, let it wait with --wait-approvals, or "
            "choose approve_all or strict; pre_approved names actions that need no approval",
        )

    def _request(self, call_id: int, **fields: Any) -> ApprovalRequest:
        stands = situation(self._log.events, fields["digest"], call_id)
        common: dict[str, Any] = {
            "request_id": f"req_{secrets.token_hex(8)}",
            "task_id": self._log.task_id,
            "task": self._log.redactor.text(self._task.task),
            "call_id": call_id,
            **asdict(stands),
            "worker": self._task.worker,
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
            return Answer(Rejected(reason=why), source="policy")
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
        return Answer(Approved(reason="remembered"), found.by, source="policy")

    async def _script_is_quiet(self) -> None:
        """Wait until the script makes no further call for a moment.

        One that makes many at once may end, or give them up, before anybody could answer: then
        nobody is asked.
        """
        loop = asyncio.get_running_loop()
        self._came_at = loop.time()
        async with self._in_turn:  # those that wait together are asked in the order of their calls
            now = loop.time()
            latest = now + _MOST_QUIET_SECONDS
            while (quiet_at := min(self._came_at + _QUIET_SECONDS, latest)) > now:
                await asyncio.sleep(quiet_at - now)
                now = loop.time()

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
            return Answer(decision, decided.by, source=decided.source)
        async with self._watched_inbox(request):
            if asked is not None:
                request = replace(request, request_id=asked.request_id, origins=asked.origins)
            told = self._tell(request, None if lapsed else asked)
            said = self._said_by_mode(request)
            if said is None:
                with self._clock.stopped():
                    async with self.permit.given_up():
                        since = None if asked is None else asked.at
                        return await self._ask(request, call, told, since=since)
            try:
                await told
            except asyncio.CancelledError:
                await self._take(request, _unanswered(call), call)
                raise
            return await self._take(request, said, call)

    def _said_by_mode(self, request: ApprovalRequest) -> Answer | None:
        """The answer to a request about which nobody is asked; None where somebody is."""
        mode = self._shared.mode
        if request.rule and mode != "strict":
            return None  # the people whom the rule names decide
        if request.outcome_unknown and self._task.settle != "ask":
            decided = Approved() if self._task.settle == "again" else AlreadyDone()
            return Answer(decided, f"settle {self._task.settle}", source="policy")
        if self._is_suspicious(request):
            if self._shared.flows == "deny":
                return Answer(Rejected(reason=str(request.flow)), "flows deny", source="policy")
        elif mode == "approve_all" and not request.outcome_unknown:
            return Answer(Approved(), "mode approve_all", source="policy")
        if mode == "strict":
            reason = "every action that needs approval is denied"
            return Answer(Rejected(reason=reason), "mode strict", source="policy")
        return None

    @property
    def _guards(self) -> bool:
        return self._shared.flows in ("guard", "deny")

    def _is_suspicious(self, request: ApprovalRequest) -> bool:
        """Tell whether only a person may say yes to it, for where its values came from."""
        return request.flow is not None and self._guards

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

    async def _ask(
        self,
        request: ApprovalRequest,
        call: Call | None,
        told: Awaitable[None],
        *,
        since: float | None,
    ) -> Answer:
        """Wait for the answer.

        Once accepted it counts, also for a call that is cancelled meanwhile.

        Args:
            request: The request; it can be answered before anybody sees it.
            call: The call; None for a whole script.
            told: Lets those who look on see it.
            since: Since when it waits, where others saw it wait before.
        """
        pending = self._shared.pending
        count = self._counting(request, since)
        answer = pending.open(request, count)
        escalating: asyncio.Task[None] | None = None
        asking: asyncio.Task[Answer | None] | None = None
        cancelled: asyncio.CancelledError | None = None
        how = "cancelled"
        failures: list[str] = []
        try:
            try:
                await told
                escalating = self._escalating(request, since)
                asking = asyncio.ensure_future(
                    self._ask_channels(request, failures, count, again=since is not None)
                )
                said = await self._first_answer(request, asking, answer, failures)
            except asyncio.CancelledError as error:
                cancelled = error
                said = _said_by_now(asking) or _unanswered(call)
            if not pending.withdraw(request.request_id):
                while not answer.done():  # whoever gave it was told that it counts
                    try:
                        await asyncio.wait({answer})
                    except asyncio.CancelledError as error:
                        cancelled = error
                said = answer.result()
            how = type(said.decision).__name__.lower()
        finally:
            for work in (asking, escalating):
                if work is not None:
                    work.cancel()
            pending.close(request.request_id, how)
        answer = await self._take(request, said, call)
        if cancelled is not None:
            raise cancelled
        return answer

    async def _first_answer(
        self,
        request: ApprovalRequest,
        asking: asyncio.Task[Answer | None],
        answer: asyncio.Future[Answer],
        failures: Sequence[str],
    ) -> Answer:
        """Return the first answer of a channel or of anybody else.

        Args:
            request: The request.
            asking: Asks the channels.
            answer: What anybody else answers.
            failures: The channels that have failed by the end of ``asking``.

        Raises:
            UndecidedCallError: When nobody says what happened to a call. That is not a decision:
                request waits in the journal, for whoever resumes the task.
        """
        try:
            async with asyncio.timeout(self._shared.timeout):
                await asyncio.wait({asking, answer}, return_when=asyncio.FIRST_COMPLETED)
                if answer.done():
                    return answer.result()
                if asking.cancelled():
                    _log.error("an approval channel cancelled the task that asked it")
                said = None if asking.cancelled() else asking.result()
                if said is not None:
                    return said
                if not (self._task.patient or self._shared.wait or self._shared.pending.watched):
                    if request.outcome_unknown:
                        told = f" ({'; '.join(failures)})" if failures else ""
                        raise _undecided(request, f"nobody could be asked about it{told}")
                    return Answer(Rejected(reason=_nobody(failures)), "nobody", source="nobody")
                return await asyncio.shield(answer)
        except TimeoutError:
            if request.outcome_unknown:
                why = f"nobody answered within {self._shared.timeout:g} s"
                raise _undecided(request, why) from None
            expired = Expired(after_seconds=self._shared.timeout)
            return Answer(expired, "clock", source="timeout")

    def _counting(self, request: ApprovalRequest, since: float | None) -> Count:
        """Make answers what they count for under the rule of a request."""
        rule = ApprovalRule.of(request.rule)
        if rule is None:
            return lambda answer: answer
        votes = votes_in(self._log.events, request.request_id)
        loop, asker = asyncio.get_running_loop(), self._task.on_behalf_of
        ballot = Ballot(rule, asker, time.time() if since is None else since, votes)

        def count(answer: Answer) -> Answer | None:
            counted, is_final = ballot.cast(answer)
            if is_final:
                return counted
            loop.call_soon_threadsafe(self._note_vote, request.request_id, counted)
            return None

        return count

    def _note_vote(self, request_id: str, answer: Answer) -> None:
        reason = getattr(answer.decision, "reason", None)
        voting = self._log.record(
            ApprovalVoted,
            request_id=request_id,
            by=answer.by,
            reason=reason,
            key=answer.key,
            note=answer.note,
            via=answer.via,
            instead_of=answer.instead_of,
        )
        work = asyncio.ensure_future(voting)
        self._voting.add(work)
        work.add_done_callback(self._voting.discard)

    def _escalating(
        self, request: ApprovalRequest, since: float | None
    ) -> asyncio.Task[None] | None:
        """Let further people decide once nobody has for as long as the rule says."""
        rule = ApprovalRule.of(request.rule)
        if rule is None or rule.escalate_after is None:
            return None
        waited = 0.0 if since is None else time.time() - since
        seconds, to = rule.escalate_after * 60 - waited, rule.escalate_to

        async def escalate() -> None:
            if seconds > 0:
                await asyncio.sleep(seconds)
                await self._log.record(ApprovalEscalated, request_id=request.request_id, to=to)
            for named in self._shared.channels:
                if isinstance(named.channel, SupportsEscalation):
                    await self._tell_escalated(named, request)

        return asyncio.ensure_future(escalate())

    async def _tell_escalated(self, named: NamedChannel, request: ApprovalRequest) -> None:
        channel: Any = named.channel
        try:
            await channel.escalated(request)
        except Exception as error:  # of whoever wrote the channel; the request waits anyway
            self._log.redactor.log_failure(_log, f"the channel {named.name!r} failed", error)

    async def _ask_channels(
        self, request: ApprovalRequest, failures: list[str], count: Count, *, again: bool
    ) -> Answer | None:
        if again and self._shared.inbox is not None:
            await self._shared.inbox.take_earlier(request.task_id)
            if self._shared.pending.find(request.request_id) is None:
                return None  # it was answered meanwhile
        channels, redactor = self._shared.channels, self._log.redactor
        return await ask_channels(channels, request, self._task, redactor, failures, count)

    async def _take(self, request: ApprovalRequest, said: Answer, call: Call | None) -> Answer:
        """Journal an answer, remember it if it says so, and give it as it is carried out."""
        decision = with_secrets(self._as_it_counts(request, said), request, _arguments_of(call))
        lasts = isinstance(decision, Approved) and decision.remember == "until_revoked"
        await self._log.record(
            ApprovalDecided,
            request_id=request.request_id,
            by=said.by,
            via=said.via,
            instead_of=said.instead_of,
            others=said.others,
            source=said.source,
            note=said.note,
            key=self._remembered.key if lasts else None,
            project=self._remembered.project if lasts else None,
            **decision_data(decision),
        )
        if isinstance(decision, Approved) and decision.remember == "task":
            self._remembered.add(request, decision, said.by)
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
        is_theirs = said.key is None or said.key == self._remembered.key
        lasts = is_theirs and self._remembered.can_last
        return decision if lasts else replace(decision, remember="task")


def _arguments_of(call: Call | None) -> Mapping[str, Any] | None:
    """A call's arguments with the secrets that its request does not show."""
    return None if call is None else call.arguments


def _unanswered(call: Call | None) -> Answer:
    return unanswered(given_up=call is not None and call.given_up)


def _nobody(failures: Sequence[str]) -> str:
    """The reason of a no that nobody gave, with the channels that failed."""
    return f"{_UNASKED} ({'; '.join(failures)}); {_TO_DO}" if failures else NOBODY


def _undecided(request: ApprovalRequest, why: str) -> UndecidedCallError:
    return UndecidedCallError(
        f"{request.action} was begun when its process died, its end is not recorded, and {why}"
    )


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


def _said_by_now(asking: asyncio.Task[Answer | None] | None) -> Answer | None:
    """Return the answer of a channel that has given one."""
    if asking is None or not asking.done() or asking.cancelled():
        return None
    return asking.result()
