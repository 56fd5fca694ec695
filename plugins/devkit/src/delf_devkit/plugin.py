"""The capabilities of this plugin."""

from __future__ import annotations

from collections.abc import Iterable

from delf.hookspecs import hookimpl
from delf.specs import CommandSpec


@hookimpl
def delf_commands() -> Iterable[CommandSpec]:
    """Yield the command ``delf plugins new``."""
    yield CommandSpec(
        name="plugins new",
        summary="Start a plugin of your own.",
        factory="delf_devkit.new:new",
    )
