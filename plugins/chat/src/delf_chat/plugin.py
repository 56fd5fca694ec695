"""The capabilities of this plugin."""

from __future__ import annotations

from collections.abc import Iterable

from delf.hookspecs import hookimpl
from delf.specs import CommandSpec


@hookimpl
def delf_commands() -> Iterable[CommandSpec]:
    """Yield the command ``chat``."""
    yield CommandSpec(
        name="chat",
        summary="Do tasks one after another, in a conversation.",
        factory="delf_chat.command:chat",
    )
