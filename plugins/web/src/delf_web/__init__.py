"""Pages and searches of the web for delf. ``Web`` and ``WebSearch`` are imported on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from delf_web.connection import Web
    from delf_web.search.connection import WebSearch

__all__ = ["Web", "WebSearch"]


def __getattr__(name: str) -> Any:
    if name == "Web":
        from delf_web.connection import Web

        return Web
    if name == "WebSearch":
        from delf_web.search.connection import WebSearch

        return WebSearch
    raise AttributeError(f"module 'delf_web' has no attribute {name!r}")
