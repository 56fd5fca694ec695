"""The files of a project that are instructions: ``AGENTS.md``, and the Markdown of skills."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Final

from delf.trust.folders import UntrustedFolder, is_file, leaves, texts_in

SKILL_FOLDERS: Final = ("skills", ".agents/skills", ".claude/skills")
"""The folders of a project that may contain folders of skills, in search order."""
SKILL: Final = "SKILL.md"
AGENTS: Final = "AGENTS.md"
_MAX_FILES: Final = 1_000
_MAX_DEPTH: Final = 5


def is_instruction(path: Path) -> bool:
    """Return True if a file of a skill is instructions (Markdown), and not data."""
    return path.suffix.lower() == ".md"


def project_files(folder: UntrustedFolder) -> Iterator[Path]:
    """Yield the files of a project that the user must trust as instructions.

    The files are the Markdown files of skills and, if a connection of the type ``skills`` is
    configured, ``AGENTS.md``. Without such a connection, ``AGENTS.md`` is for other programs. Links
    out of the project are skipped, because the plugin ``skills`` refuses to read through them.
    """
    if _has_skills_connection(folder) and is_file(folder.root / AGENTS):
        yield folder.root / AGENTS
    yield from islice(_files_of_skills(folder), _MAX_FILES)


def _has_skills_connection(folder: UntrustedFolder) -> bool:
    return any(
        setting == "type" and value == "skills" for setting, value in _connection_settings(folder)
    )


def _connection_settings(folder: UntrustedFolder) -> Iterator[tuple[str, Any]]:
    """Yield each value in the settings of connections, with the name of the top-level setting.

    For a value at ``connections.mail.trust.orders``, the name is ``trust``.
    """
    for keys, value in leaves(folder.document):
        match keys:
            case ("connections", _, top_level_setting, *_):
                yield top_level_setting, value
            case _:
                pass


def _files_of_skills(folder: UntrustedFolder) -> Iterator[Path]:
    """Yield the Markdown files of all skills, except those outside of the project."""
    root = folder.root.resolve()
    for skill_parent in _skill_parents(folder):
        for skill_folder in folder.folders_of(skill_parent):
            if is_file(skill_folder / SKILL):
                for path in _markdown_files(folder, skill_folder, depth=0):
                    if path.resolve().is_relative_to(root):
                        yield path


def _skill_parents(folder: UntrustedFolder) -> Iterable[Path]:
    """Return the folders that may contain folders of skills, in search order, each once."""
    parents = [folder.root / name for name in SKILL_FOLDERS]
    for setting, value in _connection_settings(folder):
        if setting == "folders":
            paths = map(folder.resolve_path, texts_in(value))
            parents += [path for path in paths if path is not None]
    return dict.fromkeys(parents)


def _markdown_files(folder: UntrustedFolder, parent: Path, depth: int) -> Iterator[Path]:
    yield from (path for path in folder.files_of(parent) if is_instruction(path))
    if depth < _MAX_DEPTH:
        for subfolder in folder.folders_of(parent):
            yield from _markdown_files(folder, subfolder, depth + 1)
