"""SQL databases for delf. ``SQL`` is imported on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from delf_sql.connection import SQL

__all__ = ["SQL"]


def __getattr__(name: str) -> Any:
    if name != "SQL":
        raise AttributeError(f"module 'delf_sql' has no attribute {name!r}")
    from delf_sql.connection import SQL

    return SQL
