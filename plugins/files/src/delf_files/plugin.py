"""The capabilities of this plugin."""

from __future__ import annotations

from collections.abc import Iterable

from delf.hookspecs import hookimpl
from delf.specs import ConnectionSpec, FormatSpec


@hookimpl
def delf_connections() -> Iterable[ConnectionSpec]:
    """Yield the connection ``files``, for tasks with input files."""
    yield ConnectionSpec(
        name="files",
        summary="The input files of a task: which there are, and what is in them.",
        factory="delf_files.connection:Files",
        input_files=True,
    )


@hookimpl
def delf_file_formats() -> Iterable[FormatSpec]:
    """Yield the formats of SQLite files and, if the libraries are installed, of workbooks."""
    from importlib.util import find_spec

    if find_spec("openpyxl") and find_spec("xlrd"):
        yield FormatSpec(
            name="excel",
            summary="Excel workbooks: rows of input files, output files from rows.",
            factory="delf_files.excel.format:ExcelFormat",
            endings=(".xlsx", ".xlsm", ".xls"),
            writes=(".xlsx",),
        )
    yield FormatSpec(
        name="sqlite",
        summary="SQLite files: the rows of their tables.",
        factory="delf_files.sqlite:SqliteFormat",
        endings=(".sqlite", ".sqlite3", ".db"),
    )
