"""``Response``: the result of a task."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, Final, Generic, cast

from delf.errors import (
    BudgetExceededError,
    ConfigurationError,
    DelfError,
    TaskStoppedError,
    TaskTimeoutError,
)
from delf.events import (
    Event,
    ModelReplied,
    TaskFinished,
    TaskQueued,
    TaskResumed,
    TaskStarted,
    cost_of,
    end_event,
)
from delf.protocols.states import state_of
from delf.records import dataclass
from delf.types import TaskState
from delf_engine.changes import changes_of, used_tools
from delf_engine.views.trace import Trace

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from delf_engine.outputs import Output
    from delf_engine.task import TaskOutcome

    T = TypeVar("T", default=Any)
else:  # only type checkers need the defaults
    from typing import TypeVar

    T = TypeVar("T")

_ERROR_CLASS_BY_CODE: Final[Mapping[str | None, type[DelfError]]] = {
    each.code: each for each in (TaskStoppedError, TaskTimeoutError, BudgetExceededError)
}


@dataclass(kw_only=True)
class Response(Generic[T]):
    """The outcome of a task.

    Args:
        text: The answer; after a failure, the output so far.
        status: The final status.
        error: The error message.
        cost_usd: The cost of the models; None if a price is unknown.
        duration_ms: Wall time in milliseconds.
        events: The task's events.
        files: The absolute paths of the output files, by name.
        exception: The error as an exception; :meth:`raise_for_status` raises it.
        value: The typed answer if ``output`` was given and the task succeeded, else None.
    """

    text: str
    status: bool
    error: str | None = None
    cost_usd: float | None = None
    duration_ms: int = 0
    events: Sequence[Event] = field(default=(), repr=False)
    files: dict[str, str] = field(default_factory=dict[str, str])
    exception: DelfError | None = field(default=None, repr=False)
    value: T = cast("Any", None)

    @functools.cached_property
    def trace(self) -> Trace:
        """The history of the task, formatted for people."""
        return Trace(self.events)

    def raise_for_status(self) -> Response[T]:
        """Return the response itself, or raise its error.

        Raises:
            DelfError: If the task failed.
        """
        if not self.status:
            raise self.exception or DelfError(self.error or "the task failed")
        return self

    def raise_if_never_begun(self) -> None:
        """Raise a configuration or budget error that occurred before any model was asked.

        Examples are a missing key, or a journal or conversation that cannot be opened. Any other
        failure stays a failed response.

        Raises:
            ConfigurationError: If the task failed with this error.
            BudgetExceededError: If the task failed with this error.
        """
        error = self.exception
        can_precede_task = isinstance(error, (ConfigurationError, BudgetExceededError))
        if can_precede_task and not self._has(ModelReplied):
            # Without the traceback through the agent's own loop, where the error was first raised.
            raise error.with_traceback(None)

    def _has(self, *kinds: type[Event]) -> bool:
        return any(isinstance(event, kinds) for event in self.events)

    @property
    def state(self) -> TaskState:
        """The state of the task: done, failed, stopped or interrupted.

        An interrupted task has no end in the journal, and can be resumed.
        """
        if self.status:
            return TaskState.DONE
        if isinstance(self.exception, TaskStoppedError):
            return TaskState.STOPPED
        if not self._has(TaskQueued, TaskStarted, TaskResumed):
            return TaskState.FAILED  # not begun: there is nothing to resume
        has_recorded_end = state_of(self.events).is_terminal
        return TaskState.FAILED if has_recorded_end else TaskState.INTERRUPTED

    @property
    def end_phrase(self) -> str:
        """A phrase about the task's end: ``before it failed``, ``before it was stopped``."""
        if self.state is TaskState.FAILED:
            return f"before it {self.state}"
        return f"before it was {self.state}"

    @property
    def used_tools(self) -> bool:
        """True if any tool was called; otherwise the answer is the model's own knowledge."""
        return used_tools(self.events)

    @property
    def changes(self) -> list[str]:
        """A line for each call that changed something or may have changed something."""
        return [str(change) for change in changes_of(self.events)]

    def to_dict(self) -> dict[str, Any]:
        """Return the response as JSON-ready data."""
        return {
            "text": self.text,
            "value": self._plain_value(),
            "status": self.status,
            "state": self.state,
            "error": self.error,
            "code": self._error_code(),
            "hint": None if self.exception is None else self.exception.hint,
            "cost_usd": self.cost_usd,
            "duration_ms": self.duration_ms,
            "files": self.files,
            "used_tools": self.used_tools,
            "changes": self.changes,
            "trace": self.trace.to_dict(),
        }

    def _error_code(self) -> str | None:
        """Return the code of the recorded failure; if none is recorded, the exception's code."""
        end = end_event(self.events)
        if end is not None:
            return end.code
        return None if self.exception is None else self.exception.code

    def _plain_value(self) -> Any:
        for event in reversed(self.events):
            if isinstance(event, TaskFinished):
                return event.value
        return None

    def __bool__(self) -> bool:
        return self.status

    def __str__(self) -> str:
        """Return the answer; for a task without success, its state, error, output and changes."""
        has_succeeded: bool = self.status
        if has_succeeded:
            return self.text
        failure = self.exception if self.exception is not None else self.error
        lines = [f"{self.state}: {failure}"]
        before_end = self.end_phrase  # such as "before it failed"
        if self.text.strip():
            lines += [f"printed {before_end}:", self.text]
        changes = self.changes
        if changes:
            lines.append(f"changed {before_end}:")
            lines += [f"  {change}" for change in changes]
        return "\n".join(lines)


def response_of(outcome: TaskOutcome, output: Output[Any] | None = None) -> Response[Any]:
    """Make the response of a task that ran in this process.

    Args:
        outcome: The outcome.
        output: The declared type of the answer.
    """
    has_succeeded = outcome.error is None
    value = outcome.value
    if output is not None and value is not None:
        value = output.from_plain(value)
    return Response(
        text=outcome.text,
        status=has_succeeded,
        error=None if outcome.error is None else outcome.error.message,
        cost_usd=cost_of(outcome.events),
        duration_ms=round(outcome.duration_ms),
        events=outcome.events,
        files=dict(outcome.files),
        exception=outcome.error,
        value=value,
    )


def response_of_interrupted_task(
    events: Sequence[Event], reason: str, seconds: float
) -> Response[Any]:
    """Build the response of a task whose journal has no end, because its process stopped.

    Args:
        events: The task's events.
        reason: The reason that the task stopped.
        seconds: The duration of the work in seconds; the work may have continued after the last
            event.
    """
    return Response(
        text="",
        status=False,
        error=reason,
        cost_usd=cost_of(events),
        duration_ms=round(seconds * 1000),
        events=events,
        files={},
        exception=None,
    )


def past_response(events: Sequence[Event], end: TaskFinished) -> Response[Any]:
    """Make the response of a finished task, from its events; the answer is plain data.

    Args:
        events: The task's events.
        end: The final event.
    """
    error: DelfError | None = None
    has_succeeded: bool = end.status
    if not has_succeeded:
        error_class = _ERROR_CLASS_BY_CODE.get(end.code, DelfError)
        error = error_class(end.error or "the task failed", hint=end.hint)
    return Response(
        text=end.text,
        status=has_succeeded,
        error=end.error,
        cost_usd=end.cost_usd,
        duration_ms=round(end.duration_ms),
        events=events,
        files=dict(end.files),
        exception=error,
        value=end.value,
    )
