"""Files that scripts write to their scratch folder, which become output files."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from delf.machine.filenames import check_file_name

_FileVersion = tuple[int, int]


class Scratch:
    """A scratch folder, with a record of the files that were already sent to the host.

    Args:
        folder: The path of the folder.
        shown_folder: The path of the folder as scripts see it; ``folder`` when omitted.
    """

    def __init__(self, folder: str, shown_folder: str | None = None) -> None:
        # Resolve links, because scripts may reach the folder through a link, and paths are compared
        # as text.
        self._folder = os.path.realpath(folder)
        self._folder_in_scripts = folder if shown_folder is None else shown_folder
        self._sent_versions: dict[str, _FileVersion] = {}
        for name in list(self.unsent()):  # existing files are not the script's output
            self.mark_sent(name)

    def unsent(self) -> Iterator[str]:
        """Yield the names of files that are new or have changed since they were last sent.

        Hidden files, folders named ``__pycache__``, and files with names that output files cannot
        have are skipped.
        """
        # Paths below the scratch folder, such as "charts/"; "" is the scratch folder itself.
        pending_folders = [""] if os.path.isdir(self._folder) else []
        while pending_folders:
            folder = pending_folders.pop()
            with os.scandir(os.path.join(self._folder, folder)) as iterator:
                entries = sorted(iterator, key=lambda entry: entry.name)
            for entry in entries:
                name = f"{folder}{entry.name}"
                if not _may_be_output(name):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    pending_folders.append(f"{name}/")
                    continue
                version = _file_version(entry.path)
                if version is not None and version != self._sent_versions.get(name):
                    yield name

    def find(self, content: Any) -> str | None:
        """Return the name of the file in this folder to which a path or open file refers.

        None if there is no such file.
        """
        is_open_file = hasattr(content, "read")
        path = getattr(content, "name", None) if is_open_file else content
        if not isinstance(path, (str, Path)):
            return None
        text = os.fspath(path)
        if not text:
            return None
        # An absolute path names the folder as scripts see it.
        is_absolute = os.path.isabs(text)
        relative_path = os.path.relpath(text, self._folder_in_scripts) if is_absolute else text
        # Resolve the path before the comparison: a link or ``..`` must not lead out of the folder.
        real_path = os.path.realpath(os.path.join(self._folder, relative_path))
        if not real_path.startswith(self._folder + os.sep) or _file_version(real_path) is None:
            return None
        return os.path.relpath(real_path, self._folder).replace(os.sep, "/")

    def read(self, name: str) -> bytes:
        """Return the content of a file, and record the file as sent.

        Args:
            name: The file name, as returned by :meth:`unsent` or :meth:`find`.
        """
        self.mark_sent(name)
        return Path(self._folder, name).read_bytes()

    def mark_sent(self, name: str) -> None:
        """Record that the current version of a file has been sent."""
        version = _file_version(os.path.join(self._folder, name))
        if version is not None:
            self._sent_versions[name] = version


def _may_be_output(name: str) -> bool:
    """Return False for a hidden file, a cache, and a name that output files cannot have."""
    if name.endswith("__pycache__"):
        return False
    try:
        check_file_name(name)
    except ValueError:
        return False
    return True


def _file_version(path: str) -> _FileVersion | None:
    """Return a file's modification time in nanoseconds and its size in bytes.

    None if the path is not a regular file.
    """
    try:
        status = os.lstat(path)
    except OSError:
        return None
    if stat.S_ISREG(status.st_mode):
        return (status.st_mtime_ns, status.st_size)
    return None
