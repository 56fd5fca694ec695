"""Memory with search by words and by meaning. Its classes are imported on first use."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from delf_memory_semantic.memory import Memory
    from delf_memory_semantic.recall import Recall
    from delf_memory_semantic.store import SemanticStore

__all__ = ["Memory", "Recall", "SemanticStore"]

_MODULE_OF_NAME: Final = {"Memory": "memory", "Recall": "recall", "SemanticStore": "store"}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF_NAME:
        raise AttributeError(f"module 'delf_memory_semantic' has no attribute {name!r}")
    return getattr(importlib.import_module(f"delf_memory_semantic.{_MODULE_OF_NAME[name]}"), name)
