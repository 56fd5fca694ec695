"""What a call would change, as a person sees it before it is done."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from delf_filesystem.roots import Place

_SHOWN_LINES: Final = 400
_COMPARED: Final = 200_000
"""Larger texts are told by their size: to compare them takes longer than a person waits."""


@dataclass(frozen=True, slots=True)
class Change:
    """A file before and after.

    Args:
        place: Which.
        before: What it holds; None for a new one.
        after: What it will hold.
    """

    place: Place
    before: bytes | None
    after: bytes


def preview_of(changes: Sequence[Change]) -> str:
    """Changes as unified diffs, cut with a notice where they are long."""
    lines = [line for change in changes for line in _diff(change)]
    if len(lines) > _SHOWN_LINES:
        left = len(lines) - _SHOWN_LINES
        lines = [*lines[:_SHOWN_LINES], f"… and {left} lines more"]
    return "\n".join(lines) or "nothing would change"


def _diff(change: Change) -> list[str]:
    name, before = str(change.place), change.before or b""
    old, new = _compared(before), _compared(change.after)
    if old is None or new is None:
        was = "new" if change.before is None else f"{len(before)} bytes"
        return [f"{name}: {was} → {len(change.after)} bytes"]
    first = "/dev/null" if change.before is None else name
    return list(difflib.unified_diff(old, new, first, name, lineterm="", n=3))


def _compared(content: bytes) -> list[str] | None:
    """The lines of a text; None for what is none, or is too large to be compared."""
    if len(content) > _COMPARED:
        return None
    try:
        return content.decode().splitlines()
    except UnicodeDecodeError:
        return None
