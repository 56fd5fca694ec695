"""The plugin's hooks."""

from __future__ import annotations

from collections.abc import Iterable

from delf.hookspecs import hookimpl
from delf.specs import CommandSpec, ConnectionSpec


@hookimpl
def delf_connections() -> Iterable[ConnectionSpec]:
    """Folders of this machine."""
    yield ConnectionSpec(
        name="filesystem",
        summary="Files under named folders of this machine.",
        factory="delf_filesystem.connection:Filesystem",
        exports=("Filesystem",),
    )


@hookimpl
def delf_commands() -> Iterable[CommandSpec]:
    """The command ``delf runs undo``."""
    yield CommandSpec(
        name="runs undo",
        summary="Give back the files that a task changed.",
        factory="delf_filesystem.command:undo",
    )
