"""``files.query``: SQL over input files, where they are, by DuckDB in a process of its own."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from delf.errors import OptionalDependencyError, ToolExecutionError, ToolRefusedError
from delf.notes import note
from delf.protocols.formats import FileFormats, InputFile
from delf.values.conversion import unique_names
from delf.values.encoding import dumps, loads
from delf_files import query_child
from delf_files.forms import LOOKED_AT, check_form

MAX_ROWS: Final = 1000
MAX_BYTES: Final = 16 * 1024 * 1024
_MEMORY: Final = "300MB"
_THREADS: Final = 2
_SPILL: Final = "8GB"
_SECONDS: Final = 60.0
_KINDS: Final = {
    **dict.fromkeys((".parquet", ".pq"), "parquet"),
    **dict.fromkeys((".arrow", ".feather", ".ipc"), "arrow"),
    **dict.fromkeys((".csv", ".tsv", ".tab"), "csv"),
    **dict.fromkeys((".json", ".jsonl", ".ndjson"), "json"),
}
_KEPT_VARIABLES: Final = ("LD_LIBRARY_PATH", "TMPDIR", "PATH")
_FIRST_LARGE_INT: Final = 2**63
_LAST_EXACT_INT: Final = 2**53


async def query(
    statement: str,
    params: Sequence[Any] | Mapping[str, Any] | None,
    limit: int | None,
    files: Sequence[InputFile],
    formats: FileFormats,
) -> list[dict[str, Any]]:
    """The rows of one reading statement.

    Args:
        statement: In DuckDB's dialect; a file is a table of its name.
        params: For ``?`` or ``$name``.
        limit: Take this many rows where there are more.
        files: Those of the task; only those that the statement names are opened.
        formats: Reads workbooks and other tables.

    Raises:
        OptionalDependencyError: When DuckDB is not installed.
        ToolRefusedError: For a statement that does not only read.
        ToolExecutionError: When it fails, takes too long, or gives too much.
    """
    _look_for_duckdb()
    if limit is not None and not 1 <= limit <= MAX_ROWS:
        raise ToolRefusedError(f"limit can be from 1 to {MAX_ROWS}; page with LIMIT and OFFSET")
    with tempfile.TemporaryDirectory(prefix="delf-query-") as folder:
        named = [file for file in files if file.name in statement or file.visible in statement]
        if not named:
            listed = ", ".join(f"'{file.name}'" for file in files)
            raise ToolRefusedError(f"the statement names no input file; FROM one of {listed}")
        tables: list[dict[str, Any]] = []
        for number, file in enumerate(named):
            tables += await _tables(file, statement, formats, Path(folder, str(number)))
        answer = await _ask(
            {
                "statement": statement,
                "params": list(params) if isinstance(params, (list, tuple)) else params or [],
                "tables": tables,
                "limit": limit or MAX_ROWS,
                "bytes": MAX_BYTES,
                "memory": _MEMORY,
                "threads": _THREADS,
                "spill": _SPILL,
                "temporary": folder,
            },
            folder,
        )
    return _rows(answer, limit)


def _rows(answer: dict[str, Any], limit: int | None) -> list[dict[str, Any]]:
    for told in answer["notes"]:
        note(told)
    if "refused" in answer:
        raise ToolRefusedError(answer["refused"])
    if "error" in answer:
        raise ToolExecutionError(answer["error"])
    if "large" in answer:
        raise ToolExecutionError(
            f"the result is larger than {MAX_BYTES:,} bytes after {answer['large']} rows: select "
            "fewer columns or rows, or aggregate in SQL"
        )
    if answer["more"] and limit is None:
        raise ToolExecutionError(
            f"the result has more than {MAX_ROWS} rows, so none is returned: aggregate in SQL, "
            "page with ORDER BY … LIMIT … OFFSET, or pass limit=N for the first N rows only"
        )
    for column, value in answer["texts"].items():
        note(f"column {column!r}: values came as text, as Python has no value like {value[:100]!r}")
    names = unique_names(answer["columns"])
    return [dict(zip(names, row, strict=True)) for row in answer["rows"]]


async def _tables(
    file: InputFile, statement: str, formats: FileFormats, place: Path
) -> list[dict[str, Any]]:
    names = list(dict.fromkeys((file.name, file.visible)))
    kind = _KINDS.get(file.ending)
    if kind in ("csv", "json"):
        await asyncio.to_thread(_check_form, file)
    if kind is not None:
        told = {"ending": file.ending, "copy": f"{place}.copy"}
        return [{"names": names, "kind": kind, "path": file.path, **told}]
    special = formats.reader(file.ending)
    if special is None:
        raise ToolRefusedError(
            f"{file.name} is not a table that files.query reads; use files.read or open()"
        )
    made: list[dict[str, Any]] = []
    for number, part in enumerate([*await special.parts(file.path)] or [None]):
        own = [f"{name}/{part}" for name in names] if part is not None else []
        own = [*own, *(names if number == 0 else [])]
        if number and not any(name in statement for name in own):
            continue
        rows = await special.read(file.path, part)
        path = f"{place}-{number}.jsonl"
        columns = await asyncio.to_thread(_write_rows, rows, path)
        made.append({"names": own, "kind": "rows", "path": path, "columns": columns})
    return made


def _check_form(file: InputFile) -> None:
    try:
        with Path(file.path).open("rb") as data:
            check_form(data.read(LOOKED_AT))
    except OSError as error:
        raise ToolExecutionError(f"{file.name} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ToolExecutionError(f"{file.name}: {error}") from None


def _write_rows(rows: Sequence[Mapping[str, Any]], path: str) -> list[list[str]]:
    """Rows as lines of JSON, and the types of their columns."""
    names = unique_names(dict.fromkeys(name for row in rows for name in row)) or ["column_1"]
    kinds = {name: _kind([row.get(name) for row in rows]) for name in names}
    with Path(path).open("w", encoding="utf-8") as file:
        for row in rows:
            cells = {name: _cell(row.get(name), kinds[name]) for name in names}
            file.write(json.dumps(cells, ensure_ascii=False) + "\n")
    return [[name, kind] for name, kind in kinds.items()]


def _kind(values: Sequence[Any]) -> str:
    """The type that holds all values of a column; text where they are of several kinds."""
    found: set[Any] = {type(value) for value in values if value is not None}
    if found == {bool}:
        return "BOOLEAN"
    if found == {int} and all(abs(v) < _FIRST_LARGE_INT for v in values if v is not None):
        return "BIGINT"
    if found and found <= {int, float} and not any(map(_is_rounded, values)):
        return "DOUBLE"
    if found == {dt.date}:
        return "DATE"
    if found and found <= {dt.date, dt.datetime}:
        return "TIMESTAMP"
    if found == {dt.time}:
        return "TIME"
    if found == {dt.timedelta}:
        return "INTERVAL"
    return "VARCHAR"


def _is_rounded(value: Any) -> bool:
    """Tell whether a float would be another number."""
    return isinstance(value, int) and abs(value) > _LAST_EXACT_INT


def _cell(value: Any, kind: str) -> Any:
    if value is None or kind in ("BOOLEAN", "BIGINT", "DOUBLE"):
        return value
    if isinstance(value, (dt.date, dt.time)):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dt.timedelta):
        parts = (value.days, value.seconds, value.microseconds)
        return "{} days {} seconds {} microseconds".format(*parts)
    return value if isinstance(value, str) else str(value)


def _look_for_duckdb() -> None:
    from importlib.util import find_spec

    if find_spec("duckdb") is None:
        raise OptionalDependencyError(
            "files.query needs DuckDB, which is not installed",
            package="delf-plugin-files[duckdb]",
        )


async def _ask(question: dict[str, Any], folder: str) -> dict[str, Any]:
    """The child's answer; it ends with the call, however that ends."""
    kept = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
    paths = [path for path in sys.path if path]
    start = f"import sys; sys.path[:0] = {paths!r}; from {query_child.__name__} import main; main()"
    pipe = asyncio.subprocess.PIPE
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-I",
        "-c",
        start,
        stdin=pipe,
        stdout=pipe,
        stderr=pipe,
        cwd=folder,
        env=kept,
    )
    try:
        async with asyncio.timeout(_SECONDS):
            out, said = await child.communicate(dumps(question))
    except TimeoutError:
        raise ToolExecutionError(
            f"the query took longer than {_SECONDS:g} s and was cancelled"
        ) from None
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    if child.returncode != 0:
        last = said.decode("utf-8", "replace").strip().rpartition("\n")[2][:300]
        raise ToolExecutionError(f"DuckDB's process ended ({child.returncode}): {last}")
    return loads(out)
