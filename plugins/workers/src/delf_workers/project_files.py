"""The files of a project that define its workers."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final

from delf.trust.folders import UntrustedFolder, is_file, leaves, read_file, texts_in

SUFFIX: Final = ".worker"
MAIN: Final = "main"
"""The name of the worker that may be in the project's own folder, as in llm-do."""
FOLDER: Final = "workers"
GENERATED_FOLDER: Final = "generated"
FILE_IN_FOLDER: Final = f"worker{SUFFIX}"
_TOOLS: Final = "tools.py"
# File name suffixes of workers, their code and their included instructions.
_FILE_SUFFIXES: Final = frozenset(
    {SUFFIX, ".py", ".md", ".txt", ".json", ".jinja", ".jinja2", ".j2"}
)


def project_files(folder: UntrustedFolder) -> Iterator[Path]:
    """Yield the files of a project's workers, and ``tools.py`` if the project has workers."""
    paths = [*_main_worker(folder), *_in_folders(folder)]
    yield from paths
    if paths and is_file(folder.root / _TOOLS):
        yield folder.root / _TOOLS


def _main_worker(folder: UntrustedFolder) -> Iterator[Path]:
    """Yield ``main.worker`` in the project's folder, then the files there that its text names."""
    main = folder.root / f"{MAIN}{SUFFIX}"
    text = read_file(main, folder.root)
    if text is None:
        return
    yield main
    for path in folder.files_of(folder.root):
        if path.suffix in _FILE_SUFFIXES and path.name.encode() in text:
            yield path


def _in_folders(folder: UntrustedFolder) -> Iterator[Path]:
    """Yield the files of workers in the default folder and in configured folders."""
    for worker_folder in _possible_worker_folders(folder):
        files = folder.files_of(worker_folder)
        has_worker = any(path.suffix == SUFFIX for path in files)
        if has_worker:
            yield from (path for path in files if path.suffix in _FILE_SUFFIXES)


def _possible_worker_folders(folder: UntrustedFolder) -> Iterator[Path]:
    """Yield the folders that may directly contain files of workers."""
    for configured in _configured_folders(folder):
        for root in (configured, configured / GENERATED_FOLDER):
            yield root
            # A worker may also be in a subfolder of its own.
            yield from (sub for sub in folder.folders_of(root) if is_file(sub / FILE_IN_FOLDER))


def _configured_folders(folder: UntrustedFolder) -> Collection[Path]:
    """Return the default folder of workers, and the folders in ``connections.NAME.folders``."""
    folders = {folder.root / FOLDER: None}  # a dict, which keeps the order
    for keys, value in leaves(folder.document):
        match keys:
            case ("connections", _, "folders", *_):
                paths = map(folder.resolve_path, texts_in(value))
                folders |= {path: None for path in paths if path is not None}
            case _:
                pass
    return folders
