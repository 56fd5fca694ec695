"""Redaction that works without the engine, so that ``delf`` can report a broken engine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

_SHORTEST: Final = 8
"""The minimum length of a redacted value; shorter ones are often plain words."""


class Withheld:
    """Redacts the values of all variables, because only the engine knows which are secrets.

    Args:
        values: The values of the variables.
    """

    def __init__(self, values: Iterable[str]) -> None:
        secrets = {value for value in values if len(value) >= _SHORTEST}
        self._values = sorted(secrets, key=len, reverse=True)

    def text(self, text: str) -> str:
        """Redact a text."""
        for value in self._values:
            text = text.replace(value, "[left out]")
        return text

    def value(self, value: Any) -> Any:
        """Redact plain data."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            items = cast("Mapping[Any, Any]", value).items()
            return {self.value(name): self.value(item) for name, item in items}
        if isinstance(value, (list, tuple)):
            return [self.value(item) for item in cast("list[Any]", value)]
        return value
