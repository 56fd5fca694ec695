"""Files that only the user can write, so that their content is certainly the user's own."""

from __future__ import annotations

import fcntl
import os
import secrets
import stat
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final

from delf.errors import ConfigurationError

# Opening fails if the name exists, so that nothing is written to somebody else's file or link.
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
READ_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
"""The flags to read a file that a stranger may have made: follow no link, and wait for no pipe."""
_MAX_BYTES: Final = 16_000_000
_SHARED: Final = 0o644  # the permissions of a new file that other users may read


def is_private_folder(path: Path) -> bool:
    """Return True if a path is a folder of the user that nobody else can read or write."""
    try:
        status = path.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and _is_private(status)


def read_private(path: Path) -> bytes | None:
    """Return the content of a file; None if it cannot be read or other users can access it."""
    try:
        with os.fdopen(os.open(path, READ_FLAGS), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode) or not _is_private(status):
                return None
            return file.read(_MAX_BYTES)
    except OSError:
        return None


def make_private_folder(folder: Path) -> None:
    """Create a folder and its parents that only the owner can access.

    Existing folders keep their mode.

    Raises:
        OSError: If the folder cannot be created.
    """
    # One folder at a time: mkdir(parents=True) gives the mode to the last folder only.
    for path in (*reversed(folder.parents), folder):
        if not path.is_dir():
            path.mkdir(mode=0o700, exist_ok=True)


def make_private_file(path: Path) -> None:
    """Create an empty file that only its owner can access, and its folder if needed.

    An existing file is left as it is.

    A database library that opens the file later keeps the file's mode, and gives the same mode to
    the files that the library creates in the same folder.

    Raises:
        OSError: If the file cannot be created.
    """
    make_private_folder(path.parent)
    with suppress(FileExistsError):
        # O_EXCL refuses a link, so create the missing target of the link. Otherwise the library
        # would create the target when it opens the link, and other users could read the target.
        os.close(os.open(os.path.realpath(path), os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))


@contextmanager
def locked(path: Path) -> Generator[None]:
    """Run a block that reads, changes and writes a file, while other processes wait.

    Without the lock, two processes that change the file at the same time could overwrite each
    other's changes. The lock is best effort: on a file system without locks, the block runs
    unlocked.

    Args:
        path: The file, which need not exist.
    """
    with ExitStack() as stack:
        with suppress(OSError):  # the folder cannot be made, or its file system has no locks
            make_private_folder(path.parent)
            # The folder is locked, because each write replaces the file.
            descriptor = os.open(path.parent, os.O_RDONLY)
            stack.callback(os.close, descriptor)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            # Closing is not enough: a process that was forked meanwhile has the descriptor, too.
            stack.callback(fcntl.flock, descriptor, fcntl.LOCK_UN)
        yield


def create_private(path: Path) -> BinaryIO:
    """Create a file that only its owner can access, and open the file for writing.

    Raises:
        FileExistsError: If the file exists.
    """
    return os.fdopen(os.open(path, _NEW, 0o600), "wb")


def write_private_text(path: Path, text: str) -> None:
    """Write a file atomically, creating its folder if needed.

    Raises:
        ConfigurationError: If other users can write to the folder.
        OSError: If the file cannot be written.
    """
    make_private_folder(path.parent)
    if not is_private_folder(path.parent):
        raise ConfigurationError(
            f"others can write to {path.parent}",
            hint=f"make it yours alone: chmod 700 {path.parent}",
        )
    write_private(path, text.encode())


def write_private(path: Path, content: bytes) -> None:
    """Write a file atomically so that only its owner can read it, creating its folder if needed.

    Raises:
        OSError: If the file cannot be written.
    """
    make_private_folder(path.parent)
    new = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        with create_private(new) as file:
            file.write(content)
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)  # the file is still there if an error came before replace()


def replace_file(path: Path, text: str) -> None:
    """Replace a file atomically, keeping its permissions; create a missing file.

    A symbolic link is replaced itself, not its target.

    Raises:
        ConfigurationError: If the file cannot be written.
    """
    try:
        mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else _SHARED
        write_private(path, text.encode())
        path.chmod(mode)  # write_private() has made the file private
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be written: {error.strerror}") from error


def _is_private(status: os.stat_result) -> bool:
    is_accessible_to_others = bool(status.st_mode & 0o077)
    return status.st_uid == os.geteuid() and not is_accessible_to_others
