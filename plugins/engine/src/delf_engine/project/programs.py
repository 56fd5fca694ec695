"""The files of a folder that a program started by its settings could run or import.

A command line does not show what its program loads: ``python -m server`` runs ``server.py`` of the
folder, which imports its neighbours; ``npx`` looks into ``node_modules``, ``uv run`` into
``pyproject.toml``. So every file of the folder counts, except data.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, cast

from delf.errors import ConfigurationError
from delf.trust.folders import leaves

_STARTING: Final = frozenset(
    {"args", "argv", "arguments", "cmd", "command", "commands", "entrypoint", "exec", "executable"}
    | {"program", "run", "script"}
)
"""Keys of settings that hold a program or its arguments."""
_CODE: Final = frozenset(
    {".bat", ".cjs", ".cmd", ".exe", ".jar", ".js", ".mjs", ".php", ".pl", ".ps1", ".py", ".pyz"}
    | {".rb", ".sh", ".ts", ".wasm"}
)
_NAMED_IN: Final = (b'"command"', b"command:", b"command =", b"'command'")
"""Texts by which a settings file, such as mcp.json, names a program."""
_SETTINGS: Final = frozenset({".json", ".jsonc", ".toml", ".yaml", ".yml"})
_DATA: Final = frozenset(
    {".arrow", ".csv", ".db", ".docx", ".duckdb", ".eml", ".feather", ".gif", ".ics", ".jpeg"}
    | {".jpg", ".jsonl", ".log", ".md", ".mp3", ".mp4", ".ndjson", ".ods", ".odt", ".parquet"}
    | {".pdf", ".png", ".pptx", ".rst", ".sqlite", ".sqlite3", ".svg", ".tsv", ".txt", ".wav"}
    | {".webp", ".xls", ".xlsx"}
)
"""Suffixes of data and prose, which no program executes and which change often."""
_DATA_SUFFIXES: Final = ("-journal", "-shm", "-wal")
"""Suffixes of files that a database creates next to its own."""
_DECIDING: Final = ("requirements", "constraints")
"""Prefixes of text files that declare which packages are installed."""
_LEFT_OUT: Final = frozenset(
    {".git", ".hg", ".jj", ".svn", "__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache"}
)
"""Folders from which no program loads code by itself, such as ``.git``."""
_INSTALLED: Final = frozenset({"node_modules", "site-packages", ".venv", "venv"})
_ENVIRONMENT: Final = "pyvenv.cfg"
_MAX_READ: Final = 1000
"""The maximum number of files that are digested one by one."""
_MAX_BYTES: Final = 20_000_000
"""The maximum number of bytes read for digests."""
_MAX_SEEN: Final = 200_000
"""The maximum number of files and folders visited."""
REST: Final = "(the other files)"
"""The entry for all files that are too many or too large to digest at each start."""


def starts_program(document: Mapping[str, Any], paths: list[Path], words: list[str]) -> bool:
    """Return True if the settings of a folder start a program, or may do so.

    Args:
        document: The content of ``delf.toml``.
        paths: Files that the settings name.
        words: Names of the variables in ``.env``.
    """
    for path, value in leaves(document):
        if path[0] in ("connections", "plugins") and not _STARTING.isdisjoint(path[1:]) and value:
            return True
    if any(name.lower().rpartition("_")[2] in _STARTING for name in words):
        return True
    return any(_is_program(path) for path in paths)


def _is_program(path: Path) -> bool:
    """Return True for a file of code, or a file that names a program."""
    if path.suffix in _CODE or os.access(path, os.X_OK):
        return True
    if path.suffix not in _SETTINGS:
        return False
    try:
        content = path.read_bytes()[:_MAX_BYTES]
    except OSError:
        return True
    return any(words in content for words in _NAMED_IN)


def files_of_programs(
    root: Path, programs: Mapping[str, object], data: frozenset[Path] = frozenset()
) -> dict[str, Mapping[str, str]]:
    """Return the digests of all files that a program in a folder could run or import.

    Args:
        root: The folder.
        programs: The files that have a digest already.
        data: Files and folders that the settings declare as data; code among them still counts.

    Returns:
        The digests by path. Installed packages have one digest of modification times for each
            folder, and files beyond the limits have one under :data:`REST`.

    Raises:
        ConfigurationError: If the folder has too many files.
    """
    files_by_program: dict[str, Mapping[str, str]] = {}
    rest = hashlib.sha256()
    remaining_bytes, has_rest = _MAX_BYTES, False
    for path, status in _files(root):
        name = path.relative_to(root).as_posix()
        if name in programs or (status is not None and _is_data(path, data)):
            continue
        if status is None:  # a folder of installed packages
            files_by_program[f"{name}/"] = {"": _mark_of_tree(path)}
        elif stat.S_ISLNK(status.st_mode):
            files_by_program[name] = {"": _digest(b"link " + os.fsencode(path.readlink()))}
        elif len(files_by_program) < _MAX_READ and status.st_size <= remaining_bytes:
            remaining_bytes -= status.st_size
            files_by_program[name] = {"": _digest(_content(path))}
        else:
            has_rest = True
            rest.update(_mark(name, status))
    if has_rest:
        files_by_program[REST] = {"": rest.hexdigest()}
    return files_by_program


def _files(root: Path) -> Iterator[tuple[Path, os.stat_result | None]]:
    """Yield each file and link with its status; a folder of installed packages with None."""
    count = 0
    pending = [root]
    while pending:
        folder = pending.pop()
        for entry in _entries(folder):
            count += 1
            if count > _MAX_SEEN:
                raise ConfigurationError(
                    f"{root} has more than {_MAX_SEEN:,} files, and its settings start a program "
                    "that may load any of these",
                    hint="put delf.toml and the program in a folder of their own",
                )
            path = Path(entry.path)
            if entry.is_dir(follow_symlinks=False):
                if entry.name in _INSTALLED or (path / _ENVIRONMENT).exists():
                    yield path, None
                elif entry.name not in _LEFT_OUT:
                    pending.append(path)
            else:
                status = entry.stat(follow_symlinks=False)
                if stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode):
                    yield path, status


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError as error:
        raise ConfigurationError(f"{folder} cannot be read: {error.strerror}") from error


def _is_data(path: Path, data: frozenset[Path]) -> bool:
    name = path.name.lower()
    if path.suffix in _SETTINGS and not data.isdisjoint((path, *path.parents)):
        return True
    if name.startswith(_DECIDING):
        return False
    return path.suffix.lower() in _DATA or name.endswith(_DATA_SUFFIXES)


def _mark_of_tree(folder: Path) -> str:
    """Hash the modification times in a folder, because reading all files takes seconds."""
    mark = hashlib.sha256()
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in _LEFT_OUT)
        for name in sorted([*names, *folders]):
            path = os.path.join(place, name)  # noqa: PTH118 - a hundred thousand of them
            try:
                status = os.lstat(path)
            except OSError:
                continue
            if not stat.S_ISDIR(status.st_mode):
                mark.update(_mark(os.path.relpath(path, folder), status))
    return mark.hexdigest()


def _mark(name: str, status: os.stat_result) -> bytes:
    # st_ctime, because programs cannot set it.
    parts = (name, status.st_mode, status.st_size, status.st_ctime_ns, status.st_ino)
    return repr(cast("Any", parts)).encode("utf-8", "surrogateescape")


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from error


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
