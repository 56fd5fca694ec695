"""``files.query``: SQL over input files in place, by DuckDB in a child process."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, Final

from delf.errors import ToolExecutionError, ToolRefusedError
from delf.notes import note
from delf.protocols.formats import InputFile, InstalledFormats
from delf.values.conversion import unique_names
from delf.values.unicode import normalized
from delf_confined.limits import Limits
from delf_confined.readers import Readers
from delf_files import query_child
from delf_files.children import PRELOADS, readable_paths
from delf_files.query_child import has_quoted_name, text_literal

MAX_ROWS: Final = 1000
MAX_BYTES: Final = 16 * 1024 * 1024
_DUCKDB_MEMORY: Final = "300MB"
# The memory limit of the child process, which reads workbooks besides running DuckDB.
_PROCESS_MEMORY_BYTES: Final = 1_500_000_000
_THREADS: Final = 2
_MAX_SPILL_BYTES: Final = 8_000_000_000
_MAX_SECONDS: Final = 60.0
KINDS: Final = {
    **dict.fromkeys((".parquet", ".pq"), "parquet"),
    **dict.fromkeys((".arrow", ".feather", ".ipc"), "arrow"),
    **dict.fromkeys((".csv", ".tsv", ".tab"), "csv"),
    **dict.fromkeys((".json", ".jsonl", ".ndjson"), "json"),
}


async def query(
    statement: str,
    params: Sequence[Any] | Mapping[str, Any] | None,
    limit: int | None,
    header: int | Mapping[str, int] | None,
    files: Sequence[InputFile],
    formats: InstalledFormats,
    key: str,
) -> list[dict[str, Any]]:
    """Return the rows of one read-only statement.

    Args:
        statement: The statement in DuckDB's dialect, in which the names of files are tables.
        params: The values for ``?`` or ``$name`` in the statement.
        limit: The number of rows after which the result is cut. When None, a result of more than
            1,000 rows raises.
        header: The number of the row with column names; 0 if no row has column names; None for the
            first row. A mapping gives the number by table name.
        files: The task's files; only files named in the statement are opened.
        formats: The formats for workbooks and other tables.
        key: The id of the task.

    Raises:
        ToolRefusedError: If the statement may change something, or names no file.
        ToolExecutionError: If the statement fails, takes too long, or returns too much.
    """
    if limit is not None and not 1 <= limit <= MAX_ROWS:
        raise ToolRefusedError(f"limit can be from 1 to {MAX_ROWS}; page with LIMIT and OFFSET")
    names_by_file = {file: _names_in_statements(file, files) for file in files}
    # The child process can read only the files that the statement names.
    named_files = [
        file
        for file, names in names_by_file.items()
        if has_quoted_name(statement, names, may_name_table=True)
    ]
    if not named_files:
        quoted_names = ", ".join(text_literal(file.name) for file in files)
        raise ToolRefusedError(f"the statement names no input file; FROM one of {quoted_names}")
    files_of_request = [
        _file_data(file, names_by_file[file], formats, number)
        for number, file in enumerate(named_files)
    ]
    headers = _header_rows(header, files_of_request)
    preloads: set[str] = set()
    for file in named_files:
        preloads.update(PRELOADS.get(file.ending, ()))
    readable = list(chain.from_iterable(map(readable_paths, named_files)))
    with tempfile.TemporaryDirectory(prefix="delf-query-") as folder:
        request = {
            "statement": statement,
            "params": params or [],
            "files": files_of_request,
            "headers": headers,
            "limit": limit or MAX_ROWS,
            "bytes": MAX_BYTES,
            "memory": _DUCKDB_MEMORY,
            "threads": _THREADS,
            "spill": f"{_MAX_SPILL_BYTES // 10**9}GB",
        }
        result = await formats.shared(Readers).call(
            f"{query_child.__name__}:run_request",
            {"request": request},
            about=f"the query of {', '.join(file.name for file in named_files)}",
            key=key,
            readable=readable,
            limits=Limits(
                seconds=_MAX_SECONDS,
                memory=_PROCESS_MEMORY_BYTES,
                scratch=folder,
                file_bytes=_MAX_SPILL_BYTES,
            ),
            preload=("duckdb", *sorted(preloads)),
        )
    return _rows(result, limit)


def _header_rows(
    header: int | Mapping[str, int] | None, files: Sequence[Mapping[str, Any]]
) -> dict[str, int]:
    """Return a mapping from table name to the number of the row with column names.

    Args:
        header: One number for the only file, or the number by table name.
        files: The data about the files that the statement names.

    Raises:
        ToolRefusedError: If a table is not in the statement or cannot have a row with column names,
            if a number is negative, or if there is one number for several files.
    """
    if header is None:
        return {}
    files_by_name: dict[str, Mapping[str, Any]] = {}
    for file in files:
        for file_name in file["names"]:
            files_by_name.setdefault(file_name, file)
    if isinstance(header, int):
        if len(files) > 1:
            example = {files[0]["names"][0]: header}
            raise ToolRefusedError(f"the statement names several files; write header={example}")
        numbers_by_name = dict.fromkeys(files_by_name, header)
    else:
        numbers_by_name = dict(header)
    for name, number in numbers_by_name.items():
        _check_header_row(name, number, files_by_name)
    return numbers_by_name


def _check_header_row(
    name: str, number: int, files_by_name: Mapping[str, Mapping[str, Any]]
) -> None:
    """Check that a table can have a row with column names, and that the row's number is valid.

    Args:
        name: The name of a file, or of a sheet in a file, such as ``book.xlsx/Sheet``.
        number: The number of the row.
        files_by_name: The data about the files that the statement names.

    Raises:
        ToolRefusedError: If the check fails.
    """
    matches = (each for each in files_by_name if name == each or name.startswith(f"{each}/"))
    file_name = next(matches, None)
    if file_name is None:
        raise ToolRefusedError(f"header has {name!r}, which the statement does not name")
    # Only text tables, and formats of plugins such as workbooks, have a row that names the columns.
    if files_by_name[file_name]["kind"] not in ("csv", "plugin_format"):
        raise ToolRefusedError(f"{file_name} has no row that names columns; leave header out")
    if number < 0:
        raise ToolRefusedError("header is the number of a row, from 1, or 0 for none")


def _names_in_statements(file: InputFile, files: Sequence[InputFile]) -> list[str]:
    """Return the names that a statement can use for a file: its name, and its path for scripts.

    Models write a letter such as "é" in the Unicode form NFC. So the NFC form of each name can be
    used, too, unless another file has this name.
    """
    own_names = (file.name, file.visible)
    other_names = {name for other in files for name in (other.name, other.visible)}
    composed_names = {normalized(name) for name in own_names} - other_names
    return list(dict.fromkeys([*own_names, *sorted(composed_names)]))


def _rows(result: dict[str, Any], limit: int | None) -> list[dict[str, Any]]:
    """Return the rows of a result as dicts, with notes about values that became text.

    Raises:
        ToolExecutionError: If there are more rows, and no limit was given.
    """
    if result["more"] and limit is None:
        raise ToolExecutionError(
            f"the result has more than {MAX_ROWS} rows, so none is returned: aggregate in SQL, "
            "page with ORDER BY … LIMIT … OFFSET, or pass limit=N for the first N rows only"
        )
    for column, value in result["texts"].items():
        note(f"column {column!r}: values came as text, as Python has no value like {value[:100]!r}")
    names = unique_names(result["columns"])
    return [dict(zip(names, row, strict=True)) for row in result["rows"]]


def _file_data(
    file: InputFile, names: list[str], formats: InstalledFormats, number: int
) -> dict[str, Any]:
    """Return the data about an input file that :mod:`query_child` needs, such as its path.

    Args:
        file: The file.
        names: The names that the statement can use for the file.
        formats: The installed file formats.
        number: The file's position among the statement's files, for the name of a copy.

    Raises:
        ToolRefusedError: If the file is not a table.
    """
    data = {
        "names": names,
        "path": file.path,
        "ending": file.ending,
        "copy_path": f"{number}.copy",
    }
    kind = KINDS.get(file.ending)
    if kind is not None:
        return {**data, "kind": kind}
    factory = formats.factory(file.ending)
    if factory is None:
        raise ToolRefusedError(
            f"{file.name} is not a table that files.query reads; use files.read or open()"
        )
    return {**data, "kind": "plugin_format", "factory": factory}
