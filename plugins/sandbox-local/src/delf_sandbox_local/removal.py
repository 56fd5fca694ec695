"""Removal of files where scratch space is on the host's disk: they are put aside instead.

A file that is open takes space after its name is gone, unseen by whoever measures the folder. So
the filter of :mod:`seccomp` refuses to remove names, and libraries find functions that move a
file into a folder of its own, where it counts until the guest ends. Standard library only.
"""

from __future__ import annotations

import ctypes
import errno
import itertools
import os
import stat
from typing import Any, Final

from delf_sandbox_local import system

_AT_FDCWD: Final = -100
_NO_REPLACE: Final = 1


def install(scratch: str) -> None:
    """Take the place of ``os.remove``, ``os.rename`` and their kin in this process.

    Args:
        scratch: The guest's folder.
    """
    aside = f"{scratch}/.removed"
    numbers = itertools.count()

    def remove(path: Any, *, dir_fd: int | None = None) -> None:
        about = os.stat(path, dir_fd=dir_fd, follow_symlinks=False)
        if stat.S_ISDIR(about.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        os.makedirs(aside, exist_ok=True)  # noqa: PTH103 - pathlib costs the guest its import
        _move(path, f"{aside}/{next(numbers)}", dir_fd, None)

    def rename(
        src: Any, dst: Any, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None
    ) -> None:
        try:
            _move(src, dst, src_dir_fd, dst_dir_fd)
        except FileExistsError:
            remove(dst, dir_fd=dst_dir_fd)
            _move(src, dst, src_dir_fd, dst_dir_fd)

    os.remove = os.unlink = remove
    os.rename = os.replace = rename
    os.supports_dir_fd |= {remove, rename}


def _move(src: Any, dst: Any, src_dir_fd: int | None, dst_dir_fd: int | None) -> None:
    folders = [_AT_FDCWD if folder is None else folder for folder in (src_dir_fd, dst_dir_fd)]
    names = os.fsencode(src), os.fsencode(dst)
    if system.libc().renameat2(folders[0], names[0], folders[1], names[1], _NO_REPLACE) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), src, None, dst)
