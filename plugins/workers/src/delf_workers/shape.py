"""The declared shape of an answer: a JSON Schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from delf.errors import ToolDefinitionError
from delf.tools.json_schema import Checker

_MAX_LISTED: Final = 5


def schema_problem(schema: Mapping[str, Any]) -> str | None:
    """Return the reason why a value is not a JSON Schema; None for a valid schema."""
    try:
        Checker(schema, "result")
    except ToolDefinitionError as error:
        return error.message
    return None


def value_problem(schema: Mapping[str, Any], value: Any) -> str | None:
    """Describe how a value violates a JSON Schema; None if the value is valid."""
    faults = Checker(schema, "result").faults(value, _MAX_LISTED + 1)
    if not faults:
        return None
    more = "; and more" if len(faults) > _MAX_LISTED else ""
    return "; ".join(map(str, faults[:_MAX_LISTED])) + more
