"""Patterns of specifications as Python's, where they are safe to try."""

from __future__ import annotations

import re
from functools import lru_cache
from importlib import import_module
from math import comb
from typing import Any, Final

_MAX_CHARS: Final = 500
_MAX_TEXT: Final = 400
# Trying a pattern takes about as many steps as there are ways to divide a text by it.
_MAX_WAYS: Final = 22_000_000
# A repeat that can end in this many places is taken for one of open length.
_MANY: Final = 20
_SEVERAL_WAYS: Final = frozenset({"BRANCH", "GROUPREF", "GROUPREF_EXISTS"})
_REPEATS: Final = frozenset({"MAX_REPEAT", "MIN_REPEAT"})


def matches(pattern: str, text: str) -> bool:
    """Tell whether a text holds the pattern; True where it could take too long to find out.

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
        # Where a match may begin is one more thing to be tried.
        ways = _Ways(opened=0 if text.startswith(("^", r"\A")) else 1)
        if not ways.count(parts) or ways.are_too_many:
            return None
        return re.compile(text)
    except (re.error, OverflowError, RecursionError):
        return None


class _Ways:
    """In how many ways a pattern can divide a text.

    Args:
        opened: Repeats of open length so far. Together they take no more than the whole text.
    """

    def __init__(self, opened: int) -> None:
        self._opened = opened
        self._other = 1

    @property
    def are_too_many(self) -> bool:
        """True if they cannot all be tried."""
        return comb(_MAX_TEXT + self._opened, self._opened) * self._other > _MAX_WAYS

    def count(self, parts: Any, inside: bool = False) -> bool:
        """Count what a parsed pattern adds; False when the ways of its parts multiply.

        Args:
            parts: The parsed pattern.
            inside: Whether it is repeated.
        """
        for kind, value in parts:
            name = str(kind)
            repeated = name in _REPEATS
            if inside and (
                name in _SEVERAL_WAYS or (repeated and value[0] != value[1]) or self.are_too_many
            ):
                return False
            if repeated and value[1] > 1 and value[2].getwidth()[0] == 0:
                return False  # nothing, many times over
            if repeated and value[1] - value[0] >= _MANY:
                self._opened += 1
            elif repeated:
                self._other *= value[1] - value[0] + 1
            elif name == "BRANCH":
                self._other *= len(value[1])
            deeper = inside or (repeated and value[1] > 1)
            if not all(self.count(inner, deeper) for inner in _parts_of(name, value)):
                return False
        return True


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
