"""AG-UI, version 1.0: the events of a task for front ends.

The format is that of https://docs.ag-ui.com. A run is a task. A request for a person ends the
run with an interrupt, and the next run resumes the task with the decision.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Final, Literal

from pydantic import ConfigDict
from pydantic.alias_generators import to_camel
from starlette.responses import Response

from delf.events import (
    CallFinished,
    CallStarted,
    Event,
    StepFinished,
    StepStarted,
)
from delf.protocols.facts import facts_data
from delf.types import TaskState
from delf.values.encoding import to_jsonable
from delf_serve.call import Call
from delf_serve.event_stream import EventStreamResponse
from delf_serve.operation import Operations
from delf_serve.standards.content import add_message
from delf_serve.standards.openai_chat import ClientBody, answer_text, frame
from delf_serve.standards.turns import (
    OWN_MODEL,
    Outcome,
    PendingRequest,
    Turn,
    begin,
    build_decision,
    continue_task,
    decide,
    watch,
)
from delf_serve.streams import BEAT

AG_UI: Final = Operations()
"""The operations of the AG-UI protocol."""
VERSION: Final = "1.0"
# The maximum number of characters of a call's result in the stream.
_MAX_RESULT_CHARACTERS: Final = 20_000
# The JSON Schema of the answer to an approval request.
_DECISION_SCHEMA: Final = {
    "type": "object",
    "properties": {"approve": {"type": "boolean"}, "reason": {"type": "string"}},
    "required": ["approve"],
}
_ANSWER_TYPES: Final = {"yes/no": "boolean", "number": "number"}


class CamelBody(ClientBody):
    """A body whose fields are named in camelCase."""

    model_config = ConfigDict(extra="ignore", alias_generator=to_camel, populate_by_name=True)


class Message(CamelBody):
    """A message of the thread."""

    role: str
    content: str | list[Any] | None = None


class Resume(CamelBody):
    """A client's answer to a question that interrupted a run."""

    interrupt_id: str
    status: Literal["resolved", "cancelled"]
    payload: dict[str, Any] | None = None


class RunInput(CamelBody):
    """The input of an AG-UI run."""

    thread_id: str
    run_id: str
    messages: list[Message]
    resume: list[Resume] | None = None
    forwarded_props: dict[str, Any] | None = None


@AG_UI.add("POST", "/ag-ui", right="run")
async def run_agent(call: Call, body: RunInput) -> Response:
    """Start a task for the last message, and stream its progress as AG-UI events."""
    task_id, after = await _start_or_continue(call, body)
    return EventStreamResponse(call, _run(call, body, task_id, after))


async def _start_or_continue(call: Call, body: RunInput) -> tuple[str, int]:
    """Start or continue the task of a run.

    Returns:
        The id of the task, and the number of the last event that the client has.
    """
    if body.resume:
        return await _decide_interrupts(call, body.resume)
    turn = Turn(model=str((body.forwarded_props or {}).get("model", OWN_MODEL)))
    for message in body.messages:
        if message.role in ("user", "assistant", "system", "developer"):
            add_message(turn, message.role, message.content, is_last=message is body.messages[-1])
    task_id = await continue_task(call, turn)
    if task_id is None:
        task_id = await begin(call, turn)
    return task_id, 0


async def _decide_interrupts(call: Call, answers: Sequence[Resume]) -> tuple[str, int]:
    """Decide approval requests with a client's answers to the interrupts of a run.

    A cancelled interrupt rejects its request.

    Returns:
        The id of the task, and the number of the event with the latest of the requests: the client
        has the events up to this request.
    """
    task_id = ""
    after = 0
    for answer in answers:
        payload: Mapping[str, Any] = {}  # means a rejection
        if answer.status == "resolved" and answer.payload is not None:
            payload = answer.payload
        record = await call.service.approvals.record(answer.interrupt_id, call.caller)
        after = max(after, record.requested.seq)
        task_id = await decide(call, answer.interrupt_id, build_decision(payload))
    return task_id, after


async def _run(call: Call, body: RunInput, task_id: str, after: int) -> AsyncGenerator[bytes]:
    """Yield a task's progress as AG-UI events.

    Args:
        call: The API request.
        body: The input of the run.
        task_id: The id of the task.
        after: The number of the last event that the client has.
    """
    ids = {"threadId": body.thread_id, "runId": body.run_id}
    metadata = {"delf": {"taskId": task_id}}
    yield _event("RUN_STARTED", **ids, protocolVersion=VERSION, metadata=metadata)
    steps: list[str] = []
    async with aclosing(watch(call, task_id, after=after)) as items:
        async for item in items:
            match item:
                case Outcome():
                    for step in reversed(steps):
                        yield _event("STEP_FINISHED", stepName=step)
                    for event in _end_events(call, item, ids):
                        yield event
                case StepStarted(step=step):
                    steps.append(step)
                    yield _event("STEP_STARTED", stepName=step)
                case StepFinished(step=step) if step in steps:
                    steps.remove(step)
                    yield _event("STEP_FINISHED", stepName=step)
                case None:
                    yield BEAT
                case _:
                    for event in _call_events(item):
                        yield event


def _call_events(event: Event) -> Iterator[bytes]:
    """Yield AG-UI events for the start or the end of a tool call.

    Other events yield nothing.
    """
    match event:
        case CallStarted():
            tool_call_id = _tool_call_id(event)
            arguments = json.dumps(to_jsonable(event.arguments), ensure_ascii=False)
            yield _event("TOOL_CALL_START", toolCallId=tool_call_id, toolCallName=event.action)
            yield _event("TOOL_CALL_ARGS", toolCallId=tool_call_id, delta=arguments)
            yield _event("TOOL_CALL_END", toolCallId=tool_call_id)
        case CallFinished(status="refused" | "rejected"):
            return  # the call was not made, so the client does not know the call
        case CallFinished():
            tool_call_id = _tool_call_id(event)
            result = json.dumps(to_jsonable(event.result), ensure_ascii=False)[
                :_MAX_RESULT_CHARACTERS
            ]
            yield _event(
                "TOOL_CALL_RESULT",
                messageId=f"{tool_call_id}_result",
                toolCallId=tool_call_id,
                content=event.error or result,
                role="tool",
            )
        case _:
            return


def _tool_call_id(event: CallStarted | CallFinished) -> str:
    return f"{event.task_id}_{event.call_id}"


def _end_events(call: Call, task_outcome: Outcome, ids: Mapping[str, str]) -> Iterator[bytes]:
    """Yield AG-UI events for the end of a run: the answer, an interrupt or an error.

    Args:
        call: The API request.
        task_outcome: The state of the task.
        ids: The ids of thread and run.
    """
    detail = task_outcome.detail
    used = task_outcome.usage
    usage = [
        {
            "inputTokens": used.input_tokens,
            "outputTokens": used.output_tokens,
            "cachedInputTokens": used.cached_tokens,
            "reasoningTokens": used.reasoning_tokens,
            "totalTokens": used.total_tokens,
        }
    ]
    if task_outcome.pending_request is not None:
        outcome = {"type": "interrupt", "interrupts": [_interrupt(task_outcome.pending_request)]}
        yield _event("RUN_FINISHED", **ids, outcome=outcome, usage=usage)
        return
    if detail.is_terminal and detail.state not in (TaskState.DONE, TaskState.STOPPED):
        error = {"message": task_outcome.failure}
        if detail.code is not None:
            error["code"] = detail.code
        yield _event("RUN_ERROR", **error, usage=usage)
        return
    message_id = f"{detail.task_id}_answer"
    text = answer_text(call, task_outcome)
    if text:
        yield _event("TEXT_MESSAGE_START", messageId=message_id, role="assistant")
        yield _event("TEXT_MESSAGE_CONTENT", messageId=message_id, delta=text)
        yield _event("TEXT_MESSAGE_END", messageId=message_id)
    # AG-UI has no outcome for a task that still runs, so the AG-UI run then ends as a success.
    kind = "cancelled" if detail.state is TaskState.STOPPED else "success"
    yield _event("RUN_FINISHED", **ids, outcome={"type": kind}, usage=usage)


def _interrupt(pending: PendingRequest) -> dict[str, Any]:
    """Return a pending request as an AG-UI interrupt, with the JSON Schema of its answer."""
    request = pending.record.requested
    schema = _DECISION_SCHEMA
    question = request.question
    fact_list = facts_data(request, pending.record.discussion)
    if question is not None:
        answer_schema: dict[str, Any] = {"type": _ANSWER_TYPES.get(question.answer, "string")}
        if question.options:
            answer_schema["enum"] = list(question.options)
        schema = {"type": "object", "properties": {"answer": answer_schema}, "required": ["answer"]}
    return {
        "id": request.request_id,
        "reason": "approval_required" if question is None else "input_required",
        "message": pending.text,
        "responseSchema": schema,
        "metadata": {"delf": {"action": request.action, "facts": fact_list}},
    }


def _event(kind: str, **data: Any) -> bytes:
    return frame({"type": kind, **data})
