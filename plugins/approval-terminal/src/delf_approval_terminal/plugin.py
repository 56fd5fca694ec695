"""What this plugin brings."""

from __future__ import annotations

from collections.abc import Iterable

from delf.hookspecs import hookimpl
from delf.specs import ApprovalSpec


@hookimpl
def delf_approval_channels() -> Iterable[ApprovalSpec]:
    """The channel ``terminal``."""
    yield ApprovalSpec(
        name="terminal",
        summary="Asks on the terminal that delf runs on.",
        factory="delf_approval_terminal.channel:TerminalChannel",
    )
