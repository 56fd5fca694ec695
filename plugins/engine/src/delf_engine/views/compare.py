"""Comparison of two tasks: figures, scripts, calls with results, and answers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final, Literal

from delf.events import Event, TaskFinished
from delf.protocols.journal import TaskRecord
from delf.records import dataclass
from delf.values.encoding import to_jsonable_or_repr
from delf_engine.views.trace import Trace

Part = Literal["scripts", "calls", "answer"]
PARTS: Final[tuple[Part, ...]] = ("scripts", "calls", "answer")
# The maximum number of characters of a call's result in a diff.
_MAX_RESULT_LENGTH: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedTask:
    """A task as lines of text, for a diff of two tasks.

    Args:
        figures: The state, the cost, the duration and other figures, as JSON-ready data.
        lines: The lines of each part: the ``scripts``, the ``calls`` with their arguments and
            results, and the ``answer``.
    """

    figures: dict[str, Any]
    lines: dict[Part, list[str]]


def prepare_comparison(task: TaskRecord, events: Sequence[Event]) -> ComparedTask:
    """Return the parts of a task, such as its calls and its answer, to compare with another task.

    Args:
        task: The record.
        events: The events.
    """
    trace = Trace(events)
    figures = {
        "task_id": task.task_id,
        "task": task.task,
        "state": task.state,
        "models": list(dict.fromkeys(call.model for call in trace.model_calls)),
        "model_calls": len(trace.model_calls),
        "calls": len(trace.tool_calls),
        "tokens": trace.usage.total_tokens,
        "cost_usd": trace.total_cost_usd,
        "duration_ms": task.duration_ms,
        "error": task.error,
    }
    lines: dict[Part, list[str]] = {
        "scripts": _lines_of_scripts(trace),
        "calls": _lines_of_calls(trace),
        "answer": _lines_of_answer(events),
    }
    return ComparedTask(figures=figures, lines=lines)


def _lines_of_scripts(trace: Trace) -> list[str]:
    lines: list[str] = []
    for number, code in enumerate(trace.scripts, 1):
        lines += [f"# script {number}", *code.rstrip().splitlines()]
    return lines


def _lines_of_calls(trace: Trace) -> list[str]:
    """Return a line for each call: the arguments, the status, and the result or error."""
    lines: list[str] = []
    for call in trace.tool_calls:
        argument_list = ", ".join(f"{name}={_text(item)}" for name, item in call.arguments.items())
        outcome = call.error if call.error is not None else _text(call.result)
        lines.append(
            f"{call.name}({argument_list}) → {call.status}: {outcome[:_MAX_RESULT_LENGTH]}"
        )
    return lines


def _lines_of_answer(events: Sequence[Event]) -> list[str]:
    last = events[-1] if events else None
    return last.text.splitlines() if isinstance(last, TaskFinished) else []


def _text(value: Any) -> str:
    return json.dumps(to_jsonable_or_repr(value), ensure_ascii=False)
