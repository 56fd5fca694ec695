"""Redaction without the engine, so that ``delf`` says what is wrong when the engine is broken."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

_SHORTEST: Final = 8
"""The fewest characters of a value that is left out: shorter ones are often plain words."""


class Withheld:
    """Leaves out the value of every variable: only the engine knows which of them are secrets.

    Args:
        values: The values of the variables.
    """

    def __init__(self, values: Iterable[str]) -> None:
        found = {value for value in values if len(value) >= _SHORTEST}
        self._values = sorted(found, key=len, reverse=True)

    def text(self, text: str) -> str:
        """Return a text without the values."""
        for value in self._values:
            text = text.replace(value, "[left out]")
        return text

    def value(self, value: Any) -> Any:
        """Return plain data without the values."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            items = cast("Mapping[Any, Any]", value).items()
            return {self.value(name): self.value(item) for name, item in items}
        if isinstance(value, (list, tuple)):
            return [self.value(item) for item in cast("list[Any]", value)]
        return value
