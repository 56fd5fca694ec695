"""Text files of any size prepared for DuckDB, with the same rows as ``files.read``."""

from __future__ import annotations

import csv
import itertools
import json
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO, cast

from delf.values.json_reader import JSONReader
from delf_confined.text import encoding_of_file
from delf_files.dialects import LARGEST_CELL, dialect_of
from delf_files.headers import LOOKED_AT
from delf_files.json_text import Lines
from delf_files.tables import (
    END,
    columns_of,
    note_escapes,
    note_odd_quotes,
    note_title,
    note_uneven,
    note_wider,
    rows_of,
)

if TYPE_CHECKING:
    from _csv import Reader

CHUNK: Final = 4 * 1024 * 1024
_SAMPLE_CHARS: Final = 64_000
_BETWEEN: Final = re.compile(r"[ \t\r\n,]*")
_LARGEST_CELL: Final = 16 * 1024 * 1024


@dataclass(frozen=True)
class Table:
    """A table in normal form: commas, CRLF, no header.

    Args:
        columns: The column names.
        ragged: Whether rows differ in their number of cells.
        longest: The number of characters of the longest row.
    """

    columns: list[str]
    ragged: bool
    longest: int


@dataclass
class _Passed:
    """The widths and positions of the rows that were read so far.

    Args:
        reader: The reader that yields the rows.
    """

    reader: Reader
    widest: int = 0
    narrowest: int = 0
    fewest: int = LARGEST_CELL
    """The fewest cells of a row after the header."""
    longest: int = 0
    """The number of characters of the longest row."""
    wider_rows: int = 0
    """The number of rows with more cells than the header names."""
    first_wider_line: int = 0
    row_start: int = 1
    """The line at which the last row begins."""
    next_start: int = 1
    last_row: list[str] = field(default_factory=lambda: [END])
    named: int | None = None
    """The number of cells of a header with names."""

    def begin(self, header: list[str], *, is_named: bool) -> None:
        """Record the header.

        Raises:
            ValueError: If the table has no rows.
        """
        self.next_start = self.reader.line_num + 1
        if header == [END]:
            raise ValueError("it has no rows")
        self.widest = self.narrowest = len(header)
        self.named = len(header) if is_named else None

    def count(self, row: list[str]) -> list[str]:
        """Record a row, and return it."""
        if row != [END]:
            if self.named is not None and len(row) > self.named:
                self.wider_rows += 1
                self.first_wider_line = self.first_wider_line or self.reader.line_num
            self.widest = max(self.widest, len(row))
            self.narrowest = min(self.narrowest, len(row))
            self.fewest = min(self.fewest, len(row))
            self.longest = max(self.longest, sum(map(len, row)))
            self.row_start, self.next_start = self.next_start, self.reader.line_num + 1
        self.last_row = row
        return row


def write_table(
    path: str,
    ending: str,
    copy: str,
    about: str,
    names_row: int | None = None,
    *,
    strict: bool = True,
) -> Table:
    """Rewrite separated values in normal form, row by row.

    Args:
        path: The file.
        ending: The file's extension.
        copy: The file to write.
        about: The file's name in notes.
        names_row: The number of the row with column names, from 1; 0 for none; None for the first
            non-empty row.
        strict: Whether to start again with lenient quotes at a quote inside a quoted cell.

    Raises:
        ValueError: If the file is not a table.
    """
    encoding = encoding_of_file(path, about)
    with _open(path, encoding) as source:
        sample = source.read(_SAMPLE_CHARS)
    if names_row is None and strict:
        _note_title(sample, ending)
    with _open(path, encoding) as source, _new(copy) as out:
        dialect = dialect_of(sample, ending)
        source.read(dialect.start)
        reader = dialect.reader(itertools.chain(source, [END]), strict=strict)
        csv.field_size_limit(_LARGEST_CELL)
        rows = (
            _rows_from(names_row, reader)
            if names_row != 0
            else itertools.chain([[]], filter(None, reader))
        )
        passed = _Passed(reader)
        try:
            header = next(rows)
            passed.begin(header, is_named=names_row != 0)
            csv.writer(out).writerows(map(passed.count, rows))
        except csv.Error as error:
            message = str(error)
            is_large = message.startswith("field larger")
            if strict and not is_large:
                if "unexpected end" not in message:
                    note_odd_quotes(reader.line_num)
                return write_table(path, ending, copy, about, names_row, strict=False)
            if is_large:
                message = f"a cell over {_LARGEST_CELL:,} characters, or a quote that is not closed"
            raise ValueError(f"line {passed.next_start}: {message}") from None
        if passed.last_row != [END]:
            raise ValueError(f"line {passed.row_start}: a quote is not closed")
    note_escapes(sample[dialect.start :], dialect)
    if names_row == 0:
        note_uneven(passed.fewest, passed.widest)
    note_wider(passed.wider_rows, passed.first_wider_line, len(header), passed.widest)
    with Path(copy).open("r+b") as file:  # without the row of the end mark
        file.truncate(file.seek(0, os.SEEK_END) - len(END) - 2)
    ragged = passed.widest != passed.narrowest
    return Table(columns_of(header, passed.widest), ragged=ragged, longest=passed.longest)


def _rows_from(number: int | None, rows: Iterable[list[str]]) -> Iterator[list[str]]:
    """Yield the non-empty rows from a given number on.

    Raises:
        ValueError: If the row does not exist.
    """
    for row_number, row in enumerate(rows, 1):
        if number is not None and (
            (row_number == number and not row) or (row_number <= number and row == [END])
        ):
            raise ValueError(f"row {number} is empty or not there, so it names no columns")
        if row and row_number >= (number or 1):
            yield row


def _note_title(sample: str, ending: str) -> None:
    """Add a note about a title above the column names."""
    complete_lines = sample[: sample.rfind("\n") + 1] if len(sample) == _SAMPLE_CHARS else sample
    with suppress(ValueError):  # reading the table reports its faults
        note_title(rows_of(complete_lines, ending)[:LOOKED_AT])


def utf8_of(path: str, copy: str, about: str) -> str:
    """Return the path of the file in UTF-8: the file itself, or a converted copy."""
    encoding = encoding_of_file(path, about)
    if encoding == "utf-8":
        return path
    with _open(path, encoding) as source, _new(copy) as out:
        shutil.copyfileobj(source, out, CHUNK)
    return copy


class Folding:
    """Renames keys of records that differ only by case, which SQL cannot distinguish."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._used_names: set[str] = set()

    def renamed(self, value: Any) -> Any:
        """Return a record with renamed keys, other values as they are."""
        if not isinstance(value, dict):
            return value
        record = cast("dict[str, Any]", value)
        return {self._name(key): inner for key, inner in record.items()}

    def _name(self, key: str) -> str:
        if key not in self._names:
            name, number = key, 1
            while name.lower() in self._used_names:
                number += 1
                name = f"{key}_{number}"
            self._names[key] = name
            self._used_names.add(name.lower())
        return self._names[key]


def _unchanged(value: Any) -> Any:
    return value


def write_lines(
    path: str, copy: str, about: str, change: Callable[[Any], Any] = _unchanged
) -> None:
    """Rewrite valid JSON lines, with a note on the others.

    Args:
        path: The file.
        copy: The file to write.
        about: The file's name in notes.
        change: Converts each value.

    Raises:
        ValueError: If no line is JSON.
    """
    with Path(path).open(encoding="utf-8") as source, _new(copy) as out:
        lines = Lines(about)
        out.writelines(f"{json.dumps(change(value))}\n" for value in lines.values(source))
        lines.tell()


def write_values(
    path: str, copy: str, about: str, change: Callable[[Any], Any] = _unchanged
) -> None:
    """Rewrite a JSON list, or concatenated values, as JSON lines.

    Args:
        path: The file.
        copy: The file to write.
        about: The file's name in notes.
        change: Converts each value.

    Raises:
        ValueError: If the file is not JSON.
    """
    reader = JSONReader(about)
    with Path(path).open(encoding="utf-8") as source, _new(copy) as out:
        try:
            out.writelines(f"{json.dumps(change(value))}\n" for value in _values(source, reader))
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{about}: {error}") from None
    reader.tell()


def _values(source: TextIO, reader: JSONReader) -> Iterator[Any]:
    """Yield the values of a file, holding one value in memory at a time."""
    text = ""
    while not text and (piece := source.read(CHUNK)):
        text = piece.lstrip("\ufeff \t\r\n")
    is_list = text.startswith("[")
    place, is_at_end, failed = int(is_list), False, ""
    while True:
        between = _BETWEEN.match(text, place)
        place = between.end() if between else place
        if is_list and text.startswith("]", place):
            break
        try:
            value, end = reader.first(text, place)
        except json.JSONDecodeError as error:
            failed = error.msg
        else:
            if (
                end < len(text) or is_at_end
            ):  # else a number at the end may continue in the next piece
                yield value
                place = end
                continue
        if is_at_end and (is_list or place < len(text)):
            raise ValueError(f"it ends within its list, or is not JSON: {failed}")
        if is_at_end:
            return
        piece = source.read(max(CHUNK, len(text) - place))
        text, place, is_at_end = text[place:] + piece, 0, not piece
    if (text[place + 1 :] + source.read(CHUNK)).strip():
        raise ValueError("there is more after its list")


def _open(path: str, encoding: str) -> TextIO:
    return Path(path).open(encoding=encoding, errors="replace", newline="")


def _new(path: str) -> TextIO:
    return Path(path).open("w", encoding="utf-8", errors="surrogatepass", newline="")
