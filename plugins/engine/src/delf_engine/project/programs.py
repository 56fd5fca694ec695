"""The files of a folder that a program started by its settings could run or import.

A command line does not show what its program loads: ``python -m server`` runs ``server.py`` of the
folder, which imports its neighbours; ``npx`` looks into ``node_modules``, ``uv run`` into
``pyproject.toml``. So every file of the folder counts, except data.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, cast

from delf.errors import ConfigurationError
from delf.trust.folders import leaves

# Names of settings whose value is a program or its arguments.
_PROGRAM_SETTINGS: Final = frozenset(
    {"args", "argv", "arguments", "cmd", "command", "commands", "entrypoint", "exec", "executable"}
    | {"program", "run", "script"}
)
_CODE_SUFFIXES: Final = frozenset(
    {".bat", ".cjs", ".cmd", ".exe", ".jar", ".js", ".mjs", ".php", ".pl", ".ps1", ".py", ".pyz"}
    | {".rb", ".sh", ".ts", ".wasm"}
)
# Suffixes of the files that an interpreter loads by name.
_LOADED_SUFFIXES: Final = _CODE_SUFFIXES | {
    ".dll",
    ".dylib",
    ".node",
    ".pth",
    ".pyc",
    ".pyd",
    ".so",
}
# Texts that show that a settings file, such as mcp.json, names a program.
_PROGRAM_KEYS: Final = ('"command"', "command:", "command =", "'command'")
# Matches an escape of an ASCII character in JSON, TOML or YAML, such as ``\u0063``.
_ESCAPE: Final = re.compile(r"\\(?:u00|U000000|x)([0-7][0-9A-Fa-f])")
_SETTINGS_SUFFIXES: Final = frozenset({".json", ".jsonc", ".toml", ".yaml", ".yml"})
# Suffixes of data and text files, which programs do not execute.
_DATA_FILE_SUFFIXES: Final = frozenset(
    {".arrow", ".csv", ".db", ".docx", ".duckdb", ".eml", ".feather", ".gif", ".ics", ".jpeg"}
    | {".jpg", ".jsonl", ".log", ".md", ".mp3", ".mp4", ".ndjson", ".ods", ".odt", ".parquet"}
    | {".pdf", ".png", ".pptx", ".rst", ".sqlite", ".sqlite3", ".svg", ".tsv", ".txt", ".wav"}
    | {".webp", ".xls", ".xlsx"}
)
# Suffixes of data files that an interpreter can run if they are its argument.
_PROSE_SUFFIXES: Final = frozenset({".log", ".md", ".rst", ".txt"})
# Suffixes of the temporary files that SQLite creates beside its database.
_DATABASE_TEMPORARY_SUFFIXES: Final = ("-journal", "-shm", "-wal")
# Prefixes of the names of text files that declare packages to install.
_REQUIREMENTS_PREFIXES: Final = ("requirements", "constraints")
# Names of folders of other programs, whose files change often and are no code.
_CACHE_FOLDERS: Final = frozenset(
    {".hg", ".jj", ".svn", "__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache"}
)
_BYTECODE_FOLDER: Final = "__pycache__"
# A folder that cannot come with a repository, because git adds no file of such a folder.
_GIT_FOLDER: Final = ".git"
# The bytes 4 to 7 of a compiled module that Python compares with the time of its source. Any other
# compiled module has a hash of its source instead, which a stranger can compute as well.
_COMPARES_TIME: Final = b"\0\0\0\0"
_PACKAGE_FOLDERS: Final = frozenset({"node_modules", "site-packages", ".venv", "venv"})
_ENVIRONMENT_FILE: Final = "pyvenv.cfg"
# The maximum number of files that get a digest of their own.
_MAX_DIGESTED_FILES: Final = 1000
# The maximum number of bytes of a settings file in which a program's name is searched, and the
# maximum total number of bytes of files whose content is digested.
_MAX_BYTES: Final = 20_000_000
# The maximum number of files and folders in the tree.
_MAX_ENTRIES: Final = 200_000
OTHER_FILES: Final = "(the other files)"
"""The key under which all files beyond the limits on number and size share one digest."""


def starts_program(
    document: Mapping[str, Any], named_files: list[Path], variables: list[str]
) -> bool:
    """Return True if the settings of a folder start, or may start, a program.

    Args:
        document: The content of ``delf.toml``.
        named_files: The files that the settings name.
        variables: The names of the variables in ``.env``.
    """
    for (section, *keys), value in leaves(document):
        may_name_program = section in ("connections", "plugins") and bool(value)
        if may_name_program and names_program(keys):
            return True
    for name in variables:
        # A variable such as DELF_MAIL_COMMAND may set a connection's setting ``command``.
        last_word = name.lower().rpartition("_")[2]
        if last_word in _PROGRAM_SETTINGS:
            return True
    return any(_is_program(path) for path in named_files)


def _is_program(path: Path) -> bool:
    """Return True for a file with code, and for a settings file that may name a program."""
    if path.suffix.lower() in _CODE_SUFFIXES or os.access(path, os.X_OK):
        return True
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_BYTES + 1)
    except OSError:
        return True  # an unreadable file may name a program
    if len(content) > _MAX_BYTES:
        return True  # a long comment may hide the program behind the part that is read
    # A key may be written with escapes, as in "\u0063ommand".
    text = _ESCAPE.sub(lambda match: chr(int(match[1], 16)), content.decode("utf-8", "replace"))
    return any(key in text for key in _PROGRAM_KEYS)


def names_program(keys: Collection[str]) -> bool:
    """Return True if the value of a setting is a program or a program's argument.

    Args:
        keys: The keys of the setting.
    """
    return not _PROGRAM_SETTINGS.isdisjoint(keys)


def has_data_name(path: Path) -> bool:
    """Return True if a file's name, such as ``a.csv``, shows that the file is data, no program."""
    name = path.name.lower()
    if name.startswith(_REQUIREMENTS_PREFIXES):
        return False
    return path.suffix.lower() in _DATA_FILE_SUFFIXES or name.endswith(_DATABASE_TEMPORARY_SUFFIXES)


def may_be_script(path: Path) -> bool:
    """Return True if a file may be a script for an interpreter, as in ``python tool.py``."""
    return not has_data_name(path) or path.suffix.lower() in _PROSE_SUFFIXES


def files_of_programs(
    root: Path, known_names: Collection[str], data_paths: frozenset[Path] = frozenset()
) -> dict[str, Mapping[str, str]]:
    """Digest all files that a program in a folder could run or import.

    Args:
        root: The folder.
        known_names: The names of files that already have a digest.
        data_paths: The files and folders that the settings declare as data. Files with code in
            these folders get a digest anyway.

    Returns:
        The digests, such as ``{"run.py": {"": "ab12…"}, "venv/": {"": "cd34…"}}``. The inner key
        is empty, because the digest is of the whole file. If the files are too many or too large,
        the rest of them has one common digest under the name :data:`OTHER_FILES`.

    Raises:
        ConfigurationError: If the folder has more than ``_MAX_ENTRIES`` files and folders.
    """
    real_root = root.resolve()
    digests: dict[str, Mapping[str, str]] = {}
    other_metadata = bytearray()  # of the files beyond the limits, which get one common digest
    remaining_bytes = _MAX_BYTES
    for path, status in _files_and_package_folders(root):
        name = path.relative_to(root).as_posix()
        if stat.S_ISDIR(status.st_mode):  # a folder of installed packages
            digests[f"{name}/"] = {"": _metadata_digest(path, real_root)}
            continue
        if name in known_names or _is_only_data(path, data_paths):
            continue
        is_link = stat.S_ISLNK(status.st_mode)
        target = _file_in_folder(path, real_root) if is_link else path
        size = 0 if target is None else target.stat().st_size
        if len(digests) < _MAX_DIGESTED_FILES and size <= remaining_bytes:
            remaining_bytes -= size
            digests[name] = {"": _digest_of_file(path, target, is_link=is_link)}
        else:
            other_metadata += _metadata_of(name, status, target if is_link else None)
    if other_metadata:
        digests[OTHER_FILES] = {"": _digest(other_metadata)}
    return digests


def _files_and_package_folders(root: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Yield the path and the status of each file and link under a folder.

    For a folder of packages, such as ``.venv``, the folder itself is yielded instead of its files.
    Files of caches and of Git are left out.

    Raises:
        ConfigurationError: If there are more than ``_MAX_ENTRIES`` files and folders.
    """
    count = 0
    pending = [root]
    while pending:
        folder = pending.pop()
        for entry in _entries(folder):
            count += 1
            if count > _MAX_ENTRIES:
                raise ConfigurationError(
                    f"{root} has more than {_MAX_ENTRIES:,} files, and its settings start a "
                    "program that may load any of these",
                    hint="put delf.toml and the program in a folder of their own",
                )
            path = Path(entry.path)
            status = entry.stat(follow_symlinks=False)
            if stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode):
                if not _is_cached(path, status, root):
                    yield path, status
            elif not stat.S_ISDIR(status.st_mode):
                continue  # such as a socket
            elif entry.name in _PACKAGE_FOLDERS or os.path.lexists(path / _ENVIRONMENT_FILE):
                yield path, status
            elif entry.name != _GIT_FOLDER:
                pending.append(path)


def _is_cached(path: Path, status: os.stat_result, root: Path) -> bool:
    """Return True for a file in a cache folder, unless a stranger may have put code in the file."""
    folders = path.relative_to(root).parts[:-1]
    if stat.S_ISLNK(status.st_mode) or _CACHE_FOLDERS.isdisjoint(folders):
        return False
    if path.suffix == ".pyc" and path.parent.name == _BYTECODE_FOLDER:
        flags = _content(path, 8)[4:]
        # With these flags, Python runs the module only if the module has the time of its source
        # file. The author of a repository cannot know this time, the time of the user's checkout.
        return flags == _COMPARES_TIME
    return path.suffix.lower() not in _LOADED_SUFFIXES


def _file_in_folder(link: Path, real_root: Path) -> Path | None:
    """Return the target of a link if the target is a file in ``real_root``, else None."""
    target = Path(os.path.realpath(link))
    if not target.is_relative_to(real_root):
        return None
    # Path.is_file() raises for a folder that may not be searched.
    return target if os.path.isfile(target) else None  # noqa: PTH113


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError as error:
        raise ConfigurationError(f"{folder} cannot be read: {error.strerror}") from error


def _digest_of_file(path: Path, target: Path | None, *, is_link: bool) -> str:
    """Return the digest of a file's content; for a link, also of the link's destination."""
    # A link that leads elsewhere needs trust again, even if the content is the same.
    link = b"link %b " % os.fsencode(path.readlink()) if is_link else b""
    content = b"" if target is None else _content(target)
    return _digest(link + content)


def _is_only_data(path: Path, data_paths: frozenset[Path]) -> bool:
    """Return True if a file is mere data, which no program runs or imports.

    Args:
        path: The file.
        data_paths: The files and folders that the project's settings declare as data.
    """
    is_declared_as_data = not data_paths.isdisjoint((path, *path.parents))
    # A file such as ``options.json`` may have settings of a program, unless it is declared as data.
    return has_data_name(path) or (path.suffix in _SETTINGS_SUFFIXES and is_declared_as_data)


def _metadata_digest(folder: Path, real_root: Path) -> str:
    """Hash the metadata of all files in a folder, because reading the files would take seconds.

    For a link to a file in the project's folder, the metadata of that file are included.
    """
    digest = hashlib.sha256()
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted({*folders} - _CACHE_FOLDERS - {_GIT_FOLDER})
        for name in sorted([*names, *folders]):
            path = os.path.join(parent, name)  # noqa: PTH118 - faster than Path for 100,000 files
            try:
                status = os.lstat(path)
            except OSError:
                continue
            # ``folders`` includes links to folders, which os.walk() does not enter: hash these.
            is_folder = stat.S_ISDIR(status.st_mode)
            if not is_folder:
                is_link = stat.S_ISLNK(status.st_mode)
                target = _file_in_folder(Path(path), real_root) if is_link else None
                digest.update(_metadata_of(os.path.relpath(path, folder), status, target))
    return digest.hexdigest()


def _metadata_of(name: str, status: os.stat_result, target: Path | None = None) -> bytes:
    """Return the metadata of a file; for a link, also the metadata of the link's target."""
    # st_ctime, because programs cannot set it.
    parts = (name, status.st_mode, status.st_size, status.st_ctime_ns, status.st_ino)
    metadata = repr(cast("Any", parts)).encode("utf-8", "surrogateescape")
    return metadata if target is None else metadata + _metadata_of("", target.stat())


def _content(path: Path, max_bytes: int = -1) -> bytes:
    """Return the content of a file, or its first bytes."""
    try:
        with path.open("rb") as file:
            return file.read(max_bytes)
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from error


def _digest(content: bytes | bytearray) -> str:
    return hashlib.sha256(content).hexdigest()
