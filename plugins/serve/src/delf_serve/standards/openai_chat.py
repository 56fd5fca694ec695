"""OpenAI's chat completions: an agent or a worker is a model, and a task is one completion.

The format is that of https://platform.openai.com/docs/api-reference/chat. Settings of models, such
as ``temperature``, have no meaning for a task and are ignored, as other servers of this API do.
"""

from __future__ import annotations

import json
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any, Final, Literal, cast

from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from delf.events import ApprovalDecided, CallFinished, CallStarted
from delf.messages import Usage
from delf.values.encoding import to_jsonable
from delf_cli.story import story
from delf_serve.call import Call
from delf_serve.event_stream import EventStreamResponse
from delf_serve.operation import JSON, Operations
from delf_serve.plain import json_bytes
from delf_serve.problems import ProblemError
from delf_serve.schemas import DecisionRequest
from delf_serve.standards.content import (
    ForcedFunction,
    add_message,
    as_object,
    forced_function,
    text_of,
)
from delf_serve.standards.turns import (
    Outcome,
    Turn,
    begin,
    continue_task,
    decide,
    decision,
    models_of,
    outcome,
    parse_reply,
    watch,
)
from delf_serve.streams import BEAT

CHAT: Final = Operations()
"""The operations of the chat completions API."""
DECIDE_FUNCTION: Final = "delf_decide"
"""The name of a function for decisions.

A client that has this function among its tools gets approval requests as calls of the function.
"""
CALL_ID_PREFIX: Final = "call_"
"""The prefix of the ids of function calls that the client has to make."""
Finish = Literal["stop", "tool_calls"]


class ClientBody(BaseModel):
    """A request body in the format of another product's API, such as OpenAI's.

    Unknown fields are ignored, because clients of these APIs send many.
    """

    model_config = ConfigDict(extra="ignore")


class ChatMessageBody(ClientBody):
    """A message of a chat."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[Any] | None = None
    tool_call_id: str | None = None


class ChatBody(ClientBody):
    """A request for a chat completion."""

    model: str
    messages: list[ChatMessageBody] = Field(min_length=1)
    stream: bool = False
    stream_options: dict[str, Any] | None = None
    n: int | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    response_format: dict[str, Any] | None = None

    @property
    def forced(self) -> ForcedFunction | None:
        """The function that the answer must call; None if no call is forced.

        ``DECIDE_FUNCTION`` cannot be forced: its calls are approval requests, not answers.
        """
        return forced_function(self.tools or (), self.tool_choice, ignored_name=DECIDE_FUNCTION)


@CHAT.add("GET", "/v1/models", right="read")
async def list_models(call: Call) -> Response:
    """List what a client can choose as its model: the agent, its further models, its workers."""
    created = int(time.time())
    data = [
        {"id": name, "object": "model", "created": created, "owned_by": "delf"}
        for name in await models_of(call)
    ]
    return response_of_json({"object": "list", "data": data})


@CHAT.add("GET", "/v1/models/{name}", right="read")
async def get_model(call: Call) -> Response:
    """Return a model by its name."""
    name = call.path_parameter("name")
    names = await models_of(call)
    if name not in names:
        raise ProblemError(
            404, f"there is no model {name[:80]!r}; the models are {', '.join(names)}"
        )
    return response_of_json(
        {"id": name, "object": "model", "created": int(time.time()), "owned_by": "delf"}
    )


@CHAT.add("POST", "/v1/chat/completions", right="run")
async def chat_completions(call: Call, body: ChatBody) -> Response:
    """Run a task for the last message, and return the answer or a question as a completion."""
    if body.n not in (None, 1):
        raise ProblemError(422, "a task has one answer", param="n")
    # Start the task before a stream begins, so that a refusal gets its own HTTP status.
    task_id = await _start_or_continue(call, body)
    if body.stream:
        return EventStreamResponse(call, _chunks(call, body, task_id))
    task_outcome = await outcome(call, task_id)
    message = _message(call, body, task_outcome)
    choice = {"index": 0, "message": message, "finish_reason": _finish(message)}
    head = _head(body, task_outcome.detail.task_id, "chat.completion")
    more = {"usage": usage_of(task_outcome.usage), "delf": delf_of(task_outcome)}
    return response_of_json({**head, "choices": [choice], **more})


async def _start_or_continue(call: Call, body: ChatBody) -> str:
    """Decide an approval request, continue a task, or start a new task, as a chat message asks.

    Return the id of the task.
    """
    last = body.messages[-1]
    call_id = last.tool_call_id or ""
    # A tool message is either the decision about an approval request (the call's id is that of the
    # request), or the result of a function that the client forced (the id has a prefix).
    is_decision = last.role == "tool" and not call_id.startswith(CALL_ID_PREFIX)
    if is_decision:
        record = await call.service.approvals.record(call_id, call.caller)
        text = text_of(last.content)
        decision = _decision_of(text) or parse_reply(record, text)
        if decision is None:
            raise ProblemError(
                422,
                f"the result of {DECIDE_FUNCTION} is no decision",
                '{"decision": "approve"}, {"decision": "reject", "reason": "…"} or '
                '{"decision": "answer", "answer": …}',
            )
        return await decide(call, record.requested.request_id, decision)
    turn = turn_of(body)
    continued_task = await continue_task(call, turn)
    if continued_task is not None:
        return continued_task
    return await begin(call, turn, is_retry=is_retry(call))


def _decision_of(text: str) -> DecisionRequest | None:
    """Parse the result of ``delf_decide``; None if the result is not a JSON object."""
    try:
        data: Any = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(data, dict):
        return None
    fields = cast("dict[str, Any]", data)
    return decision(str(fields.pop("decision", "")), **fields)


def is_retry(call: Call) -> bool:
    """Return True if an official client repeats a request after a failure."""
    return call.http.headers.get("x-stainless-retry-count", "0") not in ("", "0")


def turn_of(body: ChatBody) -> Turn:
    """Convert the messages of a request to a turn.

    If ``tool_choice`` forces a function of the client, delf's earlier answers in the request are
    calls of this function. The tool message after such a call is the user's next message.
    """
    forced = body.forced
    output = schema_of(body.response_format) if forced is None else forced.schema
    turn = Turn(model=body.model, output=output)
    for message in body.messages:
        is_result_of_forced_call = (message.tool_call_id or "").startswith(CALL_ID_PREFIX)
        if message.role == "tool" and not is_result_of_forced_call:
            continue  # the user's answer to an approval request, which is no part of a turn
        role = "user" if is_result_of_forced_call else message.role
        add_message(turn, role, message.content, is_last=message is body.messages[-1])
    return turn


def schema_of(response_format: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return the JSON Schema in a ``response_format``; None if there is none."""
    if response_format is None or response_format.get("type") not in ("json_schema", "json_object"):
        return None
    if response_format["type"] == "json_object":
        return {"type": "object"}
    # The responses API has the schema beside the type, and not in a field ``json_schema``.
    schema = as_object(response_format.get("json_schema", response_format)).get("schema")
    if not isinstance(schema, dict):
        raise ProblemError(
            422, "response_format of the type json_schema needs an object at json_schema.schema"
        )
    return cast("dict[str, Any]", schema)


def _declares_decide_function(body: ChatBody) -> bool:
    """Return True if the client can get a question as a call of :data:`DECIDE_FUNCTION`."""
    names = [as_object(tool.get("function")).get("name") for tool in body.tools or ()]
    return DECIDE_FUNCTION in names


def call_of(forced: ForcedFunction | None, task_outcome: Outcome) -> tuple[str, str, str] | None:
    """Return a finished task's value as a call of the client's forced function.

    Args:
        forced: The function; None if no call is forced.
        task_outcome: The outcome of the task.

    Returns:
        The id, the name and the JSON arguments of the call. None if no call is forced, or if the
        task has not ended with a value.
    """
    detail = task_outcome.detail
    if forced is None or not detail.is_terminal or detail.value is None:
        return None
    arguments = json.dumps(to_jsonable(detail.value), ensure_ascii=False)
    return f"{CALL_ID_PREFIX}{detail.task_id}", forced.name, arguments


def _finish(message: Mapping[str, Any]) -> Finish:
    return "tool_calls" if message.get("tool_calls") else "stop"


def _message(http_call: Call, body: ChatBody, task_outcome: Outcome) -> dict[str, Any]:
    """Return the assistant's message with the outcome of a task.

    The message is a call of the function that the client forces, otherwise a text. If the task
    waits for a decision or an answer of a person, the text is the question. If the client also
    declares the function :data:`DECIDE_FUNCTION`, the message has a call of this function, too.
    """
    function_call = call_of(body.forced, task_outcome)
    if function_call is not None:
        return {"role": "assistant", "content": None, "tool_calls": [_tool_call(*function_call)]}
    text = answer_text(http_call, task_outcome)
    message: dict[str, Any] = {"role": "assistant", "content": text}
    question = task_outcome.pending_request
    if question is not None and _declares_decide_function(body):
        arguments = json.dumps(
            {"request_id": question.request_id, "question": question.text}, ensure_ascii=False
        )
        message["tool_calls"] = [_tool_call(question.request_id, DECIDE_FUNCTION, arguments)]
    return message


def _tool_call(call_id: str, name: str, arguments: str) -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return {"id": call_id, "type": "function", "function": function}


def answer_text(call: Call, task_outcome: Outcome) -> str:
    """Return the text of an answer, which is JSON if the task has a structured value."""
    detail = task_outcome.detail
    if detail.is_terminal and detail.value is not None:
        return json.dumps(to_jsonable(detail.value), ensure_ascii=False)
    return task_outcome.text(call)


def usage_of(used: Usage) -> dict[str, Any]:
    """Return token counts under the field names of chat completions."""
    return {
        "prompt_tokens": used.input_tokens,
        "completion_tokens": used.output_tokens,
        "total_tokens": used.total_tokens,
        "prompt_tokens_details": {"cached_tokens": used.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": used.reasoning_tokens},
    }


def delf_of(task_outcome: Outcome) -> dict[str, Any]:
    """Return delf's extension fields: the task's id, state and cost."""
    detail = task_outcome.detail
    return {"task_id": detail.task_id, "state": detail.state, "cost_usd": detail.cost_usd}


def _head(body: ChatBody, task_id: str, kind: str) -> dict[str, Any]:
    name = f"chatcmpl-{task_id}"
    return {"id": name, "object": kind, "created": int(time.time()), "model": body.model}


async def _chunks(call: Call, body: ChatBody, task_id: str) -> AsyncGenerator[bytes]:
    """Yield the chunks of a streamed completion: the task's calls as reasoning, then the message.

    The message is an answer, or calls the client's function.
    """
    head = _head(body, task_id, "chat.completion.chunk")

    def chunk(delta: Mapping[str, Any], finish: Finish | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return frame({**head, "choices": [choice]})

    yield chunk({"role": "assistant", "content": ""})
    async with aclosing(watch(call, task_id)) as items:
        async for item in items:
            match item:
                case CallStarted() | CallFinished() | ApprovalDecided():
                    yield chunk({"reasoning_content": f"{story(item)}\n"})
                case Outcome():
                    message = _message(call, body, item)
                    for number, tool_call in enumerate(message.get("tool_calls", ())):
                        tool_call["index"] = number
                    yield chunk(message)
                    yield chunk({}, _finish(message))
                    if (body.stream_options or {}).get("include_usage"):
                        used = {"usage": usage_of(item.usage), "delf": delf_of(item)}
                        yield frame({**head, "choices": [], **used})
                    yield b"data: [DONE]\n\n"
                case None:
                    yield BEAT
                case _:
                    pass


def frame(data: Mapping[str, Any], event: str | None = None) -> bytes:
    """Encode data as a server-sent event."""
    name = b"" if event is None else b"event: %b\n" % event.encode()
    return b"%bdata: %b\n\n" % (name, json_bytes(data))


def response_of_json(data: Mapping[str, Any]) -> Response:
    """Convert JSON-ready data to a JSON response."""
    return Response(json_bytes(data), media_type=JSON)
