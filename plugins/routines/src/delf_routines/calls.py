"""Tasks that call a routine, in the form ``monthly_report(month="2026-10")``."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import Final

from delf.errors import ConfigurationError, DelfError
from delf_routines.routine import Value

_VALUES: Final = (str, int, float)


def read_call(task: str) -> tuple[str, dict[str, Value]]:
    """Parse a task that calls a routine.

    Args:
        task: A call such as ``monthly_report(month="2026-10")``, or only the routine's name.

    Returns:
        The name of the routine, and its values by parameter.

    Raises:
        ConfigurationError: If the task is not such a call.
    """
    try:
        node = ast.parse(task.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        node = None
    if isinstance(node, ast.Name):
        return node.id, {}
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.args:
        values = _values_of(node.keywords)
        if values is not None:
            return node.func.id, values
    raise ConfigurationError(
        f"{task[:80]!r} is not a call of a routine",
        hint='with strategy = "routine" a task is written as report(month="2026-10")',
    )


def call_text(name: str, given: Mapping[str, object]) -> str:
    """Return the text of a task that calls a routine with given values."""
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in given.items())})"


def _values_of(keywords: Sequence[ast.keyword]) -> dict[str, Value] | None:
    """Return the values of keyword arguments by name; None if a parameter cannot have a value."""
    values: dict[str, Value] = {}
    for item in keywords:
        try:
            value: object = ast.literal_eval(item.value)
        except (ValueError, TypeError):  # TypeError: a list as a key
            return None
        # A bool is an int in Python, but not a value of a parameter.
        if item.arg is None or isinstance(value, bool) or not isinstance(value, _VALUES):
            return None
        values[item.arg] = value
    return values


def is_routine_call(task: str) -> bool:
    """Return True if a task's text calls a saved routine, such as ``report(month="2026-10")``."""
    try:
        read_call(task)
    except DelfError:
        return False
    return True
