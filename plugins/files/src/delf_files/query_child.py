"""DuckDB in a process of its own, which can be bounded and killed.

Started as a script with delf's package on its path: takes one question from standard input, in
the form of :mod:`delf.values`, and answers it. It can open the files of the question and nothing
else, load no extension, and change no setting.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import importlib
import os
import re
import resource
import sys
from typing import Any, Final

from delf.values import dumps, loads

_OPEN_FILES: Final = 256
_READERS: Final = {
    "parquet": "read_parquet({path})",
    "csv": "read_csv({path}, all_varchar = true, header = true, delim = {separator}, quote = '\"', "
    "escape = '\"', skip = 0, comment = '', null_padding = true)",
    "json": "read_json_auto({path})",
    "lines": "read_json({path}, format = 'newline_delimited', sample_size = -1)",
    "rows": "read_json({path}, format = 'newline_delimited', columns = {columns})",
}
_MOMENTS: Final = ("DATE", "TIME", "INTERVAL")
_DURATION: Final = re.compile(r"(?:(-?\d+) days? ?)?(?:(-?)(\d+):(\d\d):(\d\d(?:\.\d{1,6})?))?")
_BATCH: Final = 500


def main() -> None:
    """Answer the question."""
    question = loads(sys.stdin.buffer.read())
    answers = os.dup(1)
    os.dup2(2, 1)  # DuckDB draws bars on its standard output
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    import duckdb

    try:
        answer = _answer(question)
    except duckdb.Error as error:
        answer = {"error": _first_lines(str(error))}
    except _RefusedError as error:
        answer = {"refused": str(error)}
    except MemoryError:
        answer = {"error": "the query needs more memory than it may have"}
    with os.fdopen(answers, "wb") as out:
        out.write(dumps(answer))


class _RefusedError(Exception):
    """The statement is not one that only reads."""


def _answer(question: dict[str, Any]) -> dict[str, Any]:
    import duckdb

    connection = duckdb.connect(
        config={
            "memory_limit": question["memory"],
            "threads": question["threads"],
            "temp_directory": question["temporary"],
            "max_temp_directory_size": question["spill"],
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
            "allow_community_extensions": False,
            "python_enable_replacements": False,
            "preserve_insertion_order": False,
        }
    )
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("SET enable_progress_bar = false")
    paths = [table["path"] for table in question["tables"]]
    connection.execute(f"SET allowed_paths = {_list(paths)}")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
    for table in question["tables"]:
        _make_view(connection, table)
    statements = connection.extract_statements(question["statement"])
    if len(statements) != 1:
        raise _RefusedError("one statement at a time: make a call for each")
    if statements[0].type not in (duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN):
        raise _RefusedError("files.query only reads: SELECT, WITH, VALUES, DESCRIBE, EXPLAIN")
    return _read(connection, statements[0], question)


def _make_view(connection: Any, table: dict[str, Any]) -> None:
    if table["kind"] == "arrow":
        rows = _arrow_table(table["path"])
        for name in table["names"]:
            connection.register(name, rows)
        return
    columns = ", ".join(f"{_name(n)}: {_text(kind)}" for n, kind in table.get("columns", ()))
    source = _READERS[table["kind"]].format(
        path=_text(table["path"]),
        columns=f"{{{columns}}}",
        separator=_text(table.get("separator", ",")),
    )
    first, *others = table["names"]
    connection.execute(f"CREATE VIEW {_name(first)} AS FROM {source}")
    for name in others:
        connection.execute(f"CREATE VIEW {_name(name)} AS FROM {_name(first)}")


def _arrow_table(path: str) -> Any:
    """A file of Arrow, or a stream of it, as it lies in the file."""
    try:
        pyarrow: Any = importlib.import_module("pyarrow")
    except ImportError:
        raise _RefusedError("files of Arrow need pyarrow: pip install pyarrow") from None
    source = pyarrow.memory_map(path)
    try:
        return pyarrow.ipc.open_file(source).read_all()
    except pyarrow.ArrowInvalid:
        source.seek(0)
    try:
        return pyarrow.ipc.open_stream(source).read_all()
    except (pyarrow.ArrowInvalid, OSError) as error:
        raise _RefusedError(f"{path.rpartition('/')[2]} is no file of Arrow: {error}") from None


def _read(connection: Any, statement: Any, question: dict[str, Any]) -> dict[str, Any]:
    import duckdb

    values = question["params"]
    if statement.type == duckdb.StatementType.SELECT:
        relation = connection.sql(statement.query, params=values)
        kinds = [str(kind) for kind in relation.types]
        columns = list(relation.columns)
        moments = [any(word in kind for word in _MOMENTS) for kind in kinds]
        cells = [
            f"CAST(#{number} AS VARCHAR)" if kind.startswith(_MOMENTS) else f"#{number}"
            for number, kind in enumerate(kinds, 1)
        ]
        cursor = relation.select(", ".join(cells)) if any(moments) else relation
        fetch = cursor.fetchmany
    else:
        cursor = connection.execute(statement, values)
        columns = [str(column[0]) for column in cursor.description]
        kinds = ["VARCHAR"] * len(columns)
        fetch = cursor.fetchmany
    most, held = question["limit"], 0
    rows: list[list[Any]] = []
    texts: dict[str, str] = {}
    while batch := fetch(_BATCH):
        for row in batch:
            if len(rows) == most:
                return {"columns": columns, "rows": rows, "more": True, "texts": texts}
            made = [
                _moment(value, kind, name, texts) if kind.startswith(_MOMENTS) else _plain(value)
                for value, kind, name in zip(row, kinds, columns, strict=True)
            ]
            held += sum(map(_weight, made))
            if held > question["bytes"]:
                return {"large": len(rows) + 1}
            rows.append(made)
    return {"columns": columns, "rows": rows, "more": False, "texts": texts}


def _weight(value: Any) -> int:
    return len(value) + 48 if isinstance(value, (str, bytes)) else len(str(value)) + 32


def _plain(value: Any) -> Any:
    return bytes(value) if isinstance(value, bytearray) else value


def _moment(value: str | None, kind: str, name: str, texts: dict[str, str]) -> Any:
    """A date, a time or a duration; its text where Python has none."""
    if value is None:
        return None
    made = _duration(value) if kind.startswith("INTERVAL") else _date_or_time(value, kind)
    if made is None:
        texts.setdefault(name, value)
        return value
    return made


def _date_or_time(value: str, kind: str) -> Any:
    fraction = value.partition(".")[2]
    if len(re.split(r"[^0-9]", fraction, maxsplit=1)[0].rstrip("0")) > 6 or value.startswith("24"):
        return None
    read = {"DATE": dt.date, "TIME": dt.time}.get(kind.partition(" ")[0], dt.datetime)
    try:
        return read.fromisoformat(value)
    except ValueError:
        return None


def _duration(value: str) -> dt.timedelta | None:
    found = _DURATION.fullmatch(value)
    if found is None or not value:
        return None
    days, sign, hours, minutes, seconds = found.groups()
    clock = dt.timedelta(
        hours=int(hours or 0), minutes=int(minutes or 0), seconds=float(seconds or 0)
    )
    try:
        return dt.timedelta(days=int(days or 0)) + (-clock if sign else clock)
    except OverflowError:
        return None


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _name(value: str) -> str:
    return '"' + value.replace('"', '""') + '"'


def _list(values: list[str]) -> str:
    return "[" + ", ".join(map(_text, values)) + "]"


def _first_lines(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return "; ".join(line for line in lines if not line.startswith(("LINE ", "^")))[:600]


if __name__ == "__main__":
    main()
