"""JSON for any client: types that JSON does not have become texts, lists and objects."""

from __future__ import annotations

import json
import math
from typing import Any, Final, cast

from delf.values.encoding import TAG

# Substrings of JSON texts that contain tagged values or non-finite numbers.
_TAG_MARKS: Final = (f'"{TAG}"', "NaN", "Infinity")


def json_bytes(value: Any) -> bytes:
    """Encode data as JSON. Unpaired surrogates become question marks.

    Args:
        value: JSON-ready data, which may contain tagged values and non-finite numbers.
    """
    text = _dumps(value)
    if any(mark in text for mark in _TAG_MARKS):
        text = _dumps(plain(value))
    return text.encode("utf-8", "replace")


def plain(value: Any) -> Any:
    """Convert tagged data to plain JSON data.

    Dates and non-finite numbers become strings, and sets become lists.
    """
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
