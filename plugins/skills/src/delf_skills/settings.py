"""Settings: the folders of skills."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from delf.settings import LocalPath, OneOrMore, PluginSettings


class SkillsSettings(PluginSettings):
    """The folders of skills, and whether AGENTS.md is part of prompts."""

    folders: Annotated[tuple[LocalPath, ...], OneOrMore] = Field(
        default=(),
        description=(
            "Folders of skills; skills, .agents/skills and .claude/skills of the project "
            "when empty."
        ),
    )
    agents_md: bool = Field(
        default=True, description="Whether the project's AGENTS.md is part of each prompt."
    )
