"""OpenAI's responses: an agent or a worker is a model, and delf keeps the conversation.

The format is that of https://platform.openai.com/docs/api-reference/responses. A question of a task
is a message with a link, and an ``mcp_approval_request``, which clients of MCP tools answer with an
``mcp_approval_response``.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Final

from pydantic import Field
from starlette.responses import Response

from delf.events import CallFinished, CallStarted
from delf.types import TaskState
from delf.values.encoding import to_jsonable
from delf.values.numbers import parse_count
from delf_cli.story import story
from delf_serve.call import Call
from delf_serve.event_stream import EventStreamResponse
from delf_serve.operation import Operations
from delf_serve.problems import ProblemError
from delf_serve.schemas import TaskDetail
from delf_serve.standards.content import ForcedFunction, add_message, as_object, forced_function
from delf_serve.standards.openai_chat import (
    ClientBody,
    answer_text,
    call_of,
    delf_of,
    frame,
    is_retry,
    response_of_json,
    schema_of,
)
from delf_serve.standards.turns import (
    WAIT_SECONDS,
    Outcome,
    Turn,
    begin,
    build_decision,
    continue_task,
    decide,
    is_continue,
    outcome,
    parse_reply,
    watch,
)
from delf_serve.streams import BEAT

RESPONSES: Final = Operations()
"""The operations of the responses API."""
_PREFIX: Final = "resp_"
_TASK: Final = "task_"


class ResponseBody(ClientBody):
    """The body of ``POST /v1/responses``."""

    model: str = "delf"
    input: str | list[dict[str, Any]] = Field(min_length=1)
    instructions: str | None = None
    previous_response_id: str | None = None
    stream: bool = False
    background: bool = False
    text: dict[str, Any] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None

    @property
    def forced(self) -> ForcedFunction | None:
        """The function that the answer must call; None if no call is forced."""
        described = [tool for tool in self.tools or () if tool.get("type") == "function"]
        return forced_function(described, self.tool_choice)


@RESPONSES.add("POST", "/v1/responses", right="run")
async def create_response(call: Call, body: ResponseBody) -> Response:
    """Run a task for the input, and return the answer or a question as a response."""
    task_id = await _start_or_continue(call, body)
    if body.stream:
        return EventStreamResponse(call, _events(call, body, task_id))
    task_outcome = await outcome(call, task_id, 0 if body.background else WAIT_SECONDS)
    return response_of_json(_response(call, body, task_outcome))


@RESPONSES.add("GET", "/v1/responses/{response_id}", right="read", any_query=True)
async def get_response(call: Call) -> Response:
    """Return a task's current state as a response."""
    task_id, _ = _parse_response_id(call.path_parameter("response_id"))
    task_outcome = await outcome(call, task_id, seconds=0)  # without waiting for the end
    return response_of_json(_response(call, body=None, task_outcome=task_outcome))


@RESPONSES.add("POST", "/v1/responses/{response_id}/cancel", right="run")
async def cancel_response(call: Call) -> Response:
    """Stop the task that ``POST /v1/responses`` has started for a response."""
    task_id, _ = _parse_response_id(call.path_parameter("response_id"))
    await call.service.tasks.control.cancel(task_id, call.caller, call.via)
    task_outcome = await outcome(call, task_id, seconds=0)  # without waiting for the end
    return response_of_json(_response(call, body=None, task_outcome=task_outcome))


async def _start_or_continue(call: Call, body: ResponseBody) -> str:
    """Decide an approval request, continue a task, or start a new task; return the task's id."""
    if isinstance(body.input, list):
        items = body.input
    else:
        items = [{"role": "user", "content": body.input}]
    last = items[-1]
    if last.get("type") == "mcp_approval_response":
        decision = build_decision({"approve": last.get("approve"), "reason": last.get("reason")})
        return await decide(call, str(last.get("approval_request_id")), decision)
    turn = _turn(body, items)
    if body.previous_response_id is not None:
        previous_task, decision_count = _parse_response_id(body.previous_response_id)
        detail = await call.service.tasks.views.detail(previous_task, call.caller)
        turn.conversation = detail.conversation_id
        is_reply = await _handle_reply(call, detail, decision_count, turn.user_message)
        if is_reply or is_continue(turn.user_message):
            return previous_task
    # A client may also send all earlier messages. The assistant's last message may then contain
    # an approval request, which the user's message decides.
    continued_task = await continue_task(call, turn)
    if continued_task is not None:
        return continued_task
    return await begin(call, turn, is_retry=is_retry(call))


async def _handle_reply(call: Call, detail: TaskDetail, decision_count: int, message: str) -> bool:
    """Decide the pending request of a task if a message is a reply to an approval request.

    If the client has not seen the pending request, the reply is meant for an earlier request, and
    decides nothing.

    Args:
        call: The HTTP request.
        detail: The task.
        decision_count: The number of decisions that the task had when the client last saw the task.
        message: The user's message.

    Returns:
        True if the message is such a reply.
    """
    if detail.state is not TaskState.WAITING:
        return False
    request_id = detail.approvals[0]
    record = await call.service.approvals.record(request_id, call.caller)
    decision = parse_reply(record, message)
    if decision is None:
        return False
    # After a further decision, the task waits for a request that the client has not seen.
    has_client_seen_request = decision_count == len(detail.decisions)
    if has_client_seen_request:
        await decide(call, request_id, decision)
    return True


def _parse_response_id(response_id: str) -> tuple[str, int]:
    """Parse the id of a response into the task's id and the count of the task's decisions.

    Raises:
        ProblemError: If the id is malformed.
    """
    name, _, decided = response_id.removeprefix(_PREFIX).partition("_")
    count = parse_count(decided)
    if not response_id.startswith(_PREFIX) or count is None:
        raise ProblemError(404, f"no response {response_id[:60]!r} is known")
    return f"{_TASK}{name}", count


def _turn(body: ResponseBody, items: Sequence[Mapping[str, Any]]) -> Turn:
    """Convert a request to a turn.

    Args:
        body: The body of the request, with the instructions.
        items: The items of the body's input, such as messages.
    """
    output = schema_of(as_object((body.text or {}).get("format")))
    if body.forced is not None:
        # A client that forces a call of its function wants the answer as arguments of that call.
        output = body.forced.schema
    turn = Turn(model=body.model, output=output)
    if body.instructions:
        turn.add_message("system", body.instructions)
    for item in items:
        if item.get("type") == "function_call_output":
            # The server sent an earlier answer as a call of the client's function. The output that
            # the client returns for this call is therefore the user's next message.
            add_message(turn, "user", item.get("output"), is_last=item is items[-1])
            continue
        if item.get("type", "message") != "message":
            continue  # reasoning, or an answered question
        add_message(turn, str(item.get("role")), item.get("content"), is_last=item is items[-1])
    return turn


def _response(call: Call, body: ResponseBody | None, task_outcome: Outcome) -> dict[str, Any]:
    """Convert a task to a response. The output is empty while the task runs."""
    detail = task_outcome.detail
    used = task_outcome.usage
    # A task that waits for a person completes its response: the output then has the request.
    is_completed = detail.is_terminal or task_outcome.pending_request is not None
    status = "completed" if is_completed else "in_progress"
    error = None
    if detail.state is TaskState.STOPPED:
        status = "cancelled"
    elif detail.is_terminal and detail.state is not TaskState.DONE:
        status = "failed"
        error = {"code": "server_error", "message": task_outcome.failure}
    return {
        **_head(body, detail.task_id, len(detail.decisions)),
        "created_at": int(detail.started_at),
        "status": status,
        "error": error,
        "output": _items(call, body, task_outcome) if is_completed else [],
        "usage": {
            "input_tokens": used.input_tokens,
            "input_tokens_details": {"cached_tokens": used.cached_tokens},
            "output_tokens": used.output_tokens,
            "output_tokens_details": {"reasoning_tokens": used.reasoning_tokens},
            "total_tokens": used.total_tokens,
        },
        "delf": delf_of(task_outcome),
    }


def _head(creation: ResponseBody | None, task_id: str, decision_count: int) -> dict[str, Any]:
    """Return the fields of a response that do not depend on the task's outcome.

    Args:
        creation: The body of the client's request that creates the response; None if the client
            asks for an existing response.
        task_id: The id of the task.
        decision_count: The number of the task's decisions, which is part of the response's id.
    """
    return {
        "id": f"{_PREFIX}{task_id.removeprefix(_TASK)}_{decision_count}",
        "object": "response",
        "created_at": int(time.time()),
        "model": "delf" if creation is None else creation.model,
        "previous_response_id": None if creation is None else creation.previous_response_id,
        "instructions": None,
        "metadata": {},
        "output": [],
        "parallel_tool_calls": False,
        "tool_choice": "auto",
        "tools": [],
        "text": {"format": {"type": "text"}},
    }


def _items(call: Call, body: ResponseBody | None, task_outcome: Outcome) -> list[dict[str, Any]]:
    """Return the output items of a response.

    The output is one call of the client's function, if the client forces this call. Otherwise, the
    output is a message and, while the task waits for an approval, the approval request.
    """
    forced = None if body is None else body.forced
    tool_call = call_of(forced, task_outcome)
    if tool_call is not None:
        call_id, name, arguments = tool_call
        item = {
            "type": "function_call",
            "id": f"fc_{call_id}",
            "status": "completed",
            "call_id": call_id,
            "name": name,
            "arguments": arguments,
        }
        return [item]
    text: dict[str, Any] = {
        "type": "output_text",
        "text": answer_text(call, task_outcome),
        "annotations": [],
    }
    items: list[dict[str, Any]] = [
        {
            "id": f"msg_{task_outcome.detail.task_id}",
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": [text],
        }
    ]
    if task_outcome.pending_request is None:
        return items
    pending = task_outcome.pending_request.record.requested
    # The message is enough for a script's question. An approval request also needs its own item.
    if not pending.is_question:
        items.append(
            {
                "id": pending.request_id,
                "type": "mcp_approval_request",
                "server_label": "delf",
                "name": pending.action,
                "arguments": json.dumps(to_jsonable(pending.arguments), ensure_ascii=False),
            }
        )
    return items


# The type of a response's last event, by the status of the response.
_EVENT_BY_STATUS: Final = {"failed": "response.failed", "in_progress": "response.incomplete"}


async def _events(call: Call, body: ResponseBody, task_id: str) -> AsyncGenerator[bytes]:
    """Yield the events of a streamed response: tool calls as reasoning, then the output."""
    numbers = itertools.count()

    def event(kind: str, **data: Any) -> bytes:
        return frame({"type": kind, "sequence_number": next(numbers), **data}, kind)

    # Some clients continue with the response id of this first event, so this id must contain the
    # number of decisions.
    detail = await call.service.tasks.views.detail(task_id, call.caller)
    initial = {**_head(body, task_id, len(detail.decisions)), "status": "in_progress"}
    yield event("response.created", response=initial)
    yield event("response.in_progress", response=initial)
    reasoning = _Reasoning(task_id, event)
    async with aclosing(watch(call, task_id)) as items:
        async for item in items:
            match item:
                case CallStarted() | CallFinished():
                    for encoded_event in reasoning.add(f"{story(item)}\n"):
                        yield encoded_event
                case Outcome():
                    for encoded_event in reasoning.finish():
                        yield encoded_event
                    response = _response(call, body, item)
                    output_items = response["output"]
                    # In the output, the reasoning comes first. So count the other items from the
                    # number of reasoning items on.
                    response["output"] = [*reasoning.items, *output_items]
                    for index, output_item in enumerate(output_items, len(reasoning.items)):
                        for encoded_event in _item_events(event, index, output_item):
                            yield encoded_event
                    kind = _EVENT_BY_STATUS.get(response["status"], "response.completed")
                    yield event(kind, response=response)
                case None:
                    yield BEAT
                case _:
                    pass


class _Reasoning:
    """The first output item of a streamed response: lines about the task's calls.

    A task without calls has no such item.

    Args:
        task_id: The id of the task.
        encode: A function that encodes an event, from its type and its fields.
    """

    def __init__(self, task_id: str, encode: Callable[..., bytes]) -> None:
        self._encode = encode
        self._id = f"rs_{task_id}"
        self._place = {"item_id": self._id, "output_index": 0, "summary_index": 0}
        self._text = ""

    @property
    def items(self) -> list[dict[str, Any]]:
        """A list with one reasoning item of all lines so far; an empty list without lines."""
        return [self._item(self._part)] if self._text else []

    @property
    def _part(self) -> dict[str, str]:
        return {"type": "summary_text", "text": self._text}

    def _item(self, *parts: dict[str, str]) -> dict[str, Any]:
        return {"id": self._id, "type": "reasoning", "summary": [*parts]}

    def add(self, line: str) -> Iterator[bytes]:
        """Yield the events that add a line to the reasoning, which the first line begins."""
        if not self._text:
            yield self._encode("response.output_item.added", output_index=0, item=self._item())
            yield self._encode(
                "response.reasoning_summary_part.added", **self._place, part=self._part
            )
        self._text += line
        yield self._encode("response.reasoning_summary_text.delta", **self._place, delta=line)

    def finish(self) -> Iterator[bytes]:
        """Yield the events that end the reasoning; none if the reasoning has no line."""
        if not self._text:
            return
        yield self._encode("response.reasoning_summary_text.done", **self._place, text=self._text)
        yield self._encode("response.reasoning_summary_part.done", **self._place, part=self._part)
        item = self._item(self._part)
        yield self._encode("response.output_item.done", output_index=0, item=item)


def _item_events(encode: Any, index: int, item: Mapping[str, Any]) -> list[bytes]:
    """Return the streaming events of an output item, which is sent as a whole.

    Args:
        encode: A function that encodes an event, from its type and its fields.
        index: The index of the item in the output.
        item: The output item.
    """
    position = {"output_index": index}
    if item["type"] == "function_call":
        call_position = {**position, "item_id": item["id"]}
        return [
            encode("response.output_item.added", **position, item={**item, "arguments": ""}),
            encode(
                "response.function_call_arguments.delta", **call_position, delta=item["arguments"]
            ),
            encode(
                "response.function_call_arguments.done",
                **call_position,
                name=item["name"],
                arguments=item["arguments"],
            ),
            encode("response.output_item.done", **position, item=item),
        ]
    if item["type"] != "message":
        return [
            encode("response.output_item.added", **position, item=item),
            encode("response.output_item.done", **position, item=item),
        ]
    (part,) = item["content"]
    part_position = {**position, "item_id": item["id"], "content_index": 0}
    initial_item: dict[str, Any] = {**item, "status": "in_progress", "content": []}
    return [
        encode("response.output_item.added", **position, item=initial_item),
        encode("response.content_part.added", **part_position, part={**part, "text": ""}),
        encode("response.output_text.delta", **part_position, delta=part["text"], logprobs=[]),
        encode("response.output_text.done", **part_position, text=part["text"], logprobs=[]),
        encode("response.content_part.done", **part_position, part=part),
        encode("response.output_item.done", **position, item=item),
    ]
