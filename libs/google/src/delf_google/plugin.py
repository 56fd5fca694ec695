"""The plugin's hooks."""

from __future__ import annotations

from collections.abc import Iterable

from delf.hookspecs import hookimpl
from delf.specs import CommandSpec


@hookimpl
def delf_commands() -> Iterable[CommandSpec]:
    """Yield the command ``google`` with its subcommands ``login``, ``logout`` and ``status``."""
    yield CommandSpec(
        name="google",
        summary="Log in to Google: login, logout, status.",
        factory="delf_google.command:google",
    )
