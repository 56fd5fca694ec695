"""Searches of the web for delf. ``WebSearch`` is imported on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from delf_websearch.connection import WebSearch

__all__ = ["WebSearch"]


def __getattr__(name: str) -> Any:
    if name != "WebSearch":
        raise AttributeError(f"module 'delf_websearch' has no attribute {name!r}")
    from delf_websearch.connection import WebSearch

    return WebSearch
