"""The files of a project that are instructions: ``AGENTS.md``, and the Markdown of skills."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

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
    root = folder.root.resolve()
    skill_parents = {folder.root / name: None for name in SKILL_FOLDERS}  # an ordered set
    for keys, value in leaves(folder.document):
        if keys[0] != "connections":
            continue
        setting = keys[2:]  # without "connections" and the connection's name
        if setting == ("type",) and value == "skills" and is_file(folder.root / AGENTS):
            yield folder.root / AGENTS
        if setting[:1] == ("folders",):
            for text in texts_in(value):
                if path := folder.resolve_path(text):
                    skill_parents[path] = None
    remaining_files = _MAX_FILES
    for skill_parent in skill_parents:
        for skill_folder in folder.folders_of(skill_parent):
            if is_file(skill_folder / SKILL):
                for path in _markdown_files(folder, skill_folder, depth=0):
                    if remaining_files and path.resolve().is_relative_to(root):
                        remaining_files -= 1
                        yield path


def _markdown_files(folder: UntrustedFolder, parent: Path, depth: int) -> Iterator[Path]:
    yield from (path for path in folder.files_of(parent) if is_instruction(path))
    if depth < _MAX_DEPTH:
        for subfolder in folder.folders_of(parent):
            yield from _markdown_files(folder, subfolder, depth + 1)
