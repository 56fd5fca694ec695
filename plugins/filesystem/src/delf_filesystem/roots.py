"""Named folders: checks a script's path, and opens the file or raises an error with advice."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import BinaryIO, Final, NoReturn

from delf.errors import ToolExecutionError, ToolRefusedError, did_you_mean
from delf_filesystem.beneath import folder_beneath, is_plain_file, open_beneath
from delf_filesystem.settings import RootSettings

_NEW_FILE: Final = 0o666
_TEMPORARY: Final = ".delf-"


@dataclass(frozen=True, slots=True)
class Place:
    """The path of a file or folder under a root.

    Args:
        name: The root's name.
        settings: The settings of the root.
        parts: The names in the path from the root.
    """

    name: str
    settings: RootSettings
    parts: tuple[str, ...]

    def __str__(self) -> str:
        return "/".join((self.name, *self.parts))

    def below(self, name: str) -> Place:
        """Return the path of a file in this folder."""
        return Place(self.name, self.settings, (*self.parts, name))


class Roots:
    """The named folders that scripts can use.

    Args:
        roots: A mapping from root name to settings.
    """

    def __init__(self, roots: Mapping[str, RootSettings]) -> None:
        self._roots = dict(roots)

    def __iter__(self) -> Iterator[Place]:
        return (Place(name, settings, ()) for name, settings in self._roots.items())

    def has_root_of(self, path: str) -> bool:
        """Return True if the first name in a path is the name of a root."""
        names = _names_in(path)
        return bool(names) and names[0] in self._roots

    def place(self, path: str) -> Place:
        """Parse and check a script's path.

        Args:
            path: The path, as ``root/folder/file``.

        Raises:
            ToolRefusedError: If the path is under no root, is invalid, or has hidden names.
        """
        parts = _names_in(path)
        root = parts[0] if parts else ""
        is_known_root = root in self._roots
        if not is_known_root or path.startswith("/") or ".." in parts:
            suggestion = "" if is_known_root else did_you_mean(root, self._roots)
            raise ToolRefusedError(
                f"cannot access {path!r}: a path begins with the name of a root and stays "
                f"under it. Roots: {', '.join(self._roots)}{suggestion}"
            )
        if not _is_name(path):
            raise ToolRefusedError(f"cannot access {path!r}: that is not a name of a file")
        place = Place(root, self._roots[root], tuple(parts[1:]))
        if not place.settings.hidden and any(part.startswith(".") for part in place.parts):
            raise ToolRefusedError(
                f"cannot access {path!r}: names that begin with a dot are hidden"
            )
        return place

    def file(self, path: str, *, write: bool = False) -> Place:
        """Parse and check the path of a file to read or write.

        Raises:
            ToolRefusedError: If the path is invalid, or its root forbids the access.
        """
        place = self.place(path)
        settings = place.settings
        if not place.parts:
            raise ToolRefusedError(f"cannot access {path!r}: it is a folder")
        if write and settings.mode != "rw":
            writable = [name for name, root in self._roots.items() if root.mode == "rw"]
            raise ToolRefusedError(
                f"cannot write to {path!r}: {place.name} is read-only. "
                f"Writable roots: {', '.join(writable) or 'none'}"
            )
        if not is_visible(place, place.parts[-1]):
            raise ToolRefusedError(
                f"cannot access {path!r}: suffix not allowed. "
                f"Allowed in {place.name}: {', '.join(settings.suffixes)}"
            )
        return place


def _names_in(path: str) -> list[str]:
    return [name for name in path.split("/") if name not in ("", ".")]


def _is_name(path: str) -> bool:
    """Return True if this system can encode a path, and the path has no NUL."""
    try:
        return b"\0" not in os.fsencode(path)
    except UnicodeEncodeError:
        return False


def is_visible(place: Place, name: str) -> bool:
    """Return True if the settings of the place's root let scripts see a file of this name."""
    settings = place.settings
    if name.startswith(".") and not settings.hidden:
        return False
    return not settings.suffixes or name.lower().endswith(settings.suffixes)


@contextmanager
def convert_errors(place: Place, verb: str) -> Generator[None]:
    """Convert an OSError in the block to a tool error, which names the path as scripts see it.

    Args:
        place: The file or folder.
        verb: The purpose of the block for messages, such as ``read``.
    """
    try:
        yield
    except OSError as error:
        _raise_failure(place, verb, error)


def _raise_failure(place: Place, verb: str, error: OSError) -> NoReturn:
    """Raise a tool error that explains an error of the operating system to the model."""
    reason = {
        errno.ENOENT: "it does not exist",
        errno.ENOTDIR: "a part of the path is a file",
        errno.EISDIR: "it is a folder",
        errno.ELOOP: "it is a link, or under one; links are not followed",
        errno.EXDEV: "it is on another file system than its root",
        errno.EACCES: "the system does not permit it",
        errno.EPERM: "the system does not permit it",
        errno.ENOSPC: "the disk is full",
        errno.EDQUOT: "the quota is used up",
        errno.EROFS: "the file system is read-only",
        errno.ENAMETOOLONG: "its name is too long",
        errno.ENXIO: "it is not a plain file",
    }.get(error.errno or 0, error.strerror or type(error).__name__)
    raise ToolExecutionError(f"cannot {verb} {str(place)!r}: {reason}") from error


@contextmanager
def root_of(place: Place) -> Generator[int]:
    """Open the configured root folder in which a place lies; yield the folder's descriptor."""
    try:
        descriptor = os.open(place.settings.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise ToolExecutionError(
            f"the root {place.name!r} cannot be opened: {error.strerror}",
            hint=f"it is set to {place.settings.root}",
        ) from error
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def reading(place: Place) -> Generator[BinaryIO]:
    """Open a file for reading.

    Raises:
        ToolExecutionError: If the file is missing, not a regular file, or has other hard links.
    """
    with convert_errors(place, "read"), root_of(place) as root:
        # Open without blocking, because opening a pipe waits for a writer.
        descriptor = open_beneath(root, place.parts, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
        with os.fdopen(descriptor, "rb", closefd=True) as file:
            if not is_plain_file(descriptor):
                is_folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
                kind = "a folder" if is_folder else "not a plain file"
                raise ToolExecutionError(f"cannot read {str(place)!r}: it is {kind}")
            # A hard link may be another name of a file outside of the root; its path cannot tell.
            if os.fstat(descriptor).st_nlink > 1:
                raise ToolExecutionError(
                    f"cannot read {str(place)!r}: it has other names, too, perhaps outside of "
                    "its root (a hard link)"
                )
            yield file


def is_present(place: Place) -> bool:
    """Return True if a file, folder or link exists at a place, whether or not it can be read."""
    *folder_names, name = place.parts
    try:
        with root_of(place) as root, folder_beneath(root, tuple(folder_names)) as folder:
            os.stat(name, dir_fd=folder, follow_symlinks=False)
    except (OSError, ToolExecutionError):
        return False
    return True


@contextmanager
def replacing(place: Place) -> Generator[BinaryIO]:
    """Open a temporary file for writing; when the block ends, it replaces the file at the path.

    If the block raises, the file at the path stays unchanged. A replaced file keeps its
    permissions, and missing folders are created.

    Raises:
        ToolExecutionError: If the path is a folder, a link or not a regular file.
    """
    *folder_names, name = place.parts
    with (
        convert_errors(place, "write to"),
        root_of(place) as root,
        folder_beneath(root, tuple(folder_names), make=True) as folder,
    ):
        mode = _mode_of(place, folder, name)
        temporary = f"{_TEMPORARY}{secrets.token_hex(8)}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        descriptor = open_beneath(folder, (temporary,), flags, _NEW_FILE)
        try:
            with os.fdopen(descriptor, "wb") as file:
                if mode is not None:
                    os.fchmod(file.fileno(), mode)
                yield file
                file.flush()
                # Sync before the rename, so that a loss of power leaves no half file by this name.
                os.fsync(file.fileno())
            os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            os.unlink(temporary, dir_fd=folder)
            raise


def _mode_of(place: Place, folder: int, name: str) -> int | None:
    """Return the permissions of the file that a write will replace; None if it does not exist."""
    try:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    # The caller converts an OSError to a tool error, with the same message as for any other link.
    if stat.S_ISLNK(status.st_mode):
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    if not stat.S_ISREG(status.st_mode):
        kind = "a folder" if stat.S_ISDIR(status.st_mode) else "not a plain file"
        raise ToolExecutionError(f"cannot write to {str(place)!r}: it is {kind}")
    return stat.S_IMODE(status.st_mode)
