"""Redaction that works without the engine, so that ``delf`` can report a broken engine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

_MIN_CHARACTERS: Final = 8  # shorter values are often ordinary words


class Withheld:
    """A redactor that redacts the values of all environment variables, secret or not.

    Only the engine knows which variables are secret; this redactor also works without the engine.

    Args:
        values: The values of the environment variables.
    """

    def __init__(self, values: Iterable[str]) -> None:
        secrets = {value for value in values if len(value) >= _MIN_CHARACTERS}
        # Messages, for example of a KeyError, often contain the repr of a value. The quotes around
        # the repr are not part of the value.
        forms = secrets | {repr(value)[1:-1] for value in secrets}
        # The longest first: a secret that contains another one is replaced as a whole.
        self._values = sorted(forms, key=len, reverse=True)

    def redact_text(self, text: str) -> str:
        """Redact a text."""
        for value in self._values:
            text = text.replace(value, "[left out]")
        return text

    def redact_value(self, value: Any) -> Any:
        """Redact all texts in JSON-like data."""
        if isinstance(value, str):
            return self.redact_text(value)
        if isinstance(value, Mapping):
            items = cast("Mapping[Any, Any]", value).items()
            return {self.redact_value(name): self.redact_value(item) for name, item in items}
        if isinstance(value, (list, tuple)):
            return [self.redact_value(item) for item in cast("list[Any]", value)]
        return value
