"""Separated values: which separator, which columns, which rows."""

from __future__ import annotations

import csv
import datetime as dt
import io
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from delf.notes import note
from delf_files.headers import header_of

if TYPE_CHECKING:
    from _csv import Reader

Row = TypeVar("Row", bound="Sequence[Any]")
_SEPARATORS: Final = ",;\t|"
_SAMPLE_CHARS: Final = 64_000
_SAMPLE_ROWS: Final = 50
_LARGEST_CELL: Final = 2**31 - 1
END: Final = "\0end of the table\0"
"""A line after the last: where a value holds it, a quote was not closed."""
_NAMED: Final = re.compile(r"sep=(.)\r?\n")


class TooWideError(ValueError):
    """The rows as records would be much larger than the file."""


def read_table(
    text: str, *, ending: str = ".csv", most_bytes: int, header: int | None = None
) -> list[dict[str, str]]:
    """The rows of separated values as records, every value as text.

    The first row names the columns. Names that are missing or there twice get numbers; what
    a row has beyond the columns is kept under a numbered name, what it lacks is "".

    Args:
        text: The file.
        ending: Of its name; ``.tsv`` means tabs.
        most_bytes: About how large the records may be, names included.
        header: The number of the row that names the columns, from 1; the first that is not
            empty when None.

    Raises:
        TooWideError: When they would be larger.
        ValueError: When it is no such table.
    """
    rows = [row for _, row in below(rows_of(text, ending), header)]
    if not rows:
        return []
    columns = columns_of(rows[0], max(map(len, rows)))
    width = sum(len(name) + 6 for name in columns[: len(rows[0])])
    if len(text) + width * len(rows) > most_bytes:
        raise TooWideError
    first = len(rows[0])
    return [_record(columns, row, first) for row in itertools.islice(rows, 1, None)]


def rows_of(text: str, ending: str = ".csv") -> list[tuple[int, list[str]]]:
    """The rows that are not empty, with their numbers from 1.

    Raises:
        ValueError: When it is no such table.
    """
    separator, start = separator_at(text, ending)
    return _rows(text[start:], separator)


def separator_at(text: str, ending: str) -> tuple[str, int]:
    """The separator of a text, and where its rows begin."""
    separator, start = named_separator(text)
    if separator is None:
        separator = "\t" if ending in (".tsv", ".tab") else separator_of(text[start:])
    return separator, start


def below(rows: list[tuple[int, Row]], header: int | None) -> list[tuple[int, Row]]:
    """The rows from a header on; a title that stands above the columns' names is noted.

    Args:
        rows: Those that are not empty, with their numbers.
        header: The number of the row that names the columns; the first row when None.

    Raises:
        ValueError: When there is no such row.
    """
    if header is not None:
        kept = [(number, row) for number, row in rows if number >= header]
        if not kept or kept[0][0] != header:
            raise ValueError(f"row {header} is empty or not there, so it names no columns")
        return kept
    tell_title(rows)
    return rows


def tell_title(rows: Sequence[tuple[int, Sequence[Any]]]) -> None:
    """Note that a row below the first seems to name the columns.

    Args:
        rows: Those that are not empty, with their numbers.
    """
    found = header_of(rows)
    if found:
        note(
            f"row {rows[0][0]} was taken for the names of the columns, which seem to be in row "
            f"{rows[found][0]}: header={rows[found][0]} reads from there"
        )


def _rows(text: str, separator: str) -> list[tuple[int, list[str]]]:
    """The rows that are not empty.

    Raises:
        ValueError: When a quote is not closed, so that the rest would be one value.
    """
    rows: list[tuple[int, list[str]]] = []
    begun = 1
    csv.field_size_limit(max(csv.field_size_limit(), _LARGEST_CELL))
    reader = reader_of(itertools.chain(io.StringIO(text, newline=""), [END]), separator)
    try:
        for number, row in enumerate(reader, 1):
            if row == [END]:
                return rows
            if row and row[-1].endswith(END):
                break
            rows += [(number, row)] if row else []
            begun = reader.line_num + 1
    except csv.Error as error:
        problem = str(error)
    else:
        problem = "a quote is not closed"
    raise ValueError(
        f"it cannot be read as a table: line {begun}: {problem}; open() it in the script"
    )


def named_separator(text: str) -> tuple[str | None, int]:
    """The separator that the first line of a table of Excel names, and where its rows begin."""
    named = _NAMED.match(text)
    return (named[1], named.end()) if named is not None else (None, 0)


def reader_of(lines: Iterable[str], separator: str) -> Reader:
    """A reader of rows whose values are cut by a separator."""
    spaced = separator in ",;"  # as in "a, b"
    return csv.reader(lines, delimiter=separator, skipinitialspace=spaced)


def separator_of(text: str) -> str:
    """The character that cuts the first rows into the same number of columns, above one."""
    sample = text[:_SAMPLE_CHARS]
    if len(sample) < len(text) and "\n" in sample:
        sample = sample[: sample.rfind("\n")]
    best, score = ",", (0.0, 0)
    for candidate in _SEPARATORS:
        try:
            found_rows = filter(None, reader_of(io.StringIO(sample, newline=""), candidate))
            rows = list(itertools.islice(found_rows, _SAMPLE_ROWS))
        except csv.Error:
            continue
        if not rows:
            break
        width, times = Counter(map(len, rows)).most_common(1)[0]
        found = (times / len(rows) if width > 1 else 0.0, width)
        if found > score:
            best, score = candidate, found
    return best


def records_of(rows: list[list[Any]]) -> list[dict[str, Any]]:
    """Rows as records, in their place; the first names the columns."""
    if not rows:
        return []
    width = max(map(len, rows))
    columns = columns_of(rows.pop(0), width)
    records: list[Any] = rows
    for index, row in enumerate(rows):  # in its place, so that both are never there as a whole
        row.extend([None] * (width - len(row)))
        records[index] = dict(zip(columns, row, strict=True))
    return records


def columns_of(header: Sequence[Any], width: int) -> list[str]:
    """Names of columns: each once, with a number where one is missing."""
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


def _record(columns: list[str], row: list[str], first: int) -> dict[str, str]:
    if len(row) < first:
        row = [*row, *[""] * (first - len(row))]
    return dict(zip(columns, row, strict=False))
