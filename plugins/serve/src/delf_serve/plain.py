"""JSON for any client: types that JSON does not have become texts, lists and objects."""

from __future__ import annotations

import json
import math
from typing import Any, Final, cast

from delf.values.encoding import TAG

# A JSON text without these substrings has neither tagged values nor non-finite numbers.
_SIGNS_OF_CONVERTED_VALUES: Final = (f'"{TAG}"', "NaN", "Infinity")


def json_bytes(value: Any) -> bytes:
    """Encode data as JSON. Unpaired surrogates become question marks.

    Args:
        value: Data from :func:`delf.values.encoding.to_jsonable`. Non-finite numbers become texts,
            and tagged values (``{TAG: type, "v": value}`` for types missing in JSON) become plain
            values.
    """
    text = _dumps(value)
    # Most data has no such values; looking for them in the text is faster than converting the data.
    if any(substring in text for substring in _SIGNS_OF_CONVERTED_VALUES):
        text = _dumps(plain(value))
    return text.encode("utf-8", "replace")


def plain(value: Any) -> Any:
    """Replace tagged values (``{TAG: type, "v": value}``) in data by plain JSON values.

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
    if record[TAG] != "dict":
        return inner
    # A mapping with keys that are not texts, such as ``{1: "a"}``, is encoded as ``[[1, "a"]]``.
    mapping: dict[str, Any] = {}
    for key, item in inner:
        name = key if isinstance(key, str) else _dumps(key)
        mapping[name] = item
    return mapping


def _dumps(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
