"""JSON as a script gets it: what it says twice, or what no number can hold, is told."""

from __future__ import annotations

import json
from typing import Any, cast

from delf.json_reader import JSONReader, listed
from delf.notes import note


def read_json(text: str, about: str) -> Any:
    """The value of a file of JSON.

    Args:
        text: The file.
        about: The file, as notes call it.

    Raises:
        ValueError: When it is no JSON.
    """
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
    """The values of a file with one on each line; lines that are broken are left out and told.

    Args:
        text: The file.
        about: The file, as notes call it.

    Raises:
        ValueError: When no line can be read.
    """
    reader = JSONReader(about)
    values: list[Any] = []
    broken: list[tuple[int, str]] = []
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                values.append(reader.value(line))
            except (ValueError, RecursionError) as error:
                broken.append((number, _said(error)))
    if broken:
        try:  # a value over several lines is written under this name, too
            whole: Any = read_json(text, about)
        except (ValueError, RecursionError):
            whole = None
        if whole is not None:
            note(f"{about} has no value on each line: it was read as one value of JSON")
            return cast("list[Any]", whole) if isinstance(whole, list) else [whole]
        number, said = broken[0]
        if not values:
            raise ValueError(f"line {number}: {said}; no line of it is JSON")
        places = listed([str(number) for number, _ in broken])
        note(
            f"{about} has {len(broken)} of {len(broken) + len(values)} lines that are no JSON, and "
            f"they were left out: {places}. Line {number}: {said}"
        )
    reader.tell()
    return values


def _said(error: Exception) -> str:
    """A fault within a line: the line that its message counts is always the first."""
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} in column {error.colno}"
    return str(error)
