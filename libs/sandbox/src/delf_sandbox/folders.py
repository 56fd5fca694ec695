"""Removal and measurement of untrusted folders that a script wrote to."""

from __future__ import annotations

import itertools
import os
from contextlib import suppress
from pathlib import Path

MAX_ENTRIES = 20_000


def remove_folder(folder: str) -> None:
    """Remove a folder that a script filled, however deeply nested.

    Nested folders are first moved directly into ``folder``: a recursive removal could exceed the
    limits on recursion, open files or path lengths. No process may be running in the folder.
    Entries that cannot be removed are skipped.
    """
    with suppress(OSError):  # the folder has entries
        Path(folder).rmdir()
        return
    with suppress(OSError):
        _make_accessible(folder)
    new_paths = (f"{folder}/.removed-{number}" for number in itertools.count())
    # The script may have used some of these names.
    unused_paths = itertools.filterfalse(os.path.lexists, new_paths)
    pending = [folder]
    while pending:
        current = pending.pop()
        for entry in _entries(current):
            with suppress(OSError):
                if entry.is_dir(follow_symlinks=False):
                    # Moving a folder needs its permissions, and so does listing it later.
                    _make_accessible(entry.path)
                    moved = next(unused_paths)
                    Path(entry.path).rename(moved)
                    pending.append(moved)
                else:
                    Path(entry.path).unlink()
        if current != folder:
            with suppress(OSError):
                Path(current).rmdir()
    with suppress(OSError):
        Path(folder).rmdir()


def remove_folders(base: str) -> None:
    """Remove a folder and each of its entries with :func:`remove_folder`."""
    for entry in _entries(base):
        remove_folder(entry.path)
    remove_folder(base)


def used_space(folder: str, max_bytes: int) -> int:
    """Return the disk space used in a folder, in bytes.

    A script may change the folder meanwhile. Counting stops above ``max_bytes``, so a result above
    ``max_bytes`` says only that the limit is exceeded. If the folder has too many entries or cannot
    be read, the result is ``max_bytes + 1``.

    Args:
        folder: The folder.
        max_bytes: The limit in bytes.
    """
    used_bytes = count = 0
    pending = [folder]
    try:
        while pending and used_bytes <= max_bytes:
            for entry in _entries(pending.pop()):
                count += 1
                if count > MAX_ENTRIES:
                    return max_bytes + 1
                with suppress(FileNotFoundError):  # the script removed the entry
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(entry.path)
                    block_count = entry.stat(follow_symlinks=False).st_blocks
                    used_bytes += block_count * 512  # the unit of st_blocks on every system
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
    """Give this user all permissions on a folder, in which no process may be running."""
    if Path(folder).lstat().st_mode & 0o700 != 0o700:
        Path(folder).chmod(0o700)
