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
"""The libraries that a child process preloads, by the extension of the file to read."""


def readable_paths(file: InputFile) -> tuple[str, ...]:
    """Return the paths that the child process for a file may open.

    SQLite's write-ahead log, shared memory and journal of a database file are included.
    """
    return (file.path, *(f"{file.path}-{suffix}" for suffix in ("wal", "shm", "journal")))
