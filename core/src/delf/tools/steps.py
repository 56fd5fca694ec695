"""Splitting of a task into steps that may need different tools."""

from __future__ import annotations

import re
from typing import Final

from delf.tools.ranking import words_of

_BORDER: Final = re.compile(
    r"[.;:?!,\n]+(?=\s|$)|\b(?:and|then|also|after|next|finally|but|before)\b", re.IGNORECASE
)
_MAX_STEPS: Final = 12
_MIN_WORDS: Final = 3


def steps_of(task: str) -> list[str]:
    """Return the task, followed by its parts that have three or more significant words.

    At most twelve parts follow the task. If there is only one such part, return only the task.

    Args:
        task: The task in plain words.
    """
    long_parts = [part for part in _parts(task) if len(words_of(part)) >= _MIN_WORDS]
    if len(long_parts) <= 1:
        return [task]
    return [task, *long_parts[:_MAX_STEPS]]


def short_steps_of(task: str) -> list[str]:
    """Return the parts of a task that :func:`steps_of` leaves out because they are short.

    A short part has one or two significant words, such as "pause it" in "create the job nightly,
    and pause it". At most twelve parts are returned.

    Args:
        task: The task in plain words.
    """
    parts = _parts(task)
    if len(parts) == 1:  # the part is the whole task, which steps_of() returns
        return []
    short_parts = [part for part in parts if 0 < len(words_of(part)) < _MIN_WORDS]
    return short_parts[:_MAX_STEPS]


def _parts(task: str) -> list[str]:
    """Split a task at punctuation and at words such as "and" or "then"."""
    return [part.strip() for part in _BORDER.split(task)]
