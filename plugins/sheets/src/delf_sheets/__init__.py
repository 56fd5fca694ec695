"""Google Sheets: cells, formats, charts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from delf_sheets.connection import Sheets

__all__ = ["Sheets"]


def __getattr__(name: str) -> Any:
    if name == "Sheets":
        from delf_sheets.connection import Sheets

        return Sheets
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
