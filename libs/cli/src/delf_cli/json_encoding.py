"""JSON that is safe to show on a terminal."""

from __future__ import annotations

import json
from typing import Any

from delf.terminal import is_visible


def encode_json(value: Any, *, indent: int | None = None) -> str:
    """Encode a value as JSON that is safe to show on a terminal.

    Hidden characters are escaped, which no reader of the JSON notices.

    Raises:
        TypeError: If JSON has no such value.
        ValueError: If JSON has no such value, such as a number that is not finite.
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, indent=indent)
    hidden = [each for each in set(text) if each != "\n" and not is_visible(each)]
    # In JSON, a hidden character can only stand in a string, where an escape means the same.
    return text.translate({ord(each): json.dumps(each)[1:-1] for each in hidden})
