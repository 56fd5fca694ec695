"""Removal and measurement of untrusted folders that a script wrote to."""

from __future__ import annotations

import itertools
import os
from contextlib import suppress
from pathlib import Path

MAX_ENTRIES = 20_000


def remove_folder(folder: str) -> None:
    """Remove a folder with any content.

    Nested folders are first moved to the top, because a tree may be deeper than recursion, open
    descriptors or path lengths allow. No process may be running in the folder.
    """
    with suppress(OSError):
        Path(folder).rmdir()
        return
    pending, numbers = [folder], itertools.count()
    while pending:
        current = pending.pop()
        with suppress(OSError):
            _make_accessible(current)
        for entry in _entries(current):
            with suppress(OSError):
                if not entry.is_dir(follow_symlinks=False):
                    Path(entry.path).unlink()
                    continue
                _make_accessible(entry.path)
                moved = f"{folder}/.removed-{next(numbers)}"
                while os.path.lexists(moved):
                    moved = f"{folder}/.removed-{next(numbers)}"
                Path(entry.path).rename(moved)
                pending.append(moved)
        if current != folder:
            with suppress(OSError):
                Path(current).rmdir()
    with suppress(OSError):
        Path(folder).rmdir()


def remove_folders(base: str) -> None:
    """Remove a folder and its subfolders, each by :func:`remove_folder`."""
    for entry in _entries(base):
        remove_folder(entry.path)
    remove_folder(base)


def used_space(folder: str, max_bytes: int) -> int:
    """Return the bytes on disk used below a folder, which a script may be changing.

    Args:
        folder: The folder.
        max_bytes: The number of bytes above which counting stops. The result also exceeds it if
            there are too many entries or an unreadable folder.
    """
    used_bytes = count = 0
    pending = [folder]
    try:
        while pending and used_bytes <= max_bytes:
            for entry in _entries(pending.pop()):
                count += 1
                if count > MAX_ENTRIES:
                    return max_bytes + 1
                with suppress(FileNotFoundError):
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(entry.path)
                    used_bytes += entry.stat(follow_symlinks=False).st_blocks * 512
    except OSError:  # unreadable, or the path is too long
        return max_bytes + 1
    return used_bytes


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except (FileNotFoundError, NotADirectoryError):  # the script removed the folder
        return []


def _make_accessible(folder: str) -> None:
    """Make a folder accessible to this user; no process may be running in it."""
    if Path(folder).lstat().st_mode & 0o700 != 0o700:
        Path(folder).chmod(0o700)
