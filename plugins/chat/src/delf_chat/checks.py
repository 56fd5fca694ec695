"""Validation of chat names and sizes."""

from __future__ import annotations

from typing import Any, Final

from delf.errors import ConfigurationError
from delf.protocols.conversation import USER_SEPARATOR

# The maximum number of characters of a name. Two such names fit into any database's index.
_MAX_NAME_CHARACTERS: Final = 250


def check_count(name: str, value: Any, minimum: int) -> int:
    """Check that a value is an integer of at least ``minimum``, and return the value.

    Raises:
        ConfigurationError: If the value is not an integer, or is smaller.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
        raise ConfigurationError(
            f"Chat: {name} must be a whole number from {minimum}, not {value!r}"
        )
    return value


def check_flag(name: str, value: Any) -> bool:
    """Check that a value is True or False, and return the value.

    Raises:
        ConfigurationError: If the value is anything else.
    """
    if not isinstance(value, bool):
        raise ConfigurationError(f"Chat: {name} is {value!r}", hint="True or False")
    return value


def check_name(what: str, value: Any) -> str:
    """Check that a value is a valid name of a conversation or namespace, and return the value.

    Raises:
        ConfigurationError: If the value is not a text, or is empty, too long or cannot be stored.
    """
    if not isinstance(value, str) or not value.strip():
        raise ConfigurationError(f"Chat: {what} must be a text that is not empty, not {value!r}")
    is_unstorable = "\x00" in value or any("\ud800" <= character <= "\udfff" for character in value)
    if is_unstorable or len(value) > _MAX_NAME_CHARACTERS:
        raise ConfigurationError(
            f"Chat: {what} must have at most {_MAX_NAME_CHARACTERS} characters that can be stored, "
            f"not {value[:40]!r}"
        )
    return value


def check_id_without_user(value: Any) -> str:
    """Check that a value is a valid id of a conversation without a user, and return the value.

    Raises:
        ConfigurationError: If the value is not a valid name, or contains the separator of the ids
            that ``delf serve`` stores: ``USER|NAME``.
    """
    name = check_name("conversation_id", value)
    if USER_SEPARATOR in name:
        raise ConfigurationError(
            f"Chat: conversation_id cannot contain {USER_SEPARATOR!r}, not {name!r}",
            hint="the character separates users from the names of their conversations",
        )
    return name
