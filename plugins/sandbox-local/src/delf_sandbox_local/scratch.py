"""Working folders of guests, inside one folder that is always removed."""

from __future__ import annotations

import os
import re
import tempfile
import weakref
from pathlib import Path

from delf_sandbox.folders import remove_folders

_NAME = re.compile(r"delf-scratch-(\d+)-\w+")


class ScratchFolders:
    """Makes working folders.

    Folders are removed by :meth:`remove`, at the latest when the process ends; folders of a killed
    process are removed by the user's next process.
    """

    def __init__(self) -> None:
        _sweep(Path(tempfile.gettempdir()))
        self._base = _folder(prefix=f"delf-scratch-{os.getpid()}-")
        self._place: str | None = None
        self._finalizer = weakref.finalize(self, remove_folders, self._base)

    def make(self) -> str:
        """Return a new folder."""
        return _folder(dir=self._base)

    def place(self) -> str:
        """Return the common mount point of each process's scratch space."""
        if self._place is None:
            self._place = self.make()
        return self._place

    def remove(self) -> None:
        """Remove all folders. Idempotent."""
        self._finalizer()


def _folder(**where: str) -> str:
    """Make a folder for its owner, whatever the umask."""
    made = tempfile.mkdtemp(**where)
    Path(made).chmod(0o700)
    return made


def _sweep(parent: Path) -> None:
    """Remove the folders of processes that are gone."""
    for path in parent.glob("delf-scratch-*"):
        found = _NAME.fullmatch(path.name)
        try:
            if found and path.lstat().st_uid == os.getuid() and not _alive(int(found.group(1))):
                remove_folders(str(path))
        except OSError:
            continue


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
