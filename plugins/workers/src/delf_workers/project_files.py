"""The files of a project that define its workers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from delf.trust.folders import UntrustedFolder, is_file, leaves, read_file, texts_in

SUFFIX: Final = ".worker"
MAIN: Final = "main"
"""The worker that may lie in the project's own folder, as in a program of llm-do."""
FOLDER: Final = "workers"
GENERATED: Final = "generated"
INSIDE: Final = f"worker{SUFFIX}"
_TOOLS: Final = "tools.py"
_PARTS: Final = frozenset({SUFFIX, ".py", ".md", ".txt", ".json", ".jinja", ".jinja2", ".j2"})
"""Suffixes of a worker's parts: code, and included instructions."""


def project_files(folder: UntrustedFolder) -> Iterator[Path]:
    """Yield the workers of a project, and the neighbouring files that they use."""
    paths = [*_main_worker(folder), *_in_folders(folder)]
    yield from paths
    if paths and is_file(folder.root / _TOOLS):
        yield folder.root / _TOOLS


def _main_worker(folder: UntrustedFolder) -> Iterator[Path]:
    """Yield the worker in the project's own folder, and the neighbouring files that it names."""
    main = folder.root / f"{MAIN}{SUFFIX}"
    text = read_file(main, folder.root)
    if text is None:
        return
    yield main
    for path in folder.files_of(folder.root):
        if path.suffix in _PARTS and path.name.encode() in text:
            yield path


def _in_folders(folder: UntrustedFolder) -> Iterator[Path]:
    """Yield the workers of the configured folders, and of the default one."""
    places = {folder.root / FOLDER: None}
    for keys, value in leaves(folder.document):
        if keys[0] == "connections" and keys[2:3] == ("folders",):
            for text in texts_in(value):
                if path := folder.resolve_path(text):
                    places[path] = None
    for place in places:
        for root in (place, place / GENERATED):
            inner = [each for each in folder.folders_of(root) if is_file(each / INSIDE)]
            for each in (root, *inner):
                files = folder.files_of(each)
                if any(path.suffix == SUFFIX for path in files):
                    yield from (path for path in files if path.suffix in _PARTS)
