"""Text files of any size prepared for DuckDB, with the same rows as ``files.read``."""

from __future__ import annotations

import csv
import json
import re
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TextIO, cast

from delf.values.json_reader import JSONReader
from delf_confined.text import encoding_of_file
from delf_files.dialects import dialect_of
from delf_files.json_text import JSONLinesReader
from delf_files.tables import SAMPLE_CHARACTERS, TableRows, columns_of, note_unlikely_names

CHUNK_CHARACTERS: Final = 4 * 1024 * 1024
# Of ``12e-`` at the end of a chunk, only 12 is parsed: see read_value().
_MAX_UNPARSED_CHARACTERS: Final = len("e-")
_NO_BLANK_OR_COMMA: Final = re.compile(r"[^\ufeff \t\r\n,]")


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
        sample = source.read(SAMPLE_CHARACTERS)
    if names_row is None:
        note_unlikely_names(sample, ending)
    dialect = dialect_of(sample, ending)

    def copy(*, strict: bool) -> tuple[TableRows, int]:
        with _open(path, encoding) as source, _create(copy_path) as out:
            source.read(dialect.start)  # skips the line that declares the separator, if any
            rows = TableRows(source, dialect, names_row, strict=strict)
            return rows, _write_rows(rows, out)

    # If a quote is misplaced, strict reading adds a note and raises an error. Then read again, with
    # the quote as text.
    try:
        rows, max_row_bytes = copy(strict=True)
    except csv.Error:
        rows, max_row_bytes = copy(strict=False)
    if not rows.max_cells:
        raise ValueError("it has no rows")
    rows.add_notes(sample[dialect.start :])
    has_short_row = rows.min_cells < rows.max_cells
    has_unnamed_column = 0 < len(rows.names) < rows.max_cells
    return Table(
        columns_of(rows.names, rows.max_cells),
        ragged=has_short_row or has_unnamed_column,
        max_row_bytes=max_row_bytes,
    )


def _write_rows(rows: Iterable[list[str]], out: TextIO) -> int:
    """Write rows; return the size of the longest row: the bytes in its cells."""
    writer = csv.writer(out)
    max_row_bytes = 0
    for row in rows:
        writer.writerow(row)
        max_row_bytes = max(max_row_bytes, _utf8_size("".join(row)))
    return max_row_bytes


def _utf8_size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


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


class _KeyRenamer:
    """Renames keys that differ only by case, because SQL cannot distinguish them.

    A key gets the same new name in all records.

    Args:
        renames_inner_keys: Whether to rename the keys of objects inside of the records, too.
    """

    def __init__(self, *, renames_inner_keys: bool = False) -> None:
        self._renames_inner_keys = renames_inner_keys
        # The new name of each key so far.
        self._names: dict[str, str] = {}
        # All new names in lower case, because names that differ only by case count as equal.
        self._used_names: set[str] = set()
        # Renames the keys of the objects inside of a record, by the record's key.
        self._inner: dict[str, _KeyRenamer] = {}

    def renamed(self, value: Any) -> Any:
        """Return a record with names such as ``ID_2`` for keys that differ only by case.

        The records in a list count as inner objects. Any value that is no record or list is
        returned unchanged.
        """
        if isinstance(value, list):
            items = cast("list[Any]", value)
            return [self.renamed(item) for item in items] if self._renames_inner_keys else items
        if not isinstance(value, dict):
            return value
        record = cast("dict[str, Any]", value)
        return {self._unique_name(key): self._renamed_item(key, record[key]) for key in record}

    def _renamed_item(self, key: str, item: Any) -> Any:
        """Return the value of a record's key, with the keys of the objects in the value renamed."""
        if not self._renames_inner_keys or not isinstance(item, (dict, list)):
            return item
        if key not in self._inner:
            # One renamer for the key in all records, so that inner keys get the same names, too.
            self._inner[key] = _KeyRenamer(renames_inner_keys=True)
        return self._inner[key].renamed(item)

    def _unique_name(self, key: str) -> str:
        """Return a key's new name: ``Id`` → ``Id``, or ``Id_2`` if there is also a key ``id``."""
        if key not in self._names:
            name = key
            number = 1
            while name.lower() in self._used_names:
                number += 1
                name = f"{key}_{number}"
            self._names[key] = name
            self._used_names.add(name.lower())
        return self._names[key]


def write_json_lines(
    path: str, copy_path: str, shown_name: str, *, renames_inner_keys: bool = False
) -> None:
    """Copy the valid lines of a JSON Lines file to another file, with a note about invalid lines.

    In the copy, no object has the same key twice. Keys that differ only by case are renamed: ``ID``
    beside ``id`` becomes ``ID_2``.

    Args:
        path: The path of the file.
        copy_path: The path of the file to write.
        shown_name: The file's name in notes and errors for the model.
        renames_inner_keys: Whether to rename the keys of objects inside of the objects, too.

    Raises:
        ValueError: If no line is JSON.
    """
    with Path(path).open(encoding="utf-8") as source, _create(copy_path) as out:
        lines = JSONLinesReader(shown_name)
        _write_values(lines.values(source), out, renames_inner_keys)
        lines.add_notes()


def write_items_as_json_lines(
    path: str, copy_path: str, shown_name: str, *, renames_inner_keys: bool = False
) -> None:
    """Copy a JSON list, or concatenated JSON values, to a file with one item on each line.

    Keys are renamed as in :func:`write_json_lines`. Values that Python cannot represent exactly
    are named in notes of the call.

    Args:
        path: The path of the file.
        copy_path: The path of the file to write.
        shown_name: The file's name in notes and errors for the model.
        renames_inner_keys: Whether to rename the keys of objects inside of the objects, too.

    Raises:
        ValueError: If the file is not JSON.
    """
    reader = JSONReader(shown_name)
    with Path(path).open(encoding="utf-8") as source, _create(copy_path) as out:
        try:
            _write_values(_values(source, reader), out, renames_inner_keys)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{shown_name}: {error}") from None
    reader.add_notes()


def _write_values(values: Iterable[Any], out: TextIO, renames_inner_keys: bool) -> None:
    renamed = _KeyRenamer(renames_inner_keys=renames_inner_keys).renamed
    out.writelines(f"{json.dumps(renamed(value))}\n" for value in values)


def _values(source: TextIO, reader: JSONReader) -> Iterator[Any]:
    """Yield the items of a JSON list or the concatenated values of a file.

    Raises:
        ValueError: If the file is not JSON, or continues after its list.
    """
    buffer = _Buffer(source)
    is_list = buffer.skip_blanks_and_commas() and buffer.skip_character("[")
    while buffer.skip_blanks_and_commas():  # False at the end of the file
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
        if is_next:
            self.position += 1
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
                # A number at the end of the text may continue in the next chunk: if the text ends
                # with ``12e-``, the reader parses only 12.
                is_complete = self.is_at_end or len(self.text) - end > _MAX_UNPARSED_CHARACTERS
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
