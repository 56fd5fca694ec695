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
from delf_files.dialects import LARGEST_CELL, Dialect, dialect_of
from delf_files.headers import SAMPLE_ROWS
from delf_files.json_text import JSONLinesReader
from delf_files.tables import (
    END,
    columns_of,
    note_escapes,
    note_undoubled_quote,
    note_uneven,
    note_unlikely_header,
    note_wider,
    rows_of,
)

if TYPE_CHECKING:
    from _csv import Reader

CHUNK_CHARACTERS: Final = 4 * 1024 * 1024
_SAMPLE_CHARACTERS: Final = 64_000
_NO_BLANK_OR_COMMA: Final = re.compile(r"[^\ufeff \t\r\n,]")
_MAX_CELL_CHARACTERS: Final = 16 * 1024 * 1024
_TOO_LARGE_CELL: Final = (
    f"a cell over {_MAX_CELL_CHARACTERS:,} characters, or a quote that is not closed"
)


@dataclass(frozen=True)
class Table:
    """A file that :func:`write_table` wrote, with commas, CRLF and no header.

    Args:
        columns: The column names.
        ragged: Whether rows differ in their number of cells.
        max_row_bytes: The number of bytes in the cells of the longest row, without separators.
    """

    columns: list[str]
    ragged: bool
    max_row_bytes: int


@dataclass
class _RowStatistics:
    """Statistics of the rows that a reader has yielded so far.

    Args:
        reader: The reader that yields the rows.
        max_cells: The most cells of a row, including the header.
        min_cells: The fewest cells of a row after the header.
        max_row_bytes: The most bytes in the cells of a row, without separators.
        wider_rows: The number of rows with more cells than the header.
        first_wider_line: The line of the first such row; 0 for none.
        row_line: The line at which the last row begins.
        next_row_line: The line at which the next row begins.
        last_row: The last row, which is ``[END]`` if all quotes of the table are closed.
        named_columns: The number of cells of the header; None without a header.
    """

    reader: Reader
    max_cells: int = 0
    min_cells: int = LARGEST_CELL
    max_row_bytes: int = 0
    wider_rows: int = 0
    first_wider_line: int = 0
    row_line: int = 1
    next_row_line: int = 1
    last_row: list[str] = field(default_factory=list[str])
    named_columns: int | None = None

    def add_header(self, header: list[str], *, is_named: bool) -> None:
        """Take the first row; it holds the column names if ``is_named``.

        Raises:
            ValueError: If the table is empty.
        """
        self.next_row_line = self.reader.line_num + 1
        if header == [END]:  # the reader's mark for the end of the file
            raise ValueError("it has no rows")
        # A cell with a line break makes the header longer than a line.
        self.row_line = self.reader.line_num - sum(cell.count("\n") for cell in header)
        self.last_row = header
        self.max_cells = len(header)
        self.named_columns = len(header) if is_named else None

    def add(self, row: list[str]) -> list[str]:
        """Add a row after the header to the statistics, and return the row."""
        self.last_row = row
        # A cell may have line breaks: after a row on the lines 4 to 6, line_num is 6.
        self.row_line, self.next_row_line = self.next_row_line, self.reader.line_num + 1
        if row == [END]:  # the marker after the last row of the table
            return row
        if self.named_columns is not None and len(row) > self.named_columns:
            self.wider_rows += 1
            self.first_wider_line = self.first_wider_line or self.reader.line_num
        self.max_cells = max(self.max_cells, len(row))
        self.min_cells = min(self.min_cells, len(row))
        self.max_row_bytes = max(self.max_row_bytes, _utf8_size("".join(row)))
        return row

    @property
    def is_ragged(self) -> bool:
        """True if rows differ in their number of cells, the header included."""
        header_cells = self.max_cells if self.named_columns is None else self.named_columns
        return min(self.min_cells, header_cells) < self.max_cells


def write_table(
    path: str,
    ending: str,
    copy_path: str,
    shown_name: str,
    names_row: int | None = None,
) -> Table:
    """Rewrite separated values with commas, CRLF and no header, row by row.

    Args:
        path: The path of the file.
        ending: The file's extension.
        copy_path: The path of the file to write.
        shown_name: The file's name in notes and errors for the model.
        names_row: The number of the row with column names, from 1; 0 if no row has column names;
            None for the first non-empty row.

    Raises:
        ValueError: If the file is not a table.
    """
    encoding = encoding_of_file(path, shown_name)
    with _open(path, encoding) as source:
        sample = source.read(_SAMPLE_CHARACTERS)
    if names_row is None:
        _note_unlikely_header(sample, ending)
    dialect = dialect_of(sample, ending)
    try:
        header, statistics = _copy_rows(path, encoding, dialect, copy_path, names_row, strict=True)
    except csv.Error:
        header, statistics = _copy_rows(path, encoding, dialect, copy_path, names_row, strict=False)
    note_escapes(sample[dialect.start :], dialect)
    if names_row == 0:
        note_uneven(statistics.min_cells, statistics.max_cells)
    note_wider(
        statistics.wider_rows, statistics.first_wider_line, len(header), statistics.max_cells
    )
    return Table(
        columns_of(header, statistics.max_cells),
        ragged=statistics.is_ragged,
        max_row_bytes=statistics.max_row_bytes,
    )


def _utf8_size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def _remove_end_marker(copy_path: str) -> None:
    """Remove the row ``[END]``, which :func:`_write_rows` writes last, from a file."""
    with Path(copy_path).open("r+b") as file:
        size = file.seek(0, os.SEEK_END)
        file.truncate(size - len(f"{END}\r\n"))


def _copy_rows(
    path: str,
    encoding: str,
    dialect: Dialect,
    copy_path: str,
    names_row: int | None,
    *,
    strict: bool,
) -> tuple[list[str], _RowStatistics]:
    """Write the rows after the header to a file.

    Args:
        path: The path of the file to read.
        encoding: The encoding of the file.
        dialect: The dialect of the file.
        copy_path: The path of the file to write.
        names_row: The number of the row with column names, as for :func:`write_table`.
        strict: Whether a quote inside a quoted cell is a fault.

    Returns:
        The header, which is empty if no row has column names; and statistics of the rows.

    Raises:
        csv.Error: With ``strict``, at the first fault of quoting.
        ValueError: If the file is not a table.
    """
    csv.field_size_limit(_MAX_CELL_CHARACTERS)
    with _open(path, encoding) as source, _create(copy_path) as out:
        source.read(dialect.start)
        # After the lines of the file, the reader gets the line END. If all quotes are closed, the
        # line becomes the row [END]; otherwise, it becomes part of the cell with the open quote.
        reader = dialect.reader(itertools.chain(source, [END]), strict=strict)
        statistics = _RowStatistics(reader)
        try:
            header = _write_rows(reader, out, statistics, names_row)
        except csv.Error as error:
            is_too_large = str(error).startswith("field larger")
            if strict and not is_too_large:
                is_quote_unclosed = "unexpected end" in str(error)
                if not is_quote_unclosed:
                    note_undoubled_quote(reader.line_num)
                raise  # the caller reads the file again, with strict=False
            message = _TOO_LARGE_CELL if is_too_large else str(error)
            # The fault is in the row after the last row that the reader has yielded.
            raise ValueError(f"line {statistics.next_row_line}: {message}") from None
    are_quotes_closed = statistics.last_row == [END]
    if not are_quotes_closed:
        raise ValueError(f"line {statistics.row_line}: a quote is not closed")
    _remove_end_marker(copy_path)
    return header, statistics


def _write_rows(
    reader: Reader, out: TextIO, statistics: _RowStatistics, names_row: int | None
) -> list[str]:
    """Write the rows after the header to a file, and add them to statistics; return the header.

    The reader's last row, ``[END]``, is written, too.
    """
    has_header = names_row != 0
    if has_header:
        rows = _rows_from(names_row, reader)
        header = next(rows)
    else:
        rows = _rows_from(None, reader)
        header = []
    statistics.add_header(header, is_named=has_header)
    csv.writer(out).writerows(map(statistics.add, rows))
    return header


def _rows_from(number: int | None, rows: Iterable[list[str]]) -> Iterator[list[str]]:
    """Yield the non-empty rows from a given row on.

    Args:
        number: The number of the first row to yield, from 1; None for the first non-empty row.
        rows: All rows of the table, and then ``[END]``, which is yielded like a row.

    Raises:
        ValueError: If the row with this number does not exist or is empty.
    """
    remaining = iter(rows)
    if number is not None:
        first_row = next(itertools.islice(remaining, number - 1, None), None)
        if not first_row or first_row == [END]:
            raise ValueError(f"row {number} is empty or not there, so it names no columns")
        yield first_row
    yield from filter(None, remaining)


def _note_unlikely_header(sample: str, ending: str) -> None:
    """Add a note if a title seems to be above the column names."""
    is_cut = len(sample) == _SAMPLE_CHARACTERS
    complete_lines = sample[: sample.rfind("\n") + 1] if is_cut else sample
    with suppress(ValueError):  # reading the table reports its faults
        note_unlikely_header(rows_of(complete_lines, ending)[:SAMPLE_ROWS])


def utf8_of(path: str, copy_path: str, shown_name: str) -> str:
    """Return the path of a UTF-8 version of a file: the file itself, or a converted copy.

    Args:
        path: The path of the file.
        copy_path: The path of the copy to write, if a copy is needed.
        shown_name: The file's name in notes and errors for the model.
    """
    encoding = encoding_of_file(path, shown_name)
    if encoding == "utf-8":
        return path
    with _open(path, encoding) as source, _create(copy_path) as out:
        shutil.copyfileobj(source, out, CHUNK_CHARACTERS)
    return copy_path


class Folding:
    """Renames keys that differ only by case, because SQL cannot distinguish them.

    A key gets the same new name in all records.
    """

    def __init__(self) -> None:
        # The new name of each key so far.
        self._names: dict[str, str] = {}
        # All new names in lower case, because names that differ only by case count as equal.
        self._used_names: set[str] = set()

    def renamed(self, value: Any) -> Any:
        """Return a dict with new names for keys that differ only by case, such as ``ID_2``.

        Any other value is returned unchanged.
        """
        if not isinstance(value, dict):
            return value
        record = cast("dict[str, Any]", value)
        return {self._unique_name(key): item for key, item in record.items()}

    def _unique_name(self, key: str) -> str:
        """Return the new name of a key: the key itself, unless another key differs only by case."""
        if key not in self._names:
            name = key
            number = 1
            while name.lower() in self._used_names:
                number += 1
                name = f"{key}_{number}"
            self._names[key] = name
            self._used_names.add(name.lower())
        return self._names[key]


def _unchanged(value: Any) -> Any:
    return value


def write_json_lines(
    path: str, copy_path: str, shown_name: str, change: Callable[[Any], Any] = _unchanged
) -> None:
    """Copy the valid lines of a JSON Lines file to another file, with a note about invalid lines.

    Args:
        path: The path of the file.
        copy_path: The path of the file to write.
        shown_name: The file's name in notes and errors for the model.
        change: Converts each value.

    Raises:
        ValueError: If no line is JSON.
    """
    with Path(path).open(encoding="utf-8") as source, _create(copy_path) as out:
        lines = JSONLinesReader(shown_name)
        out.writelines(f"{json.dumps(change(value))}\n" for value in lines.values(source))
        lines.add_notes()


def write_items_as_json_lines(
    path: str, copy_path: str, shown_name: str, change: Callable[[Any], Any] = _unchanged
) -> None:
    """Copy the items of a JSON list, or concatenated JSON values, to a file of JSON lines.

    Values that Python cannot represent exactly are named in notes of the call.

    Args:
        path: The path of the file.
        copy_path: The path of the file to write.
        shown_name: The file's name in notes and errors for the model.
        change: Converts each value.

    Raises:
        ValueError: If the file is not JSON.
    """
    reader = JSONReader(shown_name)
    with Path(path).open(encoding="utf-8") as source, _create(copy_path) as out:
        try:
            out.writelines(f"{json.dumps(change(value))}\n" for value in _values(source, reader))
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{shown_name}: {error}") from None
    reader.add_notes()


def _values(source: TextIO, reader: JSONReader) -> Iterator[Any]:
    """Yield the items of a JSON list or the concatenated values of a file.

    Raises:
        ValueError: If the file is not JSON, or continues after its list.
    """
    buffer = _Buffer(source)
    is_list = buffer.skip_blanks_and_commas() and buffer.skip_character("[")
    while buffer.skip_blanks_and_commas():
        if is_list and buffer.skip_character("]"):
            if buffer.skip_blanks_and_commas():
                raise ValueError("there is more after its list")
            return
        try:
            yield buffer.read_value(reader)
        except json.JSONDecodeError as error:
            problem = f"its list has no end, or it is not JSON: {error.msg}"
            raise ValueError(problem) from None
    if is_list:
        raise ValueError("its list has no end")


@dataclass
class _Buffer:
    """The text of a file from the current value to the end of the last chunk that was read.

    Args:
        source: The file.
        text: The text in memory.
        position: The position in this text.
        is_at_end: Whether the whole file has been read.
    """

    source: TextIO
    text: str = ""
    position: int = 0
    is_at_end: bool = False

    def skip_blanks_and_commas(self) -> bool:
        """Go to the next character that is no blank or comma; return False at the file's end."""
        while True:
            match = _NO_BLANK_OR_COMMA.search(self.text, self.position)
            if match is not None:
                self.position = match.start()
                return True
            if self.is_at_end:
                return False
            self.position = len(self.text)
            self._read_chunk()

    def skip_character(self, character: str) -> bool:
        """Skip the next character if it is the given character; return whether it is."""
        is_next = self.text.startswith(character, self.position)
        self.position += is_next
        return is_next

    def read_value(self, reader: JSONReader) -> Any:
        """Parse the next value, reading on until it is complete.

        Raises:
            json.JSONDecodeError: If the file does not continue with a JSON value.
        """
        while True:
            try:
                value, end = reader.first(self.text, self.position)
            except json.JSONDecodeError:
                if self.is_at_end:
                    raise
            else:
                # A number at the end of the text may continue in the next chunk.
                is_complete = end < len(self.text) or self.is_at_end
                if is_complete:
                    self.position = end
                    return value
            self._read_chunk()

    def _read_chunk(self) -> None:
        """Drop the text before the position, and append the next chunk.

        The text is at least doubled, so that a long value is not parsed once for each chunk.
        """
        rest = self.text[self.position :]
        chunk = self.source.read(max(CHUNK_CHARACTERS, len(rest)))
        self.text = rest + chunk
        self.position = 0
        self.is_at_end = not chunk


def _open(path: str, encoding: str) -> TextIO:
    return Path(path).open(encoding=encoding, errors="replace", newline="")


def _create(path: str) -> TextIO:
    return Path(path).open("w", encoding="utf-8", errors="surrogatepass", newline="")
