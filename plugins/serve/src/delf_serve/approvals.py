"""Approval requests of all processes: listed, checked and answered through the journal."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from delf.errors import DelfError, ToolRefusedError, UnknownRequestError
from delf.protocols.approval import (
    NO_REASON,
    AlreadyDone,
    Answered,
    Approved,
    ChangesRequested,
    Decision,
    Edited,
    Rejected,
    RememberedDecision,
)
from delf.protocols.journal import RequestRecord
from delf.protocols.people import LOCAL, name_of_user
from delf.protocols.rules import ApprovalRule
from delf.protocols.shared_journal import SharedJournal
from delf.tools.action import Action
from delf_cli.answering import (
    assign,
    assignable_people,
    comment,
    decided_data,
    find_request,
    refusal_reason,
    remembered_data,
    remembered_decisions,
    request_data,
    revoke,
    send,
    why_not_approve,
)
from delf_engine.elsewhere import MAX_REQUESTS
from delf_serve.keys import Caller, Keys
from delf_serve.problems import ProblemError
from delf_serve.schemas import (
    AlreadyDoneAnswer,
    AnswerToQuestion,
    Approval,
    AssignableList,
    ChangeWish,
    DecidedView,
    DecisionRequest,
    Edit,
    Rejection,
    Remembered,
    Request,
    RequestList,
    WaitingCount,
)
from delf_serve.tasks.pending_requests import PendingRequests, has_right, may_decide
from delf_serve.tasks.views import TaskViews

if TYPE_CHECKING:
    from delf import Agent


class Approvals:
    """The approval requests of all tasks in the journal.

    Args:
        agent: The agent, whose actions validate edited arguments.
        journal: Returns the journal.
        pending_requests: The requests for which tasks wait.
        views: Distinguishes the tasks of this project from those of other projects.
        keys: The users and their rights.
    """

    def __init__(
        self,
        agent: Agent,
        journal: Callable[[], SharedJournal],
        pending_requests: PendingRequests,
        views: TaskViews,
        keys: Keys,
    ) -> None:
        self._agent = agent
        self._journal = journal
        self._pending_requests = pending_requests
        self._views = views
        self._keys = keys

    async def list(
        self,
        caller: Caller,
        *,
        waiting: bool,
        mine: bool,
        rejectable: bool,
        limit: int,
        offset: int,
    ) -> RequestList:
        """Return the requests that a person may see, oldest first.

        If both ``mine`` and ``rejectable`` are true, the result has the requests of both kinds:
        first those that the person may decide, then those that the person may only reject.

        Args:
            caller: The person.
            waiting: Whether to return pending requests only.
            mine: Whether to return only requests that the person may decide.
            rejectable: Whether to return only requests that the person may reject but not approve.
            limit: The maximum number of requests.
            offset: The number of requests to skip.
        """
        all_records = await self._journal().find_requests(waiting=waiting, limit=MAX_REQUESTS)
        records = [record for record in all_records if caller.sees(record.task.user)]
        if mine or rejectable:
            decidable, only_rejectable = _split_by_right(records, caller)
            records = list[RequestRecord]()
            if mine:
                records += decidable
            if rejectable:
                records += only_rejectable
        page = records[offset : offset + limit]
        more = len(records) > offset + limit
        return RequestList(approvals=[self._view(record, caller) for record in page], more=more)

    async def waiting(self, caller: Caller) -> WaitingCount:
        """Count the requests that a person may decide, and describe the newest one."""
        requests_by_task = await self._pending_requests.by_task()
        mine: list[RequestRecord] = []
        for records in requests_by_task.values():
            visible = [record for record in records if caller.sees(record.task.user)]
            mine += [record for record in visible if may_decide(record, caller)]
        if not mine:
            return WaitingCount(count=0)
        newest = max(mine, key=lambda record: record.requested.at).requested
        return WaitingCount(count=len(mine), action=newest.action, asked_by=newest.asked_by)

    async def detail(self, id_or_prefix: str, caller: Caller) -> Request:
        """Return a request with all its details.

        Args:
            id_or_prefix: The id of the request, or a prefix of the id.
            caller: The caller, who must be allowed to see the request.
        """
        return self._view(await self._find(id_or_prefix, caller), caller)

    async def record(self, request_id: str, caller: Caller) -> RequestRecord:
        """Return a request by its full id, if the person may see it."""
        return await self._find(request_id, caller, needs_whole_id=True)

    async def decide(
        self, request_id: str, given: DecisionRequest, caller: Caller, via: str
    ) -> DecidedView:
        """Decide a request.

        Args:
            request_id: The request's full id.
            given: The decision.
            caller: The person who decides.
            via: The channel of the decision and the person's network address, such as
                ``page, 192.0.2.1``.

        Raises:
            ProblemError: If the request is unknown, if the person may not make this decision, or if
                the answer to a question or the edited arguments of a call are invalid.
            UnknownRequestError: If the request is not pending, for example because another decision
                came first.
            DelfError: If a request of this kind cannot be decided so, for example a call with an
                answer.
        """
        record = await self._find(request_id, caller, needs_whole_id=True)
        if not has_right(record, caller):
            raise ProblemError(403, "you have no right to decide")
        decision = _to_decision(given)
        # The request's approval rule may refuse even a person who has the right to decide.
        if (why := refusal_reason(record, caller.decider(via), decision)) is not None:
            raise ProblemError(403, why, "GET /approvals?mine=true lists what you may decide")
        if isinstance(decision, Answered):
            _check_answer(record, decision)
        if isinstance(decision, Edited):
            await self._check_arguments(record, decision.arguments)
        journal = self._journal()
        decided = await send(journal, record, decision, caller.decider(via))
        return DecidedView.model_validate(decided_data(record, decided))

    async def comment(self, request_id: str, text: str, caller: Caller, via: str) -> Request:
        """Comment on a pending request, by its full id."""
        record = await self._request_to_discuss(request_id, caller)
        return self._view(await comment(self._journal(), record, text, caller.decider(via)), caller)

    async def assign(
        self, request_id: str, person: str | None, caller: Caller, via: str
    ) -> Request:
        """Assign a pending request to a person, or to nobody if ``person`` is None.

        Args:
            request_id: The id of the request.
            person: The person who should decide.
            caller: The caller, who assigns the request.
            via: The channel through which the caller assigns, such as ``page``.
        """
        record = await self._request_to_discuss(request_id, caller)
        return self._view(
            await assign(self._journal(), record, person, caller.decider(via)), caller
        )

    async def _request_to_discuss(self, request_id: str, caller: Caller) -> RequestRecord:
        record = await self._find(request_id, caller, needs_whole_id=True)
        if not _may_comment(caller):
            raise ProblemError(403, "you have no right to comment on requests")
        return record

    async def assignable(self, id_or_prefix: str, caller: Caller) -> AssignableList:
        """Return the people to whom a request can be assigned.

        Args:
            id_or_prefix: The id of the request, or a prefix of the id.
            caller: The caller, who must be allowed to see the request.
        """
        record = await self._find(id_or_prefix, caller)
        people = await assignable_people(self._journal(), record)
        return AssignableList(people=[person.name for person in people])

    def _view(self, record: RequestRecord, caller: Caller) -> Request:
        """Convert a request to the API's model, with what the caller may do with the request."""
        return Request(
            **request_data(record),
            project=self._views.foreign_project(record.task),
            can_decide=may_decide(record, caller),
            can_reject=_may_reject(record, caller),
            can_talk=record.waits and _may_comment(caller),
            why_not=self._why_not_approve(record, caller) if record.waits else None,
        )

    def _why_not_approve(self, record: RequestRecord, caller: Caller) -> str | None:
        if has_right(record, caller):
            reason = why_not_approve(record, caller.decider())
        else:
            reason = "you have no right to decide"
        if reason is not None and self._is_stuck(record):
            reason += ". Nobody can approve it now: reject it, or add a person who may approve it"
        return reason

    def _is_stuck(self, record: RequestRecord) -> bool:
        """Return True if the approval rule permits nobody on this server to approve the request."""
        rule = ApprovalRule.from_data(record.requested.rule)
        # The local user, who decides in a terminal, is not among the people of the server.
        if rule is None or LOCAL in rule.deciders:
            return False
        return not any(
            caller.sees(record.task.user) and may_decide(record, caller)
            for caller in self._keys.everybody()
        )

    async def _check_arguments(
        self, record: RequestRecord, edited_arguments: Mapping[str, Any]
    ) -> None:
        """Validate edited arguments with the action of a request, if this process has the action.

        Raises:
            ProblemError: If the arguments are invalid.
        """
        action = await self._action(record)
        # The gate of the task's own process validates the arguments in any case.
        if action is None:
            return
        arguments = {**record.requested.arguments, **edited_arguments}
        try:
            await asyncio.to_thread(action.validate, arguments)
        except ToolRefusedError as error:
            raise ProblemError(422, error.message, param="arguments") from None

    async def remembered(self, caller: Caller) -> list[Remembered]:
        """Return the remembered approvals that a person may see, oldest first."""
        decisions = await remembered_decisions(self._journal())
        return [_remembered_view(decision) for decision in decisions if caller.sees(decision.user)]

    async def revoke(self, request_id: str, caller: Caller) -> Remembered:
        """Revoke a remembered approval by its full id."""
        journal = self._journal()
        decisions = await remembered_decisions(journal)
        visible_ids = [each.request_id for each in decisions if caller.sees(each.user)]
        if request_id not in visible_ids:
            raise ProblemError(404, f"no decision {request_id[:60]!r} is remembered")
        return _remembered_view(await revoke(journal, request_id, caller.name))

    async def _find(
        self, id_or_prefix: str, caller: Caller, *, needs_whole_id: bool = False
    ) -> RequestRecord:
        """Find a request by its id.

        Args:
            id_or_prefix: The id, or a prefix of the id.
            caller: The caller, who must be allowed to see the request.
            needs_whole_id: Whether to refuse a prefix, as for a decision.
        """
        try:
            record = await find_request(self._journal(), id_or_prefix, caller.sees)
        except UnknownRequestError as error:
            raise ProblemError(404, error.message, code=error.code) from None
        # A prefix that names one request now may name another one by the time of the decision.
        if needs_whole_id and record.requested.request_id != id_or_prefix:
            raise ProblemError(
                404,
                f"no request {id_or_prefix[:60]!r} is known",
                "a decision names the whole request_id",
            )
        return record

    async def _action(self, record: RequestRecord) -> Action | None:
        """Return the action of a request; None if this process does not have the action."""
        # The action is ``CONNECTION.METHOD``; for a plain function, only the function's name.
        owner, _, method = record.requested.action.partition(".")
        for connection in self._agent.tools:
            if connection.name != owner:
                continue
            is_plain_function = connection.is_function and not method
            for action in await connection.actions():
                if is_plain_function or action.name == method:
                    return action
        return None


def _check_answer(record: RequestRecord, answer: Answered) -> None:
    """Raise a 422 for the field ``answer`` if an answer does not fit its question."""
    question = record.requested.question
    if question is None:
        return
    try:
        question.read(answer.answer)
    except DelfError as error:
        detail = f"{error.message}: {error.hint}" if error.hint else error.message
        raise ProblemError(422, detail, param="answer") from None


def _may_comment(caller: Caller) -> bool:
    """Return True if a person may comment on requests and assign them."""
    return not caller.rights.isdisjoint({"run", "decide"})


def _split_by_right(
    records: Sequence[RequestRecord], caller: Caller
) -> tuple[list[RequestRecord], list[RequestRecord]]:
    """Return the requests that a person may decide, and those that the person may only reject."""
    decidable: list[RequestRecord] = []
    only_rejectable: list[RequestRecord] = []
    for record in records:
        if may_decide(record, caller):
            decidable.append(record)
        elif _may_reject(record, caller):
            only_rejectable.append(record)
    return decidable, only_rejectable


def _may_reject(record: RequestRecord, caller: Caller) -> bool:
    """Return True if a person may reject a pending request."""
    if not record.waits or not has_right(record, caller):
        return False
    return refusal_reason(record, caller.decider(), Rejected()) is None


def _remembered_view(decision: RememberedDecision) -> Remembered:
    """Convert a remembered approval to the API's model, which shows only the user's name."""
    name = None if decision.user is None else name_of_user(decision.user)
    return Remembered.model_validate({**remembered_data(decision), "user": name})


def _to_decision(given: DecisionRequest) -> Decision:
    """Convert a request's JSON body to a decision."""
    match given.root:
        case Approval(remember=remember, covers=covers, reason=reason):
            return Approved(remember=remember, covers=covers, reason=reason)
        case Edit(arguments=arguments):
            return Edited(arguments=arguments)
        case AnswerToQuestion(answer=answer):
            return Answered(answer)
        case AlreadyDoneAnswer(result=result, reason=reason):
            return AlreadyDone(result=result, reason=reason)
        case ChangeWish(reason=reason):
            return ChangesRequested(reason=reason)
        case Rejection(reason=reason):
            return Rejected(reason=reason or NO_REASON)
