"""Folders of this machine for delf. ``Filesystem`` is imported on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from delf_filesystem.connection import Filesystem

__all__ = ["Filesystem"]


def __getattr__(name: str) -> Any:
    if name != "Filesystem":
        raise AttributeError(f"module 'delf_filesystem' has no attribute {name!r}")
    from delf_filesystem.connection import Filesystem

    return Filesystem
