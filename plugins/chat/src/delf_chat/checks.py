"""Validation of chat names and sizes."""

from __future__ import annotations

from typing import Any, Final

from delf.errors import ConfigurationError

_LONGEST_NAME: Final = 250
"""Characters: two such names fit into an index of every database."""


def check_count(name: str, value: Any, least: int) -> int:
    """Return the value if it is an integer of at least ``least``; raise otherwise.

    Raises:
        ConfigurationError: If the value is not such a number.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ConfigurationError(f"Chat: {name} must be a whole number from {least}, not {value!r}")
    return value


def check_name(what: str, value: Any) -> str:
    """Return the name of a conversation or namespace, which every database can store.

    Raises:
        ConfigurationError: If the name is invalid.
    """
    if not isinstance(value, str) or not value.strip():
        raise ConfigurationError(f"Chat: {what} must be a text that is not empty, not {value!r}")
    odd = "\x00" in value or any("\ud800" <= character <= "\udfff" for character in value)
    if odd or len(value) > _LONGEST_NAME:
        raise ConfigurationError(
            f"Chat: {what} must have at most {_LONGEST_NAME} characters that can be stored, "
            f"not {value[:40]!r}"
        )
    return value
