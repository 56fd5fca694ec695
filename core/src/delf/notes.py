"""Notes that a connection attaches to a result: a guess, a loss, a limit.

Each note becomes a warning in the trace, so that users see every guess.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

_MAX_NOTES: Final = 20
_MAX_CHARACTERS: Final = 1000
_notes: ContextVar[dict[str, None] | None] = ContextVar("delf_notes", default=None)


def note(message: str) -> None:
    """Add a note to the tool call in progress; a no-op outside of a call.

    Args:
        message: A short sentence that names its subject, such as a file or a column.
    """
    notes = _notes.get()
    if notes is not None and len(notes) < _MAX_NOTES:
        notes[message[:_MAX_CHARACTERS]] = None


@contextmanager
def notes_of_call() -> Generator[dict[str, None]]:
    """Collect the notes that are added by :func:`note` inside the ``with`` block.

    Notes from threads that the block starts are included. Yields a dict whose keys are the notes,
    in the order in which they were added.
    """
    notes: dict[str, None] = {}
    token = _notes.set(notes)
    try:
        yield notes
    finally:
        _notes.reset(token)


def in_call() -> bool:
    """Return True within a tool call, also in a thread that the call has started."""
    return _notes.get() is not None
