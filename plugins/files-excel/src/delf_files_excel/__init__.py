"""Excel workbooks for delf: input files as rows, output files from rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from delf_files_excel.format import ExcelFormat

__all__ = ["ExcelFormat"]


def __getattr__(name: str) -> Any:
    if name == "ExcelFormat":
        from delf_files_excel.format import ExcelFormat

        return ExcelFormat
    raise AttributeError(f"module 'delf_files_excel' has no attribute {name!r}")
