"""Step 9, compose: the answer from what was printed, else from the script's value."""

from __future__ import annotations

import contextlib
import json
from typing import Any, cast


def compose(printed: str, value: Any) -> str:
    """The answer's text.

    Args:
        printed: Everything that the scripts printed.
        value: What the last script returned or left as its last expression.
    """
    text = printed.strip("\n")
    if text.strip() or value is None:
        return text
    if isinstance(value, str):
        return value
    if isinstance(value, (dict, list, tuple)):
        with contextlib.suppress(TypeError, ValueError):  # of keys that JSON lacks
            return json.dumps(value, indent=2, ensure_ascii=False, default=str)
    return str(cast("object", value))
