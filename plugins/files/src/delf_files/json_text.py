"""JSON as a script gets it: what it says twice, or what no number can hold, is told."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any, Final, cast

from delf.notes import note

_MOST_NAMED: Final = 5
_MOST_DIGITS: Final = 4000
_LONGEST: Final = 60


class _Reader:
    """Reads values of one file, and keeps what has to be told of them.

    Args:
        about: The file, as notes call it.
    """

    def __init__(self, about: str) -> None:
        self._about = about
        self._twice: dict[str, None] = {}
        self._texts: dict[str, None] = {}
        self._constants: dict[str, None] = {}
        self._decoder = json.JSONDecoder(
            object_pairs_hook=self._object,
            parse_float=self._float,
            parse_int=self._int,
            parse_constant=self._constant,
        )

    def value(self, text: str) -> Any:
        """One value.

        Raises:
            ValueError: When it is no JSON.
        """
        return self._decoder.decode(text)

    def tell(self) -> None:
        """Note what was found, a sentence for each kind."""
        for found, what in (
            (self._twice, "has keys that are twice in one object, and the last value was taken"),
            (self._texts, "has numbers that no float or int holds, and they came as text"),
            (self._constants, "has what is no JSON, and it was read as a float"),
        ):
            if found:
                note(f"{self._about} {what}: {_listed(list(found))}")

    def _object(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        if len(made) < len(pairs):
            seen: set[str] = set()
            for key, _ in pairs:
                if key in seen:
                    self._twice[repr(key[:_LONGEST])] = None
                seen.add(key)
        return made

    def _float(self, text: str) -> float | str:
        number = float(text)
        if math.isinf(number) or (not number and text.lower().partition("e")[0].strip("-0.")):
            self._texts[text[:_LONGEST]] = None
            return text
        return number

    def _int(self, text: str) -> int | str:
        if len(text) > _MOST_DIGITS:
            self._texts[f"{text[:20]}… ({len(text):,} digits)"] = None
            return text
        return int(text)

    def _constant(self, name: str) -> float:
        self._constants[name] = None
        return float(name)


def read_json(text: str, about: str) -> Any:
    """The value of a file of JSON.

    Args:
        text: The file.
        about: The file, as notes call it.

    Raises:
        ValueError: When it is no JSON.
    """
    reader = _Reader(about)
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


def _values_of_lines(reader: _Reader, text: str) -> list[Any] | None:
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
    reader = _Reader(about)
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
        places = _listed([str(number) for number, _ in broken])
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


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
