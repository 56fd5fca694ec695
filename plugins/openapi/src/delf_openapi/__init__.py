"""REST APIs for delf, from their specifications. ``APITool`` is imported on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from delf_openapi.connection import APITool

__all__ = ["APITool"]


def __getattr__(name: str) -> Any:
    if name != "APITool":
        raise AttributeError(f"module 'delf_openapi' has no attribute {name!r}")
    from delf_openapi.connection import APITool

    return APITool
