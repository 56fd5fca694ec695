"""The declared shape of an answer: a JSON Schema."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import jsonschema_rs

_MOST_TOLD: Final = 5
_LONGEST: Final = 300


def instructions(schema: Mapping[str, Any]) -> str:
    """What a model is told about its answer."""
    return (
        "The answer is one JSON value, printed by the script with print(json.dumps(value)) and "
        f"nothing else. It fits this JSON Schema:\n{json.dumps(schema, ensure_ascii=False)}"
    )


def schema_problem(schema: Mapping[str, Any]) -> str | None:
    """Why something is no JSON Schema; None where it is one."""
    try:
        _validator(schema)
    except Exception as error:  # of several classes, one for each way to be wrong
        return str(error).splitlines()[0]
    return None


def problem(schema: Mapping[str, Any], value: Any) -> str | None:
    """What is wrong with a value, in words for who made it; None where nothing is."""
    errors = [_told(error) for error in _validator(schema).iter_errors(value)]
    if not errors:
        return None
    more = f"; and {len(errors) - _MOST_TOLD} more" if len(errors) > _MOST_TOLD else ""
    return "; ".join(errors[:_MOST_TOLD]) + more


def answer_problem(schema: Mapping[str, Any], text: str) -> str | None:
    """What is wrong with an answer's text, where it is to be JSON of a shape."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        return f"it is not one JSON value: {error}"
    wrong = problem(schema, value)
    return None if wrong is None else f"it does not fit the schema: {wrong}"


def _validator(schema: Mapping[str, Any]) -> Any:
    return jsonschema_rs.validator_for(dict(schema), retriever=_no_retrieval)


def _no_retrieval(uri: str) -> Any:
    raise ValueError(f"a schema refers to nothing outside of it, as {uri}")


def _told(error: Any) -> str:
    path = ".".join(str(part) for part in error.instance_path)
    message = str(error.message)[:_LONGEST]
    return f"{path}: {message}" if path else message
