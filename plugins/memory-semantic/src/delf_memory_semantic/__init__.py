"""Memory for delf that finds by words and by meaning. ``Memory`` is imported on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from delf_memory_semantic.memory import Memory

__all__ = ["Memory"]


def __getattr__(name: str) -> Any:
    if name != "Memory":
        raise AttributeError(f"module 'delf_memory_semantic' has no attribute {name!r}")
    from delf_memory_semantic.memory import Memory

    return Memory
