"""JSON that is safe to show on a terminal."""

from __future__ import annotations

import json
from typing import Any

from delf.terminal import is_visible


def encode_json(value: Any, *, indent: int | None = None) -> str:
    """Encode a value as JSON that is safe to show on a terminal.

    Hidden characters are escaped. Parsing the text gives the same value.

    Raises:
        TypeError: If JSON has no such value.
        ValueError: If JSON has no such value, such as a number that is not finite.
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, indent=indent)
    hidden = [each for each in set(text) if each != "\n" and not is_visible(each)]
    # JSON has hidden characters only in strings, where an escape stands for the character.
    escapes = {ord(each): json.dumps(each)[1:-1] for each in hidden}  # without the quotes
    return text.translate(escapes)
