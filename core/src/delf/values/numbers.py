"""Numbers in texts that other systems wrote, such as headers and attributes of pages."""

from __future__ import annotations

from typing import Final

_MAX_DIGITS: Final = 15


def parse_count(text: str) -> int | None:
    """Return the number that a text of digits means; None for any other text.

    Only ``0`` to ``9`` are digits here, because :func:`int` refuses others, such as ``²``. A text
    of more than 15 digits is no count: :func:`int` is slow for long texts, and refuses those of
    thousands of digits.
    """
    is_number = text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS
    return int(text) if is_number else None
