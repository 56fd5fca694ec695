"""Approvals on the terminal for delf."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from delf_approval_terminal.channel import TerminalChannel

__all__ = ["TerminalChannel"]


def __getattr__(name: str) -> Any:
    if name != "TerminalChannel":
        raise AttributeError(f"module 'delf_approval_terminal' has no attribute {name!r}")
    from delf_approval_terminal.channel import TerminalChannel

    return TerminalChannel
