"""The capabilities of this plugin."""

from __future__ import annotations

from collections.abc import Iterable

from delf.hookspecs import hookimpl
from delf.specs import ApprovalSpec, CommandSpec


@hookimpl
def delf_commands() -> Iterable[CommandSpec]:
    """Yield the commands ``serve`` and ``users``."""
    yield CommandSpec(
        name="serve",
        summary="Serve tasks over HTTP, with a page to watch them and to decide.",
        factory="delf_serve.command:serve",
        plugin_settings="delf_serve.settings:ServeSettings",
    )
    yield CommandSpec(
        name="users",
        summary="Manage the people of a server: keys, rights, teams, sessions.",
        factory="delf_serve.users:users",
    )


@hookimpl
def delf_approval_channels() -> Iterable[ApprovalSpec]:
    """Yield the approval channel ``web``."""
    yield ApprovalSpec(
        name="web",
        summary="Says by webhook or mail that something waits on the page.",
        factory="delf_serve.channel:WebChannel",
        needs_presence=False,
    )
