"""Reading of separated values: separator, columns and rows."""

from __future__ import annotations

import csv
import datetime as dt
import io
import itertools
from collections.abc import Sequence
from typing import Any, Final, TypeVar

from delf.notes import note
from delf_files.dialects import Dialect, dialect_of, has_unclear_escapes, line_of_odd_quote
from delf_files.headers import header_of, is_headless

Row = TypeVar("Row", bound="Sequence[Any]")
_LONGEST_NAMES: Final = 400
END: Final = "\0end of the table\0"
"""A marker after the last line; a cell that contains the marker has no closing quote."""


class TooWideError(ValueError):
    """The rows would be much larger as records than the file."""


def read_table(
    text: str, *, ending: str = ".csv", most_bytes: int, header: int | None = None
) -> list[dict[str, str]]:
    """Return the rows of separated values as records, every value as text.

    The first row names the columns. Missing or repeated names get numbers. Extra cells of a row get
    a numbered name, and missing cells are "".

    Args:
        text: The file.
        ending: The file's extension; ``.tsv`` means tabs.
        most_bytes: The approximate limit of the records' size, including names.
        header: The number of the row with column names, from 1; 0 for none; None for the first
            non-empty row.

    Raises:
        TooWideError: If the records would be larger.
        ValueError: If the text is not a table.
    """
    dialect = dialect_of(text, ending)
    numbered = rows_from_header(_rows(text[dialect.start :], dialect), header)
    note_empty([row for _, row in numbered])
    if not numbered:
        return []
    odd = line_of_odd_quote(text[dialect.start :], dialect) if dialect.quote else None
    if odd is not None:
        note_odd_quotes(odd)
    note_escapes(text[dialect.start :], dialect)
    rows = [row for _, row in numbered]
    if header == 0:
        note_uneven(min(map(len, rows[1:])), len(rows[0]))
    wider = [number for number, row in numbered if len(row) > len(rows[0])]
    note_wider(len(wider), next(iter(wider), 0), len(rows[0]), max(map(len, rows)))
    columns = columns_of(rows[0], max(map(len, rows)))
    width = sum(len(name) + 6 for name in columns[: len(rows[0])])
    if len(text) + width * len(rows) > most_bytes:
        raise TooWideError
    first = len(rows[0])
    return [_record(columns, row, first) for row in itertools.islice(rows, 1, None)]


def rows_of(text: str, ending: str = ".csv") -> list[tuple[int, list[str]]]:
    """Return the non-empty rows with their numbers, from 1.

    Raises:
        ValueError: If the text is not a table.
    """
    dialect = dialect_of(text, ending)
    return _rows(text[dialect.start :], dialect)


def lines_of(text: str, dialect: Dialect) -> list[list[str]]:
    """Return the rows in lines from the middle of a table.

    Raises:
        ValueError: If the lines are not rows, for example because a quoted cell begins above them.
    """
    return [row for _, row in _rows(text, dialect)]


def rows_from_header(rows: list[tuple[int, Row]], header: int | None) -> list[tuple[int, Row]]:
    """Return the rows from the header on, noting a title above; without a header, add empty names.

    Args:
        rows: The non-empty rows with their numbers.
        header: The number of the row with column names; 0 for none; None for the first row.

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
    note_title(rows)
    return rows


def note_title(rows: Sequence[tuple[int, Sequence[Any]]]) -> None:
    """Add a note that a row below the first probably names the columns.

    Args:
        rows: The non-empty rows with their numbers.
    """
    header = header_of(rows)
    if is_headless(rows):
        note(
            f"row {rows[0][0]} was taken for the names of the columns, and seems to hold values: "
            "header=0 reads it as such"
        )
    elif header:
        note(
            f"row {rows[0][0]} was taken for the names of the columns, which seem to be in row "
            f"{rows[header][0]}: header={rows[header][0]} reads from there"
        )


def _rows(text: str, dialect: Dialect) -> list[tuple[int, list[str]]]:
    """Return the non-empty rows.

    Raises:
        ValueError: If a quote is not closed.
    """
    rows: list[tuple[int, list[str]]] = []
    row_start = 1
    reader = dialect.reader(itertools.chain(io.StringIO(text, newline=""), [END]))
    try:
        for number, row in enumerate(reader, 1):
            if row == [END]:
                return rows
            if row and row[-1].endswith(END):
                break
            rows += [(number, row)] if row else []
            row_start = reader.line_num + 1
    except csv.Error as error:
        problem = str(error)
    else:
        problem = "a quote is not closed"
    raise ValueError(
        f"it cannot be read as a table: line {row_start}: {problem}; open() it in the script"
    )


def note_empty(rows: Sequence[Sequence[Any]]) -> None:
    """Add a note about a table without rows.

    Args:
        rows: The non-empty rows; the first names the columns.
    """
    if not rows:
        note("the table is empty: it has no rows, and no names of columns")
    elif len(rows) == 1:
        names = ", ".join(map(repr, columns_of(rows[0], len(rows[0]))))[:_LONGEST_NAMES]
        note(f"the table has no rows, only the names of columns: {names}")


def note_odd_quotes(line: int) -> None:
    """Add a note about a quote inside a quoted cell, because the end of such a cell is a guess."""
    note(
        f"line {line} has a quote inside of a quoted cell, which should be doubled: where such "
        "cells end is a guess"
    )


def note_wider(wider: int, first: int, width: int, widest: int) -> None:
    """Add a note about rows with more cells than column names."""
    if wider:
        note(
            f"rows with more cells than the {width} columns that are named: {wider:,} (the first "
            f"is row {first}), with {widest} cells at most; their cells may be moved"
        )


def note_uneven(fewest: int, most: int) -> None:
    """Add a note about rows of different lengths in a table without column names."""
    if fewest < most:
        note(f"rows have from {fewest} to {most} cells, so their cells may be moved")


def note_escapes(text: str, dialect: Dialect) -> None:
    """Add a note about backslashes before quotes if they may or may not be part of the text."""
    if has_unclear_escapes(text, dialect):
        doubt = "were left out, and may be" if dialect.backslash else "were kept, and may be no"
        note(f"backslashes before quotes {doubt} part of the text")


def records_of(rows: list[list[Any]]) -> list[dict[str, Any]]:
    """Convert rows to records in place; the first row names the columns."""
    note_empty(rows)
    if not rows:
        return []
    width = max(map(len, rows))
    columns = columns_of(rows.pop(0), width)
    records: list[Any] = rows
    # In place, because rows and records together would take twice the memory.
    for index, row in enumerate(rows):
        row.extend([None] * (width - len(row)))
        records[index] = dict(zip(columns, row, strict=True))
    return records


def columns_of(header: Sequence[Any], width: int) -> list[str]:
    """Return unique column names, with numbers for missing ones."""
    names: dict[str, None] = {}
    for index in range(width):
        value = header[index] if index < len(header) else None
        if isinstance(value, dt.datetime) and value.time() == dt.time():
            value = value.date()
        own = "" if value is None else str(value).strip()
        name = own = own or f"column_{index + 1}"
        number = 1
        while name in names:
            number += 1
            name = f"{own}_{number}"
        names[name] = None
    return list(names)


def _record(columns: list[str], row: list[str], width: int) -> dict[str, str]:
    if len(row) < width:
        row = [*row, *[""] * (width - len(row))]
    return dict(zip(columns, row, strict=False))
