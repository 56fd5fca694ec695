"""The skills of some folders: ``NAME/SKILL.md`` with front matter, and further files.

The format is that of https://agentskills.io.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

import yaml

from delf.errors import ConfigurationError, ToolRefusedError
from delf.trust.decisions import Trust, part_of
from delf.trust.folders import read_file
from delf_skills.project_files import AGENTS, SKILL, is_instruction

MAX_BYTES: Final = 10_000_000
"""The maximum number of bytes of a file of a skill."""
_MAX_FILES: Final = 500
_NAME: Final = re.compile(r"[\w.-]{1,64}")
_MARK: Final = "---"


@dataclass(frozen=True, kw_only=True)
class Skill:
    """A skill.

    Args:
        name: The name, the same as the folder's.
        description: The purpose of the skill, and when to use it.
        text: The instructions.
        folder: The folder.
    """

    name: str
    description: str
    text: str
    folder: Path


class Library:
    """The skills of some folders.

    Args:
        folders: The folders, in search order: the first skill of a name counts.
        root: The project's folder, whose instructions must be trusted; None if a program named
            the folders.
        trust: The trust decisions.
    """

    def __init__(self, folders: Sequence[Path], root: Path | None, trust: Trust) -> None:
        self._folders = tuple(folders)
        self._root = root
        self._trust = trust

    def names(self) -> list[str]:
        """Return the names of the skills, sorted."""
        return sorted({place.name for folder in self._folders for place in _skills_in(folder)})

    def find(self, name: str) -> Skill:
        """Return a skill.

        Raises:
            ToolRefusedError: If there is no skill of that name.
            ConfigurationError: If the skill's file violates the format.
            FolderNotTrustedError: If the skill's file is not trusted.
        """
        path = self._folder(name) / SKILL
        return skill_of(path, self._read_trusted(path))

    def files(self, name: str) -> list[str]:
        """Return the paths of a skill's further files, within its folder."""
        folder = self._folder(name)
        paths = (path.relative_to(folder).as_posix() for path in _files_in(folder))
        return sorted(path for path in paths if path != SKILL)[:_MAX_FILES]

    def read(self, name: str, file: str) -> tuple[bytes, bool]:
        """Return a file of a skill, and True if the content is trusted instructions.

        Args:
            name: The skill.
            file: The path within its folder.

        Raises:
            ToolRefusedError: If there is no such file in the folder of the skill.
            FolderNotTrustedError: If instructions are not trusted.
        """
        folder = self._folder(name)
        path = Path(os.path.normpath(folder / file))
        if not path.is_relative_to(folder):
            raise ToolRefusedError(f"{file[:200]!r} leads out of the skill {name!r}")
        if is_instruction(path):
            return self._read_trusted(path), True
        return self._content(path), False

    def agents(self) -> str | None:
        """Return the project's AGENTS.md; None without one.

        Raises:
            FolderNotTrustedError: If it is not trusted.
        """
        if self._root is None or not (self._root / AGENTS).is_file():
            return None
        return self._read_trusted(self._root / AGENTS).decode("utf-8", "replace")

    def _folder(self, name: str) -> Path:
        for folder in self._folders:
            for place in _skills_in(folder):
                if place.name == name:
                    return place
        names = ", ".join(self.names()) or "none"
        raise ToolRefusedError(f"there is no skill {name[:80]!r}. Skills: {names}")

    def _read_trusted(self, path: Path) -> bytes:
        content = self._content(path)
        # Use the checked bytes, because the file may change after the check.
        if self._root is not None:
            self._trust.check(self._root, part_of(path, content, self._root))
        return content

    def _content(self, path: Path) -> bytes:
        within = next((f for f in self._folders if path.is_relative_to(f)), path.parent)
        content = read_file(path, within, MAX_BYTES)
        if content is None:
            raise ToolRefusedError(f"there is no file {path.name!r} there")
        return content


def skill_of(path: Path, content: bytes) -> Skill:
    """Parse the file of a skill.

    Args:
        path: The file ``SKILL.md``.
        content: The bytes.

    Raises:
        ConfigurationError: If the file is invalid; the error names the file and the fault.
    """
    text = content.decode("utf-8-sig", "replace").replace("\r\n", "\n")
    begin, mark, rest = text.partition(f"\n{_MARK}")
    if not begin.startswith(f"{_MARK}\n") or not mark or rest[:1] not in ("", "\n"):
        raise ConfigurationError(f"{path}: it begins with {_MARK}, fields, and {_MARK}")
    try:
        table: Any = yaml.safe_load(begin.removeprefix(f"{_MARK}\n"))
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: an invalid date
        mark_at: Any = getattr(error, "problem_mark", None)
        line = "" if mark_at is None else f", line {mark_at.line + 2}"
        raise ConfigurationError(f"{path}{line}: the front matter is not YAML") from None
    fields = cast("dict[str, Any]", table) if isinstance(table, dict) else {}
    description = fields.get("description")
    if not isinstance(description, str) or not description.strip():
        raise ConfigurationError(f"{path}: the front matter has no description")
    return Skill(
        name=path.parent.name,  # the front matter's name may differ
        description=" ".join(description.split()),
        text=rest.strip(),
        folder=path.parent,
    )


def _skills_in(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    places = (place for place in sorted(folder.iterdir()) if _NAME.fullmatch(place.name))
    return [place for place in places if (place / SKILL).is_file()]


def _files_in(folder: Path) -> Iterator[Path]:
    for place, inner, files in os.walk(folder):
        inner[:] = sorted(name for name in inner if not name.startswith("."))
        yield from (Path(place) / name for name in sorted(files))
