"""The declared shape of an answer: a JSON Schema."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from delf.errors import ToolDefinitionError
from delf_schemas.checking import Checker

_MOST_TOLD: Final = 5


def instructions(schema: Mapping[str, Any]) -> str:
    """What a model is told about its answer."""
    return (
        "The answer is one JSON value, printed by the script with print(json.dumps(value)) and "
        f"nothing else. It fits this JSON Schema:\n{json.dumps(schema, ensure_ascii=False)}"
    )


def schema_problem(schema: Mapping[str, Any]) -> str | None:
    """Why something is no JSON Schema; None where it is one."""
    try:
        Checker(schema, "result")
    except ToolDefinitionError as error:
        return error.message
    return None


def problem(schema: Mapping[str, Any], value: Any) -> str | None:
    """What is wrong with a value, in words for who made it; None where nothing is."""
    faults = Checker(schema, "result").faults(value, _MOST_TOLD + 1)
    if not faults:
        return None
    more = "; and more" if len(faults) > _MOST_TOLD else ""
    return "; ".join(map(str, faults[:_MOST_TOLD])) + more


def answer_problem(schema: Mapping[str, Any], text: str) -> str | None:
    """What is wrong with an answer's text, where it is to be JSON of a shape."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        return f"it is not one JSON value: {error}"
    wrong = problem(schema, value)
    return None if wrong is None else f"it does not fit the schema: {wrong}"
