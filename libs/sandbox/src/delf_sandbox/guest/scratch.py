"""Files that scripts write to their scratch folder, which become output files."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from delf.machine.filenames import check_file_name

_Mark = tuple[int, int]


class Scratch:
    """The files of a scratch folder, and which of them are new.

    Args:
        folder: The folder.
        shown_folder: The folder's path as scripts see it; the real path when omitted.
    """

    def __init__(self, folder: str, shown_folder: str | None = None) -> None:
        # The real path: scripts may reach the folder through a link, and paths are compared as
        # text.
        self._folder = os.path.realpath(folder)
        self._shown = folder if shown_folder is None else shown_folder
        self._marks: dict[str, _Mark] = {}
        for name in list(self.new()):  # existing files are not the script's output
            self.mark_sent(name)

    def new(self) -> Iterator[str]:
        """Yield the names of files that are new or changed since they were last handed over.

        Names with a leading dot are caches and are skipped.
        """
        todo = [""] if os.path.isdir(self._folder) else []
        while todo:
            folder = todo.pop()
            with os.scandir(os.path.join(self._folder, folder)) as found:
                entries = sorted(found, key=lambda entry: entry.name)
            for entry in entries:
                name = f"{folder}{entry.name}"
                if not _may_be_output(name):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    todo.append(f"{name}/")
                elif (mark := _mark(entry.path)) is not None and self._marks.get(name) != mark:
                    yield name

    def find(self, content: Any) -> str | None:
        """Return the name of the written file that a path refers to; None if there is none."""
        path = getattr(content, "name", content) if hasattr(content, "read") else content
        text = os.fspath(path) if isinstance(path, (str, Path)) else ""
        if not text:
            return None
        relative_path = os.path.relpath(text, self._shown) if os.path.isabs(text) else text
        # Resolved before the comparison: a link or ``..`` must not lead out of the folder.
        real_path = os.path.realpath(os.path.join(self._folder, relative_path))
        if not real_path.startswith(self._folder + os.sep) or _mark(real_path) is None:
            return None
        return os.path.relpath(real_path, self._folder).replace(os.sep, "/")

    def read(self, name: str) -> bytes:
        """Read a file and record it as handed over.

        Args:
            name: The name from :meth:`new` or :meth:`find`.
        """
        self.mark_sent(name)
        return Path(self._folder, name).read_bytes()

    def mark_sent(self, name: str) -> None:
        """Record that a file was handed over in its current state."""
        mark = _mark(os.path.join(self._folder, name))
        if mark is not None:
            self._marks[name] = mark


def _may_be_output(name: str) -> bool:
    if name.endswith("__pycache__"):
        return False
    try:
        return check_file_name(name) == name
    except ValueError:
        return False


def _mark(path: str) -> _Mark | None:
    """Return a value that changes with a file's content; None if it is not a regular file."""
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return (status.st_mtime_ns, status.st_size) if stat.S_ISREG(status.st_mode) else None
