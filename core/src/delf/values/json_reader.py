"""A reader of untrusted JSON that notes duplicate keys and lossy numbers."""

from __future__ import annotations

import json
import math
from typing import Any, Final

from delf.notes import note

MAX_NAMED: Final = 5
_MAX_DIGITS: Final = 4000  # Python itself refuses to read an int of more than 4300
_LONGEST: Final = 60


class JSONReader:
    """Parses JSON values, and collects notes about data that Python cannot represent exactly.

    Args:
        source_name: The name of the JSON's source, as the subject of the notes.
    """

    def __init__(self, source_name: str) -> None:
        self._source_name = source_name
        # Each dict serves as an ordered set of texts; its values are always None.
        self._repeated_keys: dict[str, None] = {}
        self._lossy_numbers: dict[str, None] = {}
        self._constants: dict[str, None] = {}
        self._decoder = json.JSONDecoder(
            object_pairs_hook=self._object,
            parse_float=self._float,
            parse_int=self._int,
            parse_constant=self._constant,
        )

    def value(self, text: str) -> Any:
        """Parse one value.

        Args:
            text: The JSON.

        Raises:
            ValueError: If the text is not JSON.
        """
        return self._decoder.decode(text)

    def first(self, text: str, start: int) -> tuple[Any, int]:
        """Parse the value at a position of a text; return the value and its end position.

        Args:
            text: The JSON.
            start: The position of the value.

        Raises:
            ValueError: If no complete JSON value starts there.
        """
        return self._decoder.raw_decode(text, start)

    def add_notes(self) -> None:
        """Add the notes on all problems so far to the tool call in progress."""
        for text in self.notes():
            note(text)

    def notes(self) -> list[str]:
        """Return notes on all problems so far, one for each kind."""
        problems = (
            (self._repeated_keys, "has objects with a repeated key, and the last value was taken"),
            (
                self._lossy_numbers,
                "has numbers that fit no float or int, and they were read as text",
            ),
            (self._constants, "has constants that are not JSON, and they were read as floats"),
        )
        return [
            f"{self._source_name} {text}: {format_names(list(keys))}"
            for keys, text in problems
            if keys
        ]

    def _object(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        """Make a dict, in which the last value of a repeated key wins; record repeated keys."""
        result = dict(pairs)
        if len(result) < len(pairs):
            seen_keys: set[str] = set()
            for key, _ in pairs:
                if key in seen_keys:
                    self._repeated_keys[repr(key[:_LONGEST])] = None
                seen_keys.add(key)
        return result

    def _float(self, text: str) -> float | str:
        """Parse a number; record and return the text of a number that no float can hold."""
        number = float(text)
        before_exponent, _, _ = text.lower().partition("e")
        has_nonzero_digit = before_exponent.strip("-0.") != ""
        is_too_small = number == 0 and has_nonzero_digit  # such as 1e-999
        if math.isinf(number) or is_too_small:
            self._lossy_numbers[text[:_LONGEST]] = None
            return text
        return number

    def _int(self, text: str) -> int | str:
        """Parse a whole number; record and return the text of a number with too many digits."""
        if len(text) > _MAX_DIGITS:
            self._lossy_numbers[f"{text[:20]}… ({len(text):,} digits)"] = None
            return text
        return int(text)

    def _constant(self, name: str) -> float:
        """Record and parse ``NaN``, ``Infinity`` or ``-Infinity``."""
        self._constants[name] = None
        return float(name)


def format_names(names: list[str], count: int | None = None) -> str:
    """Format the first names of a list, and the number of further names.

    Args:
        names: The names, or the first of them.
        count: The total number of names; the number of ``names`` when omitted.
    """
    if count is None:
        count = len(names)
    text = ", ".join(names[:MAX_NAMED])
    if count > MAX_NAMED:
        text += f" and {count - MAX_NAMED} more"
    return text
