"""Pages of the web for delf. ``Web`` is imported on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from delf_web.connection import Web

__all__ = ["Web"]


def __getattr__(name: str) -> Any:
    if name != "Web":
        raise AttributeError(f"module 'delf_web' has no attribute {name!r}")
    from delf_web.connection import Web

    return Web
