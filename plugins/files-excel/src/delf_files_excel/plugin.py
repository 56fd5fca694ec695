"""The plugin: Excel workbooks as input and output files."""

from __future__ import annotations

from collections.abc import Iterable

from delf.hookspecs import hookimpl
from delf.specs import FormatSpec


@hookimpl
def delf_file_formats() -> Iterable[FormatSpec]:
    """Workbooks, for the connection ``files`` and for output files."""
    yield FormatSpec(
        name="excel",
        summary="Excel workbooks: rows of input files, output files from rows.",
        factory="delf_files_excel.format:ExcelFormat",
        endings=(".xlsx", ".xlsm", ".xls"),
        writes=(".xlsx",),
    )
