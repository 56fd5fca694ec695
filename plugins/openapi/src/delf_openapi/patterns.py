"""Patterns of specifications, matched in linear time."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from jsonschema_rs import Draft202012Validator

_MAX_CHARS: Final = 500
# The maximum number of bytes of a compiled pattern.
_MAX_BYTES: Final = 1_000_000
# Syntax that is literal in JavaScript but has a special meaning in the linear-time engine.
_AMBIGUOUS_SYNTAX: Final = ("[[", "&&", "--", "~~")


def matches(pattern: str, text: str) -> bool:
    """Return whether a text matches a pattern.

    Also True if the linear-time regex engine does not support the pattern.
    """
    validator = _validator(pattern)
    return validator is None or validator.is_valid(text)


def usable_pattern(pattern: object) -> str | None:
    """Return a schema's regular expression, without slashes around the expression.

    None if the value is no regular expression that delf can match in linear time.
    """
    if not isinstance(pattern, str) or _validator(pattern) is None:
        return None
    return _without_delimiters(pattern)


def _without_delimiters(pattern: str) -> str:
    """Remove the slashes around a pattern that is a JavaScript literal: ``/^a+$/`` → ``^a+$``."""
    if pattern[:1] == "/" and pattern[-1:] == "/":
        return pattern[1:-1]
    return pattern


@lru_cache(512)
def _validator(pattern: str) -> Draft202012Validator | None:
    """Return a validator that matches a pattern in linear time; None for an unusable pattern."""
    import jsonschema_rs

    if len(pattern) > _MAX_CHARS or any(mark in pattern for mark in _AMBIGUOUS_SYNTAX):
        return None
    linear = jsonschema_rs.RegexOptions(size_limit=_MAX_BYTES, dfa_size_limit=_MAX_BYTES)
    # Some specifications write a pattern as a literal of JavaScript: /^a+$/.
    try:
        return jsonschema_rs.Draft202012Validator(
            {"pattern": _without_delimiters(pattern)}, pattern_options=linear
        )
    except ValueError:
        return None
