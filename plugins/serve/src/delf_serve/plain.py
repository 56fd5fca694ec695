"""JSON that every client reads: values that JSON lacks are texts, lists and objects."""

from __future__ import annotations

import json
import math
from typing import Any, Final, cast

from delf.values.encoding import TAG

_SIGNS: Final = (f'"{TAG}"', "NaN", "Infinity")
"""The signs of a value in JSON that is not plain."""


def json_bytes(value: Any) -> bytes:
    """Return data as JSON; halves of characters become question marks.

    Args:
        value: JSON-ready data, in which values that JSON lacks may be tagged.
    """
    text = _dumps(value)
    if any(sign in text for sign in _SIGNS):
        text = _dumps(plain(value))
    return text.encode("utf-8", "replace")


def plain(value: Any) -> Any:
    """Data without tags: dates are texts, sets are lists, numbers that are none are texts."""
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    record = cast("dict[str, Any]", value)
    if record.keys() != {TAG, "v"}:
        return {name: plain(item) for name, item in record.items()}
    inner = plain(record["v"])
    if record[TAG] == "dict":
        return {name if isinstance(name, str) else _dumps(name): item for name, item in inner}
    return inner


def _dumps(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
