"""Safe reading of a project folder's files before the folder is trusted.

An untrusted folder may contain a pipe that never ends, a link to a secret elsewhere, or a huge
file.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any, Final, cast

from delf.errors import ConfigurationError
from delf.machine.folders import expand_home
from delf.machine.own_files import READ_FLAGS
from delf.records import dataclass

CONFIG_FILE: Final = "delf.toml"
ENV_FILE: Final = ".env"

MAX_BYTES: Final = 256 * 1024
"""The maximum number of bytes of a settings file that is read."""

_REPOSITORIES: Final = (".git", ".hg", ".jj", ".svn")
_QUOTED: Final = re.compile(r'"(?:[^"\\]|\\.)*"|\'[^\']*\'')
# Matches a key that TOML allows without quotes.
_BARE_KEY: Final = re.compile(r"[A-Za-z0-9_-]+")
_MAX_DOTS: Final = 100
_LONGEST_PATH: Final = 1000


def working_folder() -> Path:
    """Return the working directory; if it was removed, a path at which no file can exist.

    A service may go on running after a new release has removed the folder of the old one.
    """
    try:
        return Path.cwd()
    except FileNotFoundError:
        return Path(os.devnull) / "the working directory does not exist any more"


def project_folder(start: Path) -> Path:
    """Return the nearest folder with a ``delf.toml``, from a folder upwards.

    If no such folder is found, return ``start``. The search ends at the root of the repository;
    outside of a repository it ends where folders belong to another user. The search never reaches
    the home folder or above, because a ``delf.toml`` there applies only to work in that folder.

    Args:
        start: The folder in which the search starts.
    """
    start = start.resolve()
    for folder in _upwards(start):
        if is_file(folder / CONFIG_FILE):
            return folder
    return start


def _upwards(start: Path) -> Iterator[Path]:
    """Yield a folder and those of its parents that may belong to the same project."""
    repository = _repository_of(start)
    home = _home()
    yield start
    if start == repository:
        return
    for parent in start.parents:
        is_home_or_above = home is not None and home.is_relative_to(parent)
        if is_home_or_above:
            return
        # Outside of a repository, a project does not continue in another user's folder.
        if repository is None and not _is_own(parent):
            return
        yield parent
        if parent == repository:
            return


def _repository_of(folder: Path) -> Path | None:
    """Return the root of the repository that contains a folder; None outside of a repository."""
    for candidate in (folder, *folder.parents):
        if _is_repository(candidate):
            return candidate
    return None


def _is_repository(folder: Path) -> bool:
    return any(os.path.lexists(folder / name) for name in _REPOSITORIES)


def _is_own(folder: Path) -> bool:
    try:
        return folder.stat().st_uid == os.geteuid()
    except OSError:
        return False


def _home() -> Path | None:
    home = expand_home("~")  # "~" itself if the user has no home folder
    return home.resolve() if home.is_absolute() else None


def is_file(path: Path) -> bool:
    """Return whether a path is a regular file or a link to one, even if unreadable."""
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except (OSError, ValueError):
        return False


def has_file(folder: Path, name: str) -> bool:
    """Return whether a folder has a file; True, too, for a folder that may not be searched.

    Reading the file then raises an error with its path.
    """
    try:
        return stat.S_ISREG((folder / name).stat().st_mode)
    except PermissionError:
        return True
    except (OSError, ValueError):
        return False


def entries_of(folder: Path) -> list[Path]:
    """Return the paths of a folder's files and subfolders, sorted; none if there is no folder.

    Raises:
        ConfigurationError: If the folder cannot be read.
    """
    try:
        return sorted(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise ConfigurationError(f"{folder} cannot be read: {error.strerror}") from error


def read_file(path: Path, root: Path, max_bytes: int = MAX_BYTES) -> bytes | None:
    """Return the content of a file in a folder; None if it is not a regular file.

    Args:
        path: The file.
        root: The folder, which no link may lead out of.
        max_bytes: The maximum size of the file in bytes.

    Raises:
        ConfigurationError: If the file is too large, leads out of the folder, or cannot be read.
    """
    if not has_file(path.parent, path.name):
        return None
    real_path = path.resolve()
    if not real_path.is_relative_to(root.resolve()):
        raise ConfigurationError(
            f"{path} is a link out of its folder",
            hint="put the file itself there; a file elsewhere is named with --config",
        )
    try:
        with os.fdopen(os.open(real_path, READ_FLAGS), "rb") as file:
            # Since the check above, the file may have been replaced, for example by a pipe.
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return None
            content = file.read(max_bytes + 1)
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from error
    if len(content) > max_bytes:
        raise ConfigurationError(f"{path} has more than {max_bytes // 1024:,} KiB")
    return content


def parse_toml(text: str) -> dict[str, Any]:
    """Parse a TOML document.

    Raises:
        ValueError: If the text is not TOML, or is nested too deeply.
    """
    import tomllib

    # The parser needs quadratic time and memory for a key with many dots. Dots in quoted strings do
    # not count. But in a text with multi-line strings, all dots count, because a quote may end a
    # string that an earlier line has begun.
    has_multiline = '"""' in text or "'''" in text
    for number, line in enumerate(text.split("\n"), 1):
        if line.count(".") <= _MAX_DOTS:
            continue
        counted_text = line if has_multiline else _QUOTED.sub("", line)
        if counted_text.count(".") > _MAX_DOTS:
            raise ValueError(f"there are too many dots (at line {number}, column 1)")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply (at end of document)") from None


def values_by_path(document: Mapping[str, Any]) -> dict[str, str]:
    """Return the values of a TOML document as JSON, by their dotted keys."""
    return {
        path_text(path): json.dumps(value, sort_keys=True, default=repr, ensure_ascii=False)
        for path, value in leaves(document)
    }


def leaves(document: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield each value of a TOML document with its path of keys.

    Lists and empty tables are values; other tables are not.
    """
    pending: list[tuple[tuple[str, ...], Any]] = [((), document)]
    while pending:
        path, value = pending.pop()
        is_document = not path  # an empty document has no values, unlike an empty table
        if isinstance(value, Mapping) and (value or is_document):
            table = cast("Mapping[str, Any]", value)
            inner = [((*path, key), item) for key, item in table.items()]
            pending += reversed(inner)  # the last item is taken first
        else:
            yield path, value


def path_text(path: tuple[str, ...]) -> str:
    """Return a path of keys as a dotted key of TOML."""
    return ".".join(key if _BARE_KEY.fullmatch(key) else json.dumps(key) for key in path)


def texts_in(value: Any) -> Iterator[str]:
    """Yield all strings in a value of a TOML document, at any depth, in their order."""
    pending = [value]  # the last item is taken first, so parts are added in reversed order
    while pending:
        item = pending.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, Mapping):
            pending += reversed(list(cast("Mapping[Any, Any]", item).values()))
        elif isinstance(item, (list, tuple)):
            pending += reversed(cast("list[Any]", item))


@dataclass(frozen=True, kw_only=True)
class UntrustedFolder:
    """An untrusted project folder, for plugins that look for their files.

    Args:
        root: The folder's real path.
        document: The contents of its ``delf.toml``, with variable references expanded.
        variables: The variables of its ``.env`` file.
    """

    root: Path
    document: Mapping[str, Any] = field(repr=False)
    variables: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)

    def resolve_path(self, text: str) -> Path | None:
        """Resolve a path within the folder; None for a URL or a path outside of the folder."""
        if not text or len(text) > _LONGEST_PATH:
            return None
        is_url = "://" in text
        if is_url or not text.isprintable():
            return None
        path = Path(os.path.normpath(self.root / expand_home(text)))
        return path if self._is_inside(path) else None

    def files_of(self, path: Path) -> list[Path]:
        """Return the regular files of a folder, sorted; none for a folder outside the project."""
        return [item for item in self._files_within(path) if is_file(item)]

    def folders_of(self, path: Path) -> list[Path]:
        """Return the subfolders of a folder, sorted; none for a folder outside the project."""
        return [item for item in self._files_within(path) if item.is_dir()]

    def _files_within(self, path: Path) -> list[Path]:
        return entries_of(path) if self._is_inside(path) else []

    def _is_inside(self, path: Path) -> bool:
        # Path.resolve() raises for a link that leads back to itself.
        real_path = Path(os.path.realpath(path))
        return path.is_relative_to(self.root) and real_path.is_relative_to(self.root)
