"""File access of a child process that reads an input file."""

from __future__ import annotations

from typing import Final

from delf.protocols.formats import InputFile

_TABLES: Final = (".parquet", ".pq", ".arrow", ".feather", ".ipc")
PRELOADS: Final = {
    **dict.fromkeys((".xlsx", ".xlsm"), ("openpyxl",)),
    ".xls": ("xlrd",),
    ".pdf": ("pypdf",),
    **dict.fromkeys(_TABLES, ("duckdb",)),
}
"""Libraries that are preloaded for the children that read these files."""


def readable(file: InputFile) -> tuple[str, ...]:
    """Return the paths that a reader of a file may open, including a database's side files."""
    return (file.path, *(f"{file.path}-{part}" for part in ("wal", "shm", "journal")))
