"""Arguments as a person types them."""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping
from typing import Any, Final, cast

_OBJECT: Final = 'write all arguments as one object, {"name": value, …}'


def parse_value(text: str, old: Any) -> Any:
    """A value from what was typed.

    Args:
        text: JSON or a Python literal; for an argument that is text, also the text itself.
        old: The value that it replaces.

    Raises:
        ValueError: Saying what to write.
    """
    if isinstance(old, str) and text[:1] not in ("'", '"'):
        return text
    try:
        return json.loads(text)
    except ValueError:
        return _literal(text)


def parse_arguments(text: str) -> dict[str, Any]:
    """All arguments from what was typed.

    Args:
        text: A JSON object or a Python dict.

    Raises:
        ValueError: Saying what to write.
    """
    value = parse_value(text, None)
    if not isinstance(value, Mapping):
        raise ValueError(_OBJECT)  # noqa: TRY004 - a person typed it
    arguments = cast("Mapping[Any, Any]", value)
    if not all(isinstance(name, str) for name in arguments):
        raise ValueError("the names of arguments are text")
    return dict(arguments)


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        raise ValueError("write JSON or a Python literal, with text in quotes") from None
