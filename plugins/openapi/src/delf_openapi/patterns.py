"""Patterns of specifications, matched in linear time."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from jsonschema_rs import Draft202012Validator

_MAX_CHARS: Final = 500
_MAX_BYTES: Final = 1_000_000
"""The maximum number of bytes of a compiled pattern."""
_OTHER_MEANING: Final = ("[[", "&&", "--", "~~")
"""Syntax that is literal in JavaScript but has a special meaning for this regex engine."""


def matches(pattern: str, text: str) -> bool:
    """Return whether a text matches a pattern; True if this engine cannot use the pattern."""
    validator = _validator(pattern)
    return validator is None or validator.is_valid(text)


def readable(pattern: object) -> str | None:
    """Return a pattern without its slashes; None if this regex engine cannot use the pattern."""
    is_valid = isinstance(pattern, str) and _validator(pattern) is not None
    return _bare(pattern) if is_valid and isinstance(pattern, str) else None


def _bare(pattern: str) -> str:
    return pattern[1:-1] if pattern[:1] == "/" and pattern[-1:] == "/" else pattern


@lru_cache(512)
def _validator(pattern: str) -> Draft202012Validator | None:
    """Return a validator for a pattern; None if the backtracking-free engine rejects it."""
    import jsonschema_rs

    if len(pattern) > _MAX_CHARS or any(mark in pattern for mark in _OTHER_MEANING):
        return None
    linear = jsonschema_rs.RegexOptions(size_limit=_MAX_BYTES, dfa_size_limit=_MAX_BYTES)
    try:
        return jsonschema_rs.Draft202012Validator(
            {"pattern": _bare(pattern)}, pattern_options=linear
        )
    except ValueError:
        return None
