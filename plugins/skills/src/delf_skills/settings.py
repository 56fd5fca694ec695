"""Settings: the folders of skills."""

from __future__ import annotations

from typing import Any

from pydantic import Field, field_validator

from delf.settings import LocalPath, PluginSettings


class SkillsSettings(PluginSettings):
    """The folders of skills, and whether AGENTS.md is part of prompts."""

    folders: tuple[LocalPath, ...] = Field(
        default=(),
        description=(
            "Folders of skills; skills, .agents/skills and .claude/skills of the project "
            "when empty."
        ),
    )
    agents_md: bool = Field(
        default=True, description="Whether the project's AGENTS.md is part of each prompt."
    )

    @field_validator("folders", mode="before")
    @classmethod
    def _one_is_a_list(cls, value: Any) -> Any:
        return [value] if isinstance(value, str) else value
