"""A2A's requests for tasks: a task of A2A is a task of delf, a context is a conversation.

The format is that of https://a2a-protocol.org. A request for a person makes a task wait for
input. The answer names the request, because another one may wait by the time the answer comes.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from typing import Any, Final, NoReturn, TypeAlias, cast
from urllib.parse import quote

from a2a.server.context import ServerCallContext
from a2a.server.request_handlers.request_handler import RequestHandler
from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import (
    ExtendedAgentCardNotConfiguredError,
    InternalError,
    InvalidParamsError,
    PushNotificationNotSupportedError,
    TaskNotCancelableError,
    TaskNotFoundError,
)
from google.protobuf.json_format import MessageToDict, ParseDict, ParseError

from delf.errors import DelfError, UnknownTaskError
from delf.events import CallStarted
from delf.types import TaskState
from delf.values.encoding import to_jsonable
from delf_cli.story import story
from delf_serve import schemas as s
from delf_serve.call import Call
from delf_serve.plain import plain
from delf_serve.problems import ProblemError, problem_of
from delf_serve.standards.turns import (
    OWN_MODEL,
    WAIT_SECONDS,
    Outcome,
    Turn,
    begin,
    build_decision,
    decide,
    decision,
    models_of,
    outcome,
    page_link,
    watch,
)

Update: TypeAlias = pb.Task | pb.TaskStatusUpdateEvent | pb.TaskArtifactUpdateEvent

_REPLY: Final = re.compile(
    r"\s*(?P<word>approve|reject|answer)\s+(?P<request>req_\w+)\s*(?::\s*(?P<text>.*))?",
    re.IGNORECASE | re.DOTALL,
)
_MAX_TASKS: Final = 100
_STATES: Final = {
    TaskState.QUEUED: pb.TASK_STATE_SUBMITTED,
    TaskState.RUNNING: pb.TASK_STATE_WORKING,
    TaskState.INTERRUPTED: pb.TASK_STATE_WORKING,
    TaskState.WAITING: pb.TASK_STATE_INPUT_REQUIRED,
    TaskState.DONE: pb.TASK_STATE_COMPLETED,
    TaskState.FAILED: pb.TASK_STATE_FAILED,
    TaskState.STOPPED: pb.TASK_STATE_CANCELED,
}


async def card_of(call: Call, path: str) -> pb.AgentCard:
    """Return the A2A agent card of an endpoint, with the agent and its workers as skills."""
    url = page_link(call, path)
    # A name such as ``delf/fast`` only chooses another model for the agent, so it is no skill.
    names = [name for name in await models_of(call) if not name.startswith(f"{OWN_MODEL}/")]
    skills: list[dict[str, Any]] = []
    for name in names:
        description = "The agent." if name == OWN_MODEL else "A worker of the agent."
        skills.append({"id": name, "name": name, "description": description, "tags": ["task"]})
    card: dict[str, Any] = {
        "name": OWN_MODEL,
        "description": "Does tasks in plain words with the tools of its project.",
        "version": "1.0.0",
        "supportedInterfaces": [
            {"url": url, "protocolBinding": "JSONRPC", "protocolVersion": version}
            for version in ("1.0", "0.3")
        ],
        "capabilities": {"streaming": True, "pushNotifications": False},
        "defaultInputModes": ["text/plain", "application/octet-stream"],
        "defaultOutputModes": ["text/plain", "application/json"],
        "skills": skills,
    }
    if call.service.keys:
        card["securitySchemes"] = {"key": {"httpAuthSecurityScheme": {"scheme": "Bearer"}}}
        card["securityRequirements"] = [{"schemes": {"key": {}}}]
    return ParseDict(card, pb.AgentCard())


@asynccontextmanager
async def _errors_for_client() -> AsyncGenerator[None]:
    """Convert errors of delf to errors of A2A.

    The A2A library would show delf's errors to clients unchanged.
    """
    try:
        yield
    except (ProblemError, DelfError) as error:
        problem = error if isinstance(error, ProblemError) else problem_of(error, "A2A")
        kind = InternalError if problem.status >= 500 else InvalidParamsError
        raise kind(message=problem.message) from None


class A2ATasks(RequestHandler):
    """Handles the A2A methods of one HTTP request, for the tasks that the caller may see.

    Args:
        call: The HTTP request, with its caller.
    """

    def __init__(self, call: Call) -> None:
        self._call = call

    async def on_message_send(
        self, params: pb.SendMessageRequest, context: ServerCallContext
    ) -> pb.Task:
        """Start or continue a task, and wait until it ends or needs a person."""
        task_id, _ = await self._start_or_decide(params.message)
        seconds = 0 if params.configuration.return_immediately else WAIT_SECONDS
        return await self._task(task_id, seconds, params.message)

    async def on_message_send_stream(
        self, params: pb.SendMessageRequest, context: ServerCallContext
    ) -> AsyncGenerator[Update]:
        """Start or continue a task, and yield its progress until it ends or needs a person."""
        task_id, after = await self._start_or_decide(params.message)
        async with aclosing(self._updates(task_id, after)) as updates:
            async for update in updates:
                yield update

    async def on_subscribe_to_task(
        self, params: pb.SubscribeToTaskRequest, context: ServerCallContext
    ) -> AsyncGenerator[Update]:
        """Yield the progress of a running task."""
        detail = await self._detail(params.id)
        async with aclosing(self._updates(detail.task_id, detail.events)) as updates:
            async for update in updates:
                yield update

    async def on_get_task(self, params: pb.GetTaskRequest, context: ServerCallContext) -> pb.Task:
        """Return the current state of a task."""
        detail = await self._detail(params.id)
        return await self._task(detail.task_id, seconds=0)  # without waiting

    @_errors_for_client()
    async def on_list_tasks(
        self, params: pb.ListTasksRequest, context: ServerCallContext
    ) -> pb.ListTasksResponse:
        """Return the newest tasks, without their answers.

        Raises:
            InvalidParamsError: If the client sends a filter, because filters are not supported.
                If a filter were ignored, the client would get tasks of other contexts, too.
        """
        if params.context_id or params.status or params.HasField("status_timestamp_after"):
            raise InvalidParamsError(message="tasks are listed without a filter")
        size = _MAX_TASKS
        if params.page_size > 0:
            size = min(params.page_size, _MAX_TASKS)
        try:
            tasks_found, next_cursor = await self._call.service.tasks.views.find(
                limit=size, after=params.page_token or None, caller=self._call.caller
            )
        except ValueError:
            raise InvalidParamsError(message="this page token is not one of ours") from None
        tasks = [
            pb.Task(id=task.task_id, status=pb.TaskStatus(state=_STATES[task.state]))
            for task in tasks_found
        ]
        return pb.ListTasksResponse(tasks=tasks, next_page_token=next_cursor or "", page_size=size)

    @_errors_for_client()
    async def on_cancel_task(
        self, params: pb.CancelTaskRequest, context: ServerCallContext
    ) -> pb.Task:
        """Stop a task."""
        self._require_right("run")
        detail = await self._detail(params.id)
        service = self._call.service
        caller = self._call.caller
        _, is_stopped = await service.tasks.control.cancel(detail.task_id, caller, self._call.via)
        if not is_stopped:
            raise TaskNotCancelableError(message="the task has already ended")
        return await self._task(detail.task_id, seconds=0)  # without waiting

    async def on_create_task_push_notification_config(
        self, params: Any, context: ServerCallContext
    ) -> NoReturn:
        """Refuse the method: people choose in their settings which notices they get."""
        raise PushNotificationNotSupportedError

    on_get_task_push_notification_config = on_create_task_push_notification_config
    on_list_task_push_notification_configs = on_create_task_push_notification_config
    on_delete_task_push_notification_config = on_create_task_push_notification_config

    async def on_get_extended_agent_card(
        self, params: pb.GetExtendedAgentCardRequest, context: ServerCallContext
    ) -> NoReturn:
        """Refuse the method: the ordinary card is complete, because it requires a key already."""
        raise ExtendedAgentCardNotConfiguredError

    def _require_right(self, right: str) -> None:
        if right not in self._call.caller.rights:
            raise InvalidParamsError(message=f"you have no right to {right}")

    @_errors_for_client()
    async def _detail(self, task_id: str) -> s.TaskDetail:
        """Return a task by its full id.

        Raises:
            TaskNotFoundError: If the caller may see no such task.
        """
        if not task_id:
            raise TaskNotFoundError
        try:
            detail = await self._call.service.tasks.views.detail(task_id, self._call.caller)
        except UnknownTaskError:
            raise TaskNotFoundError from None
        if detail.task_id != task_id:  # found by a prefix
            raise TaskNotFoundError
        return detail

    async def _begin_task(self, message: pb.Message, conversation: str | None) -> str:
        """Start a task for a message, and return the id of the task."""
        # Another agent writes the message, so it holds no user's words.
        return await begin(self._call, _read_turn(message, conversation), trust="outside")

    @_errors_for_client()
    async def _start_or_decide(self, message: pb.Message) -> tuple[str, int]:
        """Start a task, or decide the approval request that a message answers.

        Returns:
            The id of the task, and the number of its last event before this message.
        """
        self._require_right("run")
        if not message.task_id:
            return await self._begin_task(message, message.context_id or None), 0
        detail = await self._detail(message.task_id)
        answer = _parse_decision(message)
        if answer is not None:
            request_id, decision = answer
            if request_id not in detail.approvals:
                raise InvalidParamsError(message=f"{request_id} does not wait in this task")
            return await decide(self._call, request_id, decision), detail.events
        if not detail.is_terminal:
            raise InvalidParamsError(
                message="the task goes on; if it waits, answer `approve REQUEST` or "
                "`reject REQUEST`"
            )
        # The task has ended: begin another task in its context.
        return await self._begin_task(message, detail.conversation_id), 0

    @_errors_for_client()
    async def _task(
        self, task_id: str, seconds: float, message: pb.Message | None = None
    ) -> pb.Task:
        """Return a task in A2A's format, after waiting until it ends or needs a person.

        Args:
            task_id: The id of the task.
            seconds: The maximum time to wait.
            message: The message that the sender has just sent; None without one.
        """
        task_outcome = await outcome(self._call, task_id, seconds)
        return pb.Task(
            id=task_id,
            context_id=_context_id(task_outcome),
            status=self._status(task_outcome),
            artifacts=_artifacts(self._call, task_outcome),
            history=[] if message is None else [message],
        )

    async def _updates(self, task_id: str, after: int) -> AsyncGenerator[Update]:
        """Yield updates of a task: first its state, then its calls, artifacts and final status.

        Raises:
            InvalidParamsError: If the caller's access has ended or changed.
        """
        async with (
            _errors_for_client(),
            aclosing(self._unchecked_updates(task_id, after)) as updates,
        ):
            async for update in updates:
                # The server ends its own streams when the rights of the caller change. The library
                # sends this stream, so the rights are checked here.
                if self._call.service.keys.current(self._call.caller) != self._call.caller:
                    raise InvalidParamsError(message="your rights have changed: subscribe again")
                yield update

    async def _unchecked_updates(self, task_id: str, after: int) -> AsyncGenerator[Update]:
        """Yield the updates of :meth:`_updates` without checking the caller's present rights."""
        present_state = await self._task(task_id, seconds=0)  # without waiting for its end
        yield present_state
        context = present_state.context_id

        def status_event(status: pb.TaskStatus) -> pb.TaskStatusUpdateEvent:
            return pb.TaskStatusUpdateEvent(task_id=task_id, context_id=context, status=status)

        async with aclosing(watch(self._call, task_id, after=after)) as items:
            async for item in items:
                match item:
                    case Outcome():
                        for artifact in _artifacts(self._call, item):
                            yield pb.TaskArtifactUpdateEvent(
                                task_id=task_id,
                                context_id=context,
                                artifact=artifact,
                                last_chunk=True,
                            )
                        yield status_event(self._status(item))
                    case CallStarted():
                        message = _message(f"{task_id}_{item.seq}", (story(item) or "").strip())
                        yield status_event(
                            pb.TaskStatus(state=pb.TASK_STATE_WORKING, message=message)
                        )
                    case _:
                        pass

    def _status(self, task_outcome: Outcome) -> pb.TaskStatus:
        """Return the A2A status of a task, with its pending request or its error as a message."""
        detail = task_outcome.detail
        pending = task_outcome.pending_request
        status = pb.TaskStatus(state=_STATES[detail.state])
        if pending is not None:
            request_id = pending.request_id
            if pending.record.requested.is_question:
                positive_reply = f"answer {request_id}: ANSWER"
            else:
                positive_reply = f"approve {request_id}"
            replies = f"`{positive_reply}` or `reject {request_id}: REASON`"
            status.message.CopyFrom(_message(request_id, f"{pending.text}\n(Here: {replies}.)"))
        elif detail.state is TaskState.FAILED:
            status.message.CopyFrom(
                _message(f"{detail.task_id}_end", task_outcome.text(self._call))
            )
        return status


def _context_id(task_outcome: Outcome) -> str:
    """Return the context id of a task. In A2A, tasks that belong together have the same context id.

    The context of a task is its conversation. A task without a conversation is alone in its
    context, so the context id is the id of the task.
    """
    return task_outcome.detail.conversation_id or task_outcome.detail.task_id


def _message(name: str, text: str) -> pb.Message:
    return pb.Message(message_id=name, role=pb.ROLE_AGENT, parts=[pb.Part(text=text)])


def _artifacts(call: Call, task_outcome: Outcome) -> list[pb.Artifact]:
    """Return a done task's answer, data value and links to files as an artifact.

    The list is empty if the task is not done.
    """
    detail = task_outcome.detail
    if detail.state is not TaskState.DONE:
        return []
    parts = [pb.Part(text=detail.result or "")]
    if detail.value is not None:
        parts.append(_data_part(plain(to_jsonable(detail.value))))
    place = page_link(call, f"/tasks/{detail.task_id}/files/")
    parts += [
        pb.Part(url=f"{place}{quote(file.name)}", filename=file.name) for file in detail.files
    ]
    return [pb.Artifact(artifact_id=f"{detail.task_id}_answer", name="answer", parts=parts)]


def _data_part(data: Any) -> pb.Part:
    """Return JSON data as a data part, or as a text part if protobuf would change the data.

    Protobuf rounds large integers to floats, and refuses deeply nested data.
    """
    part = pb.Part(media_type="application/json")
    try:
        ParseDict(data, part.data)
        is_exact = cast("object", MessageToDict(part.data)) == data
    except (ParseError, OverflowError):
        is_exact = False
    if is_exact:
        return part
    return pb.Part(media_type="application/json", text=json.dumps(data, ensure_ascii=False))


def _read_turn(message: pb.Message, conversation: str | None) -> Turn:
    """Convert a message to a turn, with all its texts as one message and its data as files."""
    metadata = MessageToDict(message.metadata)
    turn = Turn(model=str(metadata.get("model", OWN_MODEL)), conversation=conversation)
    turn.add_message("user", "\n".join(part.text for part in message.parts if part.text))
    for part in message.parts:
        match part.WhichOneof("content"):
            case "raw":
                turn.files.append((part.filename or f"file{len(turn.files) + 1}", part.raw))
            case "url":
                raise ProblemError(422, "files come with their data; the server opens no address")
            case _:
                pass
    return turn


def _parse_decision(message: pb.Message) -> tuple[str, s.DecisionRequest] | None:
    """Parse a message that decides a request.

    Returns:
        The id of the request, and the decision; None for any other message.
    """
    for part in message.parts:
        if part.WhichOneof("content") == "data":
            data = cast("object", MessageToDict(part.data))
            fields = cast("dict[str, Any]", data) if isinstance(data, dict) else {}
            if "request_id" in fields:
                return str(fields["request_id"]), build_decision(fields)
        match = _REPLY.fullmatch(part.text)
        if match is not None:
            word = match["word"].lower()
            field = "answer" if word == "answer" else "reason"
            return match["request"], decision(word, **{field: match["text"]})
    return None
