"""The records that traces and snapshots consist of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from delf.events import Event
from delf.messages import ModelDelta, Usage
from delf.records import dataclass

StreamEvent = Event | ModelDelta
"""An item of ``Agent.stream``: an event of the task, or a piece of a model's answer."""


@dataclass(slots=True, kw_only=True)
class ToolCallTrace:
    """A call of an action.

    Args:
        call_id: The number in the task, from 1.
        name: ``connection.method``.
        description: The script's ``desc=``.
        arguments: The arguments.
        status: ``running``, ``ok``, ``error``, ``refused``, ``rejected`` or ``cancelled``.
        result: The result.
        error: The error message, if the call failed.
        started_at: Unix time in seconds.
        duration_ms: The duration of the tool in milliseconds.
        children: The ids of its child tasks.
        output: The text that the call printed.
        origins: The origins of the values in the arguments, by path, as a person was shown them.
            Empty if no person was asked; values that a person edited are left out.
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
    children: list[str] = field(default_factory=list[str])
    output: str = ""
    origins: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def success(self) -> bool:
        """True if the call succeeded."""
        return self.status == "ok"


@dataclass(slots=True, kw_only=True)
class ApprovalTrace:
    """A request and its decision.

    Args:
        request_id: The request.
        call_id: The number of the call; 0 for a whole script.
        action: The action.
        decision: ``waiting``, ``approved``, ``edited``, ``rejected``, ``expired``,
            ``already_done`` or ``answered``; ``remembered`` if an earlier approval covered the
            call.
        by: The person who decided.
        reason: The person's note.
        edited: The arguments that replaced the requested ones.
        answer: The answer to a question.
        from_task: For a remembered decision, the task in which it was made.
    """

    request_id: str
    call_id: int
    action: str
    decision: str = "waiting"
    by: str = ""
    reason: str | None = None
    edited: Mapping[str, Any] | None = None
    answer: Any = None
    from_task: str | None = None


@dataclass(frozen=True, kw_only=True)
class ModelCallTrace:
    """A call of a model.

    Args:
        model: The model, as the user named it.
        purpose: The purpose of the call: ``generate``, ``call``, ``prefilter`` …
        usage: The token counts.
        cost_usd: The cost; None if unknown.
        duration_ms: The duration in milliseconds.
        step: The current step of the task; empty outside of steps.
    """

    model: str
    purpose: str
    usage: Usage
    cost_usd: float | None
    duration_ms: float
    step: str = ""


@dataclass(slots=True, kw_only=True)
class ModelUse:
    """The total of several model calls.

    Args:
        calls: The number of calls.
        usage: The token counts.
        cost_usd: The cost; None if a price is unknown.
        duration_ms: The sum of the durations in milliseconds.
    """

    calls: int = 0
    usage: Usage = field(default_factory=Usage)
    cost_usd: float | None = 0.0
    duration_ms: float = 0.0

    def add(self, call: ModelCallTrace) -> None:
        """Add a call to the totals."""
        self.calls += 1
        self.usage = self.usage + call.usage
        self.duration_ms += call.duration_ms
        if self.cost_usd is None or call.cost_usd is None:
            self.cost_usd = None
        else:
            self.cost_usd += call.cost_usd


@dataclass(slots=True, kw_only=True)
class SetupTrace(ModelUse):
    """The model calls for setting up connections, whose cost no task pays."""

    @property
    def cached(self) -> bool:
        """True if no model was asked."""
        return self.calls == 0


@dataclass(frozen=True, kw_only=True)
class RerunTrace:
    """A request of a script to continue with another script."""

    attempt: int
    duration_ms: float
    learned_context: str
    remaining_task: str


@dataclass(slots=True, kw_only=True)
class TimelineEntry:
    """An entry of the timeline.

    Args:
        kind: ``phase``, ``tool``, ``task`` (a child task) or ``say``.
        label: The step, the call's ``desc=`` or name, or a printed line.
        status: ``running``, ``success`` or ``error``.
        started_at: Unix time in seconds.
        duration_ms: The duration; None while the entry is running.
    """

    kind: str
    label: str
    status: str
    started_at: float
    duration_ms: int | None = None
