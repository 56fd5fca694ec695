"""Notes of a connection about a result: a guess, a loss, a limit.

A note becomes a warning in the trace, so that a guess is never silent.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

_MOST: Final = 20
_MOST_LETTERS: Final = 1000
_told: ContextVar[dict[str, None] | None] = ContextVar("delf_notes", default=None)


def note(message: str) -> None:
    """Add a note to the call that is being made. Outside of a call it goes nowhere.

    Args:
        message: A short sentence with what it is about: a file, a column.
    """
    told = _told.get()
    if told is not None and len(told) < _MOST:
        told[message[:_MOST_LETTERS]] = None


@contextmanager
def notes_of_call() -> Generator[dict[str, None]]:
    """Gather the notes of what is called inside, threads included."""
    told: dict[str, None] = {}
    token = _told.set(told)
    try:
        yield told
    finally:
        _told.reset(token)


def in_call() -> bool:
    """Return True in the code of a call, threads included."""
    return _told.get() is not None
