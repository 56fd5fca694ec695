"""File changes that a call would make, as a person sees them before approval."""

from __future__ import annotations

import difflib
import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from delf_filesystem.roots import Place, replacing

_MAX_SHOWN_LINES: Final = 5000
# A file above this size is described, because comparing its lines would be slow.
_MAX_COMPARED_BYTES: Final = 200_000


@dataclass(frozen=True, slots=True)
class Change:
    """The change of one file by a call.

    Args:
        place: The file.
        before: The old content; None for a new or unreadable file.
        parts: The new content in pieces.
        is_old_unreadable: Whether ``before`` is None because the existing file cannot be read.
        status_of_long_file: The status of the old file if ``before`` is only its beginning.
    """

    place: Place
    before: bytes | None
    parts: tuple[bytes | memoryview, ...]
    is_old_unreadable: bool = False
    status_of_long_file: os.stat_result | None = None

    @property
    def old_state(self) -> str:
        """The old file in words: ``12 bytes``, ``new`` or ``a file that cannot be read``."""
        if self.status_of_long_file is not None:
            return f"{self.status_of_long_file.st_size} bytes"
        if self.before is not None:
            return f"{len(self.before)} bytes"
        return "a file that cannot be read" if self.is_old_unreadable else "new"

    @property
    def size(self) -> int:
        """The size of the new content in bytes."""
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
    """Return a digest of the files to be changed and of their content before the changes.

    A different digest at a later time shows that another program changed one of the files.
    """
    digest = hashlib.sha256()
    for change in changes:
        content = change.before
        version = change.old_state if content is None else hashlib.sha256(content).hexdigest()
        status = change.status_of_long_file
        if status is not None:  # ``content`` is only the beginning of the file
            version += f" {status.st_size} {status.st_mtime_ns}"
        digest.update(f"{change.place}\0{version}\n".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def preview_of(changes: Sequence[Change]) -> str:
    """Format changes as unified diffs; truncate long diffs with a notice."""
    lines = [line for change in changes for line in _diff(change)]
    if len(lines) > _MAX_SHOWN_LINES:
        hidden_lines = len(lines) - _MAX_SHOWN_LINES
        lines = [*lines[:_MAX_SHOWN_LINES], f"… and {hidden_lines} lines more"]
    return "\n".join(lines) or "nothing would change"


def _diff(change: Change) -> list[str]:
    """Return the lines of a unified diff; no lines for an unchanged file.

    If the content is binary or large, return a line with the sizes instead. Do the same if the diff
    shows no change: for a new empty file, or if only the line break at the end changes.
    """
    name = str(change.place)
    before = change.before or b""
    after = b"".join(change.parts) if change.size <= _MAX_COMPARED_BYTES else None
    is_long = change.status_of_long_file is not None
    is_unchanged = after is not None and after == change.before and not is_long
    if is_unchanged:
        return []
    old = None if is_long else _lines_to_compare(before)
    new = None if after is None else _lines_to_compare(after)
    sizes = [f"{name}: {change.old_state} → {change.size} bytes"]
    if old is None or new is None:
        return sizes
    old_name = "/dev/null" if change.before is None else name
    # A file that cannot be read is compared as if it were empty, and its name says so.
    if change.is_old_unreadable:
        old_name = f"{name}, {change.old_state}"
    diff = list(difflib.unified_diff(old, new, old_name, name, lineterm="", n=3))
    return diff or sizes


def _lines_to_compare(content: bytes) -> list[str] | None:
    """Split text content into lines, with carriage returns; None for binary or large content."""
    if len(content) > _MAX_COMPARED_BYTES:
        return None
    try:
        lines = content.decode().split("\n")
    except UnicodeDecodeError:
        return None
    return lines if lines[-1] else lines[:-1]  # no empty line after the last line break
