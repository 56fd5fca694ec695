"""JSON for any client: types that JSON does not have become texts, lists and objects."""

from __future__ import annotations

import json
import math
from typing import Any, Final, cast

from delf.values.encoding import TAG

_SIGNS: Final = (f'"{TAG}"', "NaN", "Infinity")
"""Byte patterns of tagged values in JSON."""


def json_bytes(value: Any) -> bytes:
    """Encode data as JSON; unpaired surrogates become question marks.

    Args:
        value: JSON-ready data, which may contain tagged values.
    """
    text = _dumps(value)
    if any(sign in text for sign in _SIGNS):
        text = _dumps(plain(value))
    return text.encode("utf-8", "replace")


def plain(value: Any) -> Any:
    """Convert tagged data: dates and non-finite numbers become texts, sets become lists."""
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
