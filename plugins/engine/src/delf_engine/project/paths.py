"""The paths that the texts of settings can mean, and those that lead out of the folder."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from delf.machine.folders import expand_home

_LOCAL_SCHEMES: Final = frozenset({"sqlite", "file", "duckdb"})
# Matches what stands before the path in an address such as ``file://localhost/path``.
_LOCAL_HOST: Final = re.compile(r"^//(?:localhost)?(?=/)", re.IGNORECASE)
_WINDOWS_DRIVE: Final = re.compile(r"[A-Za-z]:[\\/]")
# Matches a reference to a variable with a default, such as ``${SHOP_URL:-sqlite:///shop.db}``.
_DEFAULT: Final = re.compile(r"\$\{(?:env:)?[A-Za-z_]\w*:-([^{}]*)\}")
_MAX_PATH_LENGTH: Final = 1000


def leads_outside(text: str, root: Path) -> bool:
    """Return True if a text, such as ``../shop.db``, may name a place outside ``root``."""
    return any(_is_outside(path, root) for path in _all_paths_of(text))


def links_outside(texts: Iterable[str], root: Path) -> dict[str, str]:
    """Find the paths in texts that lead out of a folder through a link.

    Any folder in the path may be the link. Paths such as ``../shop.db``, which need no link, are
    left out.

    Args:
        texts: The texts of settings.
        root: The folder, without links in its path.

    Returns:
        The targets outside of the folder, by path. The paths are relative to the folder.
    """
    targets: dict[str, str] = {}
    for text in texts:
        for path in _all_paths_of(text):
            full_path = _path_in(path, root)
            if full_path is None or full_path == root:
                continue
            target = _resolved(full_path)
            if target is not None and target.is_relative_to(root):
                continue
            name = full_path.relative_to(root).as_posix()
            targets[name] = "a link that leads to itself" if target is None else str(target)
    return targets


def _all_paths_of(text: str) -> Iterator[str]:
    text_with_defaults = _DEFAULT.sub(r"\1", text)  # ../shop.db for ${SHOP_DB:-../shop.db}
    for each in dict.fromkeys((text, text_with_defaults)):
        yield from _paths_of(each.strip())


def _is_outside(path: str, root: Path) -> bool:
    if "\n" in path or "\0" in path:  # no path has several lines or a NUL
        return False
    if os.name != "nt" and _WINDOWS_DRIVE.match(path):
        return True  # on Windows, this path may be anywhere
    # is_relative_to() of Python 3.12 takes minutes for a path of many thousand folders.
    first_parts = _joined(path, root).parts[: len(root.parts)]
    return first_parts != root.parts


def _path_in(path: str, root: Path) -> Path | None:
    """Return the full path for a path in a text, without following links.

    Return None for a full path outside of ``root``, and for a text that cannot be a path.
    """
    if not path or len(path) > _MAX_PATH_LENGTH or not path.isprintable():
        return None
    full_path = _joined(path, root)
    return full_path if full_path.is_relative_to(root) else None


def _joined(path: str, root: Path) -> Path:
    return Path(os.path.normpath(root / expand_home(path)))


def _resolved(path: Path) -> Path | None:
    """Return a path without links; None if its links have no end."""
    try:
        real_path = path.resolve()
    except (OSError, RuntimeError):  # an endless link, before Python 3.13
        return None
    try:
        real_path.stat()
    except OSError as error:
        # From Python 3.13 on, resolve() returns an endless link as if it were inside the folder.
        if error.errno == errno.ELOOP:
            return None
    return real_path


def _paths_of(text: str) -> Iterator[str]:
    """Yield the paths that a text can mean.

    For the address of a file, or of a database in a file, such as ``sqlite:///data.db``, yield the
    paths in the address. Yield any other text unchanged, even a text with a colon: ``https:`` may
    be the name of a folder.
    """
    scheme, separator, address = text.partition(":")
    if not separator or not is_local(scheme):
        yield text
    elif scheme.lower() == "file":
        yield from _paths_of_file_address(address)
    elif address.startswith("//"):
        yield from _paths_of_database_address(address)
    else:
        yield text


def _paths_of_file_address(address: str) -> Iterator[str]:
    """Yield the paths that a ``file:`` address can mean, given without the ``file:``."""
    # ``//localhost/data.db`` is ``/data.db``. With another host, ``//nas/data.db`` stays.
    yield from _possible_paths(_LOCAL_HOST.sub("", address))


def _paths_of_database_address(address: str) -> Iterator[str]:
    """Yield the paths that a ``sqlite:`` address can mean, given without the ``sqlite:``."""
    # ``///data.db`` is the relative path ``data.db``, and ``////data.db`` is ``/data.db``.
    path_part = address.removeprefix("//").removeprefix("/")
    for path in _possible_paths(path_part):
        scheme, separator, inner_address = path.partition(":")
        if separator and scheme.lower() == "file":  # as in sqlite:///file:data.db
            yield from _paths_of_file_address(inner_address)
        else:
            yield path


def _possible_paths(path: str) -> Iterator[str]:
    """Yield the paths of files that the path in a URL can mean.

    A percent sign or question mark may belong to a file's name, or may begin a percent-encoded
    character or the URL's options.
    """
    path_before_options, _, _ = path.partition("?")
    readings = (path, unquote(path), path_before_options, unquote(path_before_options))
    for reading in dict.fromkeys(readings):
        if reading.startswith("${"):
            yield f"/{reading}"  # the variable may hold an absolute path, even after ``sqlite:///``
        elif _WINDOWS_DRIVE.match(reading, 1):  # ``/C:/data.db``, from ``file:///C:/data.db``
            yield reading.removeprefix("/")
        else:
            yield reading


def is_local(scheme: str) -> bool:
    """Return True if addresses with a scheme, such as ``sqlite``, name local files.

    A driver in the scheme, as in ``sqlite+pysqlite``, does not matter.
    """
    return scheme.lower().partition("+")[0] in _LOCAL_SCHEMES
