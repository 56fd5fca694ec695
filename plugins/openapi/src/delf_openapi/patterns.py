"""Patterns of specifications as Python's, where they are safe to try."""

from __future__ import annotations

import re
from functools import lru_cache
from importlib import import_module
from typing import Any, Final

_MAX_CHARS: Final = 500
_MAX_TEXT: Final = 400
# A repeat that can end in this many places is one that can be tried in as many ways.
_MANY: Final = 20
_MAX_REPEATS: Final = 3
_SEVERAL_WAYS: Final = frozenset({"BRANCH", "GROUPREF", "GROUPREF_EXISTS"})
_REPEATS: Final = frozenset({"MAX_REPEAT", "MIN_REPEAT"})


def matches(pattern: str, text: str) -> bool:
    """Whether a text fits a pattern; True where that would take too long to find out.

    What is not checked here, the service checks.

    Args:
        pattern: As JavaScript writes it.
        text: The text.
    """
    if len(text) > _MAX_TEXT:
        return True
    expression = _expression(pattern)
    return expression is None or expression.search(text) is not None


@lru_cache(512)
def _expression(pattern: str) -> re.Pattern[str] | None:
    """A pattern as one of Python; None where that is not safe, or means something else."""
    if len(pattern) > _MAX_CHARS or r"\p{" in pattern or "[[" in pattern:
        return None
    text = pattern[1:-1] if pattern[:1] == "/" and pattern[-1:] == "/" else pattern
    text = re.sub(r"(?<!\\)\$$", r"\\Z", text)
    try:
        parts: Any = import_module("re._parser").parse(text)
        repeats = _repeats(parts)
        anchored = text.startswith(("^", r"\A"))
        # Where a match may begin is one more thing to be tried.
        if repeats is None or repeats + (not anchored) > _MAX_REPEATS:
            return None
        return re.compile(text)
    except (re.error, OverflowError, RecursionError):
        return None


def _repeats(parts: Any, inside: bool = False) -> int | None:
    """How many repeats of open length a pattern has; None when they multiply their ways."""
    count = 0
    for kind, value in parts:
        name = str(kind)
        if inside and name in _SEVERAL_WAYS:
            return None
        open_ended = name in _REPEATS and value[1] - value[0] >= _MANY
        if inside and name in _REPEATS and value[0] != value[1]:
            return None
        count += open_ended
        for inner in _parts_of(name, value):
            found = _repeats(inner, inside or (name in _REPEATS and value[1] > 1))
            if found is None:
                return None
            count += found
    return count


def _parts_of(name: str, value: Any) -> list[Any]:
    if name in _REPEATS or name == "POSSESSIVE_REPEAT":
        return [value[2]]
    if name == "SUBPATTERN":
        return [value[3]]
    if name == "BRANCH":
        return list(value[1])
    if name in ("ASSERT", "ASSERT_NOT"):
        return [value[1]]
    return [value] if name == "ATOMIC_GROUP" else []
