"""The API operations, from which routes and the OpenAPI document are made."""

from __future__ import annotations

import asyncio
import base64
import json
import mimetypes
import os
import secrets
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any, Final
from urllib.parse import quote

from starlette.responses import FileResponse, Response

from delf.errors import ConfigurationError, DelfError
from delf.protocols.conversation import ChatMessage, ConversationRecord, user_of
from delf.protocols.people import NOTICES, NoticeChoice, Person, digest_of
from delf.types import TaskState
from delf.values.numbers import parse_count
from delf_cli.routines import ROUTINE
from delf_engine.views.figures import figures_csv
from delf_serve import evaluations, history, staff
from delf_serve import schemas as s
from delf_serve.call import Call, json_response, page_of
from delf_serve.channel import check_webhook, ways_of
from delf_serve.event_stream import EventStreamResponse
from delf_serve.keys import Caller
from delf_serve.metrics import metrics_text
from delf_serve.openapi import document
from delf_serve.operation import JSON, Operations
from delf_serve.people import NOTICE_WAYS, Changer, NoticeWay, require_active
from delf_serve.problems import ProblemError
from delf_serve.tasks.conversation_names import is_kept_by_client, shown_name, stored_name
from delf_serve.tasks.submissions import Submitted

_IDEMPOTENCY_HEADER: Final = "Idempotency-Key"
_EVENT_STREAM_MEDIA: Final = "text/event-stream"
_BINARY_MEDIA: Final = "application/octet-stream"
_TASKS_OF_A_BUDGET: Final = 20
_MAX_CONVERSATIONS: Final = 10_000
_NO_PERSON: Final = ((404, "The key is of no person."),)
_NOT_FOUND: Final = ((404, "It is not known."),)
_NO_MODEL: Final = (409, "The model cannot be chosen.")
_BUDGET_EXHAUSTED: Final = (402, "The budget of the user or a team is used up.")
_NO_SEARCH_INDEX: Final = (501, "The journal has no search.")
_CONFLICT: Final = (409, "It is too late, or it cannot be done now.")
_NAME_TOO_LONG: Final = (409, "The name has more bytes than file systems take.")
_TOO_MANY_STREAMS: Final = (503, "Too many streams are open.")
_SCHEDULE_ERRORS: Final = (
    *_NOT_FOUND,
    (409, "The agent has no project."),
    (501, "No plugin brings schedules."),
    (503, "The database of the schedules does not answer."),
)
_SUBMIT_STATUSES: Final = (
    *_NOT_FOUND,
    _BUDGET_EXHAUSTED,
    (200, "The task is over."),
    (409, "The idempotency key is another task's."),
)

OPERATIONS: Final = Operations()
"""All operations of the HTTP API, in the order of the OpenAPI document."""


# -- tasks ------------------------------------------------------------------------------------


@OPERATIONS.add(
    "POST",
    "/run",
    right="run",
    answer=s.Accepted,
    status=202,
    other_responses=_SUBMIT_STATUSES,
    headers=(_IDEMPOTENCY_HEADER,),
)
async def run(call: Call, body: s.RunRequest) -> Response:
    """Submit a task."""
    return await _submit(call, body)


@OPERATIONS.add("GET", "/routines", right="read")
async def list_routines(call: Call, query: s.PageQuery) -> s.RoutineList:
    """Return the routines of the project, with their parameters."""
    routines = await call.service.routines.list(call.caller)
    part, more = page_of(routines.routines, query)
    return routines.model_copy(update={"routines": part, "more": more})


@OPERATIONS.add(
    "POST",
    "/routines",
    right="decide",
    other_responses=(
        *_NOT_FOUND,
        (403, "The name is that of somebody else's routine."),
        (409, "The task cannot become a routine, or the saved one has changed."),
    ),
)
async def save_routine(call: Call, body: s.RoutineSaveRequest) -> s.RoutineDraft:
    """Preview a task as a routine; save the routine if the previewed version is confirmed."""
    return await call.service.routines.save(body, call.caller)


@OPERATIONS.add(
    "POST",
    "/routines/{name}",
    right="run",
    answer=s.Accepted,
    status=202,
    other_responses=_SUBMIT_STATUSES,
    headers=(_IDEMPOTENCY_HEADER,),
)
async def run_routine(call: Call, body: s.RoutineRequest) -> Response:
    """Run a routine, as a task that calls no model."""
    try:
        routines = call.service.routines.of_agent()
        bound = await asyncio.to_thread(routines.find, call.path_parameter("name"))
    except DelfError as error:
        raise ProblemError(404, error.message, "GET /routines") from None
    try:
        task = bound.task(body.inputs)
    except DelfError as error:
        raise ProblemError(422, error.message, "GET /routines") from None
    request = s.RunRequest(task=task, **body.model_dump(exclude={"inputs"}))
    return await _submit(call, request, strategy=ROUTINE)


@OPERATIONS.add("GET", "/evals", right="read")
async def list_evaluations(call: Call, query: s.PageQuery) -> s.EvaluationList:
    """Return the project's evaluation data sets; needs the permission to see all tasks."""
    evaluation_list = await evaluations.list_all(call.service.agent, call.caller)
    part, more = page_of(evaluation_list, query)
    return s.EvaluationList(evaluations=list(part), more=more)


@OPERATIONS.add(
    "GET", "/evals/{name}", right="read", other_responses=((404, "There is no such run."),)
)
async def evaluation_report(call: Call, query: s.RunQuery) -> s.EvaluationReport:
    """Return the report of an evaluation run."""
    agent = call.service.agent
    name = call.path_parameter("name")
    return await evaluations.report(agent, call.caller, name, query.run)


@OPERATIONS.add("GET", "/schedules", right="read")
async def list_schedules(call: Call, query: s.PageQuery) -> s.ScheduleList:
    """Return the schedules whose tasks you may see."""
    schedules = await call.service.schedules.list(call.caller)
    part, more = page_of(schedules.schedules, query)
    return schedules.model_copy(update={"schedules": part, "more": more})


@OPERATIONS.add("POST", "/schedules", right="run", status=201, other_responses=_SCHEDULE_ERRORS)
async def add_schedule(call: Call, body: s.ScheduleRequest) -> s.ScheduleView:
    """Add a schedule: runners do a task at set times, or for each new item that a call returns."""
    return await call.service.schedules.add(body, call.caller)


@OPERATIONS.add(
    "GET", "/schedules/{schedule}/history", right="read", other_responses=_SCHEDULE_ERRORS
)
async def schedule_history(call: Call, query: s.PageQuery) -> s.ScheduleHistory:
    """Return the outcomes of a schedule's most recent firings."""
    firings = await call.service.schedules.history(call.path_parameter("schedule"), call.caller)
    part, more = page_of(firings.firings, query)
    return s.ScheduleHistory(firings=part, more=more)


@OPERATIONS.add(
    "POST", "/schedules/{schedule}/test", right="run", status=202, other_responses=_SCHEDULE_ERRORS
)
async def test_schedule(call: Call) -> s.FiringView:
    """Let a runner do the task of a schedule once, now; calls that change something are refused."""
    return await call.service.schedules.test(call.path_parameter("schedule"), call.caller)


@OPERATIONS.add(
    "POST", "/schedules/{schedule}/pause", right="run", other_responses=_SCHEDULE_ERRORS
)
async def pause_schedule(call: Call, body: s.ScheduleChange) -> s.ScheduleView:
    """Pause a schedule of yours, or resume it."""
    schedules = call.service.schedules
    return await schedules.change(call.path_parameter("schedule"), call.caller, paused=body.paused)


@OPERATIONS.add("DELETE", "/schedules/{schedule}", right="run", other_responses=_SCHEDULE_ERRORS)
async def remove_schedule(call: Call) -> None:
    """Remove a schedule of yours; the tasks that it started stay."""
    await call.service.schedules.remove(call.path_parameter("schedule"), call.caller)


@OPERATIONS.add(
    "POST",
    "/hooks/{name}",
    right=None,
    answer=s.HookAnswer,
    status=202,
    other_responses=(
        (401, "The signature is missing or wrong, or there is no such hook."),
        (409, "Its person may not run tasks."),
        (413, "The message is too long."),
    ),
    headers=("webhook-id", "webhook-timestamp", "webhook-signature"),
    any_query=True,
    request_media="*/*",
)
async def receive_hook(call: Call) -> Response:
    """Accept a signed message of another service, and start a task for it."""
    body = b"".join([chunk async for chunk in call.chunks()])
    headers = dict(call.http.headers)
    hooks = call.service.hooks
    submitted = await hooks.receive(call.path_parameter("name"), headers, body, call.client)
    return json_response(s.HookAnswer(task_id=submitted.task_id, is_new=submitted.is_new), 202)


async def _submit(call: Call, request: s.RunRequest, strategy: str | None = None) -> Response:
    """Submit a task, and wait for the result up to the requested time."""
    idempotency_key = call.http.headers.get("idempotency-key")
    if idempotency_key is not None and not 0 < len(idempotency_key) <= 200:
        raise ProblemError(
            422, f"{_IDEMPOTENCY_HEADER} has 1 to 200 characters", param=_IDEMPOTENCY_HEADER
        )
    submitted = await call.service.tasks.submissions.submit(
        request,
        call.caller,
        idempotency_key=idempotency_key,
        strategy=strategy,
        client=call.client,
    )
    return await _response_of(call, submitted, request.wait)


async def _response_of(call: Call, submitted: Submitted, wait: float) -> Response:
    """Return the response for a submitted task, after waiting up to the requested time.

    Args:
        call: The API request.
        submitted: The submitted task.
        wait: The maximum time to wait for the result, in seconds.
    """
    headers = {} if submitted.is_new else {"idempotent-replayed": "true"}
    # A new task is queued, and is looked up only if the client waits.
    state = TaskState.QUEUED
    approvals = list[str]()
    if wait or not submitted.is_new:
        detail = await _wait_for_task(call, submitted.task_id, wait)
        if detail.is_terminal:
            return json_response(detail, 200, **headers)
        state = detail.state
        approvals = detail.approvals
    url = call.http.scope.get("root_path", "") + f"/tasks/{submitted.task_id}"
    accepted = s.Accepted(
        task_id=submitted.task_id,
        state=state,
        conversation_id=submitted.conversation,
        approvals=approvals,
        url=url,
    )
    return json_response(accepted, 202, location=url, **headers)


async def _wait_for_task(call: Call, task_id: str, seconds: float) -> s.TaskDetail:
    """Wait until a task ends or needs a person, and return the task.

    Args:
        call: The API request.
        task_id: The id of the task.
        seconds: The maximum time to wait.
    """
    if seconds:
        # The caller's rights may have changed during the wait: go on with the present rights.
        call = await call.wait(task_id, seconds)
    return await call.service.tasks.views.detail(task_id, call.caller)


@OPERATIONS.add("GET", "/tasks", right="read")
async def list_tasks(call: Call, query: s.TaskQuery) -> s.TaskList:
    """Return tasks, newest first."""
    tasks, last = await call.service.tasks.views.find(**query.model_dump(), caller=call.caller)
    return s.TaskList(tasks=tasks, more=last is not None, next=last)


@OPERATIONS.add("GET", "/search", right="read", other_responses=(*_NOT_FOUND, _NO_SEARCH_INDEX))
async def search(call: Call, query: s.SearchQuery) -> s.FoundList:
    """Find tasks by their text, scripts, calls, answers and errors."""
    return await history.search(call.service.tasks, query, call.caller)


@OPERATIONS.add(
    "GET",
    "/figures",
    right="read",
    answer=s.FigureList,
    second_media="text/csv",
    # The figures are computed from the journal's search index.
    other_responses=((409, "The time zone is unknown."), _NO_SEARCH_INDEX),
)
async def figures(call: Call, query: s.FiguresQuery) -> s.FigureList | Response:
    """Return tasks, tokens, cost and waiting time by day, person, tool or model."""
    figure_list = await history.figures(call.service.tasks, query, call.caller)
    if query.format == "json":
        part, more = page_of(figure_list, query)
        return history.figure_list(part, more=more)
    disposition = f'attachment; filename="delf-{query.by}.csv"'
    return Response(
        figures_csv(query.by, figure_list),
        media_type="text/csv; charset=utf-8",
        headers={"content-disposition": disposition},
    )


@OPERATIONS.add("GET", "/tasks/{task_id}", right="read", other_responses=_NOT_FOUND)
async def get_task(call: Call, query: s.WaitQuery) -> s.TaskDetail:
    """Return a task with its result."""
    task = await call.service.tasks.views.record(call.path_parameter("task_id"), call.caller)
    return await _wait_for_task(call, task.task_id, query.wait)


@OPERATIONS.add(
    "DELETE", "/tasks/{task_id}", right="delete", other_responses=(*_NOT_FOUND, _CONFLICT)
)
async def delete_task(call: Call) -> None:
    """Delete a task that is not running, with its events and its files."""
    await call.service.tasks.control.remove(call.path_parameter("task_id"), call.caller)


@OPERATIONS.add(
    "GET",
    "/tasks/{task_id}/events",
    right="read",
    media=_EVENT_STREAM_MEDIA,
    frame_schema="Event",
    other_responses=(*_NOT_FOUND, (204, "There are no further events."), _TOO_MANY_STREAMS),
    headers=("Last-Event-ID",),
)
async def task_events(call: Call, query: s.EventQuery) -> Response:
    """Return a task's events as server-sent events. The id of each is the event's number."""
    after = query.after
    last_id = call.http.headers.get("last-event-id", "").strip()
    if last_id:
        number = parse_count(last_id)
        if number is None:
            raise ProblemError(422, "Last-Event-ID is the number of an event")
        after = number
    task = await call.service.tasks.views.view(call.path_parameter("task_id"), call.caller)
    if task.is_terminal and task.events <= after:
        return Response(status_code=204)  # stops a browser's reconnection
    return EventStreamResponse(call, call.service.streams.events(task.task_id, after))


@OPERATIONS.add("GET", "/tasks/{task_id}/prompts", right="read", other_responses=_NOT_FOUND)
async def list_prompts(call: Call, query: s.PageQuery) -> s.PromptList:
    """List a task's model calls: messages, answer and cost of each."""
    name = call.path_parameter("task_id")
    return await call.service.tasks.views.prompts(name, call.caller, query.limit, query.offset)


@OPERATIONS.add(
    "POST", "/tasks/{task_id}/cancel", right="run", other_responses=(*_NOT_FOUND, _CONFLICT)
)
async def cancel_task(call: Call) -> s.Cancelled:
    """Stop a task."""
    task_id, cancelled = await call.service.tasks.control.cancel(
        call.path_parameter("task_id"), call.caller, call.via
    )
    return s.Cancelled(task_id=task_id, cancelled=cancelled)


@OPERATIONS.add(
    "POST",
    "/tasks/{task_id}/resume",
    right="run",
    status=202,
    other_responses=(*_NOT_FOUND, _CONFLICT, _BUDGET_EXHAUSTED),
)
async def resume_task(call: Call, body: s.ResumeRequest) -> s.Task:
    """Resume a task that was interrupted, or that ended at its timeout or budget."""
    task_id = await call.service.tasks.control.resume(
        call.path_parameter("task_id"), call.caller, body.timeout
    )
    return await call.service.tasks.views.view(task_id, call.caller)


@OPERATIONS.add(
    "POST",
    "/tasks/{task_id}/again",
    right="run",
    answer=s.Accepted,
    status=202,
    other_responses=(*_NOT_FOUND, _BUDGET_EXHAUSTED, (200, "The task is over."), _CONFLICT),
)
async def run_again(call: Call, body: s.AgainRequest) -> Response:
    """Repeat a task with the same files, answer type and conversation."""
    submitted = await call.service.tasks.repeats.repeat(
        call.path_parameter("task_id"), body, call.caller, call.client
    )
    return await _response_of(call, submitted, body.wait)


@OPERATIONS.add(
    "POST",
    "/tasks/{task_id}/fork",
    right="run",
    status=202,
    other_responses=(*_NOT_FOUND, _NO_MODEL, _BUDGET_EXHAUSTED),
)
async def fork_task(call: Call, body: s.ForkRequest) -> s.Task:
    """Start a new task that repeats another task from one of its events."""
    tasks = call.service.tasks
    name = await tasks.repeats.fork(call.path_parameter("task_id"), body, call.caller, call.client)
    return await tasks.views.view(name, call.caller)


@OPERATIONS.add(
    "GET", "/tasks/{task_id}/compare/{other_id}", right="read", other_responses=_NOT_FOUND
)
async def compare_tasks(call: Call) -> s.Comparison:
    """Compare two tasks: figures, scripts, calls, answers."""
    one = call.path_parameter("task_id")
    other = call.path_parameter("other_id")
    return await history.compare(call.service.tasks, one, other, call.caller)


@OPERATIONS.add(
    "GET",
    "/events",
    right="read",
    media=_EVENT_STREAM_MEDIA,
    frame_schema="Task",
    other_responses=(_TOO_MANY_STREAMS,),
)
async def changes(call: Call) -> Response:
    """Stream tasks as server-sent events whenever they change."""
    return EventStreamResponse(call, call.service.streams.changes(call.caller))


# -- files ------------------------------------------------------------------------------------


@OPERATIONS.add(
    "GET",
    "/tasks/{task_id}/files/{name}",
    right="read",
    media=_BINARY_MEDIA,
    other_responses=(*_NOT_FOUND, (410, "It is not on this machine any more.")),
)
async def get_file(call: Call) -> Response:
    """Return a file that a task created."""
    files = await call.service.tasks.views.output_files(call.path_parameter("task_id"), call.caller)
    name = call.path_parameter("name")
    path = files.get(name)  # only paths from the task's journal are served
    if path is None:
        raise ProblemError(404, "the task has no file of this name")
    if not await asyncio.to_thread(os.path.isfile, path):
        raise ProblemError(410, "the file is not on this machine any more")
    return FileResponse(
        path,
        media_type=mimetypes.guess_type(name)[0] or _BINARY_MEDIA,
        headers={
            "content-disposition": f"attachment; filename*=utf-8''{quote(name, safe='')}",
            # The file may be a page with scripts, which must not act for the logged-in person.
            "content-security-policy": "sandbox; default-src 'none'",
        },
    )


@OPERATIONS.add(
    "POST",
    "/files",
    right="run",
    status=201,
    request_media=_BINARY_MEDIA,
    other_responses=(_NAME_TOO_LONG,),
)
async def send_file(call: Call, query: s.FileQuery) -> s.Stored:
    """Upload a file, which tasks can then use by its id."""
    return await call.service.uploads.store(call.caller, query.name, call.chunks())


@OPERATIONS.add("GET", "/files", right="run")
async def list_files(call: Call, query: s.PageQuery) -> s.StoredList:
    """Return the files that the caller has uploaded, newest first."""
    files, more = page_of(await call.service.uploads.list(call.caller), query)
    return s.StoredList(files=files, more=more)


@OPERATIONS.add("DELETE", "/files/{file_id}", right="run", other_responses=_NOT_FOUND)
async def delete_file(call: Call) -> None:
    """Remove a file that the caller has uploaded."""
    await call.service.uploads.remove(call.caller, call.path_parameter("file_id"))


# -- approvals --------------------------------------------------------------------------------
#
# Deciding and commenting need only the right `read` here: `Approvals` checks the other rights,
# because people without the right `decide` may answer the questions of their own tasks.


@OPERATIONS.add("GET", "/approvals", right="read")
async def list_approvals(call: Call, query: s.RequestQuery) -> s.RequestList:
    """Return approval requests and questions, the pending ones by default."""
    return await call.service.approvals.list(call.caller, **query.model_dump())


@OPERATIONS.add("GET", "/waiting", right="read")
async def count_waiting(call: Call) -> s.WaitingCount:
    """Return the number of approval requests that wait for the caller."""
    return await call.service.approvals.waiting(call.caller)


@OPERATIONS.add("GET", "/approvals/{request_id}", right="read", other_responses=_NOT_FOUND)
async def get_approval(call: Call) -> s.Request:
    """Return a request with everything needed to decide it."""
    return await call.service.approvals.detail(call.path_parameter("request_id"), call.caller)


@OPERATIONS.add(
    "POST", "/approvals/{request_id}", right="read", other_responses=(*_NOT_FOUND, _CONFLICT)
)
async def decide(call: Call, body: s.DecisionRequest) -> s.DecidedView:
    """Decide a request: approve, reject, edit, or state that the call already happened."""
    return await call.service.approvals.decide(
        call.path_parameter("request_id"), body, call.caller, call.via
    )


@OPERATIONS.add(
    "POST",
    "/approvals/{request_id}/comments",
    right="read",
    other_responses=(*_NOT_FOUND, _CONFLICT),
)
async def comment(call: Call, body: s.CommentRequest) -> s.Request:
    """Comment on a pending request. Comments are for people; the model does not get them."""
    name = call.path_parameter("request_id")
    text = body.text.strip()
    return await call.service.approvals.comment(name, text, call.caller, call.via)


@OPERATIONS.add(
    "POST",
    "/approvals/{request_id}/assignee",
    right="read",
    other_responses=(*_NOT_FOUND, _CONFLICT),
)
async def assign(call: Call, body: s.AssigneeRequest) -> s.Request:
    """Assign a request to a person who may approve it; other people may still decide."""
    name = call.path_parameter("request_id")
    return await call.service.approvals.assign(name, body.person, call.caller, call.via)


@OPERATIONS.add(
    "GET", "/approvals/{request_id}/assignable", right="read", other_responses=_NOT_FOUND
)
async def list_assignable(call: Call) -> s.AssignableList:
    """List the people to whom a request can be assigned."""
    return await call.service.approvals.assignable(call.path_parameter("request_id"), call.caller)


@OPERATIONS.add("GET", "/remembered", right="read")
async def list_remembered(call: Call, query: s.PageQuery) -> s.RememberedList:
    """Return the remembered approvals, which approve later calls until they are revoked."""
    decisions, more = page_of(await call.service.approvals.remembered(call.caller), query)
    return s.RememberedList(remembered=decisions, more=more)


@OPERATIONS.add("DELETE", "/remembered/{request_id}", right="decide", other_responses=_NOT_FOUND)
async def revoke(call: Call) -> s.Remembered:
    """Revoke a remembered approval."""
    return await call.service.approvals.revoke(call.path_parameter("request_id"), call.caller)


# -- people -----------------------------------------------------------------------------------


@OPERATIONS.add("GET", "/people", right="people")
async def list_people(call: Call, query: s.PageQuery) -> s.PersonList:
    """List the people of the server, including removed people."""
    return await staff.everybody(call, query)


@OPERATIONS.add("POST", "/people", right="people", other_responses=(_CONFLICT,))
async def keep_person(call: Call, body: s.PersonRequest) -> s.PersonMade:
    """Add or change a person, or create a key for a person."""
    return await staff.add_or_change(call, body)


@OPERATIONS.add(
    "DELETE", "/people/{person}", right="people", other_responses=(*_NOT_FOUND, _CONFLICT)
)
async def remove_person(call: Call) -> None:
    """Remove a person with all keys and sessions."""
    await staff.remove(call, call.path_parameter("person"))


@OPERATIONS.add(
    "DELETE",
    "/people/{person}/keys/{label}",
    right="people",
    other_responses=(*_NOT_FOUND, _CONFLICT),
)
async def remove_key(call: Call) -> None:
    """Revoke a key of a person."""
    await staff.remove_key(call, call.path_parameter("person"), call.path_parameter("label"))


@OPERATIONS.add("GET", "/people/{person}/sessions", right="people", other_responses=_NOT_FOUND)
async def sessions_of_person(call: Call) -> s.LoginList:
    """List the sessions in which a person is logged in to the server's web page."""
    return await staff.sessions(call, call.path_parameter("person"))


@OPERATIONS.add(
    "DELETE", "/people/{person}/sessions/{session_id}", right="people", other_responses=_NOT_FOUND
)
async def end_session_of_person(call: Call) -> None:
    """End a session of a person."""
    await staff.end_session(call, call.path_parameter("person"), call.path_parameter("session_id"))


@OPERATIONS.add("GET", "/audit", right="people", answer=s.AuditList, second_media="text/csv")
async def audit(call: Call, query: s.AuditQuery) -> s.AuditList | Response:
    """List decisions on requests, changes to people's accounts, and logins, newest first."""
    entries = await staff.audit(call, query)
    if query.format == "json":
        part, more = page_of(entries, query)
        return s.AuditList(entries=part, more=more)
    return Response(
        staff.audit_csv(entries),
        media_type="text/csv; charset=utf-8",
        headers={"content-disposition": 'attachment; filename="delf-audit.csv"'},
    )


@OPERATIONS.add("GET", "/notices", right="read", other_responses=_NO_PERSON)
async def get_notices(call: Call) -> s.NoticesView:
    """Return which notices the caller gets, and through which channels."""
    return _notices_of(call, _own_person(call))


@OPERATIONS.add("POST", "/notices", right="read", other_responses=(*_NO_PERSON, _CONFLICT))
async def set_notices(call: Call, body: s.NoticesRequest) -> s.NoticesView:
    """Choose which notices the caller gets, and through which channels."""
    name = _own_person(call).name
    _require_all_rights(call)
    address = None if body.webhook is None else body.webhook.strip()
    if address:
        try:
            check_webhook(call.service.settings, address)
        except ConfigurationError as error:
            raise ProblemError(422, error.message, param="webhook") from None
    new_secret = _new_webhook_secret() if address else ""

    def change(known: Person | None) -> Person:
        # Changer calls this again if another request has changed the person in the meantime.
        person = _with_notices(require_active(known, name), body)
        return _with_webhook(person, address, new_secret)

    journal = call.service.tasks.journal
    changer = Changer(name, call.via, call.service.agent.tell_observers)
    person = await changer.change(journal, name, change)
    await call.service.keys.reload(journal, at_once=True)
    # An unchanged address keeps its old secret. A secret is shown only once.
    uses_new_secret = bool(address) and person.webhook_secret == new_secret
    return _notices_of(call, person, new_secret if uses_new_secret else None)


def _require_all_rights(call: Call) -> None:
    """Refuse an API key with fewer rights than its person has.

    The person's notices have data that such a key may not read. With the key, somebody could have
    the notices sent to another address.
    """
    caller = call.caller
    person = call.service.keys.caller_of(caller.user or "")
    if person is not None and (caller.rights, caller.scope) != (person.rights, person.scope):
        raise ProblemError(
            403,
            "this key has fewer rights than its person, and cannot change the person's settings",
        )


def _new_webhook_secret() -> str:
    """Return a new secret for signing the notices that are sent to a webhook."""
    encoded_key = base64.b64encode(secrets.token_bytes(32)).decode()
    return f"whsec_{encoded_key}"


def _with_notices(person: Person, body: s.NoticesRequest) -> Person:
    """Return a copy of a person with the notices and channels that a request chooses.

    If ``body.ways`` is None, the person keeps the present channels.
    """
    notices: tuple[NoticeChoice, ...] = tuple(n for n in NOTICES if n in body.notices)
    if body.ways is None:
        return replace(person, notices=notices)
    ways: tuple[NoticeWay, ...] = tuple(way for way in NOTICE_WAYS if way in body.ways)
    return replace(person, notices=notices, notice_ways=ways)


def _with_webhook(person: Person, address: str | None, new_secret: str) -> Person:
    """Return a person with a new webhook address and the new secret.

    An empty address removes the webhook. None, or the address that the person already has, changes
    neither the address nor the secret.
    """
    if address is None or address == person.webhook:
        return person
    return replace(person, webhook=address, webhook_secret=new_secret)


def _own_person(call: Call) -> Person:
    person = call.service.keys.person_of(call.caller.user)
    if person is None:
        raise ProblemError(404, "your key is of no person who could get notices")
    return person


def _notices_of(call: Call, person: Person, secret: str | None = None) -> s.NoticesView:
    """Return which notices a person gets, and the delivery channels that this server supports."""
    chosen_notices: list[NoticeChoice] = [n for n in NOTICES if n in person.notices]
    settings = call.service.settings
    is_supported_by_server = {
        "mail": settings.smtp_url is not None,
        "slack": settings.slack_token is not None,
        "webhook": bool(settings.notice_hosts),
        "browser": True,
    }
    # Some channels also need an address of the person.
    usable_channels = ways_of(settings, person)
    return s.NoticesView(
        notices=chosen_notices,
        ways=[channel for channel in NOTICE_WAYS if channel in person.notice_ways],
        mail=person.mail,
        webhook=person.webhook,
        webhook_secret=secret,
        works=[channel for channel in NOTICE_WAYS if is_supported_by_server[channel]],
        reaches=usable_channels,
    )


# -- conversations ----------------------------------------------------------------------------


def _is_listed(conversation: str, caller: Caller) -> bool:
    """Return True if a conversation belongs in the caller's list of conversations.

    Some clients keep their conversations themselves, and send all messages with each request. The
    server's copies of these conversations are not listed.
    """
    return caller.sees(user_of(conversation)) and not is_kept_by_client(conversation)


async def _listed_conversations(
    chat: Any, caller: Caller, wanted_count: int
) -> list[ConversationRecord]:
    """Load the newest conversations of a caller's list, newest first.

    More than ``wanted_count`` conversations may be returned; fewer only if no more are found.
    """
    count = wanted_count
    while True:
        stored: Sequence[ConversationRecord] = await chat.aconversations(count)
        listed = [each for each in stored if _is_listed(each.conversation, caller)]
        is_complete = len(stored) < count or count >= _MAX_CONVERSATIONS
        if len(listed) >= wanted_count or is_complete:
            return listed
        # Too many of the loaded conversations are not listed, such as those of other people.
        count *= 8


@OPERATIONS.add("GET", "/conversations", right="read")
async def list_conversations(call: Call, query: s.PageQuery) -> s.ConversationList:
    """Return conversations, newest first."""
    chat: Any = call.service.agent.chat
    conversations: list[ConversationRecord] = []
    if chat is not None:
        wanted_count = query.offset + query.limit + 1
        conversations = await _listed_conversations(chat, call.caller, wanted_count)
    part, more = page_of(conversations, query)
    views = [
        s.Conversation(
            conversation_id=shown_name(c.conversation, call.caller),
            title=c.title,
            messages=c.messages,
            updated_at=c.updated_at,
        )
        for c in part
    ]
    return s.ConversationList(conversations=views, more=more)


@OPERATIONS.add("GET", "/conversations/{conversation_id}", right="read", other_responses=_NOT_FOUND)
async def get_conversation(call: Call, query: s.MessageQuery) -> s.ConversationDetail:
    """Return the messages of a conversation."""
    name = await _find_conversation(call)
    lines = await _messages(call, name, query.after, query.limit + 1)
    messages = [s.ChatLine(**asdict(line)) for line in lines[: query.limit]]
    return s.ConversationDetail(
        conversation_id=shown_name(name, call.caller),
        messages=messages,
        more=len(lines) > query.limit,
    )


@OPERATIONS.add(
    "DELETE", "/conversations/{conversation_id}", right="delete", other_responses=_NOT_FOUND
)
async def delete_conversation(call: Call) -> None:
    """Delete a conversation."""
    name = await _find_conversation(call)
    chat: Any = call.service.agent.chat
    await chat.aclear(name)


async def _find_conversation(call: Call) -> str:
    """Return the stored name of a conversation, preferring the caller's own conversation."""
    given_id = call.path_parameter("conversation_id")
    # The caller gives the id of an own conversation, or the stored name of any conversation.
    own_name = stored_name(given_id, call.caller) or given_id
    candidates = dict.fromkeys((own_name, given_id))  # only one if both are equal
    for name in candidates:
        if call.caller.sees(user_of(name)) and await _messages(call, name, 0, 1):
            return name
    raise ProblemError(404, "no such conversation is known")


async def _messages(call: Call, name: str, after: int, limit: int) -> Sequence[ChatMessage]:
    chat: Any = call.service.agent.chat
    return [] if chat is None else await chat.store().read(name, after, limit)


# -- sessions ---------------------------------------------------------------------------------


@OPERATIONS.add("GET", "/sessions", right="read")
async def list_sessions(call: Call, query: s.PageQuery) -> s.LoginList:
    """List the sessions in which the caller is logged in to the server's web page."""
    logins, more = page_of(await call.service.sessions.of(call.caller), query)
    own_digest = None if call.cookie is None else digest_of(call.cookie)
    sessions = [s.Login.of(login, is_this=login.digest == own_digest) for login in logins]
    return s.LoginList(sessions=sessions, more=more)


@OPERATIONS.add("DELETE", "/sessions/{session_id}", right="read", other_responses=_NOT_FOUND)
async def end_session(call: Call) -> None:
    """End one of your sessions."""
    _require_all_rights(call)
    await call.service.sessions.end_of(call.caller, call.path_parameter("session_id"))


# -- the server itself ------------------------------------------------------------------------


# Load balancers may add any query parameters to /health and /ready.
@OPERATIONS.add("GET", "/health", right=None, any_query=True)
async def health(_call: Call) -> s.Health:
    """Report that the process runs."""
    return s.Health(ok=True)


@OPERATIONS.add(
    "GET", "/ready", right=None, any_query=True, other_responses=((503, "No task can begin."),)
)
async def ready(call: Call) -> s.Health:
    """Report whether a task could start: journal, models, connections and sandbox are checked."""
    await call.service.readiness.check()
    return s.Health(ok=True)


@OPERATIONS.add(
    "GET", "/budget", right="read", other_responses=((404, "The agent has no budget."),)
)
async def budget(call: Call) -> s.Budget:
    """Return the agent's budget, and the newest tasks that had costs."""
    budget = budget_of(call, call.caller)
    if budget is None:
        raise ProblemError(404, "the agent has no budget", "the setting budget_usd gives it one")
    return budget


def budget_of(call: Call, caller: Caller) -> s.Budget | None:
    """Return the agent's budget, with the costs of tasks that a caller may see.

    A caller who may not see all tasks gets the sum of these costs, and no limit. Return None if the
    agent has no budget.
    """
    status = call.service.agent.status()["budget"]
    if status["limit_usd"] is None:
        return None
    newest_costs: list[tuple[str, float]] = list(reversed(status["by_task"].items()))
    sees_all_tasks = caller.visible_users is None
    if sees_all_tasks:
        limit = status["limit_usd"]
        total = status["cost_usd"]
        remaining = status["remaining_usd"]
    else:  # the agent's totals would reveal the costs of other people's tasks
        running = call.service.tasks.running
        newest_costs = [
            (task_id, amount)
            for task_id, amount in newest_costs
            if running.sees_task_of_this_process(caller, task_id)
        ]
        limit = None
        total = sum(amount for _, amount in newest_costs)
        remaining = None
    newest = [
        s.TaskCost(task_id=task_id, cost_usd=amount)
        for task_id, amount in newest_costs[:_TASKS_OF_A_BUDGET]
    ]
    return s.Budget(limit_usd=limit, cost_usd=total, left_usd=remaining, tasks=newest)


@OPERATIONS.add("GET", "/metrics", right="read", media="text/plain")
async def metrics(call: Call) -> Response:
    """Return metrics for Prometheus."""
    if call.caller.visible_users is not None:
        raise ProblemError(404, "metrics need the right to see all tasks")
    text = await metrics_text(call.service.agent, call.service.tasks, call.service.streams)
    return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")


@OPERATIONS.add("GET", "/openapi.json", right="read")
async def openapi(call: Call) -> Response:
    """Return the OpenAPI document of this server."""
    root = call.http.scope.get("root_path", "")
    data = json.dumps(document(OPERATIONS, server=root or "/", keyed=bool(call.service.keys)))
    return Response(data, media_type=JSON)
