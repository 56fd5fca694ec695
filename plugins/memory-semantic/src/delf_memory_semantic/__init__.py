"""Memory for delf that finds by words and by meaning. Its classes are imported on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from delf_memory_semantic.memory import Memory
    from delf_memory_semantic.store import SemanticStore

__all__ = ["Memory", "SemanticStore"]


def __getattr__(name: str) -> Any:
    if name == "Memory":
        from delf_memory_semantic.memory import Memory

        return Memory
    if name == "SemanticStore":
        from delf_memory_semantic.store import SemanticStore

        return SemanticStore
    raise AttributeError(f"module 'delf_memory_semantic' has no attribute {name!r}")
