"""Describes one input file for the prompt: its tables, their columns with types and examples.

Runs in a child process that can read only this file, like :mod:`reading`. File contents are written
as Python literals, so that they cannot start a new line in the prompt.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import re
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from delf.protocols.formats import Peek, SupportsPeek
from delf_confined.documents import docx_lines, pdf_pages
from delf_confined.text import decode, decode_if_text, encoding_of
from delf_files.columns import (
    Column,
    describe_values,
    evenly_spaced,
    has_data_keys,
    record_columns,
    short,
    text_column,
    typed_column,
)
from delf_files.dialects import Dialect, dialect_of
from delf_files.forms import DETECTION_BYTES, find_format, is_html_page
from delf_files.headers import header_of, is_headless
from delf_files.json_text import read_json, read_json_lines
from delf_files.reading import DOCUMENTS, format_of, is_document
from delf_files.tables import columns_of, rows_of, rows_of_chunk

if TYPE_CHECKING:
    from delf.protocols.formats import FileFormat

# The size up to which all values of a text file are examined.
_MAX_WHOLE_BYTES: Final = 2 * 1024 * 1024
_BEGINNING_BYTES: Final = 256 * 1024
_CHUNK_BYTES: Final = 4 * 1024 * 1024
_MAX_COUNTED_BYTES: Final = 2 * 1024**3
_SAMPLE_ROWS: Final = 200
# The maximum number of cells that are examined in all tables of a file together.
_MAX_CELLS: Final = 150_000
_MAX_ITEMS: Final = 20_000
_PIECE_BYTES: Final = 64 * 1024
# The number of samples that are read from a long text after its beginning.
_PIECES: Final = 8
_MAX_PARTS: Final = 20
_MAX_FIRST_LINES: Final = 8
_MAX_LISTED_NAMES: Final = 8
_MIN_NAMES_CHARACTERS: Final = 80
_MAX_WHOLE_ROWS: Final = 15
_MAX_WHOLE_CHARACTERS: Final = 1_500
# The row number of sampled rows, whose position in the file is not known.
_UNKNOWN_ROW_NUMBER: Final = 0
_MAX_MEMBERS: Final = 3
_MAX_MEMBER_LINES: Final = 4
_TEXT_ENDINGS: Final = (".csv", ".tsv", ".txt", ".json", ".jsonl", ".md", ".log")
_MAX_PAGES: Final = 3
_MAX_LINE_CHARACTERS: Final = 120
_TOTAL: Final = re.compile(
    r"(?:(?:grand |sub-?)?totals?|sums?|summe|gesamt\w*|insgesamt|totale?|totaux|suma|всего|итого)"
    r"\s*:?$",
    re.IGNORECASE,
)
# Matches two words or numbers without a space between them, as from neighbouring PDF columns.
_JOINED_WORDS: Final = re.compile(
    r"[a-z]{2}\d{1,4}[/.,-]\d|[a-z*)][A-Z][a-z]+[A-Z*]|\w\*+[A-Z]|\d,\d{3}\d|\d\.\d\d\d*[A-Za-z$€]{2}"
)
_MIN_JOINED_WORDS: Final = 3
_SEPARATORS: Final = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
# The encodings in which the byte of a line feed may be part of another character.
_WIDE_ENCODINGS: Final = ("utf-16", "utf-32")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


class _Description(NamedTuple):
    """The description of a table, or of any other file.

    Args:
        heading: The first line.
        columns: The descriptions of the columns.
        footer: The lines after the columns.
        text_of_all_rows: Lines with all rows of a small table, shown if these lines fit; empty for
            other tables.
    """

    heading: str
    columns: Sequence[Column] = ()
    footer: str = ""
    text_of_all_rows: str = ""


async def shape(
    path: str,
    name: str,
    ending: str,
    kind: str,
    factory: Sequence[str] | None,
    max_bytes: int,
    max_characters: int,
) -> str:
    """Describe a file for the prompt: its tables, with columns, types and examples.

    Args:
        path: The path of the file.
        name: The file's name in the script.
        ending: The file's extension.
        kind: ``csv``, ``json``, ``jsonl``, ``parquet``, ``arrow``, ``text``, ``pdf``, ``docx`` or
            ``other``.
        factory: The module, attribute and file of the factory of the file's format; None for a
            file that no FileFormat plugin reads.
        max_bytes: The maximum number of bytes that ``files.read`` accepts.
        max_characters: The maximum number of characters of the description.
    """
    size = _size(path)
    if factory is not None:
        tables = await _describe_format(format_of(factory), path)
    elif kind in ("parquet", "arrow"):
        tables = [_describe_by_duckdb(path, kind)]
    else:
        tables = [_describe_content(path, name, ending, kind, size, max_bytes, max_characters)]
    if size > max_bytes and factory is None:
        quoted = name.replace("'", "''")
        advice = f"files.query(\"… FROM '{quoted}'\")" if find_spec("duckdb") else "open()"
        first = tables[0]
        tables[0] = first._replace(
            heading=f"{first.heading}; too large for files.read: use {advice}"
        )
    return _fit(tables, max_characters)


def _size(path: str) -> int:
    return Path(path).stat().st_size


def _fit(tables: Sequence[_Description], max_characters: int) -> str:
    """Return the descriptions of tables, shortened to a total size.

    Each table gets an equal share of the size. Short tables leave the unused part of their shares
    to longer tables.
    """
    sizes = [_full_size(table) for table in tables]
    shares: dict[int, int] = {}
    remaining = max_characters
    shortest_first = sorted(range(len(tables)), key=lambda index: sizes[index])
    for rank, index in enumerate(shortest_first):
        equal_share = remaining // (len(tables) - rank)
        shares[index] = min(sizes[index], equal_share)
        remaining -= shares[index]
    return "\n".join(_render(table, shares[index]) for index, table in enumerate(tables))


def _full_size(table: _Description) -> int:
    """Return the number of characters that :func:`_render` needs to describe a table completely."""
    # Each column counts its name twice, because _render() also keeps room for a list of the names;
    # the 7 are for indent, colon, separator and line break.
    lines = sum(2 * len(short(column.name)) + len(column.line) + 7 for column in table.columns)
    return len(table.heading) + len(table.footer) + len(table.text_of_all_rows) + lines


def _render_all_rows(rows: Iterable[Sequence[Any]]) -> str:
    """Return all rows of a small table as lines of text; "" unless it has 2 to 15 short rows."""
    first_rows = islice(rows, _MAX_WHOLE_ROWS + 1)
    values_by_row = [list(map(short, row)) for row in first_rows]
    lines = [f"  | {', '.join(values)}" for values in values_by_row]
    has_few_rows = 1 < len(lines) <= _MAX_WHOLE_ROWS
    if not has_few_rows or _count_characters(lines) > _MAX_WHOLE_CHARACTERS:
        return ""
    is_cut = any(value.endswith("…") for values in values_by_row for value in values)
    if is_cut:
        return ""
    return "\n".join(["  all rows:", *map(_escaped, lines)])


def _render(table: _Description, max_characters: int) -> str:
    """Return a table's description; name columns only if their descriptions do not fit."""
    lines = [table.heading]
    remaining = list(table.columns)
    used = len(table.heading) + len(table.footer)  # the number of characters so far
    while remaining:
        line = f"  {short(remaining[0].name)}: {remaining[0].line}"
        # Reserve room for the names of the columns that may not fit, at most a third of the text.
        names_length = sum(len(short(column.name)) + 2 for column in remaining)
        reserved = min(names_length, max_characters // 3)
        if used + len(line) + reserved > max_characters:
            break
        lines.append(line)
        used += len(line) + 1  # with the line break
        remaining.pop(0)
    if remaining:
        # Some names are always shown, even if the description becomes a little too long.
        max_names_length = max(max_characters - used, _MIN_NAMES_CHARACTERS)
        lines.append(_remaining_names(remaining, max_names_length))
    else:
        all_rows = table.text_of_all_rows
        if all_rows and used + len(all_rows) < max_characters:
            lines.append(all_rows)
    if table.footer:
        lines.append(table.footer)
    return "\n".join(lines)


def _remaining_names(columns: Sequence[Column], max_characters: int) -> str:
    """Return a line with the names of columns that are not described, as far as they fit."""
    names: list[str] = []
    for column in columns:
        if sum(map(len, names)) + 2 * len(names) > max_characters:
            break
        names.append(short(column.name))
    more = len(columns) - len(names)
    return f"  also {', '.join(names)}" + (f" and {more:,} more" if more else "")


async def _describe_format(file_format: FileFormat, path: str) -> list[_Description]:
    """Describe the first tables of a file, such as the sheets of a workbook.

    Args:
        file_format: The format of the file.
        path: The path of the file.
    """
    parts: list[str | None] = [*await file_format.parts(path)]
    if not parts:
        parts = [None]  # the file is a single table without a name
    tables: list[_Description] = []
    remaining_cells = _MAX_CELLS
    for part in parts[:_MAX_PARTS]:
        title = "" if part is None else f"sheet={short(part)}, "
        if isinstance(file_format, SupportsPeek):
            peek = await _peek_within(file_format, path, part, remaining_cells)
            remaining_cells -= sum(len(row) for _, row in peek.rows)
            tables.append(_describe_peek(title, peek))
        else:
            tables.append(_describe_records(title, await file_format.read(path, part)))
    if len(parts) > _MAX_PARTS:
        tables.append(_Description(f"and {len(parts) - _MAX_PARTS} more: files.list() names them"))
    if len(parts) > 1:
        tables.insert(0, _Description(f"{len(parts)} tables; without sheet=, the first is read"))
    return tables


def _describe_records(title: str, records: Sequence[Mapping[str, Any]]) -> _Description:
    sample = evenly_spaced(records, _MAX_ITEMS)
    columns = record_columns(sample, is_complete=len(sample) == len(records))
    sample_note = _sample_note(len(sample), len(records))
    return _Description(f"{title}{len(records):,} rows{sample_note}", columns)


def _describe_peek(title: str, peek: Peek) -> _Description:
    """Describe a table from its first and last rows, in one of three ways.

    - A table without declared columns is a sheet: a row may name its columns.
    - A table of unknown length is a view: only its columns are known.
    - Any other table has declared columns and a number of rows.
    """
    rows = [*peek.rows, *peek.last]
    if peek.columns is None:
        return _describe_sheet(title, rows, peek.total, typed_column)
    if peek.total is None:
        return _Description(f"{title}a view", [Column(*column) for column in peek.columns])
    is_complete = peek.total <= len(rows)
    columns = [
        typed_column(name, [row[index] for _, row in rows], declared, is_complete=is_complete)
        for index, (name, declared) in enumerate(peek.columns)
    ]
    head = f"{title}{peek.total:,} rows{_sample_note(len(rows), peek.total)}"
    return _Description(
        head,
        columns,
        text_of_all_rows=_render_all_rows(row for _, row in rows) if is_complete else "",
    )


def _sample_note(examined: int, total: int) -> str:
    """Return a remark if only a sample of the rows or items was examined; empty otherwise."""
    if examined < total:
        return f" (types and values from {examined:,} of them)"
    return ""


class _SheetRows(NamedTuple):
    """The rows of a table, divided into the header, which names the columns, and other rows.

    Args:
        above: The rows above the header, with their row numbers.
        header_number: The row number of the header; None if no row names the columns.
        header: The cells of the header; empty if no row names the columns.
        data: The rows below the header, with their row numbers.
    """

    above: list[tuple[int, list[Any]]]
    header_number: int | None
    header: list[Any]
    data: list[tuple[int, list[Any]]]

    @classmethod
    def of(cls, rows: list[tuple[int, list[Any]]]) -> _SheetRows:
        """Find the row that names the columns."""
        if is_headless(rows):
            return cls(above=[], header_number=None, header=[], data=rows)
        index = header_of(rows)
        number, header = rows[index]
        return cls(above=rows[:index], header_number=number, header=header, data=rows[index + 1 :])

    def data_row_count(self, row_count: int | None) -> int:
        """Return the approximate number of rows below the header, including unread rows.

        Args:
            row_count: The approximate number of all rows; None if unknown.
        """
        header_row_count = 0 if self.header_number is None else 1
        rows_before_data = len(self.above) + header_row_count
        # The approximate row_count may be too low.
        return max((row_count or 0) - rows_before_data, len(self.data))

    @property
    def note_about_header(self) -> str:
        """The advice to read the table with ``header=``, to append to a description; else ""."""
        if self.header_number is None:
            return "; no row names the columns: read it with header=0"
        if not self.above:
            return ""
        titles = " / ".join(filter(None, (_cells_line(row) for _, row in self.above)))
        advice = f"read it with header={self.header_number}"
        return f"; above the columns' names stands {titles}: {advice}"


def _describe_sheet(
    title: str,
    rows: list[tuple[int, list[Any]]],
    row_count: int | None,
    describe_column: Callable[..., Column],
    facts: str = "",
) -> _Description:
    """Describe a table in which a row may name the columns.

    Args:
        title: The beginning of the description's first line.
        rows: All rows or a sample, with their numbers.
        row_count: The approximate number of rows; None if unknown.
        describe_column: Describes a column, given its name and values.
        facts: Further facts for the first line.
    """
    if not rows:
        return _Description(f"{title}empty")
    sheet = _SheetRows.of(rows)
    data_rows = [row for _, row in sheet.data]
    is_complete = row_count is not None and row_count <= len(rows)
    data_row_count = sheet.data_row_count(row_count)
    about = "" if is_complete else "about "
    head = f"{title}{about}{data_row_count:,} rows"
    head += _sample_note(len(data_rows), data_row_count) + facts + sheet.note_about_header
    all_rows = _render_all_rows(data_rows) if is_complete else ""
    width = max(map(len, [sheet.header, *data_rows]))
    # A last row with sums, such as ``Total | 1,200``, is described apart from the columns.
    row_of_sums = _row_of_sums(sheet.data)
    has_sums = row_of_sums is not None
    footer = f"  last row, unlike the others: {short(row_of_sums)}" if has_sums else ""
    rows_of_columns = data_rows[:-1] if has_sums else data_rows
    columns: list[Column] = []
    for index, name in enumerate(columns_of(sheet.header, width)):
        values = [row[index] if index < len(row) else None for row in rows_of_columns]
        columns.append(describe_column(name, values, is_complete=is_complete))
    return _Description(head, columns, footer, all_rows)


def _cells_line(row: Sequence[Any]) -> str:
    """Return the distinct cells of a row as one line of at most 80 characters."""
    filled = (cell for cell in row if cell is not None and str(cell).strip())
    return ", ".join(dict.fromkeys(map(short, filled)))[:80]


async def _peek_within(
    file_format: SupportsPeek, path: str, part: str | None, max_cells: int
) -> Peek:
    """Read all rows of a table with at most ``max_cells`` cells, or the first rows of a larger one.

    At least ``_SAMPLE_ROWS`` rows are read, even if they have more cells.
    """
    peek = await file_format.peek(path, part, _SAMPLE_ROWS)
    if peek.total is None or peek.total <= len(peek.rows):
        return peek
    width = max((len(row) for _, row in peek.rows), default=1)
    max_rows = max(_SAMPLE_ROWS, max_cells // max(1, width))
    reads_all_rows = peek.total <= max_rows
    return await file_format.peek(path, part, None if reads_all_rows else max_rows)


def _row_of_sums(rows: Sequence[tuple[int, Sequence[Any]]]) -> list[Any] | None:
    """Return the filled cells of the last row if that row looks like a total; None otherwise.

    The last row looks like a total in two cases: if its first filled cell is a word such as
    "total", or if a column is empty in the last row but filled in all other rows.
    """
    if len(rows) < 3:
        return None
    last_row = rows[-1][1]
    filled_cells = [cell for cell in last_row if cell not in (None, "")]
    first_cell = filled_cells[0] if filled_cells else None
    if isinstance(first_cell, str) and _TOTAL.match(first_cell.strip()):
        return filled_cells
    other_rows = [row for _, row in rows[:-1]]
    for index in range(min(map(len, other_rows))):
        is_filled_in_others = all(row[index] not in (None, "") for row in other_rows)
        is_empty_in_last = index >= len(last_row) or last_row[index] in (None, "")
        if is_filled_in_others and is_empty_in_last:
            return filled_cells
    return None


def _describe_by_duckdb(path: str, kind: str) -> _Description:
    """Describe a Parquet or Arrow file by its columns and its first and last rows."""
    import duckdb

    from delf_files.query_child import READERS, arrow_table, plain_path, quoted_name, text_literal

    connection = duckdb.connect(config={"threads": 1})
    connection.execute("SET TimeZone = 'UTC'")  # as in files.query and files.read
    if kind == "arrow":
        connection.register("shown", arrow_table(path))
    else:
        source = READERS["parquet"].format(path=text_literal(plain_path(path)))
        connection.execute(f"CREATE VIEW shown AS FROM {source}")
    described = connection.sql("DESCRIBE shown").fetchall()
    names = [str(row[0]) for row in described]
    column_types = [str(row[1]) for row in described]
    count_list = ", ".join(f"count({quoted_name(name)})" for name in names)
    (counted,) = connection.sql(f"SELECT count(*), {count_list} FROM shown").fetchall()  # noqa: S608 - names of the file
    row_count, *non_null_counts = counted
    max_first_rows = max(_SAMPLE_ROWS, _MAX_CELLS // len(names))
    rows = connection.sql(f"FROM shown LIMIT {max_first_rows}").fetchall()
    if row_count > max_first_rows:
        start_of_last_rows = max(row_count - _SAMPLE_ROWS, max_first_rows)  # reads no row twice
        rows += connection.sql(f"FROM shown OFFSET {start_of_last_rows}").fetchall()
    has_all_rows = len(rows) == row_count
    columns: list[Column] = []
    for index, (name, non_null_count) in enumerate(zip(names, non_null_counts, strict=True)):
        values = [row[index] for row in rows]
        has_null = non_null_count < row_count
        if has_null and None not in values:
            values.append(None)  # the NULL is in a row that was not read
        columns.append(typed_column(name, values, column_types[index], is_complete=has_all_rows))
    heading = f"{row_count:,} rows{_sample_note(len(rows), row_count)}"
    all_rows = _render_all_rows(rows) if has_all_rows else ""
    return _Description(heading, columns, text_of_all_rows=all_rows)


def _describe_content(
    path: str, name: str, ending: str, kind: str, size: int, max_bytes: int, max_characters: int
) -> _Description:
    """Describe a file that no FileFormat plugin reads: a document, a known format or a text."""
    # A large JSON value is read as a whole, because a part of the value is not valid JSON.
    max_whole_bytes = max_bytes if kind == "json" else _MAX_WHOLE_BYTES
    with Path(path).open("rb") as file:
        data = file.read(max_whole_bytes + 1)
    if kind in DOCUMENTS and is_document(data, kind):
        return _describe_document(path, name, kind, max_characters)
    head = data[:DETECTION_BYTES]
    known_format = find_format(head)
    # In a text file, HTML is ordinary content. In a .csv file, for example, HTML is probably an
    # error page that was saved instead of the data.
    is_text_file = kind == "text" and is_html_page(head)
    if known_format is None or is_text_file:
        return _describe_text(path, name, ending, kind, data, size, max_characters)
    is_archive = zipfile.is_zipfile(path)
    content = _describe_archive(path) if is_archive else _first_lines_unpacked(path)
    return _Description(known_format, footer=content)


def _describe_text(
    path: str, name: str, ending: str, kind: str, data: bytes, size: int, max_characters: int
) -> _Description:
    """Describe a text by its content, or a large text by its beginning and some later lines.

    Args:
        path: The path of the file.
        name: The file's name in the script.
        ending: The file's extension.
        kind: As in :func:`shape`.
        data: The whole content of the file, or as much as was read of a large file.
        size: The size of the file in bytes.
        max_characters: The maximum number of characters of the description.
    """
    is_whole = len(data) >= size
    is_read_in_pieces = not is_whole and kind != "json"  # a piece of a JSON value is not valid
    beginning = _complete_lines(data[:_BEGINNING_BYTES]) if is_read_in_pieces else data
    text = decode_if_text(beginning) if kind == "other" else decode(beginning, None, name)
    if text is None:
        return _Description(f"{size:,} bytes, not text")
    if not text.strip():
        return _Description("empty")
    encoding = encoding_of(beginning, name)
    encoding_note = "" if encoding == "utf-8" else f", {encoding}"
    if kind == "json":
        if not is_whole:
            return _Description(f"one value of JSON{encoding_note}, that begins with {short(text)}")
        return _describe_value(read_json(text, name), encoding_note)
    line_count = None if is_whole else _count_lines(path)
    if kind in ("csv", "jsonl"):
        later_pieces = [] if is_whole else _sample_lines(path, len(beginning), size, encoding)
        if kind == "csv":
            return _describe_separated(text, later_pieces, ending, encoding_note, line_count)
        values = read_json_lines("".join([text, *later_pieces]), name)
        return _describe_value(values, encoding_note, line_count)
    lines = text.splitlines()
    if line_count is None:
        return _describe_lines(f"str, {len(lines):,} lines{encoding_note}", lines, max_characters)
    return _describe_beginning(f"str, about {line_count:,} lines{encoding_note}; it begins", lines)


def _sample_lines(path: str, start: int, size: int, encoding: str) -> list[str]:
    """Return pieces of complete lines from positions spread over a file.

    Args:
        path: The path of the file.
        start: The position in bytes after which the pieces begin.
        size: The size of the file in bytes; the last piece ends there.
        encoding: The encoding of the file.

    Returns:
        The pieces. The list is empty for a wide encoding, such as UTF-16, because a piece might
        begin in the middle of a character.
    """
    if encoding.startswith(_WIDE_ENCODINGS):
        return []
    step = max(_PIECE_BYTES, (size - start) // _PIECES)
    last_position = size - _PIECE_BYTES
    # Count positions from the end of the file, so that the last piece ends with the file.
    positions = sorted(range(last_position, start, -step))
    pieces: list[str] = []
    with Path(path).open("rb") as file:
        for position in positions:
            file.seek(position)
            _incomplete_line, _, piece = file.read(_PIECE_BYTES).partition(b"\n")
            ends_with_file = position == last_position
            if not ends_with_file:
                piece = piece[: piece.rfind(b"\n") + 1]  # without the last, incomplete line
            pieces.append(piece.decode(encoding, "replace"))
    return pieces


def _describe_document(path: str, name: str, kind: str, max_characters: int) -> _Description:
    """Describe a PDF by its pages and text, or a .docx by its lines."""
    if kind == "docx":
        lines = [*docx_lines(path, name)]
        if not any(map(str.strip, lines)):
            return _Description(f"str, {len(lines):,} lines without text")
        return _describe_lines(f"str, {len(lines):,} lines", lines, max_characters)
    document = pdf_pages(path, name, _MAX_PAGES)
    head = f"list[str], the text of each of {document.total:,} pages"
    head += _joined_words_note(document.texts)
    pages = [text.splitlines() for text in document.texts]
    has_all_pages = document.total == len(pages)
    has_text = any(line for page in pages for line in page)
    max_length = min(_MAX_WHOLE_CHARACTERS, max_characters)
    if has_all_pages and has_text and sum(map(_count_characters, pages)) <= max_length:
        page_lines: list[str] = []
        for number, page in enumerate(pages, 1):
            page_lines.append(f"  page {number}")
            page_lines += _wrapped(page)
        return _Description(f"{head}; all of it:", footer="\n".join(page_lines))
    for number, text in enumerate(document.texts, 1):
        if text:
            return _describe_beginning(f"{head}; page {number} begins", text.splitlines())
    return _Description(f"{head}; the first pages have no text, like scanned pages")


def _joined_words_note(texts: Sequence[str]) -> str:
    """Return a warning if words of a PDF's columns run together; empty otherwise."""
    words = [word for text in texts for word in text.split()]
    joined_words = list(dict.fromkeys(filter(_JOINED_WORDS.search, words)))
    if len(joined_words) < _MIN_JOINED_WORDS:
        return ""
    return f" (columns may run together, as in {', '.join(map(short, joined_words[:2]))})"


def _describe_lines(head: str, lines: Sequence[str], max_characters: int) -> _Description:
    """Describe a text by all its lines; if they do not fit, by its first lines."""
    if _count_characters(lines) <= min(_MAX_WHOLE_CHARACTERS, max_characters):
        return _Description(f"{head}; all of it:", footer="\n".join(_wrapped(lines)))
    return _describe_beginning(f"{head}; it begins", lines)


def _count_characters(lines: Sequence[str]) -> int:
    return sum(len(line) + 1 for line in lines)


def _wrapped(lines: Sequence[str]) -> Iterable[str]:
    """Yield lines cut into pieces of at most 120 characters.

    The first piece of a line begins with ``|``, each further piece with ``:``.
    """
    for line in lines:
        text = line.rstrip()
        for start in range(0, len(text), _MAX_LINE_CHARACTERS):
            mark = ":" if start else "|"
            yield f"  {mark} {_escaped(text[start : start + _MAX_LINE_CHARACTERS])}"


def _describe_beginning(head: str, lines: Sequence[str]) -> _Description:
    first_lines = [f"  {_line(line)}" for line in lines if line.strip()][:_MAX_FIRST_LINES]
    return _Description(head, footer="\n".join(first_lines))


def _describe_archive(path: str) -> str:
    """Return the names of the files in a ZIP archive, and the first lines of some text files."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            first_lines: list[str] = []
            # Files whose names differ only in numbers, such as months, are probably alike: show
            # the first of them.
            distinct_names: dict[str, str] = {}
            for name in names:
                distinct_names.setdefault(re.sub(r"\d+", "0", name), name)
            text_names = [
                name for name in distinct_names.values() if name.lower().endswith(_TEXT_ENDINGS)
            ]
            for name in text_names[:_MAX_MEMBERS]:
                with archive.open(name) as member:
                    data = member.read(_PIECE_BYTES)
                encoding = encoding_of(data, name)
                encoding_note = "" if encoding == "utf-8" else f" ({encoding})"
                heading = f"{short(name)} begins{encoding_note}"
                first_lines += _first_lines(data, heading, encoding)
    except (zipfile.BadZipFile, zlib.error, OSError, RuntimeError, NotImplementedError):
        return "  a damaged or locked archive"
    omitted_count = len(names) - _MAX_LISTED_NAMES
    rest_note = f" and {omitted_count:,} more" if omitted_count > 0 else ""
    name_list = ", ".join(map(short, names[:_MAX_LISTED_NAMES]))
    return "\n".join([f"  holds {name_list}{rest_note}", *first_lines])


def _first_lines_unpacked(path: str) -> str:
    """Return the first lines of a text compressed by gzip, bzip2 or xz; "" for other files."""
    for open_compressed in (gzip.open, bz2.open, lzma.open):
        # For a file in another format, the error is suppressed, and the next function is tried.
        with suppress(OSError, EOFError, lzma.LZMAError), open_compressed(path, "rb") as file:
            return "\n".join(_first_lines(file.read(_PIECE_BYTES), heading="it begins"))
    return ""


def _first_lines(data: bytes, heading: str, encoding: str = "") -> list[str]:
    """Return a heading, and the first lines of a text.

    If the text is complete, its last line is returned, too, because this line may be a total.

    The list is empty for binary content.

    Args:
        data: At most the first :data:`_PIECE_BYTES` of the text.
        heading: The line above the text's lines, such as ``it begins``.
        encoding: The encoding to try if the text is not UTF-8.
    """
    may_be_cut = len(data) == _PIECE_BYTES
    if may_be_cut:
        data = _complete_lines(data)
    text = decode_if_text(data)
    if text is None and encoding:
        is_binary = b"\0" in data
        text = "" if is_binary else data.decode(encoding, "replace")
    lines = [f"  {_line(line)}" for line in (text or "").splitlines() if line.strip()]
    if not lines:
        return []
    shown_lines, other_lines = lines[:_MAX_MEMBER_LINES], lines[_MAX_MEMBER_LINES:]
    if other_lines and not may_be_cut:
        if len(other_lines) > 1:
            shown_lines.append("  …")
        shown_lines.append(other_lines[-1])
    return [f"  {heading}", *shown_lines]


def _complete_lines(data: bytes) -> bytes:
    """Remove the incomplete line at the end of data, unless there is no complete line."""
    return data[: data.rfind(b"\n") + 1] or data


def _line(text: str) -> str:
    """Return a line of a text for the prompt, marked by ``|`` and cut after 120 characters."""
    whole_text = text.rstrip()
    shown_text = whole_text[:_MAX_LINE_CHARACTERS]
    mark_of_cut = "…" if len(whole_text) > len(shown_text) else ""
    return f"| {_escaped(shown_text)}{mark_of_cut}"


def _escaped(text: str) -> str:
    # repr() escapes a control character, such as a line break as a backslash and "n". The slice
    # removes the quotes.
    return _CONTROL.sub(lambda match: repr(match[0])[1:-1], text)


def _describe_separated(
    text: str, later_pieces: Sequence[str], ending: str, encoding_note: str, line_count: int | None
) -> _Description:
    """Describe a file of separated values.

    Args:
        text: The content of the file, or its beginning.
        later_pieces: Sample lines from the rest of the file, in several pieces.
        ending: The file's extension.
        encoding_note: A remark on the encoding; empty for UTF-8.
        line_count: The approximate number of lines of the file; None if ``text`` is the whole
            content.
    """
    dialect = dialect_of(text, ending)
    rows = rows_of(text, ending)
    if not rows:
        return _Description("empty")
    # Use the width of the last row, because the first row may be a title. The last row is complete:
    # the beginning of a large file ends with a whole line.
    width = len(rows[-1][1])
    rows += [(_UNKNOWN_ROW_NUMBER, row) for row in _rows_of_width(later_pieces, dialect, width)]
    separator = _SEPARATORS.get(dialect.separator, repr(dialect.separator))
    separator_note = f", split at {separator}" if dialect.separator != "," else ""
    facts = f"{separator_note}{encoding_note}, every value str"
    numbered = cast("list[tuple[int, list[Any]]]", rows)
    return _describe_sheet("", numbered, line_count or len(rows), text_column, facts)


def _rows_of_width(pieces: Sequence[str], dialect: Dialect, width: int) -> Iterator[list[str]]:
    """Yield the rows in pieces of a file that have ``width`` cells.

    Other rows are left out, because their piece may begin inside a quoted cell. But the last row of
    the file is also yielded if the row is shorter, such as ``Total;12``.
    """
    for piece_number, piece in enumerate(pieces, 1):
        try:
            rows = rows_of_chunk(piece, dialect)
        except ValueError:
            continue  # such as a piece with an open quote
        yield from (row for row in rows if len(row) == width)
        is_last_piece = piece_number == len(pieces)
        if is_last_piece and rows and len(rows[-1]) < width:
            yield rows[-1]


def _describe_value(value: Any, encoding_note: str, item_count: int | None = None) -> _Description:
    """Describe a JSON value.

    Args:
        value: The value.
        encoding_note: A remark on the file's encoding; empty for UTF-8.
        item_count: The approximate length of the list in the file; None if ``value`` is complete.
    """
    if isinstance(value, list):
        items = cast("list[Any]", value)
        sample_items = evenly_spaced(items, _MAX_ITEMS)
        count = item_count or len(items)
        is_complete = len(sample_items) >= count
        about = "about " if item_count else ""
        head = f"list of {about}{count:,}"
        sample_note = _sample_note(len(sample_items), count)
        if sample_items and all(isinstance(item, dict) for item in sample_items):
            all_rows = _render_all_rows([record] for record in sample_items) if is_complete else ""
            columns = record_columns(sample_items, is_complete=is_complete)
            return _Description(
                f"{head} dicts{sample_note}{encoding_note}", columns, text_of_all_rows=all_rows
            )
        kinds = describe_values(sample_items, is_complete=is_complete)
        return _Description(f"{head}{sample_note}{encoding_note}: {kinds}")
    if isinstance(value, dict):
        record = cast("dict[str, Any]", value)
        # A dict whose keys are data, such as ids, is described by a sample of its values.
        if has_data_keys([record]):
            return _Description(
                f"dict{encoding_note}: {describe_values([record], is_complete=True)}"
            )
        columns = [_describe_member(key, item) for key, item in record.items()]
        return _Description(f"dict{encoding_note}", columns)
    return _Description(f"{type(value).__name__}{encoding_note}: {short(value)}")


def _describe_member(key: str, value: Any) -> Column:
    """Describe a member of a JSON object, with its key as the name of a column."""
    if isinstance(value, list) and value:
        items = cast("list[Any]", value)
        sample = evenly_spaced(items, _MAX_ITEMS)
        kinds = describe_values(sample, depth=1, is_complete=len(sample) == len(items))
        sample_note = _sample_note(len(sample), len(items))
        return Column(key, f"list of {len(items):,}{sample_note}: {kinds}")
    return Column(key, describe_values([value], is_complete=True))


def _count_lines(path: str) -> int:
    """Return the number of lines in a file, or in the first 2 GB of a larger file."""
    count = read_bytes = 0
    last_chunk = b"\n"
    with Path(path).open("rb") as file:
        for chunk in _chunks(file):
            count += chunk.count(b"\n")
            last_chunk = chunk
            read_bytes += len(chunk)
            if read_bytes > _MAX_COUNTED_BYTES:
                break
    # In a wide encoding, the last line feed is followed by zero bytes.
    ends_with_line_feed = last_chunk.rstrip(b"\0").endswith(b"\n")
    return count if ends_with_line_feed else count + 1


def _chunks(file: Any) -> Iterable[bytes]:
    while chunk := file.read(_CHUNK_BYTES):
        yield chunk
