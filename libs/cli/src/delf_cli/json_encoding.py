"""JSON that is safe to show on a terminal."""

from __future__ import annotations

import json
import re
from typing import Any, Final

# Control characters of terminals, and characters that reverse or hide a text. JSON encodes the
# control characters of ASCII itself.
_HIDDEN: Final = re.compile(
    "[\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]"
)


def encode_json(value: Any, *, indent: int | None = None) -> str:
    """Encode a value as JSON that is safe to show on a terminal.

    Hidden characters are escaped, which no reader of the JSON notices.

    Raises:
        TypeError: If JSON has no such value.
        ValueError: If JSON has no such value, such as a number that is not finite.
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, indent=indent)
    return _HIDDEN.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
