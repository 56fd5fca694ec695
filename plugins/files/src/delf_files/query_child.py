"""DuckDB over the files of one request, in a child process with a scratch folder.

The process can open only these files and write only in its folder. DuckDB also loads no extension,
and statements cannot change settings.
"""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from delf.errors import ToolExecutionError, ToolRefusedError
from delf.notes import note
from delf.values.conversion import unique_names
from delf_confined.duckdb_values import (
    CONFINED,
    prevent_import_of_pandas,
    python_row,
    select_items,
)
from delf_confined.words import shorten_message
from delf_files.arrow_schema import note_durations
from delf_files.forms import DETECTION_BYTES, refuse_other_format
from delf_files.large import (
    utf8_of,
    write_items_as_json_lines,
    write_json_lines,
    write_table,
)
from delf_files.query_rows import write_rows
from delf_files.reading import file_name_in_errors, format_of, table_of_format

READERS: Final = {
    "parquet": "read_parquet({path}, hive_partitioning = false)",
    "csv": "read_csv({path}, auto_detect = false, header = false, columns = {columns}, "
    "delim = ',', quote = '\"', escape = '\"', new_line = '\\r\\n', null_padding = {ragged}, "
    "hive_partitioning = false, parallel = {parallel}, max_line_size = {max_record_bytes}, "
    "buffer_size = {buffer})",
    "json": "read_json({path}, sample_size = -1, maximum_object_size = {max_record_bytes}, "
    "hive_partitioning = false{typed})",
    "rows": "read_json({path}, format = 'newline_delimited', columns = {columns}, "
    "hive_partitioning = false)",
}
# _BLANK matches white space or a comment. _EXPLAIN matches EXPLAIN with its options up to the
# explained statement, if all options are allowed.
_BLANK: Final = r"(?:\s|--[^\n]*(?:\n|$)|/\*(?s:.*?)\*/)"
_EXPLAIN: Final = re.compile(
    rf"{_BLANK}*EXPLAIN(?={_BLANK}|\()"
    rf"(?:{_BLANK}*\({_BLANK}*(?P<options>(?:ANALYZE|FORMAT|VERBOSE)\b[\w\s,']*)\)"
    rf"|(?P<analyze>{_BLANK}+ANALY[SZ]E\b)?(?:{_BLANK}+VERBOSE\b)?)",
    re.IGNORECASE,
)
_WHOLE_FILE: Final = None
"""The only part of a file whose format has no names for tables."""
_GLOB_CHARACTER: Final = re.compile(r"[*?\[]")
_ROWS_PER_BATCH: Final = 500
_MIN_BUFFER_BYTES: Final = 32 * 1024 * 1024
_MAX_OBJECT_BYTES: Final = 48 * 1024 * 1024
_MIN_OBJECT_BYTES: Final = 16 * 1024 * 1024
_MIN_LINE_BYTES: Final = 2 * 1024 * 1024
# The prefixes of the types that DuckDB infers from JSON texts, and that stay text here.
_TEXT_TYPES: Final = ("date", "time", "interval", "uuid")
# A pattern for JSON numbers that a float would change.
_INEXACT_NUMBER: Final = (
    r"(^|[\[:,\s])-?(9\d{15}|\d{17,})([,\]}\s]|$)|\d[eE]\+?(309|3[1-9]\d|[4-9]\d\d|\d{4,})"
)


async def run_request(request: dict[str, Any]) -> dict[str, Any]:
    """Run the SQL statement of a request over the files of the request.

    Args:
        request: The statement with its parameters, files and limits, as
            :func:`delf_files.query.query` makes it.

    Returns:
        A dict with ``columns``, ``rows``, ``more`` (whether there are further rows), and ``texts``:
        for each column with values that no Python type can represent, one such value as text.

    Raises:
        ToolRefusedError: If the statement may change something.
        ToolExecutionError: If the statement fails or returns too much.
    """
    import duckdb

    tables: list[dict[str, Any]] = []
    for file in request["files"]:
        tables += await _tables_of_file(file, request)
    request = {**request, "tables": tables}
    try:
        return _run_allowing_duplicate_json_keys(request)
    except duckdb.Error as error:
        message = f"DuckDB: {shorten_message(_with_file_names(str(error), request))}"
    except (ValueError, OSError) as error:
        message = _with_file_names(str(error), request)
    raise ToolExecutionError(message)


async def _tables_of_file(file: dict[str, Any], request: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the tables in a file that an SQL statement may need.

    Plugins read workbooks and databases, which may have several tables. DuckDB reads all other
    files, which are one table each.

    Args:
        file: The data about the file, as :func:`delf_files.query.query` makes them: the ``names``
            that a statement can use for the file, its ``path`` and its ``kind``.
        request: The request with the statement, as :func:`run_request` gets it.
    """
    names: list[str] = file["names"]
    copy_path = str(Path.cwd() / file["copy_path"])
    if file["kind"] == "plugin_format":
        return await _tables_of_plugin_format(file, copy_path, request)
    if file["kind"] in ("csv", "json"):
        _refuse_content_of_other_format(file["path"], names[0])
    return [{**file, "header": _header_row(names, request), "copy_path": copy_path}]


async def _tables_of_plugin_format(
    file: dict[str, Any], copy_path: str, request: dict[str, Any]
) -> list[dict[str, Any]]:
    """Write the first table of a file, and the tables that the statement names, as JSON lines.

    Args:
        file: The data about the file.
        copy_path: The beginning of the paths of the files to write.
        request: The request with the statement.

    Returns:
        The data about the written files.
    """
    path: str = file["path"]
    file_names: list[str] = file["names"]
    file_format = format_of(file["factory"])
    tables: list[dict[str, Any]] = []
    with file_name_in_errors(file_names[0]):
        parts = await file_format.parts(path)
        # A format whose tables have no names reads the whole file as one table.
        for number, part in enumerate(parts or [_WHOLE_FILE]):
            is_first = number == 0
            names = _table_names(file_names, part, is_first=is_first)
            if not is_first and not has_quoted_name(request["statement"], names):
                continue
            rows_path = f"{copy_path}-{number}.jsonl"
            header = _header_row(names, request)
            column_names, rows = await table_of_format(file_format, path, part, header)
            columns = write_rows(column_names, rows, rows_path)
            del rows  # frees the memory before the next table is read
            tables.append({"names": names, "kind": "rows", "path": rows_path, "columns": columns})
    return tables


def _table_names(file_names: Sequence[str], part: str | None, *, is_first: bool) -> list[str]:
    """Return the names of a table in statements, such as ``book.xlsx/Sales``.

    A file's first table also has the name of the file, such as ``book.xlsx``.
    """
    names: list[str] = []
    if part is not _WHOLE_FILE:
        names += [f"{file_name}/{part}" for file_name in file_names]
    if is_first:
        names += file_names
    return names


def _header_row(names: Sequence[str], request: dict[str, Any]) -> int | None:
    """Return the number of the row with a table's column names; None if the caller set none.

    Args:
        names: The names of the table in statements.
        request: The request. Its ``headers`` map such names to numbers of rows, from 1; 0 means
            that no row has column names.
    """
    return next((request["headers"][name] for name in names if name in request["headers"]), None)


def _refuse_content_of_other_format(path: str, name: str) -> None:
    """Raise if the first bytes of a file belong to another format than its name says.

    Raises:
        ToolExecutionError: If the file is of another format, or cannot be read.
    """
    try:
        with Path(path).open("rb") as data:
            refuse_other_format(data.read(DETECTION_BYTES))
    except OSError as error:
        raise ToolExecutionError(f"{name} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ToolExecutionError(f"{name}: {error}") from None


def _run_allowing_duplicate_json_keys(request: dict[str, Any]) -> dict[str, Any]:
    """Run a request's statement, and once more if DuckDB refuses a JSON object with duplicate keys.

    The second run reads copies of the JSON files, without duplicate keys.
    """
    import duckdb

    try:
        return _run_request_once(request)
    except duckdb.InvalidInputException as error:
        if "duplicate key" not in str(error):
            raise
    tables = [{**table, "has_duplicate_keys": True} for table in request["tables"]]
    return _run_request_once({**request, "tables": tables})


def _run_request_once(request: dict[str, Any]) -> dict[str, Any]:
    """Run the SQL statement of a request in a DuckDB connection.

    The connection can read no files of the user except those of the request's tables.

    Args:
        request: The request, as :func:`run_request` gets it, with all tables that are needed.
    """
    import duckdb

    prevent_import_of_pandas()
    connection = duckdb.connect(
        config={
            **CONFINED,
            "memory_limit": request["memory"],
            "threads": request["threads"],
            # Statements can read this folder, which has only what DuckDB writes during the query.
            "temp_directory": str(Path.cwd() / "spill"),
            "max_temp_directory_size": request["spill"],
        }
    )
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("SET enable_progress_bar = false")
    tables = [_prepare_file(table) for table in request["tables"]]
    paths: list[str] = []
    for table in tables:
        paths.append(table["path"])
        if "copy_path" in table:
            paths.append(table["copy_path"])
    # In this order: allowed_paths cannot be set without external access, and the locked
    # configuration cannot be changed.
    connection.execute(f"SET allowed_paths = {_list(paths)}")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
    for table in tables:
        _create_views(connection, table)
        _add_note_if_empty(connection, table)
    statement = _check_statement(connection, request["statement"])
    return _read(connection, statement, request)


def _check_statement(connection: Any, text: str) -> Any:
    """Parse a text that must be a single SELECT, or EXPLAIN of a SELECT.

    Raises:
        ToolRefusedError: If the text is any other statement, or several statements.
    """
    import duckdb

    statements = connection.extract_statements(text)
    if len(statements) != 1:
        raise ToolRefusedError("one statement at a time: make a call for each")
    (statement,) = statements
    if statement.type == duckdb.StatementType.EXPLAIN:
        head, explained_text = _split_explain(statement.query)
        explained = _check_statement(connection, explained_text)
        if explained.type == duckdb.StatementType.SELECT:
            # Run the statement that was checked; the original text might be parsed differently.
            return connection.extract_statements(f"{head} {explained.query}")[0]
    elif statement.type == duckdb.StatementType.SELECT:
        return statement
    raise ToolRefusedError("files.query only reads: SELECT, WITH, VALUES, DESCRIBE, EXPLAIN")


def _split_explain(text: str) -> tuple[str, str]:
    """Split a text into EXPLAIN with its options, and the explained statement.

    Raises:
        ToolRefusedError: If the options are unknown.
    """
    match = _EXPLAIN.match(text)
    if match is None:
        raise ToolRefusedError("files.query cannot read this EXPLAIN: EXPLAIN SELECT … works")
    head = "EXPLAIN ANALYZE" if match["analyze"] else "EXPLAIN"
    options = f" ({match['options']})" if match["options"] else ""
    return head + options, text[match.end() :]


def _prepare_file(table: dict[str, Any]) -> dict[str, Any]:
    """Prepare the file of a table such that DuckDB reads the same rows as ``files.read``.

    Text files are rewritten where necessary.

    Returns:
        The data of the table, with the path of the prepared file.
    """
    if table["kind"] == "csv":
        return _prepare_separated(table)
    if table["kind"] == "json":
        # A file in another encoding is copied to ``copy_path`` as UTF-8. If the JSON must also be
        # rewritten as lines, _json_source() reads this copy and writes a second one.
        copy_path = table["copy_path"]
        path = plain_path(utf8_of(table["path"], copy_path, table["names"][0]))
        return {**table, "path": path, "copy_path": f"{copy_path}.lines"}
    if table["kind"] == "parquet":
        return {**table, "path": plain_path(table["path"])}
    return table


def _prepare_separated(table: dict[str, Any]) -> dict[str, Any]:
    """Copy a CSV or TSV file in the form that DuckDB reads: with commas, without the header.

    Return the table's data for the copy.
    """
    name = table["names"][0]
    copy_path = table["copy_path"]
    try:
        rewritten = write_table(table["path"], table["ending"], copy_path, name, table["header"])
    except ValueError as error:
        raise ToolRefusedError(f"{name}: {error}") from None
    return {
        **table,
        "path": copy_path,
        "columns": [[column, "VARCHAR"] for column in unique_names(rewritten.columns, str.lower)],
        "ragged": rewritten.ragged,
        # A cell of quotes takes twice its size, because each quote in the cell is doubled.
        "max_record_bytes": max(2 * rewritten.max_row_bytes, _MIN_LINE_BYTES),
    }


def _create_views(connection: Any, table: dict[str, Any]) -> None:
    """Create a view of a table under each name that the statement may use for the table.

    Also add notes about columns that DuckDB had to rename, and about columns with durations.
    """
    if table["kind"] == "arrow":
        rows = arrow_table(table["path"])
        for name in table["names"]:
            connection.register(name, rows)
        return
    source = _json_source(connection, table) if table["kind"] == "json" else _source(table)
    first, *others = table["names"]
    connection.execute(f"CREATE VIEW {quoted_name(first)} AS FROM {source}")
    if table["kind"] != "json":  # _json_source() has added the notes for JSON
        described = connection.sql(f"DESCRIBE {quoted_name(first)}").fetchall()
        _add_notes_about_renamed_columns([str(row[0]) for row in described], first)
    if table["kind"] == "parquet":
        note_durations(connection, table["path"], first)
    for name in others:
        connection.execute(f"CREATE VIEW {quoted_name(name)} AS FROM {quoted_name(first)}")


def _add_note_if_empty(connection: Any, table: dict[str, Any]) -> None:
    if table["kind"] == "rows":
        return  # table_of_format() has added a note when it read these rows
    name = table["names"][0]
    if not connection.sql(f"FROM {quoted_name(name)} LIMIT 1").fetchall():
        note(f"{name} has no rows")


def _source(table: dict[str, Any], **fields: str) -> str:
    """Return the SQL that reads a table's file.

    Args:
        table: The data of the table.
        **fields: Values of further fields of the template in :data:`READERS`.
    """
    # Whether short rows are padded. DuckDB cannot do that in parallel if a cell has a line break.
    ragged = bool(table.get("ragged"))
    # The limit for the size of a line of separated values, or of an object in JSON.
    max_record_bytes = int(table.get("max_record_bytes", 0))
    # DuckDB refuses a buffer that is not larger than the limit for a line.
    buffer_bytes = max(2 * max_record_bytes, _MIN_BUFFER_BYTES)
    return READERS[table["kind"]].format(
        path=text_literal(table["path"]),
        columns=_struct(dict(table.get("columns", ()))),
        ragged=str(ragged).lower(),
        parallel=str(not ragged).lower(),
        max_record_bytes=max_record_bytes,
        buffer=buffer_bytes,
        **fields,
    )


def _json_source(connection: Any, table: dict[str, Any]) -> str:
    """Return the SQL that reads a JSON file without changing any value.

    A file that DuckDB cannot read without loss is rewritten first, as JSON lines at the path
    ``table["copy_path"]``.
    """
    has_duplicate_keys = "has_duplicate_keys" in table
    relation = None if has_duplicate_keys else _relation_of_json(connection, table)
    if relation is None:
        table, relation = _rewritten_json(connection, table)
        # Rewriting gave numbers to keys that differ only by case.
        for names in (relation.columns, *_names_of_fields(relation.types)):
            _add_notes_about_renamed_columns(names, table["names"][0])
    inferred_types = dict(zip(relation.columns, map(str, relation.types), strict=True))
    types = _lossless_types(connection, table, relation)
    declared_types = types if types != inferred_types else None
    return _json_rows(table, declared_types)


def _rewritten_json(connection: Any, table: dict[str, Any]) -> tuple[dict[str, Any], Any]:
    """Rewrite a JSON file as JSON lines.

    Return the data of the table that is made of the new file, and the table's rows.
    """
    import duckdb

    write = write_items_as_json_lines if table["ending"] == ".json" else write_json_lines
    source, target = table["path"], table["copy_path"]
    file_name = table["names"][0]  # for messages
    new_table = {**table, "path": target}
    write(source, target, file_name)
    try:
        return new_table, connection.sql(f"FROM {_json_rows(new_table)}")
    except duckdb.NotImplementedException:  # keys of inner objects differ only by case
        write(source, target, file_name, renames_inner_keys=True)
        return new_table, connection.sql(f"FROM {_json_rows(new_table)}")


def _relation_of_json(connection: Any, table: dict[str, Any]) -> Any | None:
    """Return the rows of a JSON file; None if the file has to be rewritten first.

    JSON lines have to be rewritten if a line is broken, because DuckDB does not skip the line. Any
    file has to be rewritten if an object has keys that differ only by case, such as ``id`` and
    ``ID``.
    """
    import duckdb

    try:
        relation = connection.sql(f"FROM {_json_rows(table)}")
    except duckdb.Error as error:
        may_have_broken_line = table["ending"] != ".json"
        has_similar_inner_keys = "Duplicate name" in str(error)
        if may_have_broken_line or has_similar_inner_keys:
            return None
        raise
    # If keys of the outer objects differ only by case, DuckDB raises no error, but renames a
    # column.
    has_similar_keys = bool(_probably_renamed_columns(relation.columns))
    return None if has_similar_keys else relation


def _json_rows(table: dict[str, Any], types: Mapping[str, str] | None = None) -> str:
    """Return the SQL that reads a JSON file; without ``types``, DuckDB infers the types."""
    # No object of the file is larger than the file; the further byte is a margin.
    needed_bytes = Path(table["path"]).stat().st_size + 1
    max_object_bytes = min(max(needed_bytes, _MIN_OBJECT_BYTES), _MAX_OBJECT_BYTES)
    typed = "" if types is None else f", columns = {_struct(dict(types))}"
    return _source({**table, "max_record_bytes": max_object_bytes}, typed=typed)


class _ValuesOfColumn(NamedTuple):
    """The kinds of values in a column of a JSON file."""

    has_inexact_number: bool
    """True if a number has more digits than a float, such as ``0.12345678901234567890``."""
    is_nested: bool
    """True if a value is an object or an array."""


def _lossless_types(connection: Any, table: dict[str, Any], relation: Any) -> dict[str, str]:
    """Return, for each column of a JSON file, the type with which DuckDB changes no value.

    Args:
        connection: The connection to DuckDB.
        table: The data of the table.
        relation: The rows of the file, with the types that DuckDB inferred.
    """
    types = dict(zip(relation.columns, map(_json_type, relation.types), strict=True))
    # Numbers with many digits, such as 0.12345678901234567890, would lose digits as DOUBLE.
    columns_to_check = [name for name, kind in types.items() if "DOUBLE" in kind or kind == "JSON"]
    if not columns_to_check:
        return types
    inexact_columns: list[str] = []
    for name, values in _inspect_columns(connection, table, columns_to_check).items():
        # A column has the type JSON if it has mixed values, or objects with an empty key.
        is_json = types[name] == "JSON"
        # Such a column, or one with inexact numbers, is read as JSON if a value is an object or an
        # array, and otherwise as text.
        if is_json or values.has_inexact_number:
            types[name] = "JSON" if values.is_nested else "VARCHAR"
        # The note is only about columns that DuckDB would have read as DOUBLE.
        if values.has_inexact_number and not is_json:
            inexact_columns.append(name)
    if inexact_columns:
        column_list = ", ".join(map(repr, inexact_columns))
        file = table["names"][0]
        note(f"{file} has numbers that fit no float, and they were read as text: {column_list}")
    return types


def _inspect_columns(
    connection: Any, table: dict[str, Any], columns: Sequence[str]
) -> dict[str, _ValuesOfColumn]:
    """Read columns of a JSON file; return the kinds of values in each column, by its name."""
    raw = _json_rows(table, dict.fromkeys(columns, "JSON"))
    checks: list[str] = []
    for name in columns:
        text = f"CAST({quoted_name(name)} AS VARCHAR)"
        checks.append(f"bool_or(regexp_matches({text}, {text_literal(_INEXACT_NUMBER)}))")
        checks.append(f"bool_or(json_type({quoted_name(name)}) IN ('OBJECT', 'ARRAY'))")
    (row,) = connection.sql(f"SELECT {', '.join(checks)} FROM {raw}").fetchall()  # noqa: S608
    # The row has two results for each column: _INEXACT_NUMBER was found, the type is nested.
    results = map(_ValuesOfColumn, row[::2], row[1::2])
    return dict(zip(columns, results, strict=True))


def _json_type(kind: Any) -> str:
    """Return the SQL name of a type that DuckDB inferred from JSON.

    VARCHAR replaces each type that DuckDB guessed from the form of texts: a DATE would lose its
    time zone, and a UUID its upper case. JSON replaces the type of an object that has an empty key,
    because each field of a STRUCT needs a name.
    """
    if kind.id == "struct":
        if any(not name for name, _ in kind.children):
            return "JSON"
        fields = (f"{quoted_name(name)} {_json_type(child)}" for name, child in kind.children)
        return f"STRUCT({', '.join(fields)})"
    if kind.id == "list":
        ((_, item_type),) = kind.children
        return f"{_json_type(item_type)}[]"
    if kind.id == "map":
        return f"MAP({', '.join(_json_type(child) for _, child in kind.children)})"
    return "VARCHAR" if kind.id.startswith(_TEXT_TYPES) else str(kind)


def _names_of_fields(kinds: Iterable[Any]) -> Iterator[list[str]]:
    """Yield the field names of each object type in ``kinds``, including nested object types."""
    for kind in kinds:
        if kind.id in ("struct", "list", "map"):
            if kind.id == "struct":
                yield [name for name, _ in kind.children]
            yield from _names_of_fields(child for _, child in kind.children)


def _add_notes_about_renamed_columns(names: list[str], about: str) -> None:
    """Add a note to the call's result for each column that was renamed because SQL ignores case.

    Args:
        names: The names of all columns.
        about: The table or result that has the columns, for the note.
    """
    for name, explanation in _probably_renamed_columns(names).items():
        note(f"{about}: SQL cannot tell names apart by their case: {name!r} is {explanation}")


def _probably_renamed_columns(names: list[str]) -> dict[str, str]:
    """Find the columns that were renamed because their names differ from others only in case.

    A column ``ID_2`` was probably renamed if there is a column ``id``, but no column ``ID``.

    Returns:
        A mapping from the new name, such as ``ID_2``, to the reason, such as ``'ID' beside 'id'``.
    """
    # Reversed, so that the first of several names that differ only in case is used.
    names_by_folded = {name.lower(): name for name in reversed(names)}
    reasons: dict[str, str] = {}
    for name in names:
        original, _, number = name.rpartition("_")
        similar_name = names_by_folded.get(original.lower())
        if number.isdigit() and similar_name is not None and original not in names:
            reasons[name] = f"{original!r} beside {similar_name!r}"
    return reasons


def _struct(kinds: dict[str, str]) -> str:
    fields = ", ".join(f"{quoted_name(name)}: {text_literal(kind)}" for name, kind in kinds.items())
    return f"{{{fields}}}"


def arrow_table(path: str) -> Any:
    """Return the table in an Arrow file or stream, memory-mapped.

    Raises:
        ToolRefusedError: If pyarrow is not installed, or the file is not an Arrow file.
    """
    try:
        pyarrow: Any = importlib.import_module("pyarrow")
    except ImportError:
        raise ToolRefusedError("files of Arrow need pyarrow: pip install pyarrow") from None
    source = pyarrow.memory_map(path)
    try:
        return pyarrow.ipc.open_file(source).read_all()
    except pyarrow.ArrowInvalid:  # not in the file format, but perhaps in the stream format
        source.seek(0)
    try:
        return pyarrow.ipc.open_stream(source).read_all()
    except (pyarrow.ArrowInvalid, OSError) as error:
        raise ToolRefusedError(
            f"{path.rpartition('/')[2]} is not a file of Arrow: {error}"
        ) from None


class _Result(NamedTuple):
    """The result of a statement.

    Args:
        cursor: A cursor whose rows :func:`python_row` converts to Python values.
        columns: The names of the columns.
        kinds: The types of the columns.
    """

    cursor: Any
    columns: list[str]
    kinds: list[str]


def _run_with_texts(connection: Any, statement: Any, parameters: Any) -> _Result:
    """Run a statement; for values that Python cannot represent, select their texts, too."""
    import duckdb

    if statement.type != duckdb.StatementType.SELECT:  # EXPLAIN
        cursor = connection.execute(statement, parameters)
        columns = [str(column[0]) for column in cursor.description]
        return _Result(cursor, columns, ["VARCHAR"] * len(columns))
    relation = connection.sql(statement.query, params=parameters)
    kinds = [str(kind) for kind in relation.types]
    positions = [f"#{number}" for number in range(1, len(kinds) + 1)]  # DuckDB's #1 is column 1
    items = select_items(positions, kinds)
    cursor = relation.select(", ".join(items))
    return _Result(cursor, list(relation.columns), kinds)


def _read(connection: Any, statement: Any, request: dict[str, Any]) -> dict[str, Any]:
    """Run a checked statement, and return the rows in the format of :func:`run_request`.

    Args:
        connection: The DuckDB connection.
        statement: The statement, parsed by DuckDB.
        request: The request, as :func:`run_request` gets it, with the statement's parameters.
    """
    result = _run_with_texts(connection, statement, request["params"])
    total_bytes = 0
    rows: list[list[Any]] = []
    # For each column with values that became text, the first such text as an example for a note.
    texts: dict[str, str] = {}
    has_more = False
    for row in _fetch_rows(result.cursor):
        has_more = len(rows) == request["limit"]
        if has_more:
            break
        cells, indices_of_texts = python_row(row, result.kinds)
        for index in indices_of_texts:
            texts.setdefault(result.columns[index], cells[index])
        total_bytes += sum(map(_approximate_bytes, cells))
        if total_bytes > request["bytes"]:
            raise ToolExecutionError(
                f"the result is larger than {request['bytes']:,} bytes after {len(rows) + 1} "
                "rows: select fewer columns or rows, or aggregate in SQL"
            )
        rows.append(cells)
    return {"columns": result.columns, "rows": rows, "more": has_more, "texts": texts}


def _fetch_rows(cursor: Any) -> Iterator[Sequence[Any]]:
    while batch := cursor.fetchmany(_ROWS_PER_BATCH):
        yield from batch


def _approximate_bytes(value: Any) -> int:
    """Estimate the memory of a value in bytes, including the fixed size of a Python object."""
    if isinstance(value, (str, bytes)):
        return len(value) + 48
    return len(str(value)) + 32


def has_quoted_name(statement: str, names: Sequence[str], *, may_name_table: bool = False) -> bool:
    """Return True if a statement contains one of the names in single or double quotes.

    Args:
        statement: The statement.
        names: The names.
        may_name_table: Whether a table's name may follow a name, as in ``book.xlsx/Sales``.
    """
    for quoted in [*map(text_literal, names), *map(quoted_name, names)]:
        quote = quoted[0]
        # Two quotes stand for one quote within a name, as in 'it''s.csv'. So only a single quote
        # begins or ends a name.
        beginning = f"(?<!{quote})" + re.escape(quoted[:-1])
        end = f"{quote}(?!{quote})"
        if may_name_table:
            end += "|/"
        if re.search(f"{beginning}(?:{end})", statement):
            return True
    return False


def plain_path(path: str) -> str:
    """Return a path that leads to the same file, and that DuckDB does not take for a glob pattern.

    For a path with ``*``, ``?`` or ``[``, open the file, and return the path of its descriptor. The
    file stays open until the process ends.
    """
    if not _GLOB_CHARACTER.search(path):
        return path
    return f"/proc/self/fd/{os.open(path, os.O_RDONLY)}"


def text_literal(value: str) -> str:
    """Return a text as SQL, in single quotes."""
    return "'" + value.replace("'", "''") + "'"


def quoted_name(value: str) -> str:
    """Return a name as SQL, in double quotes."""
    return '"' + value.replace('"', '""') + '"'


def _list(values: list[str]) -> str:
    return "[" + ", ".join(map(text_literal, values)) + "]"


def _with_file_names(message: str, request: dict[str, Any]) -> str:
    """Replace paths in a message by the names that the statement can use for the files.

    Args:
        message: The message of an error.
        request: The request, whose tables have the paths and names.
    """
    for table in request["tables"]:
        message = message.replace(table["path"], table["names"][0])
        if "copy_path" in table:
            message = message.replace(table["copy_path"], table["names"][0])
    return message
