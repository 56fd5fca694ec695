"""The capabilities of this plugin."""

from __future__ import annotations

from collections.abc import Iterable

from delf.hookspecs import hookimpl
from delf.specs import CommandSpec


@hookimpl
def delf_commands() -> Iterable[CommandSpec]:
    """Yield the command ``demo``."""
    yield CommandSpec(
        name="demo",
        summary="Run two tasks on the database of a small shop; no key is needed.",
        factory="delf_demo.command:demo",
    )
