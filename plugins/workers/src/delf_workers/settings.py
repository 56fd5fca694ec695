"""The settings: the search path of workers, and the workers that scripts may call."""

from __future__ import annotations

from typing import Any

from pydantic import Field, field_validator

from delf.settings import LocalPath, PluginSettings


class WorkersSettings(PluginSettings):
    """The folders of workers, and the workers that scripts can call."""

    folders: tuple[LocalPath, ...] = Field(
        default=(), description="Folders of workers; the project's folder `workers` when empty."
    )
    allow_workers: tuple[str, ...] = Field(
        default=("*",), description='Names or patterns of workers that may be called: ["sum*"].'
    )

    @field_validator("folders", "allow_workers", mode="before")
    @classmethod
    def _as_list(cls, value: Any) -> Any:
        return [value] if isinstance(value, str) else value
