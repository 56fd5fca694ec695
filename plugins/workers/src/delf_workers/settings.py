"""The settings: the search path of workers, and the workers that scripts may call."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from delf.settings import LocalPath, OneOrMore, PluginSettings


class WorkersSettings(PluginSettings):
    """The folders of workers, and the workers that scripts can call."""

    folders: Annotated[tuple[LocalPath, ...], OneOrMore] = Field(
        default=(), description="Folders of workers; the project's folder `workers` when empty."
    )
    allow_workers: Annotated[tuple[str, ...], OneOrMore] = Field(
        default=("*",), description='Names or patterns of workers that may be called: ["sum*"].'
    )
