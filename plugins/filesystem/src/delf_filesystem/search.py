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
from delf_filesystem.roots import Place, convert_errors, reading, root_of, suits

_DEEPEST: Final = 100
_LONGEST_PATTERN: Final = 500
_SHOWN_OF_LINE: Final = 500
_PIECE: Final = 4_000_000
_LOOKED_AT: Final = 8192


class FileInfo(TypedDict):
    """A file: its path, its size in bytes, and when it was changed last (UTC)."""

    path: str
    size: int
    modified: datetime


class Match(TypedDict):
    """A matching line; its number counts from 1."""

    path: str
    line: int
    text: str


class Glob:
    """A pattern of paths: ``*`` and ``?`` stay in a folder, ``**`` is any folders or none.

    A pattern without a slash counts for names in every folder.

    Args:
        pattern: The pattern, such as ``*.md`` or ``2024/**/*.pdf``.

    Raises:
        ToolRefusedError: If the pattern is longer than 500 characters.
    """

    def __init__(self, pattern: str) -> None:
        if len(pattern) > _LONGEST_PATTERN:
            raise ToolRefusedError(f"a pattern has at most {_LONGEST_PATTERN} characters")
        parts = pattern.strip("/").split("/")
        if len(parts) == 1 and parts != ["**"]:
            parts = ["**", *parts]
        # None stands for `**`; fnmatch's expressions take time in proportion to their text.
        self._parts = [
            None if part == "**" else re.compile(fnmatch.translate(part)) for part in parts
        ]

    def matches(self, path: Sequence[str]) -> bool:
        """Return True if a path, given as its parts, matches this pattern."""
        wanted, at, of_pattern = self._parts, 0, 0
        # The last ``**`` in the pattern, and the place in the path up to which it reaches so far.
        last_stars: tuple[int, int] | None = None
        while at < len(path):
            part = wanted[of_pattern] if of_pattern < len(wanted) else re.compile(r"(?!)")
            if part is None:
                last_stars = (of_pattern, at)
                of_pattern += 1
            elif part.match(path[at]):
                at, of_pattern = at + 1, of_pattern + 1
            elif last_stars is not None:  # go back, and let the stars cover one part more
                last_stars = (last_stars[0], last_stars[1] + 1)
                of_pattern, at = last_stars[0] + 1, last_stars[1]
            else:
                return False
        return all(part is None for part in wanted[of_pattern:])


def walk(place: Place, glob: Glob) -> Iterator[tuple[Place, os.stat_result]]:
    """Yield the regular files under a path, folder by folder in order of names.

    Links, other file systems and hidden files are skipped.

    Args:
        place: A folder, or one file.
        glob: Selects files by path relative to it.
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
        yield from _walk_folder(place, (), descriptor, status.st_dev, glob)


def _walk_folder(
    place: Place, path: tuple[str, ...], descriptor: int, device: int, glob: Glob
) -> Iterator[tuple[Place, os.stat_result]]:
    """Yield the files under an open folder, which is closed at the end."""
    try:
        with os.scandir(descriptor) as entries:
            names = sorted(entries, key=lambda entry: entry.name)
        for entry in names:
            name = entry.name
            if entry.is_dir(follow_symlinks=False):
                if len(path) < _DEEPEST and (place.settings.hidden or not name.startswith(".")):
                    yield from _folder(place, (*path, name), descriptor, device, glob)
            elif suits(place, name) and glob.matches((*path, name)):
                status = _stat(name, descriptor)
                if status is not None and stat.S_ISREG(status.st_mode):
                    yield Place(place.name, place.settings, (*place.parts, *path, name)), status
    finally:
        os.close(descriptor)


def _folder(
    place: Place, path: tuple[str, ...], above: int, device: int, glob: Glob
) -> Iterator[tuple[Place, os.stat_result]]:
    try:
        descriptor = open_beneath(above, path[-1:], os.O_RDONLY | os.O_DIRECTORY)
    except OSError:  # gone meanwhile, a link now, not readable, or another file system
        return
    if os.fstat(descriptor).st_dev != device:
        os.close(descriptor)
        return
    yield from _walk_folder(place, path, descriptor, device, glob)


def _stat(name: str, folder: int) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except OSError:  # gone meanwhile
        return None


def info(place: Place, found: os.stat_result) -> FileInfo:
    """Describe a file for scripts."""
    modified = datetime.fromtimestamp(found.st_mtime, UTC)
    return FileInfo(path=str(place), size=found.st_size, modified=modified)


def lines_with(place: Place, text: bytes, *, ignore_case: bool) -> Iterator[Match]:
    """Yield the lines of a file that contain a text; nothing for a file that is not text.

    Args:
        place: The file.
        text: The text to find within a line.
        ignore_case: Whether capital and small letters of ASCII are the same.
    """
    wanted = re.compile(re.escape(text), re.IGNORECASE if ignore_case else 0)
    with reading(place) as file:
        line = 1
        # Read complete lines, so that no match is cut; only a line longer than a piece is split.
        while piece := file.read(_PIECE) + file.readline(_PIECE):
            if line == 1 and b"\0" in piece[:_LOOKED_AT]:
                return
            yield from _hits(place, piece, wanted, line)
            line += piece.count(b"\n")


def _hits(place: Place, piece: bytes, wanted: re.Pattern[bytes], line: int) -> Iterator[Match]:
    counted, end = 0, -1
    for hit in wanted.finditer(piece):
        if hit.start() < end:
            continue
        start = piece.rfind(b"\n", 0, hit.start()) + 1
        end = piece.find(b"\n", hit.end())
        end = len(piece) if end < 0 else end
        line += piece.count(b"\n", counted, start)
        counted = start
        line_text = piece[start : min(end, start + _SHOWN_OF_LINE)].decode(errors="replace")
        yield Match(path=str(place), line=line, text=line_text)
