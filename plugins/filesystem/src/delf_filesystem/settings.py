"""Settings: the folders that a script may use, and how."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, field_validator

from delf.settings import LocalPath, PluginSettings


class RootSettings(BaseModel):
    """The settings of one root: a folder, and the access that scripts have."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    root: LocalPath = Field(description="The folder.")
    mode: Literal["ro", "rw"] = Field(
        default="ro", description=("`ro`: scripts may only read. `rw`: they may also write.")
    )
    suffixes: tuple[str, ...] = Field(
        default=(), description='Allowed endings of names, such as [".md", ".pdf"]; all when empty.'
    )
    max_file_bytes: int = Field(
        default=10_000_000, ge=1, description="The most bytes to read or write at once."
    )
    read_approval: bool = Field(default=False, description="Ask a person before each read.")
    write_approval: bool = Field(
        default=True,
        description=(
            "Ask a person before each write, and show the change. If the file changes "
            "meanwhile, the person is asked again."
        ),
    )
    create: bool = Field(
        default=False,
        description=(
            "Make the folder if it is missing and writable; true in `sandbox.paths` of a worker."
        ),
    )
    hidden: bool = Field(
        default=False,
        description=("Whether scripts see names that begin with a dot, such as .env and .git."),
    )

    @field_validator("suffixes")
    @classmethod
    def _with_dots(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(f".{suffix.lower().lstrip('.')}" for suffix in value)


class FilesystemSettings(PluginSettings):
    """The settings of the connection: a mapping from root name to folder."""

    roots: dict[str, RootSettings] = Field(
        description='Folders by name: {"notes": "./notes"} or {"notes": {"root": …, "mode": "rw"}}.'
    )

    @field_validator("roots", mode="before")
    @classmethod
    def _from_paths(cls, value: Any) -> Any:
        """Convert each root that is given as a plain path to the settings of a read-only root."""
        if not isinstance(value, dict):
            return value
        settings = cast("dict[str, Any]", value)
        return {
            name: {"root": root} if isinstance(root, (str, Path)) else root
            for name, root in settings.items()
        }

    @field_validator("roots")
    @classmethod
    def _check_names(cls, roots: dict[str, RootSettings]) -> dict[str, RootSettings]:
        if not roots:
            raise ValueError("name at least one folder")
        for name in roots:
            if not name or "/" in name or name.startswith("."):
                raise ValueError(f"{name!r} is not a name of a root: a word without '/'")
        return roots
