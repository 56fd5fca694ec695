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
from delf.trust.decisions import Trust, whole_file_items
from delf.trust.folders import entries_of, has_file, read_file
from delf_skills.project_files import AGENTS, SKILL, is_instruction

MAX_BYTES: Final = 10_000_000
"""The maximum size of any file of a skill, in bytes."""
_MAX_FILES: Final = 500
_NAME: Final = re.compile(r"[\w.-]{1,64}")
_FRONT_MATTER_MARK: Final = "---"


@dataclass(frozen=True, kw_only=True)
class Skill:
    """A skill: instructions for a kind of task.

    Args:
        name: The name of the skill, which is the name of its folder.
        description: The purpose of the skill, and when to use the skill.
        text: The instructions in ``SKILL.md``.
        folder: The folder of the skill.
    """

    name: str
    description: str
    text: str
    folder: Path


class Library:
    """The skills in some folders.

    Args:
        folders: The folders that contain the folders of skills. Of skills with the same name, the
            skill in the first folder counts.
        root: The project's folder, whose instructions the user must trust; None if a program gave
            the folders, which need no trust.
        trust: The user's trust decisions.
    """

    def __init__(self, folders: Sequence[Path], root: Path | None, trust: Trust) -> None:
        self._folders = tuple(folders)
        self._root = root
        self._trust = trust

    def names(self) -> list[str]:
        """Return the names of the skills, sorted."""
        return sorted({skill.name for folder in self._folders for skill in _skill_folders(folder)})

    def find(self, name: str) -> Skill:
        """Return the skill with a name.

        Raises:
            ToolRefusedError: If there is no skill with the name.
            ConfigurationError: If the skill's file violates the format.
            FolderNotTrustedError: If the skill's file is not trusted.
        """
        path = self._folder_of(name) / SKILL
        return skill_of(path, self._read_trusted(path))

    def files(self, name: str) -> list[str]:
        """Return the paths of the files besides ``SKILL.md``, relative to the skill's folder."""
        folder = self._folder_of(name)
        paths = (path.relative_to(folder).as_posix() for path in _files_in(folder))
        return sorted(path for path in paths if path != SKILL)[:_MAX_FILES]

    def read(self, name: str, file: str) -> bytes:
        """Return the content of a file of a skill.

        Args:
            name: The name of the skill.
            file: The path of the file, relative to the skill's folder.

        Raises:
            ToolRefusedError: If the folder of the skill has no such file.
            FolderNotTrustedError: If the file is instructions that are not trusted.
        """
        folder = self._folder_of(name)
        path = Path(os.path.normpath(folder / file))
        if not path.is_relative_to(folder):
            raise ToolRefusedError(f"{file[:200]!r} leads out of the skill {name!r}")
        if is_instruction(path):
            return self._read_trusted(path)
        return self._content(path)

    def agents(self) -> str | None:
        """Return the text of the project's AGENTS.md; None if the project has no such file.

        Raises:
            ConfigurationError: If the file is not UTF-8.
            FolderNotTrustedError: If the file is not trusted.
        """
        if self._root is None or not (self._root / AGENTS).is_file():
            return None
        return text_of(self._root / AGENTS, self._read_trusted(self._root / AGENTS))

    def _folder_of(self, name: str) -> Path:
        """Return the folder of a skill: of several with the same name, the first.

        Raises:
            ToolRefusedError: If there is no such skill.
        """
        for folder in self._folders:
            for skill_folder in _skill_folders(folder):
                if skill_folder.name == name:
                    return skill_folder
        names = ", ".join(self.names()) or "none"
        raise ToolRefusedError(f"there is no skill {name[:80]!r}. Skills: {names}")

    def _read_trusted(self, path: Path) -> bytes:
        content = self._content(path)
        # The same bytes are checked and returned, because the file may change in between.
        if self._root is not None:
            self._trust.check(self._root, whole_file_items(path, content, self._root))
        return content

    def _content(self, path: Path) -> bytes:
        """Return the content of a skill's file or AGENTS.md; refuse a link that leads elsewhere."""
        # A link must not lead out of its folder of skills. For AGENTS.md, which is in no such
        # folder, a link must not lead out of the project's root.
        allowed_folder = next((f for f in self._folders if path.is_relative_to(f)), path.parent)
        content = read_file(path, allowed_folder, MAX_BYTES)
        if content is None:
            raise ToolRefusedError(f"there is no file {path.name!r} in {path.parent.name!r}")
        return content


def text_of(path: Path, content: bytes) -> str:
    """Return the text of a file with instructions.

    Raises:
        ConfigurationError: If the file is not UTF-8.
    """
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ConfigurationError(f"{path} is not UTF-8 text") from None


def skill_of(path: Path, content: bytes) -> Skill:
    """Parse the content of a file ``SKILL.md``.

    Args:
        path: The path of the file.
        content: The bytes of the file.

    Raises:
        ConfigurationError: If the file is invalid; the message names the file and the fault.
    """
    text = text_of(path, content).replace("\r\n", "\n")
    front_matter, end_mark, rest = text.partition(f"\n{_FRONT_MATTER_MARK}")
    begins_with_mark = front_matter.startswith(f"{_FRONT_MATTER_MARK}\n")
    is_end_mark_a_line = rest == "" or rest.startswith("\n")  # false for "----" or "--- text"
    if not begins_with_mark or not end_mark or not is_end_mark_a_line:
        raise ConfigurationError(
            f"{path}: the file must begin with fields between two lines {_FRONT_MATTER_MARK}"
        )
    try:
        table: Any = yaml.safe_load(front_matter.removeprefix(f"{_FRONT_MATTER_MARK}\n"))
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: an invalid date
        position: Any = getattr(error, "problem_mark", None)
        # The parser counts from 0, and the line with the first mark was removed.
        line = "" if position is None else f", line {position.line + 2}"
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


def _skill_folders(folder: Path) -> list[Path]:
    named_folders = (path for path in entries_of(folder) if _NAME.fullmatch(path.name))
    return [path for path in named_folders if has_file(path, SKILL)]


def _files_in(folder: Path) -> Iterator[Path]:
    for parent, subfolders, files in os.walk(folder):
        subfolders[:] = sorted(name for name in subfolders if not name.startswith("."))
        yield from (Path(parent) / name for name in sorted(files))
