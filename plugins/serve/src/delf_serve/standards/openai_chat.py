"""OpenAI's chat completions: an agent or a worker is a model, a task one completion.

The format is that of https://platform.openai.com/docs/api-reference/chat. Settings of models, such
as ``temperature``, have no meaning for a task and are ignored, as other servers of this API do.
"""

from __future__ import annotations

import json
import time
from collections.abc import AsyncGenerator, Mapping
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
from delf_serve.standards.content import say, table, text_of
from delf_serve.standards.turns import (
    Outcome,
    Turn,
    begin,
    decide,
    decision,
    models_of,
    outcome,
    replied,
    reply_to,
    watch,
)
from delf_serve.streams import BEAT

CHAT: Final = Operations()
"""The operations of the API."""
DECIDE: Final = "delf_decide"
"""The function that a client offers to get questions as tool calls, and not as text."""
Finish = Literal["stop", "tool_calls"]


class ClientBody(BaseModel):
    """A body of another standard; unknown fields are ignored, because clients send many."""

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
    response_format: dict[str, Any] | None = None


@CHAT.add("GET", "/v1/models", "read")
async def list_models(call: Call) -> Response:
    """List the models: the agent, its further models, and its workers."""
    made = int(time.time())
    data = [
        {"id": name, "object": "model", "created": made, "owned_by": "delf"}
        for name in await models_of(call)
    ]
    return shown_json({"object": "list", "data": data})


@CHAT.add("POST", "/v1/chat/completions", "run")
async def chat_completions(call: Call, body: ChatBody) -> Response:
    """Do the task of the last message, and return the answer or a question as a completion."""
    if body.n not in (None, 1):
        raise ProblemError(422, "a task has one answer", param="n")
    if body.stream:
        # Begin the task before the stream, so that a refusal has an HTTP status.
        return EventStreamResponse(call, _chunks(call, body, await _task(call, body)))
    found = await outcome(call, await _task(call, body))
    choice = {
        "index": 0,
        "message": _message(call, body, found),
        "finish_reason": _finish(body, found),
    }
    head = _head(body, found.detail.task_id, "chat.completion")
    more = {"usage": usage_of(found.usage), "delf": delf_of(found)}
    return shown_json({**head, "choices": [choice], **more})


async def _task(call: Call, body: ChatBody) -> str:
    """Begin the turn of a request: a decision, a reply, or a new task; return the task's id."""
    last = body.messages[-1]
    if last.role == "tool":
        record = await call.service.approvals.record(last.tool_call_id or "", call.key)
        text = text_of(last.content)
        given = _decision_of(text) or reply_to(record, text)
        if given is None:
            raise ProblemError(
                422,
                f"the result of {DECIDE} is no decision",
                '{"decision": "approve"}, {"decision": "reject", "reason": "…"} or '
                '{"decision": "answer", "answer": …}',
            )
        return await decide(call, record.requested.request_id, given)
    turn = turn_of(body)
    return await replied(call, turn) or await begin(call, turn, is_retry=is_retry(call))


def _decision_of(text: str) -> DecisionRequest | None:
    """Read the result of ``delf_decide``; None if the result is not a JSON object."""
    try:
        data: Any = json.loads(text)
    except ValueError:
        return None
    if not isinstance(data, dict):
        return None
    given = cast("dict[str, Any]", data)
    return decision(str(given.pop("decision", "")), **given)


def is_retry(call: Call) -> bool:
    """Return True if an official client sends the request again after a failure."""
    return call.http.headers.get("x-stainless-retry-count", "0") not in ("", "0")


def turn_of(body: ChatBody) -> Turn:
    """Read the messages of a request."""
    turn = Turn(model=body.model, output=schema_of(body.response_format))
    for message in body.messages:
        if message.role == "tool":
            continue  # the decision of an earlier question
        say(turn, message.role, message.content, is_last=message is body.messages[-1])
    return turn


def schema_of(wanted: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return the JSON Schema of a ``response_format``, if it has one."""
    if wanted is None or wanted.get("type") != "json_schema":
        return None
    schema = table(wanted.get("json_schema", wanted)).get("schema")
    if not isinstance(schema, dict):
        raise ProblemError(422, "a json_schema has its JSON Schema as schema")
    return cast("dict[str, Any]", schema)


def _asks_by_tool(body: ChatBody, found: Outcome) -> bool:
    names = [table(tool.get("function")).get("name") for tool in body.tools or ()]
    return found.question is not None and DECIDE in names


def _finish(body: ChatBody, found: Outcome) -> Finish:
    return "tool_calls" if _asks_by_tool(body, found) else "stop"


def _message(call: Call, body: ChatBody, found: Outcome) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": answer_text(call, found)}
    if found.question is not None and _asks_by_tool(body, found):
        asked = found.question
        arguments = {"request_id": asked.request_id, "question": asked.text}
        function = {"name": DECIDE, "arguments": json.dumps(arguments, ensure_ascii=False)}
        message["tool_calls"] = [{"id": asked.request_id, "type": "function", "function": function}]
    return message


def answer_text(call: Call, found: Outcome) -> str:
    """Return the text of an answer; JSON if the client asked for data."""
    detail = found.detail
    if detail.is_terminal and detail.value is not None:
        return json.dumps(to_jsonable(detail.value), ensure_ascii=False)
    return found.text(call)


def usage_of(used: Usage) -> dict[str, Any]:
    """Return the tokens of a task in the words of chat completions."""
    return {
        "prompt_tokens": used.input_tokens,
        "completion_tokens": used.output_tokens,
        "total_tokens": used.total_tokens,
        "prompt_tokens_details": {"cached_tokens": used.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": used.reasoning_tokens},
    }


def delf_of(found: Outcome) -> dict[str, Any]:
    """Return delf's extension fields: the task's id, state and cost."""
    detail = found.detail
    return {"task_id": detail.task_id, "state": detail.state, "cost_usd": detail.cost_usd}


def _head(body: ChatBody, task_id: str, kind: str) -> dict[str, Any]:
    name = f"chatcmpl-{task_id}"
    return {"id": name, "object": kind, "created": int(time.time()), "model": body.model}


async def _chunks(call: Call, body: ChatBody, task_id: str) -> AsyncGenerator[bytes]:
    """Yield a completion as chunks: the calls of scripts as reasoning, then the answer."""
    head = _head(body, task_id, "chat.completion.chunk")

    def chunk(delta: Mapping[str, Any], finish: Finish | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return frame({**head, "choices": [choice]})

    yield chunk({"role": "assistant", "content": ""})
    async for item in watch(call, task_id):
        match item:
            case Outcome():
                message = _message(call, body, item)
                calls = message.pop("tool_calls", [])
                if calls:
                    message["tool_calls"] = [{**made, "index": n} for n, made in enumerate(calls)]
                yield chunk(message)
                yield chunk({}, _finish(body, item))
                if (body.stream_options or {}).get("include_usage"):
                    used = {"usage": usage_of(item.usage), "delf": delf_of(item)}
                    yield frame({**head, "choices": [], **used})
                yield b"data: [DONE]\n\n"
            case CallStarted() | CallFinished() | ApprovalDecided():
                yield chunk({"reasoning_content": f"{story(item)}\n"})
            case None:
                yield BEAT
            case _:
                pass


def frame(data: Mapping[str, Any], event: str | None = None) -> bytes:
    """Encode data as a server-sent event."""
    name = b"" if event is None else b"event: %b\n" % event.encode()
    return b"%bdata: %b\n\n" % (name, json_bytes(data))


def shown_json(data: Mapping[str, Any]) -> Response:
    """Make a response of data."""
    return Response(json_bytes(data), media_type=JSON)
