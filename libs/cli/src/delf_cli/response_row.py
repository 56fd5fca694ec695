"""The JSON of a task's response."""

from __future__ import annotations

from typing import Any, TypedDict


class ResponseRow(TypedDict):
    """A task's response, as ``delf run`` and other commands write it as JSON.

    Args:
        text: The answer.
        value: The answer as data, if ``--schema`` names a schema; otherwise None.
        status: True if the task is done.
        state: ``done``, ``failed``, ``stopped`` (by a person), or ``interrupted`` (it can be
            resumed).
        error: Why the task failed.
        code: The code of the error, such as ``ERR-MODEL-001``.
        hint: The remedy for the error.
        cost_usd: The cost of the task's models in US dollars; None if a price is not known.
        duration_ms: The duration of the task in milliseconds.
        files: The paths of the output files, by name.
        used_tools: True if any tool was called; otherwise the answer is the model's own.
        changes: A line for each call that changed something, or may have.
        trace: The course of the task; None if the task could not start.
    """

    text: str
    value: Any
    status: bool
    state: str
    error: str | None
    code: str | None
    hint: str | None
    cost_usd: float | None
    duration_ms: int
    files: dict[str, str]
    used_tools: bool
    changes: list[str]
    trace: dict[str, Any] | None
