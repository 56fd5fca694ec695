"""MCP for delf, as client and as server. ``MCP`` is imported on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from delf_mcp.connection import MCP

__all__ = ["MCP"]


def __getattr__(name: str) -> Any:
    if name != "MCP":
        raise AttributeError(f"module 'delf_mcp' has no attribute {name!r}")
    from delf_mcp.connection import MCP

    return MCP
