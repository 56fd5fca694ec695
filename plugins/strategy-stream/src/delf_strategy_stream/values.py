"""Results as a model reads them."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Any, cast


def plain(value: Any) -> Any:
    """Convert a value to JSON data; unsupported values become text.

    Args:
        value: A tool's result.
    """
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return plain(fields)
    if isinstance(value, Mapping):
        items = cast("Mapping[Any, Any]", value).items()
        return {str(key): plain(item) for key, item in items}
    if isinstance(value, (list, tuple, AbstractSet)):
        return [plain(item) for item in cast("list[Any]", value)]
    if isinstance(value, (bytes, bytearray)):
        return f"({len(value)} bytes)"
    return str(value)


def shortened_json(value: Any, max_chars: int) -> Any:
    """Return a plain value unchanged, or the beginning of its JSON if the JSON is too long.

    Args:
        value: The result of :func:`plain`.
        max_chars: The maximum number of characters of the JSON.
    """
    text = json.dumps(value, ensure_ascii=False)
    if len(text) <= max_chars:
        return value
    return f"{text[:max_chars]}… (cut, of {len(text)} characters)"
