"""Old tasks are removed with the files that delf keeps for them."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Final

from delf.protocols.journal import Ages, Pruned
from delf.protocols.shared_journal import SharedJournal

OUTPUT_PREFIX: Final = "delf-out-"
"""The beginning of the names of temporary folders that output files are written into."""


async def prune(
    journal: SharedJournal,
    older_than: float | Ages | None,
    keep: int = 0,
    *,
    dry_run: bool = False,
) -> Pruned:
    """Remove old tasks, and their output files where nobody said where to put these.

    Args:
        journal: Where the tasks are.
        older_than: Only those that ended so many seconds ago, by state perhaps.
        keep: How many of the newest stay in any case.
        dry_run: Only say which.
    """
    gone = await journal.prune(older_than, keep, dry_run=dry_run)
    await asyncio.to_thread(_remove_outputs, gone.files)
    return gone


async def remove(journal: SharedJournal, task_ids: Collection[str]) -> Pruned:
    """Remove tasks that do not run, and their output files where nobody said where to put these.

    Args:
        journal: Where they are.
        task_ids: Their whole ids.
    """
    gone = await journal.remove(task_ids)
    await asyncio.to_thread(_remove_outputs, gone.files)
    return gone


def _remove_outputs(paths: Iterable[str]) -> None:
    """Remove those files that are in a temporary folder of delf, and folders that are empty then.

    A file that another machine has, or that is gone, is passed over.
    """
    place = Path(tempfile.gettempdir()).resolve()
    for path in map(Path, paths):
        parents = [*path.parents]
        own = [p for p in parents if p.parent == place and p.name.startswith(OUTPUT_PREFIX)]
        if not own or ".." in path.parts:
            continue
        with contextlib.suppress(OSError):  # it is gone, or somebody else's
            path.unlink(missing_ok=True)
            for folder in parents[: parents.index(own[0]) + 1]:
                folder.rmdir()
