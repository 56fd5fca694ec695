"""Reading of separated values: separator, columns and rows."""

from __future__ import annotations

import csv
import datetime as dt
import io
import itertools
from collections.abc import Sequence
from typing import Any, Final, TypeVar

from delf.notes import note
from delf.values.conversion import unique_names
from delf_files.dialects import Dialect, dialect_of, has_unclear_escapes, line_of_undoubled_quote
from delf_files.headers import header_of, is_headless

Row = TypeVar("Row", bound="Sequence[Any]")
_MAX_NAMES_CHARACTERS: Final = 400
END: Final = "\0end of the table\0"
"""A marker that is appended to a table's text as its last line.

If a cell ends with the marker and has text before the marker, a quote in the table was not closed.
"""


class TooWideError(ValueError):
    """The rows of a table would take too much memory as records."""


def read_table(
    text: str, *, ending: str = ".csv", most_bytes: int, header: int | None = None
) -> list[dict[str, str]]:
    """Return the rows of separated values as records, every value as text.

    Missing or repeated column names get numbers. Extra cells of a row get a numbered name, and
    missing cells are "".

    Args:
        text: The content of the file.
        ending: The file's extension; for ``.tsv`` and ``.tab``, the separator is the tab.
        most_bytes: The maximum size of all records in bytes, including names, as estimated.
        header: The number of the row with column names, from 1; 0 if no row has column names; None
            for the first non-empty row.

    Raises:
        TooWideError: If the records would be larger than ``most_bytes``.
        ValueError: If the text is not a table.
    """
    dialect = dialect_of(text, ending)
    body = text[dialect.start :]
    numbered_rows = rows_from_header(_rows(body, dialect), header)
    rows = [row for _, row in numbered_rows]
    if len(rows) <= 1:
        note_no_rows(column_names=rows[0] if rows else [])
    if not rows:
        return []
    # A quote inside a quoted cell should be doubled.
    line_with_fault = line_of_undoubled_quote(body, dialect) if dialect.quote else None
    if line_with_fault is not None:
        note_undoubled_quote(line_with_fault)
    note_escapes(body, dialect)
    # With ``header=0``, rows_from_header() has added a row of empty names.
    names, *data_rows = rows
    max_cells = max(map(len, rows))
    if header == 0:
        note_uneven(min(map(len, data_rows)), max_cells)
    wider_rows = [number for number, row in numbered_rows if len(row) > len(names)]
    first_wider_row = wider_rows[0] if wider_rows else 0
    note_wider(len(wider_rows), first_wider_row, len(names), max_cells)
    columns = columns_of(names, max_cells)
    # Each name takes about 6 more bytes, such as for quotes and separators in JSON.
    bytes_of_names = sum(len(name) + 6 for name in columns[: len(names)])
    if len(text) + bytes_of_names * len(rows) > most_bytes:
        raise TooWideError
    return [_record(columns, row, len(names)) for row in data_rows]


def rows_of(text: str, ending: str = ".csv") -> list[tuple[int, list[str]]]:
    """Return the non-empty rows with their numbers, from 1.

    Raises:
        ValueError: If the text is not a table.
    """
    dialect = dialect_of(text, ending)
    return _rows(text[dialect.start :], dialect)


def rows_of_chunk(text: str, dialect: Dialect) -> list[list[str]]:
    """Parse lines from the middle of a table, and return their rows.

    Args:
        text: The lines.
        dialect: The dialect of the whole table.

    Raises:
        ValueError: If the lines are not whole rows, for example inside a quoted cell.
    """
    return [row for _, row in _rows(text, dialect)]


def rows_from_header(rows: list[tuple[int, Row]], header: int | None) -> list[tuple[int, Row]]:
    """Return rows of which the first names the columns.

    Args:
        rows: The non-empty rows with their numbers.
        header: The number of the row with column names; rows above are left out. For 0, a row of
            empty names is added. When None, all rows are returned, with a note if the names seem
            to be in a later row.

    Raises:
        ValueError: If the row does not exist.
    """
    if header == 0:
        nameless: Any = [""] * max((len(row) for _, row in rows), default=0)
        return [(0, nameless), *rows] if rows else []
    if header is not None:
        body = [(number, row) for number, row in rows if number >= header]
        if not body or body[0][0] != header:
            raise ValueError(f"row {header} is empty or not there, so it names no columns")
        return body
    note_unlikely_header(rows)
    return rows


def note_unlikely_header(rows: Sequence[tuple[int, Sequence[Any]]]) -> None:
    """Add a note to the call's result if the first row probably does not name the columns.

    Args:
        rows: The non-empty rows with their numbers.
    """
    first_number = rows[0][0] if rows else 0
    header_index = header_of(rows)
    if is_headless(rows):
        note(
            f"row {first_number} was taken for the names of the columns, and seems to hold values: "
            "header=0 reads it as values"
        )
    elif header_index:
        header_number, _ = rows[header_index]
        note(
            f"row {first_number} was taken for the names of the columns, which seem to be in row "
            f"{header_number}: header={header_number} reads from there"
        )


def _rows(text: str, dialect: Dialect) -> list[tuple[int, list[str]]]:
    """Return the non-empty rows with their numbers, from 1.

    Raises:
        ValueError: If a quote is not closed, or a cell is too large.
    """
    rows: list[tuple[int, list[str]]] = []
    row_start = 1  # the line at which the current row begins
    # After the lines of the text, the reader gets the line END. If all quotes are closed, the line
    # becomes the row [END]; otherwise, it becomes part of the cell with the open quote.
    reader = dialect.reader(itertools.chain(io.StringIO(text, newline=""), [END]))
    problem = "a quote is not closed"
    try:
        for number, row in enumerate(reader, 1):
            if row == [END]:
                return rows
            if row and row[-1].endswith(END):
                break
            if row:
                rows.append((number, row))
            row_start = reader.line_num + 1
    except csv.Error as error:
        problem = str(error)
    raise ValueError(
        f"it cannot be read as a table: line {row_start}: {problem}; open() it in the script"
    )


def note_no_rows(column_names: Sequence[Any]) -> None:
    """Add a note that a table has no rows, apart from a row of column names, if any."""
    if not column_names:
        note("the table is empty: it has no rows, and no names of columns")
    else:
        columns = columns_of(column_names, len(column_names))
        names = ", ".join(map(repr, columns))[:_MAX_NAMES_CHARACTERS]
        note(f"the table has no rows, only the names of columns: {names}")


def note_undoubled_quote(line: int) -> None:
    """Add a note that a line has an undoubled quote inside a quoted cell."""
    note(
        f"line {line} has a quote inside of a quoted cell, which should be doubled: where such "
        "cells end is a guess"
    )


def note_wider(wider_rows: int, first: int, named_columns: int, max_cells: int) -> None:
    """Add a note if rows have more cells than there are column names.

    Args:
        wider_rows: The number of such rows.
        first: The number of the first such row.
        named_columns: The number of column names.
        max_cells: The largest number of cells of a row.
    """
    if wider_rows:
        note(
            f"rows with more cells than the {named_columns} columns that are named: "
            f"{wider_rows:,} (the first is row {first}), with {max_cells} cells at most; their "
            "cells may be in the wrong columns"
        )


def note_uneven(min_cells: int, max_cells: int) -> None:
    """Add a note if rows of a table without column names differ in their number of cells."""
    if min_cells < max_cells:
        note(
            f"rows have from {min_cells} to {max_cells} cells, so cells may be in the wrong columns"
        )


def note_escapes(text: str, dialect: Dialect) -> None:
    """Add a note if backslashes before quotes may be either escapes or part of the text."""
    if not has_unclear_escapes(text, dialect):
        return
    if dialect.backslash:
        note("backslashes before quotes were left out, and may be part of the text")
    else:
        note("backslashes before quotes were kept, and may be no part of the text")


def records_of(rows: list[list[Any]]) -> list[dict[str, Any]]:
    """Convert rows to records in place; the first row names the columns.

    The list ``rows`` is returned, because rows and records together would take twice the memory.
    """
    if len(rows) <= 1:
        note_no_rows(column_names=rows[0] if rows else [])
    if not rows:
        return []
    width = max(map(len, rows))
    columns = columns_of(rows.pop(0), width)
    records: list[Any] = rows
    for index, row in enumerate(rows):
        row.extend([None] * (width - len(row)))
        records[index] = dict(zip(columns, row, strict=True))
    return records


def columns_of(header: Sequence[Any], width: int) -> list[str]:
    """Return unique column names; a missing name becomes ``column_3`` for the third column.

    Args:
        header: The cells of the row with column names.
        width: The number of columns.
    """
    names: list[str] = []
    for index in range(width):
        value = header[index] if index < len(header) else None
        if isinstance(value, dt.datetime) and value.time() == dt.time():
            value = value.date()  # workbooks have dates as datetimes at midnight
        text = "" if value is None else str(value).strip()
        names.append(text or f"column_{index + 1}")
    return unique_names(names)


def _record(columns: list[str], row: list[str], named_columns: int) -> dict[str, str]:
    """Return a row as a dict that has each named column, with empty texts for missing cells.

    Args:
        columns: The names of the columns, and then names such as ``column_4`` for further cells.
        row: The cells of the row.
        named_columns: The number of columns that have a name in the file.
    """
    if len(row) < named_columns:
        row = [*row, *[""] * (named_columns - len(row))]
    # zip() leaves out the names without a cell, which could take far more memory than the table.
    return dict(zip(columns, row, strict=False))
