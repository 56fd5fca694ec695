"""File changes that a call would make, as a person sees them before approval."""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from delf_filesystem.roots import Place, replacing

_SHOWN_LINES: Final = 5000
_COMPARED: Final = 200_000
"""The size above which texts are described instead of compared, which would be slow."""


@dataclass(frozen=True, slots=True)
class Change:
    """A file before and after.

    Args:
        place: The file.
        before: The old content, of a large file possibly a part; None for a new file.
        parts: The new content in pieces.
    """

    place: Place
    before: bytes | None
    parts: tuple[bytes | memoryview, ...]

    @property
    def size(self) -> int:
        """The new size in bytes."""
        return sum(len(part) for part in self.parts)

    def write(self) -> int:
        """Write the new content to the file.

        Returns:
            The size in bytes.
        """
        with replacing(self.place) as file:
            for part in self.parts:
                file.write(part)
        return self.size


def basis_of(changes: Sequence[Change]) -> str:
    """Return a digest of the target files and of their present content."""
    digest = hashlib.sha256()
    for change in changes:
        before = "new" if change.before is None else hashlib.sha256(change.before).hexdigest()
        digest.update(f"{change.place}\0{before}\n".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def preview_of(changes: Sequence[Change]) -> str:
    """Return changes as unified diffs; long diffs are truncated with a notice."""
    lines = [line for change in changes for line in _diff(change)]
    if len(lines) > _SHOWN_LINES:
        hidden_lines = len(lines) - _SHOWN_LINES
        lines = [*lines[:_SHOWN_LINES], f"… and {hidden_lines} lines more"]
    return "\n".join(lines) or "nothing would change"


def _diff(change: Change) -> list[str]:
    name, before = str(change.place), change.before or b""
    small = change.size <= _COMPARED
    old, new = (
        _lines_to_compare(before),
        _lines_to_compare(b"".join(change.parts)) if small else None,
    )
    if old is None or new is None:
        was = "new" if change.before is None else f"{len(before)} bytes"
        return [f"{name}: {was} → {change.size} bytes"]
    first = "/dev/null" if change.before is None else name
    return list(difflib.unified_diff(old, new, first, name, lineterm="", n=3))


def _lines_to_compare(content: bytes) -> list[str] | None:
    """Return the lines of a text; None for binary or large content."""
    if len(content) > _COMPARED:
        return None
    try:
        return content.decode().splitlines()
    except UnicodeDecodeError:
        return None
