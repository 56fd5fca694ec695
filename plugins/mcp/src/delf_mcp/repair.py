"""Messages that are JSON by its grammar, and that no reader of the protocol takes."""

from __future__ import annotations

import json
from typing import Final

_DIGITS: Final = 4000


def repaired(text: str | bytes) -> bytes:
    """The same JSON without halves of characters, and with endless numbers as text.

    One of them in one tool's description is not worth the whole list.

    Args:
        text: A message that could not be read.

    Raises:
        ValueError: When it is not JSON.
        RecursionError: When it is nested too deeply.
    """
    value = json.loads(text, parse_int=_number)
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")


def _number(digits: str) -> int | str:
    return int(digits) if len(digits) <= _DIGITS else digits
