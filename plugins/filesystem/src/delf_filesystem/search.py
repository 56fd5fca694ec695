"""Walks the files under a path, and searches them for a text."""

from __future__ import annotations

import fnmatch
import os
import re
import stat
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Final, TypedDict

from delf.errors import ToolRefusedError
from delf_filesystem.beneath import open_beneath
from delf_filesystem.roots import Place, convert_errors, is_visible, reading, root_of

_MAX_DEPTH: Final = 100
_MAX_PATTERN_CHARS: Final = 500
_MAX_SHOWN_BYTES: Final = 500
_CHUNK_BYTES: Final = 4_000_000
_BINARY_CHECK_BYTES: Final = 8192


class FileInfo(TypedDict):
    """A file: its path, its size in bytes, and the time of its last change (UTC)."""

    path: str
    size: int
    modified: datetime


class Match(TypedDict):
    """A line with the searched text; line numbers start at 1."""

    path: str
    line: int
    text: str


class Glob:
    """A pattern of paths, or several of which one must match.

    ``*`` and ``?`` match within one name. ``**`` matches any number of folders. A pattern without
    a slash matches names in every folder.

    Args:
        patterns: The patterns, such as ``*.md`` or ``2024/**/*.pdf``.

    Raises:
        ToolRefusedError: If a pattern is longer than 500 characters.
    """

    def __init__(self, *patterns: str) -> None:
        self._patterns = [_Pattern(pattern) for pattern in dict.fromkeys(patterns)]

    def matches(self, path: Sequence[str]) -> bool:
        """Return True if the names in a path match a pattern."""
        return any(pattern.matches(path) for pattern in self._patterns)


class _Pattern:
    """A single pattern of a :class:`Glob`."""

    def __init__(self, pattern: str) -> None:
        if len(pattern) > _MAX_PATTERN_CHARS:
            raise ToolRefusedError(f"a pattern has at most {_MAX_PATTERN_CHARS} characters")
        pattern = pattern.strip("/")
        # ``*.md`` matches names in every folder, but ``./*.md`` only in the folder itself.
        is_name = "/" not in pattern
        parts = pattern.removeprefix("./").split("/")
        if is_name and parts != ["**"]:
            parts = ["**", *parts]
        # None stands for `**`. An expression made by fnmatch matches a name in linear time.
        self._parts = [
            None if part == "**" else re.compile(fnmatch.translate(part)) for part in parts
        ]

    def matches(self, path: Sequence[str]) -> bool:
        """Return True if the names in a path match this pattern."""
        # The positions in the pattern that the names so far can lead to.
        positions = self._with_positions_after_stars({0})
        for name in path:
            next_positions: set[int] = set()
            for position in positions:
                if position == len(self._parts):
                    continue  # the pattern ends before this name
                part = self._parts[position]
                if part is None:  # the ``**`` also matches this name
                    next_positions.add(position)
                elif part.match(name):
                    next_positions.add(position + 1)
            positions = self._with_positions_after_stars(next_positions)
        return len(self._parts) in positions

    def _with_positions_after_stars(self, positions: set[int]) -> set[int]:
        """Add positions that need no further name to be reached, because ``**`` may match no name.

        The parts of the pattern ``**/**/*.md`` have the positions 0, 1 and 2. From position 0, the
        positions 1 and 2 can be reached, so ``{0}`` becomes ``{0, 1, 2}``.
        """
        all_positions = set(positions)
        # In ascending order, so that a position added here also passes the next ``**``.
        for position, part in enumerate(self._parts):
            is_double_star = part is None
            if is_double_star and position in all_positions:
                all_positions.add(position + 1)
        return all_positions


def walk(place: Place, glob: Glob) -> Iterator[tuple[Place, os.stat_result]]:
    """Yield the regular files under a path with their status, in the order of their names.

    Links and other file systems are skipped. Hidden files are skipped, too, unless the settings of
    the path's root include hidden files.

    Args:
        place: A folder, or one file.
        glob: The pattern of the paths relative to the folder.
    """
    with root_of(place) as root:
        with convert_errors(place, "list"):
            descriptor = open_beneath(root, place.parts, os.O_RDONLY | os.O_NONBLOCK)
        status = os.fstat(descriptor)
        if not stat.S_ISDIR(status.st_mode):
            os.close(descriptor)
            if stat.S_ISREG(status.st_mode):
                yield place, status
            return
        yield from _walk_folder(place, (), descriptor, glob)


def _walk_folder(
    place: Place, path: tuple[str, ...], descriptor: int, glob: Glob
) -> Iterator[tuple[Place, os.stat_result]]:
    """Yield the files under an open folder, and close the folder.

    Args:
        place: The folder at which the walk began.
        path: The names in the path from that folder to the open folder.
        descriptor: The file descriptor of the open folder.
        glob: The pattern of the paths relative to ``place``.
    """
    try:
        with os.scandir(descriptor) as entries:
            sorted_entries = sorted(entries, key=lambda entry: entry.name)
        for entry in sorted_entries:
            name = entry.name
            if entry.is_dir(follow_symlinks=False):
                is_shown = place.settings.hidden or not name.startswith(".")
                if is_shown and len(path) < _MAX_DEPTH:
                    yield from _walk_subfolder(place, (*path, name), descriptor, glob)
            elif is_visible(place, name) and glob.matches((*path, name)):
                status = _stat(name, descriptor)
                if status is not None and stat.S_ISREG(status.st_mode):
                    yield Place(place.name, place.settings, (*place.parts, *path, name)), status
    finally:
        os.close(descriptor)


def _walk_subfolder(
    place: Place, path: tuple[str, ...], parent: int, glob: Glob
) -> Iterator[tuple[Place, os.stat_result]]:
    """Yield the files under a folder; none if the folder cannot be opened."""
    try:
        descriptor = open_beneath(parent, path[-1:], os.O_RDONLY | os.O_DIRECTORY)
    except OSError:  # gone meanwhile, a link now, not readable, or another file system
        return
    yield from _walk_folder(place, path, descriptor, glob)  # closes the descriptor


def _stat(name: str, folder: int) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except OSError:  # gone meanwhile
        return None


def info(place: Place, status: os.stat_result) -> FileInfo:
    """Describe a file for scripts."""
    modified = datetime.fromtimestamp(status.st_mtime, UTC)
    return FileInfo(path=str(place), size=status.st_size, modified=modified)


def lines_with(place: Place, text: bytes, *, ignore_case: bool) -> Iterator[Match]:
    """Yield the lines of a file that contain a text; no lines of a binary file.

    Args:
        place: The file.
        text: The text to find within a line.
        ignore_case: Whether to ignore the case of ASCII letters.
    """
    expression = re.compile(re.escape(text), re.IGNORECASE if ignore_case else 0)
    with reading(place) as file:
        line = 1
        # Read complete lines, so that no match is cut; only a line longer than a piece is split.
        while piece := file.read(_CHUNK_BYTES) + file.readline(_CHUNK_BYTES):
            if line == 1 and b"\0" in piece[:_BINARY_CHECK_BYTES]:
                return
            yield from _matching_lines(place, piece, expression, line)
            line += piece.count(b"\n")


def _matching_lines(
    place: Place, piece: bytes, expression: re.Pattern[bytes], line: int
) -> Iterator[Match]:
    """Yield the matching lines in a piece of a file; ``line`` is the number of its first line."""
    counted_to = 0  # the position up to which line breaks are counted
    end = -1  # the end of the last line with a match
    for hit in expression.finditer(piece):
        if hit.start() < end:  # in the same line as the last match
            continue
        start = piece.rfind(b"\n", 0, hit.start()) + 1
        end = piece.find(b"\n", hit.end())
        end = len(piece) if end < 0 else end
        line += piece.count(b"\n", counted_to, start)
        counted_to = start
        line_text = piece[start : min(end, start + _MAX_SHOWN_BYTES)].decode(errors="replace")
        yield Match(path=str(place), line=line, text=line_text)
