"""Working folders of guests, inside one folder that is always removed."""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path

from delf.machine.forks import finalize_in_owner
from delf_sandbox.folders import remove_folders

_NAME = re.compile(r"delf-scratch-(\d+)-\w+")


class ScratchFolders:
    """Creates the working folders of guests, the sandboxed processes that run scripts.

    The folders are removed by :meth:`remove`, at the latest when this process ends. If this process
    is killed, the user's next process removes the folders.
    """

    def __init__(self) -> None:
        _remove_orphans(Path(tempfile.gettempdir()))
        self._base = _make_private_folder(prefix=f"delf-scratch-{os.getpid()}-")
        self._mount_point: str | None = None
        self._finalizer = finalize_in_owner(self, remove_folders, self._base)

    def make(self) -> str:
        """Create a working folder, and return its path."""
        return _make_private_folder(dir=self._base)

    def mount_point(self) -> str:
        """Return the folder on which each guest mounts its own scratch space."""
        if self._mount_point is None:
            self._mount_point = self.make()
        return self._mount_point

    def remove(self) -> None:
        """Remove all working folders. Idempotent."""
        self._finalizer()


def _make_private_folder(**where: str) -> str:
    """Create a temporary folder that only its owner may enter, whatever the umask."""
    made = tempfile.mkdtemp(**where)
    Path(made).chmod(0o700)
    return made


def _remove_orphans(parent: Path) -> None:
    """Remove the working folders of processes that have died."""
    for path in parent.glob("delf-scratch-*"):
        match = _NAME.fullmatch(path.name)  # the name contains the id of the process
        if match is None:
            continue
        try:
            is_own = path.lstat().st_uid == os.getuid()
            if is_own and not _is_alive(int(match.group(1))):
                remove_folders(str(path))
        except OSError:
            continue


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # the process of another user
        return True
    return True
