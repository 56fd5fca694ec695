"""``Skills``: instructions for kinds of tasks, which a script reads when it needs them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Final

from delf import Connection, action
from delf.errors import ConnectionConfigurationError, DelfError, ToolRefusedError
from delf.settings import current_folder, current_trust
from delf_skills.library import Library
from delf_skills.project_files import FOLDERS, SKILL
from delf_skills.settings import SkillsSettings

_MAX_SHOWN: Final = 60
"""Skills that a prompt lists."""
_LONGEST: Final = 1024
"""Characters of a description; the format allows no more."""
_SHARED: Final = 12_000
"""Characters that the descriptions of a prompt share."""
_LONGEST_AGENTS: Final = 20_000
"""Characters of AGENTS.md in a prompt."""


class Skills(Connection[SkillsSettings]):
    """Instructions for kinds of tasks, in folders of the open Agent Skills format.

    Args:
        folders: The folders of skills; ``skills``, ``.agents/skills`` and ``.claude/skills`` of the
            project when omitted.
        agents_md: Whether the project's ``AGENTS.md`` is part of each prompt.
    """

    context_trust = "own"

    def __init__(self, **options: Any) -> None:
        if options.get("confirm") is None:
            options["confirm"] = False
        super().__init__(**options)
        missing = next((p for p in self.settings.folders if not Path(p).is_dir()), None)
        if missing is not None:
            raise ConnectionConfigurationError(
                f"{self.name}: folders: {missing} is not a folder",
                hint="name folders that hold skills, each skill as a folder with SKILL.md",
            )
        self._library = Library(*self.settings.places("folders", *FOLDERS), current_trust())
        self._project = Library((), current_folder(), current_trust())

    async def context(self, task: str) -> str | None:
        """Return AGENTS.md, and the skills' names with their descriptions."""
        return await asyncio.to_thread(self._context)

    def _context(self) -> str | None:
        parts: list[str] = []
        agents = self._project.agents() if self.settings.agents_md else None
        if agents is not None and agents.strip():
            cut = agents.strip()[:_LONGEST_AGENTS]
            more = "" if len(agents.strip()) <= _LONGEST_AGENTS else "\n… (AGENTS.md goes on)"
            parts.append(f"AGENTS.md of this project:\n{cut}{more}")
        if lines := self._lines():
            parts.append(
                f"Skills. If one fits the task, first print({self.name}.read(NAME)) and rerun, "
                "then do as it says:\n" + "\n".join(lines)
            )
        return "\n\n".join(parts) or None

    def _lines(self) -> list[str]:
        names = self._library.names()
        lines: list[str] = []
        longest = max(300, min(_LONGEST, _SHARED // max(1, len(names))))
        for name in names[:_MAX_SHOWN]:
            try:
                description = self._library.find(name).description
            except DelfError as error:
                lines.append(f"- {name}: cannot be read: {error.message}")
                continue
            cut = "" if len(description) <= longest else "…"
            lines.append(f"- {name}: {description[:longest]}{cut}")
        if len(names) > _MAX_SHOWN:
            lines.append(f"- and {', '.join(names[_MAX_SHOWN:])}")
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
        content, is_instruction = await asyncio.to_thread(self._library.read, skill, file)
        if not is_instruction:
            raise ToolRefusedError(f"{file} is data: {self.name}.data({skill!r}, {file!r})")
        return content.decode("utf-8", "replace")

    @action("reading", effect="read")
    async def data(self, skill: str, file: str) -> bytes:
        """A file of a skill as bytes: a template, a table, a picture, or a program to adapt.

        Args:
            skill: The name of the skill.
            file: The path of the file within the skill's folder.

        Raises:
            ToolRefusedError: If there is no such skill or file.
        """
        content, _ = await asyncio.to_thread(self._library.read, skill, file)
        return content
