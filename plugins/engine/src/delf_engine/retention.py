"""Removal of old tasks, with the files that delf keeps for them."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Final

from delf.protocols.journal import Ages, Pruned
from delf.protocols.shared_journal import SharedJournal

OUTPUT_PREFIX: Final = "delf-out-"
"""The prefix of temporary folders for output files."""


async def prune(
    journal: SharedJournal,
    older_than: float | Ages | None,
    keep: int = 0,
    *,
    dry_run: bool = False,
) -> Pruned:
    """Remove old tasks from the journal, and their output files in delf's temporary folders.

    Args:
        journal: The journal.
        older_than: The minimum age in seconds since a task's end; tasks of any age when None. With
            a mapping from state to age, only tasks in these states are removed.
        keep: The number of newest tasks that are kept even if they are older.
        dry_run: Return the tasks without removing them.
    """
    pruned = await journal.prune(older_than, keep, dry_run=dry_run)
    if not dry_run:
        await asyncio.to_thread(_remove_outputs, pruned.files)
    return pruned


async def remove(journal: SharedJournal, task_ids: Collection[str]) -> Pruned:
    """Remove tasks that do not run, and their output files in delf's temporary folders.

    Args:
        journal: The journal.
        task_ids: The complete ids of the tasks.
    """
    pruned = await journal.remove(task_ids)
    await asyncio.to_thread(_remove_outputs, pruned.files)
    return pruned


def _remove_outputs(paths: Iterable[str]) -> None:
    """Remove output files in delf's temporary folders, and folders that become empty.

    Missing files, and files on another machine, are ignored.
    """
    temporary_folder = Path(tempfile.gettempdir()).resolve()
    for path in map(Path, paths):
        output_folder = _output_folder_of(path, temporary_folder)
        # A path in a damaged or foreign journal may lead out of the output folder by "..".
        if output_folder is None or ".." in path.parts:
            continue
        # An OSError means that another user owns the file, or that a folder has other files. The
        # folders above are then not empty either.
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
            for folder in _folders_up_to(output_folder, path):
                folder.rmdir()


def _folders_up_to(outer_folder: Path, path: Path) -> Iterator[Path]:
    """Yield the folders that hold a file, from the innermost to ``outer_folder``."""
    for folder in path.parents:
        yield folder
        if folder == outer_folder:
            return


def _output_folder_of(path: Path, temporary_folder: Path) -> Path | None:
    """Return delf's folder in the temporary folder that holds a file; None if there is none."""
    for folder in path.parents:
        if folder.parent == temporary_folder and folder.name.startswith(OUTPUT_PREFIX):
            return folder
    return None
