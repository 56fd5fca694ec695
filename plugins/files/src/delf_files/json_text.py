"""JSON for scripts, with notes on duplicate keys and lossy numbers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, cast

from delf.notes import note
from delf.values.json_reader import MAX_NAMED, JSONReader, format_names


def read_json(text: str, about: str) -> Any:
    """Parse the text of a JSON file; add notes about lossy values.

    A file with one value on each line is read as a list.

    Args:
        text: The text.
        about: The file's name in notes.

    Raises:
        ValueError: If the text is not JSON.
    """
    if not text.strip():
        raise ValueError("the file is empty, which is no value of JSON")
    reader = JSONReader(about)
    try:
        value = reader.value(text)
    except json.JSONDecodeError as error:
        if error.msg != "Extra data":
            raise
        value = _values_of_lines(reader, text)
        if value is None:
            raise
        note(f"{about} has a value of JSON on each line, and was read as their list")
    reader.add_notes()
    return value


def _values_of_lines(reader: JSONReader, text: str) -> list[Any] | None:
    try:
        return [reader.value(line) for line in text.split("\n") if line.strip()]
    except (ValueError, RecursionError):
        return None


def read_json_lines(text: str, about: str) -> list[Any]:
    """Parse the text of a JSON Lines file; broken lines are skipped with a note.

    A file that is one JSON value over several lines is read as that value.

    Args:
        text: The text.
        about: The file's name in notes.

    Raises:
        ValueError: If no line is JSON.
    """
    lines = Lines(about)
    values: list[Any] = []
    failure: ValueError | None = None
    try:
        values += lines.values(text.split("\n"))
    except ValueError as error:
        failure = error
    if lines.broken_lines:
        try:  # some .jsonl files hold one value over several lines
            single_value: Any = read_json(text, about)
        except (ValueError, RecursionError):
            single_value = None
        if single_value is not None:
            note(f"{about} has no value on each line: it was read as one value of JSON")
            if isinstance(single_value, list):
                return cast("list[Any]", single_value)
            return [single_value]
    if failure is not None:
        raise failure
    if not values:
        note(f"{about}: the file has no values")
    lines.add_notes()
    return values


class Lines:
    """A parser of JSON Lines that skips and counts broken lines.

    Args:
        about: The file's name in notes.
    """

    def __init__(self, about: str) -> None:
        self.broken_lines = 0
        self._about = about
        self._reader = JSONReader(about)
        self._valid_lines = 0
        self._line_numbers: list[str] = []
        self._first_error = ""

    def values(self, lines: Iterable[str]) -> Iterator[Any]:
        """Yield the value of each valid line.

        Raises:
            ValueError: If there are broken lines, and no line is valid. Raised at the end.
        """
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                value = self._reader.value(line)
            except (ValueError, RecursionError) as error:
                self._record_broken_line(number, error)
            else:
                self._valid_lines += 1
                yield value
        if self.broken_lines and not self._valid_lines:
            raise ValueError(f"line {self._first_error}; no line of the file is valid JSON")

    def add_notes(self) -> None:
        """Add notes about skipped lines and lossy values."""
        if self.broken_lines:
            line_count = self.broken_lines + self._valid_lines
            numbers = format_names(self._line_numbers, self.broken_lines)
            note(
                f"{self._about} has {self.broken_lines} of {line_count} lines that are not "
                f"JSON, and they were left out: {numbers}. Line {self._first_error}"
            )
        self._reader.add_notes()

    def _record_broken_line(self, number: int, error: Exception) -> None:
        self.broken_lines += 1
        self._first_error = self._first_error or f"{number}: {_fault_text(error)}"
        if len(self._line_numbers) < MAX_NAMED:
            self._line_numbers.append(str(number))


def _fault_text(error: Exception) -> str:
    """Return the text of a parsing error without the line number, which is always 1."""
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} in column {error.colno}"
    return str(error)
