"""The files of a project that are instructions: ``AGENTS.md``, and the Markdown of skills."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from delf.trust.folders import UntrustedFolder, is_file, leaves, texts_in

FOLDERS: Final = ("skills", ".agents/skills", ".claude/skills")
"""The folders of skills of a project, in the order in which they are searched."""
SKILL: Final = "SKILL.md"
AGENTS: Final = "AGENTS.md"
_MAX: Final = 1_000
"""Markdown files of a project that are looked at."""
_DEEPEST: Final = 5


def is_instruction(path: Path) -> bool:
    """Return whether a file of a skill is instructions; other files are data."""
    return path.suffix.lower() == ".md"


def project_files(folder: UntrustedFolder) -> Iterator[Path]:
    """Yield the Markdown files of skills, and ``AGENTS.md`` if a connection reads skills.

    Many folders have an AGENTS.md that concerns other programs alone. A link out of the project is
    left out: the skill is then listed with this fault, and the others can be read.
    """
    root = folder.root.resolve()
    places = {folder.root / name: None for name in FOLDERS}
    for keys, value in leaves(folder.document):
        reads = keys[0] == "connections" and keys[2:] == ("type",) and value == "skills"
        if reads and is_file(folder.root / AGENTS):
            yield folder.root / AGENTS
        if keys[0] == "connections" and keys[2:3] == ("folders",):
            for text in texts_in(value):
                if path := folder.resolve_path(text):
                    places[path] = None
    remaining = _MAX
    for place in places:
        for skill in folder.folders_of(place):
            if is_file(skill / SKILL):
                for path in _markdown(folder, skill, 0):
                    if remaining and path.resolve().is_relative_to(root):
                        remaining -= 1
                        yield path


def _markdown(folder: UntrustedFolder, place: Path, depth: int) -> Iterator[Path]:
    yield from (path for path in folder.files_of(place) if is_instruction(path))
    if depth < _DEEPEST:
        for inner in folder.folders_of(place):
            yield from _markdown(folder, inner, depth + 1)
