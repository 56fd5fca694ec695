"""JSON for scripts, with notes on duplicate keys and lossy numbers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, cast

from delf.notes import note
from delf.values.json_reader import MAX_NAMED, JSONReader, format_names


def read_json(text: str, shown_name: str) -> Any:
    """Parse the text of a JSON file; tell the model, by notes of the call, what parsing changed.

    A file with one value on each line is read as a list.

    Args:
        text: The text.
        shown_name: The file's name in notes and errors for the model.

    Raises:
        ValueError: If the text is not JSON.
    """
    if not text.strip():
        raise ValueError("the file is empty, which is no value of JSON")
    reader = JSONReader(shown_name)
    try:
        value = reader.value(text)
    except json.JSONDecodeError as error:
        has_text_after_value = error.msg == "Extra data"
        if not has_text_after_value:
            raise
        value = _values_of_lines(reader, text)
        if value is None:
            raise
        note(f"{shown_name} has a JSON value on each line, and was read as a list of these values")
    reader.add_notes()  # about repeated keys and numbers that were changed
    return value


def _values_of_lines(reader: JSONReader, text: str) -> list[Any] | None:
    try:
        return [reader.value(line) for line in text.split("\n") if line.strip()]
    except (ValueError, RecursionError):
        return None


def read_json_lines(text: str, shown_name: str) -> list[Any]:
    """Parse the text of a JSON Lines file; broken lines are skipped with a note.

    A text that is one JSON value on several lines is accepted, too.

    Args:
        text: The text.
        shown_name: The file's name in notes and errors for the model.

    Raises:
        ValueError: If neither a line nor the whole text is JSON.
    """
    lines = JSONLinesReader(shown_name)
    values: list[Any] = []
    error_of_all_lines: ValueError | None = None
    try:
        values += lines.values(text.split("\n"))
    except ValueError as error:
        error_of_all_lines = error
    # Some .jsonl files hold one value over several lines.
    single_value = _parse_or_none(text, shown_name) if lines.broken_line_count else None
    if single_value is not None:
        note(f"{shown_name} has no value on each line: it was read as one value of JSON")
        if isinstance(single_value, list):
            return cast("list[Any]", single_value)
        return [single_value]
    if error_of_all_lines is not None:
        raise error_of_all_lines
    if not values:
        note(f"{shown_name}: the file has no values")
    lines.add_notes()
    return values


def _parse_or_none(text: str, shown_name: str) -> Any:
    try:
        return read_json(text, shown_name)
    except (ValueError, RecursionError):
        return None


class JSONLinesReader:
    """A parser of JSON Lines that skips and counts broken lines.

    Args:
        shown_name: The file's name in notes and errors for the model.
    """

    def __init__(self, shown_name: str) -> None:
        self.broken_line_count = 0
        self._shown_name = shown_name
        self._reader = JSONReader(shown_name)
        self._valid_line_count = 0
        # The numbers of the first broken lines, as text for the note.
        self._broken_line_numbers: list[str] = []
        self._first_error_text = ""

    def values(self, lines: Iterable[str]) -> Iterator[Any]:
        """Yield the value of each valid line.

        Raises:
            ValueError: If some lines are broken and none is valid. Raised after the last line.
        """
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                value = self._reader.value(line)
            except (ValueError, RecursionError) as error:
                self._record_broken_line(number, error)
            else:
                self._valid_line_count += 1
                yield value
        if self.broken_line_count and not self._valid_line_count:
            raise ValueError(f"line {self._first_error_text}; no line of the file is valid JSON")

    def add_notes(self) -> None:
        """Add notes about skipped lines and lossy values to the call's result."""
        if self.broken_line_count:
            line_count = self.broken_line_count + self._valid_line_count
            numbers = format_names(self._broken_line_numbers, self.broken_line_count)
            note(
                f"{self._shown_name} has {self.broken_line_count} of {line_count} lines that are "
                f"not JSON, and they were left out: {numbers}. Line {self._first_error_text}"
            )
        self._reader.add_notes()

    def _record_broken_line(self, number: int, error: Exception) -> None:
        self.broken_line_count += 1
        self._first_error_text = self._first_error_text or f"{number}: {_fault_text(error)}"
        if len(self._broken_line_numbers) < MAX_NAMED:
            self._broken_line_numbers.append(str(number))


def _fault_text(error: Exception) -> str:
    """Return the text of a parsing error without the line number, which is always 1."""
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} in column {error.colno}"
    return str(error)
