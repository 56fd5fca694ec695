"""``Trace``: the history of a task, computed from its events."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any, Final, Protocol

from delf import events as ev
from delf.messages import Usage
from delf.protocols.services import Service
from delf.values.encoding import to_jsonable, to_jsonable_or_repr
from delf_engine.changes import changes_of
from delf_engine.views.records import (
    ApprovalTrace,
    ModelCallTrace,
    ModelUse,
    RerunTrace,
    SetupTrace,
    TimelineEntry,
    ToolCallTrace,
)

MAX_LINES: Final = 1_000
"""The maximum number of printed lines in a trace; the journal and the answer have all lines."""
# The maximum number of characters of a call's output in a trace.
_MAX_OUTPUT_LENGTH: Final = 1_000_000
_EVENTS_OF_CHANGES = frozenset(
    {ev.ScriptGenerated, ev.ScriptFinished, ev.CallStarted, ev.CallFinished}
)
_CALL_FIELDS = tuple(item.name for item in fields(ToolCallTrace))
_APPROVAL_FIELDS = tuple(item.name for item in fields(ApprovalTrace))


class Trace:
    """The history of a task, in order.

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
        self.reruns: list[RerunTrace] = []
        self.retries: list[str] = []
        self.warnings: list[str] = []
        # The topic and the text of each note.
        self.notes: list[tuple[str, str]] = []
        self.approvals: list[ApprovalTrace] = []
        self.tools_shown: list[str] = []
        # The name of the prefilter that chose the tools, or "all".
        self.tools_chosen_by: str | None = None
        # The facts that were stored in the memory after the task.
        self.learned: list[str] = []
        self.usage = Usage()
        self.total_cost_usd: float | None = 0.0
        self.duration_ms: float | None = None
        self.api_enrichment: SetupTrace | None = None
        self._calls: dict[int, ToolCallTrace] = {}
        self._approval_by_request: dict[str, ApprovalTrace] = {}
        # The origins of the arguments of each call, by call number.
        self._origins: dict[int, Mapping[str, Any]] = {}
        # The timeline entries of steps, calls and child tasks that have not ended, by their ids.
        self._running_entries: dict[str | int, TimelineEntry] = {}
        # The timeline entries of cancelled calls, which a resume may make again.
        self._cancelled_call_entries: dict[int, TimelineEntry] = {}
        self._current_step = ""
        # The duration of the latest script.
        self._script_ms = 0.0
        self.utterances: list[str] = []
        """The lines that the task's scripts have printed."""
        self.timeline: list[TimelineEntry] = []
        """The history of a task for a person: steps, calls and printed lines in order."""
        # The timeline entry of the last printed line while the line has no line break yet.
        self._unfinished_line: TimelineEntry | None = None
        # The events of scripts and calls, from which the property ``changes`` is computed.
        self._events_of_changes: list[ev.Event] = []
        for event in events:
            self.add(event)

    def add(self, event: ev.Event) -> None:
        """Add an event to the trace."""
        if type(event) in _EVENTS_OF_CHANGES:
            self._events_of_changes.append(event)
        match event:  # the most frequent events first
            case ev.CallStarted():
                self._start_call(event)
            case ev.CallFinished():
                self._finish_call(event)
            case ev.TaskQueued() | ev.TaskStarted():
                self.task_id = event.task_id
                self.task = event.task
            # When a process resumes a task, this is the first event of the task that it sees.
            case ev.TaskResumed():
                self.task_id = event.task_id
            case ev.SandboxOpened():
                self.sandbox = event.backend
                self.isolation = event.isolation
            case ev.ScriptGenerated():
                self.scripts.append(event.code)
            case ev.CallPrinted():
                self._add_output(event)
            case ev.ChildStarted():
                self._start_child(event)
            case ev.ChildFinished():
                self._finish_child(event)
            case ev.ModelReplied():
                self._add_model_call(event)
            case ev.Printed():
                self._add_printed_text(event)
            case ev.TaskFinished():
                self.duration_ms = event.duration_ms
                self._close_running_entries(event.at)
            case _:
                self._add_less_frequent(event)

    def _add_less_frequent(self, event: ev.Event) -> None:
        match event:
            case ev.StepStarted():
                self._current_step = event.step
                self._running_entries[event.step] = self._add_timeline_entry(
                    "phase", event.step, event.at
                )
            case ev.StepFinished():
                self._current_step = ""
                entry = self._running_entries.pop(event.step, None)
                if entry is None:  # the events of a resumed task may begin within a step
                    started_at = event.at - event.duration_ms / 1000
                    entry = self._add_timeline_entry("phase", event.step, started_at)
                _finish(entry, event.duration_ms, ok=True)
                if event.step == ev.Step.SETUP:
                    # The set-up takes as long as the whole step, which may not even call a model.
                    self._setup_trace().duration_ms = event.duration_ms
            case ev.ScriptFinished():
                self._script_ms = event.duration_ms
                entry = self._running_entries.get(ev.Step.EXECUTE)
                if entry is not None and event.status not in ("done", "rerun"):
                    entry.status = "error"
            case ev.RerunRequested():
                self.reruns.append(
                    RerunTrace(
                        attempt=event.attempt,
                        duration_ms=self._script_ms,
                        learned_context=event.context,
                        remaining_task=event.remaining,
                    )
                )
            case ev.RetryScheduled():
                self.retries.append(event.error)
            case ev.Warned():
                self.warnings.append(event.message)
            case ev.ApprovalRequested() | ev.ApprovalDecided() | ev.ApprovalRemembered():
                self._add_approval(event)
            case ev.ToolsSelected():
                self.tools_shown = list(event.actions)
                self.tools_chosen_by = event.by
            case ev.Noted():
                self.notes.append((event.topic, event.text))
            case ev.FactsLearned():
                self.learned += event.facts
            case _:
                pass

    def _add_approval(
        self, event: ev.ApprovalRequested | ev.ApprovalDecided | ev.ApprovalRemembered
    ) -> None:
        """Add a request, its decision, or a remembered approval."""
        match event:
            case ev.ApprovalRequested():
                approval = ApprovalTrace(
                    request_id=event.request_id, call_id=event.call_id, action=event.action
                )
                self._approval_by_request[event.request_id] = approval
                self._origins[event.call_id] = event.origins
                self.approvals.append(approval)
            case ev.ApprovalDecided():
                approval = self._approval_by_request.get(event.request_id)
                if approval is not None:
                    approval.decision = event.decision
                    approval.by = event.by
                    approval.reason = event.reason
                    approval.edited = event.arguments
                    approval.answer = event.answer
                    # The recorded origins belong to the arguments before a person edited them.
                    if event.arguments is not None:
                        self._origins.pop(approval.call_id, None)
            case ev.ApprovalRemembered():
                self.approvals.append(
                    ApprovalTrace(
                        request_id=event.from_request,
                        call_id=event.call_id,
                        action=event.action,
                        decision="remembered",
                        by=event.by,
                        from_task=event.from_task,
                    )
                )

    def _add_timeline_entry(
        self, kind: str, label: str, at: float, status: str = "running"
    ) -> TimelineEntry:
        entry = TimelineEntry(kind=kind, label=label, status=status, started_at=at)
        self.timeline.append(entry)
        return entry

    def _close_running_entries(self, at: float) -> None:
        """Close the entries that are still running when the task ends, and mark them as failed."""
        for entry in self._running_entries.values():
            _finish(entry, (at - entry.started_at) * 1000, ok=False)
        self._running_entries.clear()

    def _add_printed_text(self, event: ev.Printed) -> None:
        """Add printed lines to the timeline, up to the limit; continue an unfinished line."""
        text = event.text
        if "\r" in text:
            text = text.replace("\r\n", "\n").replace("\r", "\n")
        *complete_lines, unfinished_line = text.split("\n")
        for line in complete_lines[: self._remaining_line_count()]:
            self._begin_or_continue_line(line, event.at)  # the first may continue a line
            self._unfinished_line = None
        if unfinished_line and self._remaining_line_count() > 0:
            self._begin_or_continue_line(unfinished_line, event.at)

    def _remaining_line_count(self) -> int:
        """Return how many more printed lines fit in a trace, the unfinished line included."""
        complete_line_count = len(self.utterances)
        if self._unfinished_line is not None:
            # Text that continues the last line must not be cut off at the limit.
            complete_line_count -= 1
        return MAX_LINES - complete_line_count

    def _begin_or_continue_line(self, text: str, at: float) -> None:
        """Append text to the unfinished printed line; begin a line if there is none."""
        entry = self._unfinished_line
        if entry is None:
            entry = self._add_timeline_entry("say", text, at, "success")
            entry.duration_ms = 0
            self.utterances.append(text)
            self._unfinished_line = entry
        else:
            entry.label += text
            self.utterances[-1] = entry.label

    def _start_call(self, event: ev.CallStarted) -> None:
        call = ToolCallTrace(
            call_id=event.call_id,
            name=event.action,
            description=event.description,
            arguments=event.arguments,
            started_at=event.at,
        )
        self._register_call(call)

    def _register_call(self, call: ToolCallTrace) -> None:
        """Add a call to the trace and to the timeline, where the call is running."""
        call.origins = self._origins.get(call.call_id, {})
        self._calls[call.call_id] = call
        self.tool_calls.append(call)
        label = call.description or call.name
        self._running_entries[call.call_id] = self._add_timeline_entry(
            "tool", label, call.started_at
        )

    def _finish_call(self, event: ev.CallFinished) -> None:
        """Set the result of a call, and finish the call's entry in the timeline."""
        call = self._calls.get(event.call_id)
        if call is None:
            call = ToolCallTrace(call_id=event.call_id, name=event.action, started_at=event.at)
            call.description = event.description
            self._register_call(call)
        call.status = event.status
        call.result = event.result
        call.error = event.error
        call.duration_ms = event.duration_ms
        entry = self._running_entries.pop(event.call_id, None)
        if entry is None:
            # A resumed task may make a cancelled call again; the call then ends a second time.
            entry = self._cancelled_call_entries.pop(event.call_id, None)
        if entry is None:  # the task ended before the call did, and its end closed the entry
            return
        entry.duration_ms = round(event.duration_ms)
        entry.status = "success" if event.status == "ok" else "error"
        if event.status == "cancelled":
            self._cancelled_call_entries[event.call_id] = entry

    def _add_output(self, event: ev.CallPrinted) -> None:
        call = self._calls.get(event.call_id)
        if call is not None:
            call.output += event.text[: _MAX_OUTPUT_LENGTH - len(call.output)]

    def _start_child(self, event: ev.ChildStarted) -> None:
        call = self._calls.get(event.call_id)
        if call is not None:
            call.children.append(event.child_id)
        self._running_entries[event.child_id] = self._add_timeline_entry(
            "task", event.task, event.at
        )

    def _finish_child(self, event: ev.ChildFinished) -> None:
        entry = self._running_entries.pop(event.child_id, None)
        if entry is not None:
            _finish(entry, event.duration_ms, ok=event.status)
        self.total_cost_usd = _sum(self.total_cost_usd, event.cost_usd)

    def _add_model_call(self, event: ev.ModelReplied) -> None:
        call = ModelCallTrace(
            model=event.model,
            purpose=event.purpose,
            usage=event.usage,
            cost_usd=event.cost_usd,
            duration_ms=event.duration_ms,
            step=self._current_step,
        )
        self.model_calls.append(call)
        if event.purpose == "setup":
            self._setup_trace().add(call)
            return  # no task pays for the set-up of connections, which serves all tasks
        self.usage = self.usage + event.usage
        self.total_cost_usd = _sum(self.total_cost_usd, event.cost_usd)

    def _setup_trace(self) -> SetupTrace:
        """Return the record of model calls that set up connections; create it on first use."""
        # ``api_enrichment`` is the public name of this record.
        if self.api_enrichment is None:
            self.api_enrichment = SetupTrace()
        return self.api_enrichment

    def _uses(self, attribute: str) -> dict[str, ModelUse]:
        """Return the totals of the model calls, by an attribute of the calls such as ``step``."""
        uses: dict[str, ModelUse] = {}
        for call in self.model_calls:
            uses.setdefault(getattr(call, attribute), ModelUse()).add(call)
        return uses

    @property
    def changes(self) -> list[str]:
        """A line for each call that changed something or may have changed something."""
        return [str(change) for change in changes_of(self._events_of_changes)]

    @property
    def usage_by_model(self) -> dict[str, ModelUse]:
        """Calls, tokens and cost of each model."""
        return self._uses("model")

    @property
    def usage_by_step(self) -> dict[str, ModelUse]:
        """Calls, tokens and cost of each step.

        Model calls that a script makes count for the step ``execute``.
        """
        return self._uses("step")

    def summary(self, *, calls: bool = True) -> str:
        """Format the task as a table: duration, steps, calls, tokens and cost.

        Args:
            calls: Whether to list the calls.

        Raises:
            OptionalDependencyError: If no plugin that draws tables is installed.
        """
        from delf.plugins.host import PluginHost

        return PluginHost.discover().service(TASK_PRINTER).summary_of(self, calls=calls)

    def to_dict(self) -> dict[str, Any]:
        """Return the trace as JSON-ready data; types that JSON does not support are tagged."""
        values = {name: value for name, value in vars(self).items() if not name.startswith("_")}
        # Properties are not in vars().
        for name in ("usage_by_model", "usage_by_step", "changes"):
            values[name] = getattr(self, name)
        values["approvals"] = [_fields_of(each, _APPROVAL_FIELDS) for each in self.approvals]
        values["tool_calls"] = [_fields_of(each, _CALL_FIELDS) for each in self.tool_calls]
        return to_jsonable(values)

    def __repr__(self) -> str:
        return f"<Trace {self.task_id}: {len(self.tool_calls)} calls>"


def _fields_of(item: object, names: Iterable[str]) -> dict[str, Any]:
    return {name: to_jsonable_or_repr(getattr(item, name)) for name in names}


def _sum(first: float | None, second: float | None) -> float | None:
    """Add two costs; None if one of the costs is unknown."""
    if first is None or second is None:
        return None
    return first + second


def _finish(entry: TimelineEntry, duration_ms: float, *, ok: bool) -> None:
    """Set the duration and status of a timeline entry; a failed entry stays failed."""
    entry.duration_ms = round(duration_ms)
    has_failed = not ok or entry.status == "error"
    entry.status = "error" if has_failed else "success"


class PrintsTasks(Protocol):
    """A printer of tasks on a terminal, exported by a plugin as ``task_printer``.

    A protocol instead of an import, because the plugin is optional and depends on the engine.
    """

    def tell_of_event(self, event: ev.Event) -> None:
        """Print a line about an event to stderr."""
        ...

    def summary_of(self, trace: Trace, *, calls: bool = True) -> str:
        """Format a task as a table.

        Args:
            trace: The task.
            calls: Whether to list its calls.
        """
        ...


TASK_PRINTER: Final = Service("task_printer", PrintsTasks, "lines about tasks on a terminal")
