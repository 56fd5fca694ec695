"""Dates in JSON: their days must exist, which no pattern can say."""

from __future__ import annotations

import re
from datetime import date, datetime
from typing import Any, Final

_EXAMPLES: Final = {"date": "2026-10-31", "date-time": "2026-10-31T08:00:00Z"}
_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


class FormatKeyword:
    """Checks the keyword ``format`` of JSON Schema, as ``jsonschema-rs`` asks.

    The formats ``date`` and ``date-time`` are checked. All other formats are left to the owner of
    the schema: the drafts of JSON Schema disagree about whether they restrict values, and services
    about their meaning. A ``date-time`` may lack its zone: many services use the format for local
    times, too.

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
        try:
            if self._format_name == "date-time":
                leap_second_as_59 = re.sub(r"(?<=:[0-9]{2}:)60", "59", value.upper())
                datetime.fromisoformat(leap_second_as_59)
                is_valid = True
            else:
                date.fromisoformat(value)
                is_valid = _DATE.fullmatch(value) is not None  # Python accepts 20261031, too
        except ValueError:
            is_valid = False
        if not is_valid:
            example = _EXAMPLES[self._format_name]
            raise ValueError(f"{value[:40]!r} is not a {self._format_name}, as {example}")
