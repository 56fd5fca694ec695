"""JSON for scripts, with notes on duplicate keys and lossy numbers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, cast

from delf.notes import note
from delf.values.json_reader import MAX_NAMED, JSONReader, format_names


def read_json(text: str, about: str) -> Any:
    """Parse a JSON file.

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
    reader.tell()
    return value


def _values_of_lines(reader: JSONReader, text: str) -> list[Any] | None:
    try:
        return [reader.value(line) for line in text.split("\n") if line.strip()]
    except (ValueError, RecursionError):
        return None


def read_json_lines(text: str, about: str) -> list[Any]:
    """Parse a JSON Lines file; broken lines are skipped with a note.

    Raises:
        ValueError: If no line is valid.
    """
    lines = Lines(about)
    try:
        values = list(lines.values(text.split("\n")))
        failure = None
    except ValueError as error:
        values, failure = [], error
    if lines.broken_lines:
        try:  # some .jsonl files hold one value over several lines
            single_value: Any = read_json(text, about)
        except (ValueError, RecursionError):
            single_value = None
        if single_value is not None:
            note(f"{about} has no value on each line: it was read as one value of JSON")
            return (
                cast("list[Any]", single_value)
                if isinstance(single_value, list)
                else [single_value]
            )
    if failure is not None:
        raise failure
    if not values:
        note(f"{about}: the file has no values")
    lines.tell()
    return values


class Lines:
    """Parses a JSON value from each line, and counts broken lines.

    Args:
        about: The file, as notes call it.
    """

    def __init__(self, about: str) -> None:
        self.broken_lines = 0
        self._about = about
        self._reader = JSONReader(about)
        self._valid_lines = 0
        self._line_numbers: list[str] = []
        self._first_error = ""

    def values(self, lines: Iterable[str]) -> Iterator[Any]:
        """Yield the values in order.

        Raises:
            ValueError: At the end, if no line was valid.
        """
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                value = self._reader.value(line)
            except (ValueError, RecursionError) as error:
                self._count(number, error)
            else:
                self._valid_lines += 1
                yield value
        if self.broken_lines and not self._valid_lines:
            raise ValueError(f"line {self._first_error}; no line of it is JSON")

    def tell(self) -> None:
        """Note skipped lines and lossy values for the script."""
        if self.broken_lines:
            all_lines = self.broken_lines + self._valid_lines
            places = format_names(self._line_numbers, self.broken_lines)
            note(
                f"{self._about} has {self.broken_lines} of {all_lines} lines that are not "
                f"JSON, and they were left out: {places}. Line {self._first_error}"
            )
        self._reader.tell()

    def _count(self, number: int, error: Exception) -> None:
        self.broken_lines += 1
        self._first_error = self._first_error or f"{number}: {_fault_text(error)}"
        if len(self._line_numbers) < MAX_NAMED:
            self._line_numbers.append(str(number))


def _fault_text(error: Exception) -> str:
    """Return the text of a fault without the line number, which is always 1."""
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} in column {error.colno}"
    return str(error)
