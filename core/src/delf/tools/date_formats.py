"""Checks of dates in JSON, also that the day exists, which a pattern cannot express."""

from __future__ import annotations

import re
from datetime import date, datetime
from typing import Any, Final

_EXAMPLES: Final = {"date": "2026-10-31", "date-time": "2026-10-31T08:00:00Z"}
_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


class FormatKeyword:
    """The check of the keyword ``format`` of JSON Schema that ``jsonschema-rs`` calls.

    Only the formats ``date`` and ``date-time`` are checked. Any value passes for another format,
    because the drafts of JSON Schema disagree about whether a format restricts values, and services
    disagree about what a format means. A ``date-time`` may lack its zone: many services use the
    format for local times, too.

    Args:
        parent_schema: The schema with the keyword.
        format_name: The value of the keyword: the format.
        schema_path: The path of the keyword in its schema.
    """

    def __init__(
        self, parent_schema: dict[str, Any], format_name: str, schema_path: list[str | int]
    ) -> None:
        self._format_name = format_name

    def validate(self, value: Any) -> None:
        """Check a text in the format ``date`` or ``date-time``; ignore other formats and values.

        Raises:
            ValueError: If the text has another form, or the day does not exist.
        """
        if self._format_name not in _EXAMPLES or not isinstance(value, str):
            return
        is_valid = _is_date(value) if self._format_name == "date" else _is_date_time(value)
        if not is_valid:
            example = _EXAMPLES[self._format_name]
            raise ValueError(f"{value[:40]!r} is not a {self._format_name}, as {example}")


def _is_date(text: str) -> bool:
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return _DATE.fullmatch(text) is not None  # fromisoformat() accepts 20261031, too


def _is_date_time(text: str) -> bool:
    # RFC 3339 allows leap seconds, and "t" and "z" in lower case. Python allows neither.
    leap_second_as_59 = re.sub(r"(?<=:[0-9]{2}:)60", "59", text.upper())
    try:
        datetime.fromisoformat(leap_second_as_59)
    except ValueError:
        return False
    return True
