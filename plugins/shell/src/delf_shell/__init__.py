"""Commands of this machine for delf. ``Shell`` is imported on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from delf_shell.connection import Shell

__all__ = ["Shell"]


def __getattr__(name: str) -> Any:
    if name != "Shell":
        raise AttributeError(f"module 'delf_shell' has no attribute {name!r}")
    from delf_shell.connection import Shell

    return Shell
