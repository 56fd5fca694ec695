"""Folds events into finished spans, named by OpenTelemetry's conventions for generative AI.

A task is ``invoke_agent``, a model call ``chat``, a tool call ``execute_tool``; a question to a
person is delf's own ``delf.approval``, to which the approved tool call is linked. The id of a span
is a digest of its task, call or request. So a task that continues in another process, or on another
machine, continues in the same trace.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from delf.events import (
    ApprovalDecided,
    ApprovalRemembered,
    ApprovalRequested,
    CallFinished,
    CallStarted,
    ChildStarted,
    Event,
    ModelFailed,
    ModelReplied,
    RerunRequested,
    RetryScheduled,
    SandboxOpened,
    ScriptFinished,
    TaskFinished,
    TaskPostponed,
    TaskResumed,
    TaskStarted,
    Warned,
)
from delf.messages import Usage
from delf.providers import Providers
from delf.types import TaskState
from delf_otel.context import Parent, parent_in

_OTHER: Final = "_OTHER"
_MILLISECOND: Final = 0.001
# The maximum number of unfinished tasks to remember. Tasks that end in another process, or never,
# would otherwise pile up.
_MAX_OPEN_TASKS: Final = 10_000
# The names of providers in OpenTelemetry's conventions that differ from delf's names.
_CONVENTIONS: Final = {
    "google": "gcp.gemini",
    "azure": "azure.ai.openai",
    "bedrock": "aws.bedrock",
    "mistral": "mistral_ai",
    "vertex_ai": "gcp.vertex_ai",
    "xai": "x_ai",
}

Attribute = str | int | float | bool | tuple[str, ...]


def provider_of(model: str, providers: Providers) -> str:
    """Return the name of a model's provider in OpenTelemetry's conventions.

    For an unknown provider, return the prefix of the model's name.

    Args:
        model: The model's name.
        providers: The installed providers.
    """
    provider = providers.for_model(model)
    name = re.split("[/:]", model, maxsplit=1)[0] if provider is None else provider.name
    return _CONVENTIONS.get(name, name) or _OTHER


@dataclass(frozen=True, kw_only=True)
class FinishedSpan:
    """A finished span of OpenTelemetry.

    Args:
        name: The name of the span.
        client: Whether the span is a request to a remote service.
        trace_id: The id of the trace.
        span_id: The id of the span.
        parent_id: The id of the parent span; None for the first span of a trace.
        sampled: Whether the program that submitted the task samples the trace.
        start: The Unix time of the start, in seconds.
        end: The Unix time of the end, in seconds.
        attributes: The attributes.
        events: The events within the span, as (name, Unix time, attributes).
        links: The ids of linked spans of the same trace.
        failure: The kind of the error, such as an exception's name; None without an error.
        message: The text of the error; None unless contents are exported.
    """

    name: str
    client: bool
    trace_id: int
    span_id: int
    parent_id: int | None
    sampled: bool
    start: float
    end: float
    attributes: Mapping[str, Attribute]
    events: tuple[tuple[str, float, Mapping[str, Attribute]], ...] = ()
    links: tuple[int, ...] = ()
    failure: str | None = None
    message: str | None = None


@dataclass(kw_only=True)
class _Task:
    """A running task and its open spans.

    Args:
        trace_id: The id of the task's trace.
        span_id: The id of the task's span.
        parent_id: The id of the parent span; None for the first span of a trace.
        sampled: Whether the program that submitted the task samples the trace.
        start: The Unix time at which the task began.
        attributes: The attributes of the task's span.
        events: The events within the task's span, as (name, Unix time, attributes).
        calls: The events of the starts of running calls, by call id.
        open_requests: The pending approval requests, by request id.
        approval_span_ids: The ids of the spans of finished approvals, by the id of the call that
            was approved.
        child_call_span_ids: The ids of the spans of calls that started child tasks, by the id of
            the child task.
        usage: The tokens of the task's model calls so far.
    """

    trace_id: int
    span_id: int
    parent_id: int | None
    sampled: bool
    start: float
    attributes: dict[str, Attribute]
    events: list[tuple[str, float, Mapping[str, Attribute]]] = field(
        default_factory=list[tuple[str, float, Mapping[str, Attribute]]]
    )
    calls: dict[int, CallStarted] = field(default_factory=dict[int, CallStarted])
    open_requests: dict[str, ApprovalRequested] = field(
        default_factory=dict[str, ApprovalRequested]
    )
    approval_span_ids: dict[int, int] = field(default_factory=dict[int, int])
    child_call_span_ids: dict[str, int] = field(default_factory=dict[str, int])
    usage: Usage = field(default_factory=Usage)

    def add_event(self, name: str, at: float, **attributes: Attribute) -> None:
        """Add an event to the task's span; ``delf.`` is put before the names of attributes."""
        self.events.append((name, at, {f"delf.{key}": value for key, value in attributes.items()}))


class Spans:
    """Converts the events of tasks to finished spans.

    The events of one task must come in order. If the start of a task is missing, the task's other
    events are ignored, so that every span has its parent.

    Args:
        providers: The installed model providers.
        content: Whether spans contain tasks, answers, arguments, results and errors.
    """

    def __init__(self, providers: Providers, *, content: bool = False) -> None:
        self._providers = providers
        self._records_content = content
        self._tasks: dict[str, _Task] = {}

    def take(self, event: Event) -> FinishedSpan | None:
        """Process an event.

        Returns:
            The span that the event ends; None if the event ends no span.
        """
        if isinstance(event, TaskStarted | TaskResumed):
            self._begin(event)
            return None
        task = self._tasks.get(event.task_id)
        if task is None:
            return None
        match event:
            case CallStarted():
                task.calls[event.call_id] = event
            case ChildStarted():
                call_span_id = _span_id(event.task_id, "call", event.call_id)
                task.child_call_span_ids[event.child_id] = call_span_id
            case ApprovalRequested():
                task.open_requests[event.request_id] = event
            case SandboxOpened():
                task.attributes["delf.sandbox"] = event.backend
            case ModelReplied() | ModelFailed():
                return self._chat(task, event)
            case CallFinished():
                return self._tool(task, event)
            case ApprovalDecided():
                return self._approval(task, event)
            case TaskFinished():
                return self._end(task, event)
            case TaskPostponed():  # begins again, perhaps in another process
                del self._tasks[event.task_id]
            case _:
                _add_span_event(task, event, content=self._records_content)
        return None

    def _begin(self, event: TaskStarted | TaskResumed) -> None:
        """Remember the start of a task for the span that ends with the task."""
        while len(self._tasks) >= _MAX_OPEN_TASKS:  # forget the oldest task
            del self._tasks[next(iter(self._tasks))]
        parent = self._parent_of(event)
        attributes: dict[str, Attribute] = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": "delf",
            "delf.task.id": event.task_id,
        }
        if event.origin:  # the name of the agent
            attributes["gen_ai.agent.id"] = event.origin
        if isinstance(event, TaskResumed):
            attributes["delf.task.resumed"] = True
        else:
            if event.conversation:
                attributes["gen_ai.conversation.id"] = event.conversation
            if self._records_content:
                attributes["gen_ai.input.messages"] = _message("user", event.task)
        self._tasks[event.task_id] = _Task(
            trace_id=parent.trace_id,
            span_id=_span_id(event.task_id),
            parent_id=parent.span_id,
            sampled=parent.sampled,
            start=event.at,
            attributes=attributes,
        )

    def _parent_of(self, event: TaskStarted | TaskResumed) -> Parent:
        """Return the parent of a task's span.

        For a child task, this is the span of the parent task's tool call that started the child.
        Other tasks may have been submitted with the id of a span of the caller's own program. A
        task without either begins a trace of its own.
        """
        parent_task = None if event.parent is None else self._tasks.get(event.parent)
        if parent_task is not None:
            span_id = parent_task.child_call_span_ids.pop(event.task_id, parent_task.span_id)
            return Parent(
                trace_id=parent_task.trace_id, span_id=span_id, sampled=parent_task.sampled
            )
        first_of_trace = Parent(trace_id=_trace_id(event.task_id), span_id=None, sampled=True)
        return parent_in(event.setup) or first_of_trace

    def _chat(self, task: _Task, event: ModelReplied | ModelFailed) -> FinishedSpan:
        """Return the span of a model call, and add the call's tokens to the task's usage."""
        provider = provider_of(event.model, self._providers)
        task.attributes["gen_ai.provider.name"] = provider
        task.attributes.setdefault("gen_ai.request.model", event.model)
        attributes: dict[str, Attribute] = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": provider,
            "gen_ai.request.model": event.model,
            "delf.purpose": event.purpose,
        }
        failure: str | None = None
        message: str | None = None
        if isinstance(event, ModelFailed):
            failure = _OTHER
            message = event.error if self._records_content else None
        else:
            task.usage += event.usage
            attributes.update(_usage(event.usage))
            if event.cost_usd is not None:
                attributes["delf.cost_usd"] = event.cost_usd
            if self._records_content:
                attributes["gen_ai.output.messages"] = _message("assistant", event.text)
        return FinishedSpan(
            name=f"chat {event.model}",
            client=True,
            trace_id=task.trace_id,
            span_id=_span_id(event.task_id, "chat", event.seq),
            parent_id=task.span_id,
            sampled=task.sampled,
            start=event.at - event.duration_ms * _MILLISECOND,
            end=event.at,
            attributes=attributes,
            failure=failure,
            message=message,
        )

    def _tool(self, task: _Task, event: CallFinished) -> FinishedSpan:
        """Return the span of a tool call, linked to the span of its approval."""
        started = task.calls.pop(event.call_id, None)
        attributes: dict[str, Attribute] = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": event.action,
            "gen_ai.tool.type": "function",
            "gen_ai.tool.call.id": str(event.call_id),
            "delf.call.status": event.status,
        }
        # A call that was refused before it began has no event of its start.
        start = event.at - event.duration_ms * _MILLISECOND
        if started is not None:
            start = started.at
            attributes["delf.call.effect"] = started.effect
            if self._records_content:
                attributes["gen_ai.tool.call.arguments"] = _json(started.arguments)
        if self._records_content:
            attributes["gen_ai.tool.call.result"] = _json(event.result)
        approval_span_id = task.approval_span_ids.pop(event.call_id, None)
        failure: str | None = None
        message: str | None = None
        if event.status != "ok":
            failure = event.raised or event.status
            message = event.error if self._records_content else None
        return FinishedSpan(
            name=f"execute_tool {event.action}",
            client=False,
            trace_id=task.trace_id,
            span_id=_span_id(event.task_id, "call", event.call_id),
            parent_id=task.span_id,
            sampled=task.sampled,
            start=start,
            end=event.at,
            attributes=attributes,
            links=() if approval_span_id is None else (approval_span_id,),
            failure=failure,
            message=message,
        )

    def _approval(self, task: _Task, event: ApprovalDecided) -> FinishedSpan | None:
        """Return the span of an approval, from the request to the decision.

        Return None if the request was not observed.
        """
        request = task.open_requests.pop(event.request_id, None)
        if request is None:
            return None
        span_id = _span_id(event.task_id, "approval", event.request_id)
        task.approval_span_ids[request.call_id] = span_id
        attributes: dict[str, Attribute] = {
            "gen_ai.tool.name": request.action,
            "delf.approval.decision": event.decision,
            "delf.approval.by": event.by,
            "delf.approval.remember": event.remember,
        }
        return FinishedSpan(
            # A request about a whole script has no action.
            name=f"delf.approval {request.action}".rstrip(),
            client=False,
            trace_id=task.trace_id,
            span_id=span_id,
            parent_id=task.span_id,
            sampled=task.sampled,
            start=request.at,
            end=event.at,
            attributes=attributes,
        )

    def _end(self, task: _Task, event: TaskFinished) -> FinishedSpan:
        """Forget a task that has ended, and return its span."""
        del self._tasks[event.task_id]
        attributes = {"gen_ai.provider.name": "delf", **task.attributes, **_usage(task.usage)}
        if event.cost_usd is not None:
            attributes["delf.cost_usd"] = event.cost_usd
        if self._records_content:
            attributes["gen_ai.output.messages"] = _message("assistant", event.text)
        is_done = event.state is TaskState.DONE
        return FinishedSpan(
            name="invoke_agent delf",
            client=False,
            trace_id=task.trace_id,
            span_id=task.span_id,
            parent_id=task.parent_id,
            sampled=task.sampled,
            start=task.start,
            end=event.at,
            attributes=attributes,
            events=tuple(task.events),
            failure=None if is_done else event.code or _OTHER,
            message=event.error if self._records_content else None,
        )


def _add_span_event(task: _Task, event: Event, *, content: bool) -> None:
    match event:
        case ScriptFinished():
            task.add_event("delf.script", event.at, status=event.status, attempt=event.attempt)
        case RetryScheduled():
            task.add_event("delf.retry", event.at, attempt=event.attempt)
        case RerunRequested():
            task.add_event("delf.rerun", event.at, attempt=event.attempt)
        case ApprovalRemembered():
            attributes = {"action": event.action, "by": event.by, "from_task": event.from_task}
            task.add_event("delf.approval.remembered", event.at, **attributes)
        case Warned():
            attributes = {"message": event.message} if content else {}
            task.add_event("delf.warning", event.at, **attributes)
        case _:
            pass


def _trace_id(task_id: str) -> int:
    """Return the id of the trace that a task begins."""
    return _digest(task_id, byte_count=16)


def _span_id(*parts: str | int) -> int:
    """Return the id of the span of a task, call or request, which the parts identify."""
    return _digest("\0".join(map(str, parts)), byte_count=8)


def _digest(text: str, byte_count: int) -> int:
    digest = hashlib.sha256(text.encode()).digest()
    return int.from_bytes(digest[:byte_count]) or 1  # OpenTelemetry's ids are not 0


def _usage(usage: Usage) -> dict[str, Attribute]:
    """Return token counts as attributes.

    As the conventions require, cached tokens are also input tokens, and reasoning tokens are also
    output tokens.
    """
    return {
        "gen_ai.usage.input_tokens": usage.input_tokens,
        "gen_ai.usage.output_tokens": usage.output_tokens,
        "gen_ai.usage.cache_read.input_tokens": usage.cached_tokens,
        "gen_ai.usage.reasoning.output_tokens": usage.reasoning_tokens,
    }


def _message(role: str, text: str) -> str:
    """Encode a message as JSON, as OpenTelemetry's conventions for generative AI require."""
    message: dict[str, Any] = {"role": role, "parts": [{"type": "text", "content": text}]}
    if role == "assistant":
        message["finish_reason"] = "stop"
    return json.dumps([message], ensure_ascii=False)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
