"""``Trace``: what happened in a task, folded from its events."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from delf import events as ev
from delf.messages import Usage
from delf.values import to_jsonable, to_jsonable_or_repr


@dataclass(slots=True, kw_only=True)
class ToolCallTrace:
    """One call.

    Args:
        call_id: Its number in the task, from 1.
        name: ``connection.method``.
        description: The script's ``desc=``.
        arguments: What it was made with.
        status: ``running``, ``ok``, ``error``, ``refused``, ``rejected`` or ``cancelled``.
        result: What it returned.
        error: Why it failed.
        started_at: Unix time in seconds.
        duration_ms: How long the tool itself took.
    """

    call_id: int
    name: str
    description: str | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])
    status: str = "running"
    result: Any = None
    error: str | None = None
    started_at: float = 0.0
    duration_ms: float | None = None

    @property
    def success(self) -> bool:
        """Whether it returned."""
        return self.status == "ok"


_CALL_FIELDS = tuple(item.name for item in fields(ToolCallTrace))
_APART = ("tool_calls",)


@dataclass(frozen=True, kw_only=True)
class ModelCallTrace:
    """One call of a model."""

    model: str
    purpose: str
    usage: Usage
    cost_usd: float | None
    duration_ms: float


@dataclass(slots=True, kw_only=True)
class SetupTrace:
    """What connections had a model do before the agent's first task.

    Args:
        usage: Its tokens, which are none of the task's.
        cost_usd: Its price, which is none of the task's; None where it is not known.
        calls: How many times a model was asked; 0 when all of it was cached.
        duration_ms: How long it took.
    """

    usage: Usage = field(default_factory=Usage)
    cost_usd: float | None = 0.0
    calls: int = 0
    duration_ms: float = 0.0

    @property
    def cached(self) -> bool:
        """Whether nothing had to be asked."""
        return self.calls == 0


@dataclass(frozen=True, kw_only=True)
class RerunTrace:
    """One pass that a script asked for."""

    attempt: int
    duration_ms: float
    learned_context: str
    remaining_task: str


@dataclass(slots=True, kw_only=True)
class StreamEvent:
    """A line of the timeline.

    Args:
        kind: ``phase``, ``tool`` or ``say``.
        label: The step, the call, or what was printed.
        status: ``running``, ``success`` or ``error``.
        started_at: Unix time in seconds.
        duration_ms: None while it runs.
    """

    kind: str
    label: str
    status: str
    started_at: float
    duration_ms: float | None = None


class Trace:
    """Everything that happened in a task, in the order in which it did.

    Args:
        events: The task's events.
    """

    def __init__(self, events: Iterable[ev.Event] = ()) -> None:
        self.task_id = ""
        self.task = ""
        self.sandbox: str | None = None
        self.isolation: str | None = None
        self.scripts: list[str] = []
        self.tool_calls: list[ToolCallTrace] = []
        self.model_calls: list[ModelCallTrace] = []
        self.utterances: list[str] = []
        self.reruns: list[RerunTrace] = []
        self.retries: list[str] = []
        self.warnings: list[str] = []
        self.timeline: list[StreamEvent] = []
        self.usage = Usage()
        self.total_cost_usd: float | None = 0.0
        self.duration_ms: float | None = None
        self.api_enrichment: SetupTrace | None = None
        self._calls: dict[int, ToolCallTrace] = {}
        for event in events:
            self.add(event)

    def add(self, event: ev.Event) -> None:
        """Take one more event into account."""
        match event:
            case ev.TaskStarted():
                self.task_id, self.task = event.task_id, event.task
            case ev.SandboxOpened():
                self.sandbox, self.isolation = event.backend, event.isolation
            case ev.ScriptGenerated():
                self.scripts.append(event.code)
            case ev.CallStarted():
                self._start_call(event)
            case ev.CallFinished():
                self._finish_call(event)
            case ev.ModelReplied():
                self._add_model_call(event)
            case ev.Printed():
                self.utterances += event.text.splitlines()
                self._line("say", event.text.strip(), "success", event.at)
            case ev.StepFinished():
                at = event.at - event.duration_ms / 1000
                if event.step == "setup":
                    self._setup().duration_ms += event.duration_ms
                self._line("phase", event.step, "success", at, event.duration_ms)
            case ev.RerunRequested():
                self.reruns.append(
                    RerunTrace(
                        attempt=event.attempt,
                        duration_ms=event.duration_ms,
                        learned_context=event.context,
                        remaining_task=event.remaining,
                    )
                )
            case ev.RetryScheduled():
                self.retries.append(event.error)
            case ev.Warned():
                self.warnings.append(event.message)
            case ev.TaskFinished():
                self.duration_ms = event.duration_ms
            case _:
                pass

    def _line(
        self, kind: str, label: str, status: str, at: float, duration_ms: float | None = None
    ) -> None:
        self.timeline.append(
            StreamEvent(
                kind=kind, label=label, status=status, started_at=at, duration_ms=duration_ms
            )
        )

    def _start_call(self, event: ev.CallStarted) -> None:
        call = ToolCallTrace(
            call_id=event.call_id,
            name=event.action,
            description=event.description,
            arguments=event.arguments,
            started_at=event.at,
        )
        self._calls[event.call_id] = call
        self.tool_calls.append(call)

    def _finish_call(self, event: ev.CallFinished) -> None:
        call = self._calls.get(event.call_id)
        if call is None:
            call = ToolCallTrace(call_id=event.call_id, name=event.action, started_at=event.at)
            call.description = event.description
            self._calls[event.call_id] = call
            self.tool_calls.append(call)
        call.status, call.result, call.error = event.status, event.result, event.error
        call.duration_ms = event.duration_ms
        status = "success" if event.status == "ok" else "error"
        label = call.description or call.name
        self._line("tool", label, status, call.started_at, event.duration_ms)

    def _add_model_call(self, event: ev.ModelReplied) -> None:
        self.model_calls.append(
            ModelCallTrace(
                model=event.model,
                purpose=event.purpose,
                usage=event.usage,
                cost_usd=event.cost_usd,
                duration_ms=event.duration_ms,
            )
        )
        if event.purpose == "setup":
            setup = self._setup()
            setup.calls += 1
            setup.usage = setup.usage + event.usage
            setup.cost_usd = _sum(setup.cost_usd, event.cost_usd)
            return
        self.usage = self.usage + event.usage
        self.total_cost_usd = _sum(self.total_cost_usd, event.cost_usd)

    def _setup(self) -> SetupTrace:
        if self.api_enrichment is None:
            self.api_enrichment = SetupTrace()
        return self.api_enrichment

    def summary(self) -> str:
        """The task in a few lines: sandbox, calls, tokens, cost, steps."""
        by_status: dict[str, int] = {}
        for call in self.tool_calls:
            by_status[call.status] = by_status.get(call.status, 0) + 1
        outcomes = ", ".join(f"{count} {status}" for status, count in by_status.items()) or "none"
        lines = [
            f"task      {self.task_id}",
            f"sandbox   {self.sandbox or '-'} ({self.isolation or '-'})",
            f"calls     {outcomes}",
            (
                f"models    {len(self.model_calls)} calls, {self.usage.input_tokens} tokens in "
                f"({self.usage.cached_tokens} cached), {self.usage.output_tokens} out"
            ),
            f"cost      {_dollars(self.total_cost_usd)}",
        ]
        if self.api_enrichment is not None:
            cached = " (cached)" if self.api_enrichment.cached else ""
            lines.append(f"set-up    {_dollars(self.api_enrichment.cost_usd)}{cached}")
        if self.duration_ms is not None:
            lines.append(f"time      {self.duration_ms:.0f} ms")
        phases = [line for line in self.timeline if line.kind == "phase"]
        lines += [f"  {line.label:<9} {line.duration_ms or 0:8.1f} ms" for line in phases]
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """The trace as JSON-ready data; values that JSON lacks are tagged."""
        shown = [name for name in vars(self) if not name.startswith("_")]
        plain = {name: getattr(self, name) for name in shown if name not in _APART}
        plain["tool_calls"] = [
            {name: to_jsonable_or_repr(getattr(call, name)) for name in _CALL_FIELDS}
            for call in self.tool_calls
        ]
        return to_jsonable(plain)

    def __repr__(self) -> str:
        return f"<Trace {self.task_id}: {len(self.tool_calls)} calls>"


def _sum(first: float | None, second: float | None) -> float | None:
    return None if first is None or second is None else first + second


def _dollars(cost: float | None) -> str:
    return "unknown" if cost is None else f"${cost:.6f}"
