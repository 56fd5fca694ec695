"""``Skills``: instructions for kinds of tasks, which a script reads when it needs them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Final

from delf import Connection, action
from delf.errors import ConnectionConfigurationError, DelfError, ToolRefusedError
from delf.settings import current_folder, current_trust
from delf_skills.library import Library, text_of
from delf_skills.project_files import SKILL, SKILL_FOLDERS, is_instruction
from delf_skills.settings import SkillsSettings

_MAX_DESCRIBED_SKILLS: Final = 60
_MAX_DESCRIPTION_CHARACTERS: Final = 1024  # the limit of the format
_MIN_DESCRIPTION_CHARACTERS: Final = 300
# The number of characters that all descriptions in a prompt share.
_MAX_DESCRIPTIONS_CHARACTERS: Final = 12_000
_MAX_AGENTS_CHARACTERS: Final = 20_000


class Skills(Connection[SkillsSettings]):
    """Instructions for kinds of tasks, in folders of the open Agent Skills format.

    Args:
        folders: The folders that contain the folders of skills. When omitted, ``skills``,
            ``.agents/skills`` and ``.claude/skills`` of the project.
        agents_md: Whether each prompt contains the project's ``AGENTS.md``.
    """

    context_trust = "own"

    def __init__(self, **options: Any) -> None:
        if options.get("confirm") is None:
            options["confirm"] = False  # the actions only read
        super().__init__(**options)
        missing = next((p for p in self.settings.folders if not Path(p).is_dir()), None)
        if missing is not None:
            raise ConnectionConfigurationError(
                f"{self.name}: folders: {missing} is not a folder",
                hint="name folders that hold skills, each skill as a folder with SKILL.md",
            )
        folders, trust_root = self.settings.places("folders", *SKILL_FOLDERS)
        self._library = Library(folders, trust_root, current_trust())
        # A library without skills, which reads the project's AGENTS.md.
        self._project = Library((), current_folder(), current_trust())

    async def context(self, task: str) -> str | None:
        """Return AGENTS.md, and the names and descriptions of the skills, for the prompt."""
        return await asyncio.to_thread(self._context)

    def _context(self) -> str | None:
        """Return AGENTS.md, truncated, and the list of skills; None if there is neither."""
        parts: list[str] = []
        agents_md = self._project.agents() if self.settings.agents_md else None
        if agents_md is not None and agents_md.strip():
            text = agents_md.strip()
            rest_note = "" if len(text) <= _MAX_AGENTS_CHARACTERS else "\n… (AGENTS.md goes on)"
            shown_text = text[:_MAX_AGENTS_CHARACTERS]
            parts.append(f"AGENTS.md of this project:\n{shown_text}{rest_note}")
        if lines := self._skill_lines():
            parts.append(
                f"Skills. If a skill fits the task, first print({self.name}.read(NAME)) and call "
                "rerun, then follow the skill's instructions:\n" + "\n".join(lines)
            )
        return "\n\n".join(parts) or None

    def _skill_lines(self) -> list[str]:
        """Return a line with the name and description of each skill.

        If there are very many skills, the last line has only the names of the remaining skills.
        """
        names = self._library.names()
        lines: list[str] = []
        # The more skills there are, the fewer characters are shown of each description.
        share = _MAX_DESCRIPTIONS_CHARACTERS // max(1, len(names))
        limit = max(_MIN_DESCRIPTION_CHARACTERS, min(_MAX_DESCRIPTION_CHARACTERS, share))
        for name in names[:_MAX_DESCRIBED_SKILLS]:
            try:
                description = self._library.find(name).description
            except DelfError as error:
                lines.append(f"- {name}: cannot be read: {error.message}")
                continue
            ellipsis = "" if len(description) <= limit else "…"
            lines.append(f"- {name}: {description[:limit]}{ellipsis}")
        if len(names) > _MAX_DESCRIBED_SKILLS:
            lines.append(f"- and {', '.join(names[_MAX_DESCRIBED_SKILLS:])}")
        return lines

    @action("reading", effect="read", trust="own")
    async def read(self, skill: str, file: str = SKILL) -> str:
        """Instructions of a skill: its own, or those of another Markdown file in its folder.

        Args:
            skill: The name of the skill.
            file: The path of the file within the skill's folder, as the instructions name it.

        Raises:
            ToolRefusedError: If there is no such skill or file.
        """
        if file == SKILL:
            skill_text = await asyncio.to_thread(self._library.find, skill)
            files = await asyncio.to_thread(self._library.files, skill)
            more = f"\n\nFiles of this skill: {', '.join(files)}" if files else ""
            return f"{skill_text.text}{more}"
        # Read the file before the check, so that a missing file is refused as missing, whatever its
        # name.
        content = await asyncio.to_thread(self._library.read, skill, file)
        if not is_instruction(Path(file)):
            raise ToolRefusedError(f"{file} is data: {self.name}.data({skill!r}, {file!r})")
        return text_of(Path(skill, file), content)

    @action("reading", effect="read")
    async def data(self, skill: str, file: str) -> bytes:
        """A file of a skill as bytes: a template, a table, a picture, or a program to adapt.

        Args:
            skill: The name of the skill.
            file: The path of the file within the skill's folder.

        Raises:
            ToolRefusedError: If there is no such skill or file.
        """
        return await asyncio.to_thread(self._library.read, skill, file)
