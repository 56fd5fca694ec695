"""The capabilities of this plugin."""

from __future__ import annotations

from collections.abc import Iterable

from delf.hookspecs import hookimpl
from delf.specs import ApprovalSpec, CommandSpec


@hookimpl
def delf_approval_channels() -> Iterable[ApprovalSpec]:
    """Yield the channel ``terminal``."""
    yield ApprovalSpec(
        name="terminal",
        summary="Asks at the terminal of the process.",
        factory="delf_approval_terminal.channel:TerminalChannel",
    )


@hookimpl
def delf_commands() -> Iterable[CommandSpec]:
    """Yield the command ``approvals``."""
    yield CommandSpec(
        name="approvals",
        summary="Decide about calls that wait for approval.",
        factory="delf_approval_terminal.command:approvals",
    )
