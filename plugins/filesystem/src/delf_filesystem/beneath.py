"""Opening of files under a folder, so that no path can lead out of it.

Where the kernel has ``openat2`` (Linux 5.6), it resolves the whole path itself with
``RESOLVE_BENEATH``, ``RESOLVE_NO_SYMLINKS``, ``RESOLVE_NO_MAGICLINKS`` and ``RESOLVE_NO_XDEV``.
Elsewhere each part of the path is opened in turn with ``O_NOFOLLOW`` from the descriptor of the
part before. In both cases no path is first checked and later opened, so that nobody can exchange a
folder in between.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from functools import cache
from typing import Final

_SYS_OPENAT2: Final = 437
_RESOLVE_NO_XDEV: Final = 0x01
_RESOLVE_NO_MAGICLINKS: Final = 0x02
_RESOLVE_NO_SYMLINKS: Final = 0x04
_RESOLVE_BENEATH: Final = 0x08
_RESOLVE: Final = (
    _RESOLVE_NO_XDEV | _RESOLVE_NO_MAGICLINKS | _RESOLVE_NO_SYMLINKS | _RESOLVE_BENEATH
)
# The maximum number of attempts, because ``openat2`` fails with EAGAIN after a concurrent rename.
_MAX_ATTEMPTS: Final = 16


class _OpenHow(ctypes.Structure):
    _fields_ = (
        ("flags", ctypes.c_uint64),
        ("mode", ctypes.c_uint64),
        ("resolve", ctypes.c_uint64),
    )


@cache
def has_openat2() -> bool:
    """Return True if the kernel has ``openat2``, which resolves a whole path under a folder."""
    if not sys.platform.startswith("linux"):
        return False
    folder = os.open("/", os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.close(_openat2(folder, ".", os.O_RDONLY))
    except OSError:
        return False
    finally:
        os.close(folder)
    return True


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def open_beneath(folder: int, parts: tuple[str, ...], flags: int, mode: int = 0o666) -> int:
    """Open a file or folder by its path relative to a folder, without following links.

    Args:
        folder: The file descriptor of the folder.
        parts: The names in the relative path; none is empty, ``.`` or ``..``.
        flags: The flags of :func:`os.open`.
        mode: The permissions of a new file.

    Returns:
        The file descriptor.

    Raises:
        OSError: If the file cannot be opened. The number is ELOOP for a link, and EXDEV for a file
            on another file system.
    """
    flags |= os.O_CLOEXEC | os.O_NOFOLLOW
    if not parts:
        return os.open(".", flags, dir_fd=folder)
    if has_openat2():
        # Unlike open(), openat2() refuses a mode unless the call may create the file.
        return _openat2(folder, "/".join(parts), flags, mode if flags & os.O_CREAT else 0)
    return _open_stepwise(folder, parts, flags, mode)


def _openat2(folder: int, path: str, flags: int, mode: int = 0) -> int:
    """Open a path by a system call that itself refuses links and other file systems."""
    libc = _libc()
    options = _OpenHow(flags | os.O_CLOEXEC, mode, _RESOLVE)
    for _ in range(_MAX_ATTEMPTS):
        opened = libc.syscall(
            _SYS_OPENAT2, folder, os.fsencode(path), ctypes.byref(options), ctypes.sizeof(options)
        )
        if opened >= 0:
            return int(opened)
        if ctypes.get_errno() not in (errno.EAGAIN, errno.EINTR):
            break
    error_number = ctypes.get_errno()
    raise OSError(error_number, os.strerror(error_number), path)


def _open_stepwise(folder: int, parts: tuple[str, ...], flags: int, mode: int) -> int:
    """Open a path one folder after the other, on systems without openat2.

    Like openat2, refuse a file on another file system, so that no path leads into a mount below
    the folder.
    """
    device = os.fstat(folder).st_dev
    current = os.dup(folder)
    try:
        for part in parts[:-1]:
            folder_flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            child = os.open(part, folder_flags, dir_fd=current)
            os.close(current)
            current = child
        opened = os.open(parts[-1], flags, mode, dir_fd=current)
    finally:
        os.close(current)
    if os.fstat(opened).st_dev != device:
        os.close(opened)
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), "/".join(parts))
    return opened


@contextmanager
def folder_beneath(folder: int, parts: tuple[str, ...], *, make: bool = False) -> Generator[int]:
    """Yield the file descriptor of a folder under another folder; close it when the block ends.

    Args:
        folder: The file descriptor of the outer folder.
        parts: The names in the path from the outer folder.
        make: Whether missing folders are created.
    """
    if make:
        for depth, name in enumerate(parts):
            with folder_beneath(folder, parts[:depth]) as parent, suppress(FileExistsError):
                os.mkdir(name, dir_fd=parent)
    opened = open_beneath(folder, parts, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield opened
    finally:
        os.close(opened)


def is_plain_file(descriptor: int) -> bool:
    """Return True if a file descriptor is a regular file, not a folder, device, pipe or socket."""
    return stat.S_ISREG(os.fstat(descriptor).st_mode)
