"""Reading of separated values: separator, columns and rows."""

from __future__ import annotations

import csv
import datetime as dt
import io
import itertools
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar

from delf.notes import note
from delf.values.conversion import unique_names
from delf.values.unicode import normalized
from delf_files.dialects import (
    LARGEST_CELL,
    TOO_LARGE,
    UNCLOSED,
    Dialect,
    dialect_of,
    has_unclear_escapes,
)
from delf_files.headers import SAMPLE_ROWS, header_of, is_headless

Row = TypeVar("Row", bound="Sequence[Any]")
_MAX_NAMES_CHARACTERS: Final = 400
SAMPLE_CHARACTERS: Final = 64_000
"""The characters at the beginning of a table that show its dialect and its column names."""
_END: Final = "\0end of the table\0"
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
    if header is None:
        note_unlikely_names(text, ending)
    dialect = dialect_of(text, ending)
    body = text[dialect.start :]
    # If a quote is misplaced, strict reading adds a note and raises an error. Then read again, with
    # the quote as text.
    try:
        table, rows = _read_rows(body, dialect, header, strict=True)
    except csv.Error:
        table, rows = _read_rows(body, dialect, header, strict=False)
    table.add_notes(body)
    if not rows:
        note_no_rows(column_names=table.names)
        return []
    columns = columns_of(table.names, table.max_cells)
    named_count = len(table.names) or table.max_cells  # all columns if the file names none
    # In JSON, each record repeats the names, each with about 6 more bytes for quotes and so on.
    bytes_of_names = sum(len(name) + 6 for name in columns[:named_count])
    bytes_of_all_names = bytes_of_names * (len(rows) + 1)  # also for the header
    if len(text) + bytes_of_all_names > most_bytes:
        raise TooWideError
    return [_record(columns, row, named_count) for row in rows]


def _read_rows(
    text: str, dialect: Dialect, header: int | None, *, strict: bool
) -> tuple[TableRows, list[list[str]]]:
    table = TableRows(io.StringIO(text, newline=""), dialect, header, strict=strict)
    return table, list(table)


class TableRows:
    """The rows of a table after the column names, and facts about these rows.

    The attributes and :meth:`add_notes` need all rows, so iterate over the rows first.

    Args:
        lines: The lines of the table, with their line ends.
        dialect: The dialect of the table.
        header: The number of the row with column names, as for :func:`read_table`.
        strict: Whether a quote inside a quoted cell raises ``csv.Error``.
    """

    def __init__(
        self, lines: Iterable[str], dialect: Dialect, header: int | None, *, strict: bool
    ) -> None:
        self._rows = _numbered_rows(lines, dialect, strict=strict)
        self._dialect = dialect
        self._header = header
        self.names: list[str] = []
        """The row with column names; empty if no row has column names."""
        self.max_cells = 0
        """The most cells of a row, including the column names."""
        self.min_cells = sys.maxsize
        """The fewest cells of a row after the column names; ``sys.maxsize`` without such a row."""
        self._wider_row_count = 0
        self._number_of_first_wider_row = 0

    def __iter__(self) -> Iterator[list[str]]:
        """Yield the non-empty rows after the column names.

        Raises:
            ValueError: If the row with column names does not exist, or the text is not a table.
            csv.Error: If reading is strict, and a quote is misplaced or not closed.
        """
        if self._header != 0:
            self.names = self._read_names()
            self.max_cells = len(self.names)
        for number, row in self._rows:
            cell_count = len(row)
            if self.names and cell_count > len(self.names):
                self._wider_row_count += 1
                self._number_of_first_wider_row = self._number_of_first_wider_row or number
            self.max_cells = max(self.max_cells, cell_count)
            self.min_cells = min(self.min_cells, cell_count)
            yield row

    def _read_names(self) -> list[str]:
        """Read the rows up to the row with column names, and return this row.

        If the number of this row is not given, return the first row, or an empty list for a table
        without rows.

        Raises:
            ValueError: If the row with the number of the header does not exist.
        """
        if self._header is None:
            no_names: list[str] = []
            return next((row for _, row in self._rows), no_names)
        for number, row in self._rows:
            if number == self._header:
                return row
            if number > self._header:  # the header's row is empty, so the reader left it out
                break
        raise _missing_header_error(self._header)

    def add_notes(self, text: str) -> None:
        """Add notes about cells that may be in the wrong columns, and about backslashes.

        Args:
            text: The text of the table, or its beginning.
        """
        note_escapes(text, self._dialect)
        if self._header == 0 and self.min_cells < self.max_cells:
            note(
                f"rows have from {self.min_cells} to {self.max_cells} cells, so cells may be in "
                "the wrong columns"
            )
        if self._wider_row_count:
            note(
                f"rows with more cells than the {len(self.names)} columns that are named: "
                f"{self._wider_row_count:,} (the first is row {self._number_of_first_wider_row}), "
                f"with {self.max_cells} cells at most; their cells may be in the wrong columns"
            )


def _missing_header_error(header: int) -> ValueError:
    return ValueError(f"row {header} is empty or not there, so it names no columns")


def rows_of(text: str, ending: str = ".csv") -> list[tuple[int, list[str]]]:
    """Return the non-empty rows with their numbers, from 1.

    Raises:
        ValueError: If the text is not a table.
    """
    dialect = dialect_of(text, ending)
    return [*_numbered_rows(io.StringIO(text[dialect.start :], newline=""), dialect)]


def rows_of_chunk(text: str, dialect: Dialect) -> list[list[str]]:
    """Parse lines from the middle of a table, and return their rows.

    Args:
        text: The lines.
        dialect: The dialect of the whole table.

    Raises:
        ValueError: If the lines are not whole rows, for example inside a quoted cell.
    """
    return [row for _, row in _numbered_rows(io.StringIO(text, newline=""), dialect)]


def rows_from_header(rows: list[tuple[int, Row]], header: int | None) -> list[tuple[int, Row]]:
    """Return the rows from the header on; the first returned row has the column names.

    Args:
        rows: The non-empty rows with their numbers.
        header: The number of the header. For 0, a row of empty names is added as the header. When
            None, the first row is the header, and a note is added if the names seem to be in a
            later row.

    Raises:
        ValueError: If the row with the number ``header`` does not exist.
    """
    if header == 0:
        nameless: Any = [""] * max((len(row) for _, row in rows), default=0)
        return [(0, nameless), *rows] if rows else []
    if header is not None:
        body = [(number, row) for number, row in rows if number >= header]
        if not body or body[0][0] != header:
            raise _missing_header_error(header)
        return body
    note_unlikely_header(rows)
    return rows


def note_unlikely_names(text: str, ending: str) -> None:
    """Add a note to the call's result if a title seems to be above the column names.

    Args:
        text: The content of the file, or its beginning.
        ending: The file's extension.
    """
    sample = text[:SAMPLE_CHARACTERS]
    is_cut = len(sample) == SAMPLE_CHARACTERS
    complete_lines = sample[: sample.rfind("\n") + 1] if is_cut else sample
    with suppress(ValueError):  # reading the table reports its faults
        note_unlikely_header(rows_of(complete_lines, ending)[:SAMPLE_ROWS])


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


def _numbered_rows(
    lines: Iterable[str], dialect: Dialect, *, strict: bool = False
) -> Iterator[tuple[int, list[str]]]:
    """Yield the non-empty rows with their numbers, from 1.

    Raises:
        ValueError: If a quote is not closed.
        csv.Error: With ``strict``, if a quote is misplaced or not closed. A misplaced quote is
            also reported in a note.
    """
    row_start = 1  # the line at which the current row begins
    # After the lines of the text, the reader gets the line _END. If all quotes are closed, the line
    # becomes the row [_END]; otherwise, it becomes part of the cell with the open quote.
    reader = dialect.reader(itertools.chain(lines, [_END]), strict=strict)
    problem = "a quote is not closed"
    try:
        for number, row in enumerate(reader, 1):
            if row == [_END]:
                return
            if row and row[-1].endswith(_END):
                break  # the cell with the open quote has taken in the rest of the text
            if row:
                yield number, row
            row_start = reader.line_num + 1
    except csv.Error as error:
        if TOO_LARGE in str(error):
            problem = f"a quote is not closed, or a cell has over {LARGEST_CELL:,} characters"
        elif strict:
            is_misplaced = UNCLOSED not in str(error)
            if is_misplaced:
                note(
                    f"line {reader.line_num} has a quote inside of a quoted cell, which should be "
                    "doubled: where such cells end is a guess"
                )
            raise
        else:
            problem = str(error)
    raise ValueError(
        f"it cannot be read as a table: line {row_start}: {problem}; open() it in the script"
    )


def note_no_rows(column_names: Sequence[Any]) -> None:
    """Add a note that a table has no rows; the note lists the column names, if there are any."""
    if not column_names:
        note("the table is empty: it has no rows, and no names of columns")
    else:
        columns = columns_of(column_names, len(column_names))
        names = ", ".join(map(repr, columns))[:_MAX_NAMES_CHARACTERS]
        note(f"the table has no rows, only the names of columns: {names}")


def note_escapes(text: str, dialect: Dialect) -> None:
    """Add a note if it is unclear whether backslashes before quotes are escapes or text."""
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

    The names are in the Unicode form NFC, in which models write them.

    Args:
        header: The cells of the row with column names.
        width: The number of columns.
    """
    names: list[str] = []
    for index in range(width):
        value = header[index] if index < len(header) else None
        if isinstance(value, dt.datetime) and value.time() == dt.time():
            value = value.date()  # workbooks have dates as datetimes at midnight
        text = "" if value is None else normalized(str(value).strip())
        names.append(text or f"column_{index + 1}")
    return unique_names(names)


def _record(columns: list[str], row: list[str], named_count: int) -> dict[str, str]:
    """Return a row as a dict that has each named column, with empty texts for missing cells.

    Args:
        columns: The names of the columns, and then names such as ``column_4`` for further cells.
        row: The cells of the row.
        named_count: The number of columns that have a name in the file.
    """
    if len(row) < named_count:
        row = [*row, *[""] * (named_count - len(row))]
    # zip() leaves out the names without a cell, which could take far more memory than the table.
    return dict(zip(columns, row, strict=False))
