"""The plugin's hooks."""

from __future__ import annotations

from collections.abc import Iterable

from delf.hookspecs import hookimpl
from delf.specs import ConnectionSpec


@hookimpl
def delf_connections() -> Iterable[ConnectionSpec]:
    """Yield the connection with which scripts read skills."""
    yield ConnectionSpec(
        name="skills",
        summary="Instructions for kinds of tasks, and AGENTS.md.",
        factory="delf_skills.connection:Skills",
        project_files="delf_skills.project_files:project_files",
    )
