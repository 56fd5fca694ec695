"""DuckDB over the files of one question, in a child process with a scratch folder.

The process can open only these files and write only in its folder. DuckDB also loads no extension,
and statements cannot change settings.
"""

from __future__ import annotations

import datetime as dt
import importlib
import json
import math
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from delf.errors import ToolExecutionError, ToolRefusedError
from delf.notes import note
from delf_confined.words import shorten_message
from delf_files.arrow_schema import note_lengths
from delf_files.dialects import unique_folded
from delf_files.forms import LOOKED_AT, check_form
from delf_files.large import Folding, utf8_of, write_lines, write_table, write_values
from delf_files.query_rows import write_rows
from delf_files.reading import about, format_of, table_of_format

READERS: Final = {
    "parquet": "read_parquet({path}, hive_partitioning = false)",
    "csv": "read_csv({path}, auto_detect = false, header = false, columns = {columns}, "
    "delim = ',', quote = '\"', escape = '\"', new_line = '\\r\\n', null_padding = {ragged}, "
    "hive_partitioning = false, parallel = {parallel}, max_line_size = {longest}, "
    "buffer_size = {buffer})",
    "json": "read_json({path}, sample_size = -1, maximum_object_size = {longest}, "
    "hive_partitioning = false{typed})",
    "rows": "read_json({path}, format = 'newline_delimited', columns = {columns}, "
    "hive_partitioning = false)",
}
_MOMENTS: Final = ("DATE", "TIME", "INTERVAL")
_DURATION: Final = re.compile(r"(?:(-?\d+) days? ?)?(?:(-?)(\d+):(\d\d):(\d\d(?:\.\d{1,6})?))?")
_UNREADABLE: Final = {
    "INTERVAL": r"\d months?|\d years?",
    "DATE": r"infinity|\(BC\)|\d{5,}-\d\d-\d\d",
    "TIMESTAMP": r"infinity|\(BC\)|\d{5,}-\d\d-\d\d",
    "TIMESTAMP_NS": r"\.\d{6}\d*[1-9]",
    "TIME": r"24:00:00",
}
_BLANK: Final = r"(?:\s|--[^\n]*(?:\n|$)|/\*(?s:.*?)\*/)"
_EXPLAIN: Final = re.compile(
    rf"{_BLANK}*EXPLAIN(?={_BLANK}|\()"
    rf"(?:{_BLANK}*\({_BLANK}*(?P<options>(?:ANALYZE|FORMAT|VERBOSE)\b[\w\s,']*)\)"
    rf"|(?P<analyze>{_BLANK}+ANALY[SZ]E\b)?(?:{_BLANK}+VERBOSE\b)?)",
    re.IGNORECASE,
)
_PATTERN: Final = re.compile(r"[*?\[]")
_BATCH: Final = 500
_BUFFER: Final = 32 * 1024 * 1024
_LARGEST_OBJECT: Final = 48 * 1024 * 1024
_SMALLEST_OBJECT: Final = 16 * 1024 * 1024
_SMALLEST_LINE: Final = 2 * 1024 * 1024
_READ_INTO_TEXT: Final = ("date", "time", "interval", "uuid")
"""The prefixes of types that JSON does not have."""
_NO_DOUBLE: Final = (
    r"(^|[\[:,\s])-?(9\d{15}|\d{17,})([,\]}\s]|$)|\d[eE]\+?(309|3[1-9]\d|[4-9]\d\d|\d{4,})"
)
"""A pattern for JSON numbers that a float would change."""


async def answer(question: dict[str, Any]) -> dict[str, Any]:
    """Run the statement; return columns, rows, whether there are more, and text values.

    Raises:
        ToolRefusedError: If the statement does not only read.
        ToolExecutionError: If the statement fails or returns too much.
    """
    import duckdb

    tables = [
        table_of_file
        for table in question["tables"]
        for table_of_file in await _tables(table, question)
    ]
    question = {**question, "tables": tables}
    try:
        return _answer_despite_duplicate_keys(question)
    except duckdb.Error as error:
        text = f"DuckDB: {shorten_message(_with_file_names(str(error), question))}"
    except (ValueError, OSError) as error:
        text = _with_file_names(str(error), question)
    raise ToolExecutionError(text)


async def _tables(table: dict[str, Any], question: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the tables of a file: a single table, or the tables that the statement names."""
    names: list[str] = table["names"]
    path: str = table["path"]
    table = {**table, "header": _header_of(names, question)}
    copy = str(Path.cwd() / table["copy"])
    if table["kind"] != "special":
        if table["kind"] in ("csv", "json"):
            _check_form(path, names[0])
        return [{**table, "copy": copy}]
    special = format_of(table["factory"])
    tables: list[dict[str, Any]] = []
    with about(names[0]):
        parts = [*await special.parts(path)] or [None]
    for number, part in enumerate(parts):
        own = [f"{name}/{part}" for name in names] if part is not None else []
        own = [*own, *(names if number == 0 else [])]
        statement = question["statement"]
        if number and not any(form in statement for name in own for form in quoted_forms(name)):
            continue
        rows = f"{copy}-{number}.jsonl"
        with about(names[0]):
            row = _header_of(own, question)
            columns = write_rows(*await table_of_format(special, path, part, row), rows)
        tables.append({"names": own, "kind": "rows", "path": rows, "columns": columns})
    return tables


def _header_of(names: Sequence[str], question: dict[str, Any]) -> int | None:
    """Return the number of a table's header row."""
    return next((question["headers"][name] for name in names if name in question["headers"]), None)


def _check_form(path: str, name: str) -> None:
    try:
        with Path(path).open("rb") as data:
            check_form(data.read(LOOKED_AT))
    except OSError as error:
        raise ToolExecutionError(f"{name} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ToolExecutionError(f"{name}: {error}") from None


def _answer_despite_duplicate_keys(question: dict[str, Any]) -> dict[str, Any]:
    """Run the statement; if a JSON key occurs twice, once more over rewritten JSON lines."""
    import duckdb

    try:
        return _answer(question)
    except duckdb.InvalidInputException as error:
        json_tables = [table for table in question["tables"] if table["kind"] == "json"]
        if "duplicate key" not in str(error) or not json_tables:
            raise
    for table in json_tables:
        copy = f"{table['copy']}.once"
        path = utf8_of(table["path"], table["copy"], "")
        write = write_values if table["ending"] == ".json" else write_lines
        write(path, copy, table["names"][0])
        table.update(path=copy, ending=".jsonl")
    return _answer(question)


def _answer(question: dict[str, Any]) -> dict[str, Any]:
    """Answer a question in a DuckDB that can read only the files of the question."""
    import duckdb

    connection = duckdb.connect(
        config={
            "memory_limit": question["memory"],
            "threads": question["threads"],
            "temp_directory": str(Path.cwd() / "spill"),  # DuckDB lets statements read it
            "max_temp_directory_size": question["spill"],
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
            "allow_community_extensions": False,
            "python_enable_replacements": False,
        }
    )
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("SET enable_progress_bar = false")
    tables = [_prepare(table) for table in question["tables"]]
    paths = [path for table in tables for path in (table["path"], table.get("copy")) if path]
    connection.execute(f"SET allowed_paths = {_list(paths)}")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
    for table in tables:
        _make_view(connection, table)
        _note_empty(connection, table)
    return _read(connection, _check_statement(connection, question["statement"]), question)


def _check_statement(connection: Any, text: str) -> Any:
    """Return the single statement of a text: a SELECT, or EXPLAIN of a SELECT.

    Raises:
        ToolRefusedError: If the text is anything else.
    """
    import duckdb

    statements = connection.extract_statements(text)
    if len(statements) != 1:
        raise ToolRefusedError("one statement at a time: make a call for each")
    (statement,) = statements
    if statement.type == duckdb.StatementType.EXPLAIN:
        head, inner = _explained(statement.query)
        explained = _check_statement(connection, inner)
        if explained.type == duckdb.StatementType.SELECT:
            # Run the statement that was checked; the original text might be parsed differently.
            return connection.extract_statements(f"{head} {explained.query}")[0]
    elif statement.type == duckdb.StatementType.SELECT:
        return statement
    raise ToolRefusedError("files.query only reads: SELECT, WITH, VALUES, DESCRIBE, EXPLAIN")


def _explained(text: str) -> tuple[str, str]:
    """Split EXPLAIN from the explained statement."""
    match = _EXPLAIN.match(text)
    if match is None:
        raise ToolRefusedError("files.query cannot read this EXPLAIN: EXPLAIN SELECT … works")
    head = "EXPLAIN ANALYZE" if match["analyze"] else "EXPLAIN"
    return head + (f" ({match['options']})" if match["options"] else ""), text[match.end() :]


def _prepare(table: dict[str, Any]) -> dict[str, Any]:
    """Convert a text to a form that DuckDB reads like ``files.read``."""
    about, copy = table["names"][0], table.get("copy", "")
    if table["kind"] == "csv":
        try:
            written = write_table(table["path"], table["ending"], copy, about, table["header"])
        except ValueError as error:
            raise ToolRefusedError(f"{about}: {error}") from None
        columns = [[name, "VARCHAR"] for name in unique_folded(written.columns)]
        longest = max(2 * written.longest, _SMALLEST_LINE)  # each quote may be doubled
        return {
            **table,
            "path": copy,
            "columns": columns,
            "ragged": written.ragged,
            "longest": longest,
        }
    if table["kind"] == "json":
        path = plain_path(utf8_of(table["path"], copy, about))
        return {**table, "path": path, "copy": f"{copy}.lines"}
    return {**table, "path": plain_path(table["path"])} if table["kind"] == "parquet" else table


def _make_view(connection: Any, table: dict[str, Any]) -> None:
    """Make a file readable under all its names in the statement."""
    if table["kind"] == "arrow":
        rows = arrow_table(table["path"])
        for name in table["names"]:
            connection.register(name, rows)
        return
    source = _json_source(connection, table) if table["kind"] == "json" else _source(table)
    first, *others = table["names"]
    connection.execute(f"CREATE VIEW {_name(first)} AS FROM {source}")
    if table["kind"] != "json":
        described = connection.sql(f"DESCRIBE {_name(first)}").fetchall()
        _note_renamed([str(row[0]) for row in described], first)
    if table["kind"] == "parquet":
        note_lengths(connection, table["path"], first)
    for name in others:
        connection.execute(f"CREATE VIEW {_name(name)} AS FROM {_name(first)}")


def _note_empty(connection: Any, table: dict[str, Any]) -> None:
    """Add a note about a table without rows, unless its file format adds that note itself."""
    name = table["names"][0]
    if table["kind"] != "rows" and not connection.sql(f"FROM {_name(name)} LIMIT 1").fetchall():
        note(f"{name} has no rows")


def _source(table: dict[str, Any], **fields: str) -> str:
    """Return the SQL that reads a table's file.

    Args:
        table: The description of the table.
        **fields: Further fields of the template in :data:`READERS`.
    """
    ragged, longest = bool(table.get("ragged")), int(table.get("longest", 0))
    return READERS[table["kind"]].format(
        path=_text(table["path"]),
        columns=_struct(dict(table.get("columns", ()))),
        ragged=str(ragged).lower(),
        parallel=str(not ragged).lower(),
        longest=longest,
        buffer=max(2 * longest, _BUFFER),
        **fields,
    )


def _json_source(connection: Any, table: dict[str, Any]) -> str:
    """Return the SQL source of JSON with only JSON's own types, unless a number would change.

    DuckDB would convert texts to dates without time zones, and to lower-case UUIDs.
    """
    import duckdb

    size = Path(table["path"]).stat().st_size
    table = {**table, "longest": max(min(size + 1, _LARGEST_OBJECT), _SMALLEST_OBJECT)}
    try:
        relation = connection.sql(f"FROM {_source(table, typed='')}")
    except duckdb.Error:
        if table["ending"] == ".json" or table["path"] == table["copy"]:
            raise
        write_lines(table["path"], table["copy"], table["names"][0])
        return _json_source(connection, {**table, "path": table["copy"]})
    inferred = dict(zip(relation.columns, map(str, relation.types), strict=True))
    kinds = dict(zip(relation.columns, map(_json_type, relation.types), strict=True))
    inexact = [name for name, kind in kinds.items() if "DOUBLE" in kind or kind == "JSON"]
    if _renamed([*kinds]):
        if table["path"] != table["copy"]:
            write = write_values if table["ending"] == ".json" else write_lines
            write(table["path"], table["copy"], table["names"][0], Folding().renamed)
            return _json_source(connection, {**table, "path": table["copy"]})
        _note_renamed([*kinds], table["names"][0])
    if not inexact and kinds == inferred:
        return _source(table, typed="")
    if not inexact:
        return _source(table, typed=f", columns = {_struct(kinds)}")
    raw = _source(table, typed=f", columns = {_struct(dict.fromkeys(inexact, 'JSON'))}")
    checks = ", ".join(
        f"bool_or(regexp_matches(CAST({_name(name)} AS VARCHAR), {_text(_NO_DOUBLE)})), "
        f"bool_or(json_type({_name(name)}) IN ('OBJECT', 'ARRAY'))"
        for name in inexact
    )
    (row,) = connection.sql(f"SELECT {checks} FROM {raw}").fetchall()  # noqa: S608
    texts: list[str] = []
    for name, is_lost, is_nested in zip(inexact, row[::2], row[1::2], strict=True):
        if is_lost and kinds[name] != "JSON":
            texts.append(name)
        if is_lost or kinds[name] == "JSON":
            kinds[name] = "JSON" if is_nested else "VARCHAR"
    if texts:
        listed = ", ".join(map(repr, texts))
        name = table["names"][0]
        note(f"{name} has numbers that fit no float, and they were read as text: {listed}")
    return _source(table, typed=f", columns = {_struct(kinds)}")


def _json_type(kind: Any) -> str:
    """Return a type without the types that DuckDB infers from JSON texts."""
    if kind.id == "struct":
        fields = (f"{_name(name)} {_json_type(inner)}" for name, inner in kind.children)
        return f"STRUCT({', '.join(fields)})"
    if kind.id == "list":
        return f"{_json_type(kind.children[0][1])}[]"
    if kind.id == "map":
        return f"MAP({', '.join(_json_type(inner) for _, inner in kind.children)})"
    return "VARCHAR" if kind.id.startswith(_READ_INTO_TEXT) else str(kind)


def _note_renamed(names: list[str], about: str) -> None:
    """Add a note about columns such as ``ID`` next to ``id``, renamed because SQL ignores case."""
    for name, new in _renamed(names).items():
        note(f"{about}: SQL cannot tell names apart by their case: {name!r} is {new}")


def _renamed(names: list[str]) -> dict[str, str]:
    """Map each renamed column to a text with its original name and the name it collided with."""
    folded = {name.lower(): name for name in reversed(names)}
    renamed: dict[str, str] = {}
    for name in names:
        own, _, number = name.rpartition("_")
        if number.isdigit() and own not in names and own.lower() in folded:
            renamed[name] = f"{own!r} beside {folded[own.lower()]!r}"
    return renamed


def _struct(kinds: dict[str, str]) -> str:
    return "{" + ", ".join(f"{_name(name)}: {_text(kind)}" for name, kind in kinds.items()) + "}"


def arrow_table(path: str) -> Any:
    """Open an Arrow file or stream, memory-mapped."""
    try:
        pyarrow: Any = importlib.import_module("pyarrow")
    except ImportError:
        raise ToolRefusedError("files of Arrow need pyarrow: pip install pyarrow") from None
    source = pyarrow.memory_map(path)
    try:
        return pyarrow.ipc.open_file(source).read_all()
    except pyarrow.ArrowInvalid:
        source.seek(0)
    try:
        return pyarrow.ipc.open_stream(source).read_all()
    except (pyarrow.ArrowInvalid, OSError) as error:
        raise ToolRefusedError(
            f"{path.rpartition('/')[2]} is not a file of Arrow: {error}"
        ) from None


def _read(connection: Any, statement: Any, question: dict[str, Any]) -> dict[str, Any]:
    """Run a statement, and return its columns and rows up to the limits of the question."""
    import duckdb

    values = question["params"]
    if statement.type == duckdb.StatementType.SELECT:
        relation = connection.sql(statement.query, params=values)
        kinds = [str(kind) for kind in relation.types]
        columns = list(relation.columns)
        cells = [
            f"CAST(#{number} AS VARCHAR)" if _is_moment(kind) else f"#{number}"
            for number, kind in enumerate(kinds, 1)
        ]
        cells += [_unreadable(number, kind) for number, kind in enumerate(kinds, 1)]
        cursor = relation.select(", ".join(cells))
        fetch = cursor.fetchmany
    else:
        cursor = connection.execute(statement, values)
        columns = [str(column[0]) for column in cursor.description]
        kinds = ["VARCHAR"] * len(columns)
        fetch = cursor.fetchmany
    limit, total_bytes = question["limit"], 0
    rows: list[list[Any]] = []
    texts: dict[str, str] = {}
    while batch := fetch(_BATCH):
        for row in batch:
            if len(rows) == limit:
                return {"columns": columns, "rows": rows, "more": True, "texts": texts}
            row_cells = [
                _value(value, kind, name, texts)
                for value, kind, name in zip(row, kinds, columns, strict=False)
            ]
            for number, text in enumerate(row[len(columns) :]):
                if text is not None:
                    row_cells[number] = text
                    texts.setdefault(columns[number], text)
            total_bytes += sum(map(_approximate_bytes, row_cells))
            if total_bytes > question["bytes"]:
                raise ToolExecutionError(
                    f"the result is larger than {question['bytes']:,} bytes after {len(rows) + 1} "
                    "rows: select fewer columns or rows, or aggregate in SQL"
                )
            rows.append(row_cells)
    return {"columns": columns, "rows": rows, "more": False, "texts": texts}


def _is_moment(kind: str) -> bool:
    """Return True for dates, times and intervals, but not for lists of them."""
    return kind.startswith(_MOMENTS) and not kind.endswith("]")


def _unreadable(number: int, kind: str) -> str:
    """Return SQL for the text of a nested value that Python cannot represent, otherwise NULL."""
    if _is_moment(kind):
        return "NULL"
    patterns = [pattern for word, pattern in _UNREADABLE.items() if word in kind]
    text = f"CAST(#{number} AS VARCHAR)"
    condition = f"regexp_matches({text}, {_text('|'.join(patterns))})"
    return f"CASE WHEN {condition} THEN {text} END" if patterns else "NULL"


def _approximate_bytes(value: Any) -> int:
    return len(value) + 48 if isinstance(value, (str, bytes)) else len(str(value)) + 32


def _value(value: Any, kind: str, name: str, texts: dict[str, str]) -> Any:
    """Convert a result value to Python, or to its text."""
    if _is_moment(kind):
        return _moment(value, kind, name, texts)
    if kind == "JSON" and isinstance(value, str):
        return _json_value(value, name, texts)
    return _plain(value)


def _json_value(text: str, name: str, texts: dict[str, str]) -> Any:
    """Parse a JSON text; return the text itself if a float cannot hold a number in it."""
    try:
        return json.loads(text, parse_float=_finite)
    except OverflowError:
        texts.setdefault(name, text)
    except (ValueError, RecursionError):
        pass  # a statement may say JSON of any text
    return text


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise OverflowError(text)
    return number


def _plain(value: Any) -> Any:
    return bytes(value) if isinstance(value, bytearray) else value


def _moment(value: str | None, kind: str, name: str, texts: dict[str, str]) -> Any:
    """Parse a date, time or duration; return its text if Python cannot represent it."""
    if value is None:
        return None
    parsed = _duration(value) if kind.startswith("INTERVAL") else _date_or_time(value, kind)
    if parsed is None:
        texts.setdefault(name, value)
        return value
    return parsed


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
    """Parse an interval of DuckDB; None if it is no timedelta, such as months."""
    match = _DURATION.fullmatch(value)
    if match is None or not value:
        return None
    days, sign, hours, minutes, seconds = match.groups()
    clock = dt.timedelta(
        hours=int(hours or 0), minutes=int(minutes or 0), seconds=float(seconds or 0)
    )
    try:
        return dt.timedelta(days=int(days or 0)) + (-clock if sign else clock)
    except OverflowError:
        return None


def quoted_forms(name: str) -> tuple[str, str, str]:
    """Return a name as SQL may contain it: bare, in single quotes, in double quotes."""
    return name, name.replace("'", "''"), name.replace('"', '""')


def plain_path(path: str) -> str:
    """Return a path to the same file without DuckDB's pattern characters.

    The file stays open until the process ends.
    """
    if not _PATTERN.search(path):
        return path
    return f"/proc/self/fd/{os.open(path, os.O_RDONLY)}"


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _name(value: str) -> str:
    return '"' + value.replace('"', '""') + '"'


def _list(values: list[str]) -> str:
    return "[" + ", ".join(map(_text, values)) + "]"


def _with_file_names(message: str, question: dict[str, Any]) -> str:
    """Replace paths by file names in a message."""
    for table in question["tables"]:
        message = message.replace(table["path"], table["names"][0])
        if "copy" in table:
            message = message.replace(table["copy"], table["names"][0])
    return message
