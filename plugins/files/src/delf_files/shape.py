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
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from importlib.util import find_spec
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from delf.protocols.formats import Peek, SupportsPeek
from delf_confined.documents import docx_lines, pdf_pages
from delf_confined.text import decode, decode_if_text, encoding_of
from delf_files.columns import (
    Column,
    described,
    is_by_name,
    record_columns,
    short,
    spread,
    text_column,
    typed_column,
)
from delf_files.dialects import dialect_of
from delf_files.forms import LOOKED_AT, form_of
from delf_files.headers import header_of, is_headless
from delf_files.json_text import read_json, read_json_lines
from delf_files.reading import DOCUMENTS, format_of, is_document
from delf_files.tables import columns_of, lines_of, rows_of

if TYPE_CHECKING:
    from delf.protocols.formats import FileFormat

_WHOLE: Final = 2 * 1024 * 1024
"""The size up to which all values of a text are analysed."""
_BEGINNING: Final = 256 * 1024
_CHUNK: Final = 4 * 1024 * 1024
_MAX_COUNTED: Final = 2 * 1024**3
_ROWS: Final = 200
_CELLS: Final = 150_000
"""The maximum number of cells of a file's tables that are examined."""
_ITEMS: Final = 20_000
"""The maximum number of items of a JSON list that are examined."""
_PIECE: Final = 64 * 1024
_PIECES: Final = 8
"""The number of samples of a long text after its beginning; the last one is its end."""
_MAX_PARTS: Final = 20
_LINES: Final = 8
_FEW: Final = 15
"""The maximum number of rows of a table that is shown in full, if there is room."""
_SHORT: Final = 1_500
"""The maximum number of characters of a text that is shown in full, if there is room."""
_MEMBERS: Final = 3
_MEMBER_LINES: Final = 4
_TEXTS: Final = (".csv", ".tsv", ".txt", ".json", ".jsonl", ".md", ".log")
"""Suffixes of the files in an archive of which the first lines are shown."""
_PAGES: Final = 3
"""The maximum number of pages of a PDF that are examined."""
_LONGEST_LINE: Final = 120
_TOTAL: Final = re.compile(
    r"(?:(?:grand |sub-?)?totals?|sums?|summe|gesamt\w*|insgesamt|totale?|totaux|suma|всего|итого)"
    r"\s*:?$",
    re.IGNORECASE,
)
_GLUED: Final = re.compile(
    r"[a-z]{2}\d{1,4}[/.,-]\d|[a-z*)][A-Z][a-z]+[A-Z*]|\w\*+[A-Z]|\d,\d{3}\d|\d\.\d\d\d*[A-Za-z$€]{2}"
)
"""A pattern for two words or numbers joined without a space, as between columns of a PDF."""
_FEWEST_GLUED: Final = 3
_SEPARATORS: Final = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
_LINES_CUT_WRONG: Final = ("utf-16", "utf-32")
"""Encodings whose lines do not end at the byte of a line feed."""
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


class _Table(NamedTuple):
    """The description of a table.

    Args:
        head: The first line.
        columns: The columns.
        rest: The lines after the columns.
        rows: All rows of a small table, shown if there is room.
    """

    head: str
    columns: Sequence[Column] = ()
    rest: str = ""
    rows: str = ""


async def shape(
    path: str,
    name: str,
    ending: str,
    kind: str,
    factory: Sequence[str] | None,
    most: int,
    room: int,
) -> str:
    """Describe a file.

    Args:
        path: The path of the file.
        name: The file's name in the script.
        ending: The file's extension.
        kind: ``csv``, ``json``, ``jsonl``, ``parquet``, ``arrow``, ``text``, ``pdf``, ``docx`` or
            ``other``.
        factory: The factory of its format, if any.
        most: The maximum number of bytes that ``files.read`` accepts.
        room: The maximum number of characters.
    """
    size = _size(path)
    if factory is not None:
        tables = await _describe_format(format_of(factory), path)
    elif kind in ("parquet", "arrow"):
        tables = [_describe_by_duckdb(path, kind)]
    else:
        tables = [_describe_text(path, name, ending, kind, size, most, room)]
    if size > most and factory is None:
        quoted = name.replace("'", "''")
        way = f"files.query(\"… FROM '{quoted}'\")" if find_spec("duckdb") else "open()"
        first = tables[0]
        tables[0] = first._replace(head=f"{first.head}; too large for files.read: use {way}")
    return _fit(tables, room)


def _size(path: str) -> int:
    return Path(path).stat().st_size


def _fit(tables: Sequence[_Table], room: int) -> str:
    """Shorten the descriptions of tables to a size: first the examples are dropped, then names.

    Short tables leave their unused share to longer ones.
    """
    sizes = [_full_size(table) for table in tables]
    shares: dict[int, int] = {}
    remaining = room
    for place, index in enumerate(sorted(range(len(tables)), key=sizes.__getitem__)):
        shares[index] = min(sizes[index], remaining // (len(tables) - place))
        remaining -= shares[index]
    return "\n".join(_render(table, shares[index]) for index, table in enumerate(tables))


def _full_size(table: _Table) -> int:
    lines = sum(2 * len(short(column.name)) + len(column.line) + 7 for column in table.columns)
    return len(table.head) + len(table.rest) + len(table.rows) + lines


def _all_rows(rows: Iterable[Sequence[Any]]) -> str:
    """Return all rows of a small table, one on each line; empty for other tables."""
    first = list(islice(rows, _FEW + 1))
    lines = [f"  | {', '.join(map(short, row))}" for row in first]
    is_small = 1 < len(lines) <= _FEW and _size_of(lines) <= _SHORT
    is_small = is_small and not any(line.endswith("…") for line in lines)
    return "\n".join(["  all rows:", *map(_escaped, lines)]) if is_small else ""


def _render(table: _Table, room: int) -> str:
    """Return a table's description; columns without room are only named."""
    lines = [table.head]
    used, remaining = len(table.head) + len(table.rest), list(table.columns)
    while remaining:
        line = f"  {short(remaining[0].name)}: {remaining[0].line}"
        names = sum(len(short(column.name)) + 2 for column in remaining)
        if used + len(line) + min(names, room // 3) > room:
            break
        lines.append(line)
        used += len(line) + 1
        remaining.pop(0)
    if remaining:
        lines.append(_remaining_names(remaining, max(room - used, 80)))
    elif table.rows and used + len(table.rows) < room:
        lines.append(table.rows)
    return "\n".join([*lines, table.rest] if table.rest else lines)


def _remaining_names(columns: Sequence[Column], room: int) -> str:
    names: list[str] = []
    for column in columns:
        if sum(map(len, names)) + 2 * len(names) > room:
            break
        names.append(short(column.name))
    more = len(columns) - len(names)
    return f"  also {', '.join(names)}" + (f" and {more:,} more" if more else "")


async def _describe_format(file_format: FileFormat, path: str) -> list[_Table]:
    """Describe the first tables of a file that a FileFormat plugin reads."""
    parts: Sequence[str | None] = [*await file_format.parts(path)] or [None]
    tables: list[_Table] = []
    cells = _CELLS
    for part in parts[:_MAX_PARTS]:
        title = "" if part is None else f"sheet={short(part)}, "
        if not isinstance(file_format, SupportsPeek):
            records = await file_format.read(path, part)
            looked = spread(records, _ITEMS)
            head = f"{title}{len(records):,} rows{_sample_note(len(looked), len(records))}"
            tables.append(_Table(head, record_columns(looked, whole=looked is records)))
            continue
        peek = await file_format.peek(path, part, _ROWS)
        if peek.total is not None and peek.total > len(peek.rows):
            width = max((len(row) for _, row in peek.rows), default=1)
            most = max(_ROWS, cells // max(1, width))
            peek = await file_format.peek(path, part, most if most < peek.total else None)
        cells -= sum(len(row) for _, row in peek.rows)
        tables.append(_describe_peek(title, peek))
    if len(parts) > _MAX_PARTS:
        tables.append(_Table(f"and {len(parts) - _MAX_PARTS} more: files.list() names them"))
    if len(parts) > 1:
        tables.insert(0, _Table(f"{len(parts)} tables, the first without sheet="))
    return tables


def _describe_peek(title: str, peek: Peek) -> _Table:
    """Describe a sheet, a view without rows, or a table by its columns."""
    rows = [*peek.rows, *peek.last]
    if peek.columns is None:
        return _describe_sheet(title, rows, peek.total, typed_column)
    if peek.total is None:
        return _Table(f"{title}a view", [Column(*column) for column in peek.columns])
    is_complete = peek.total <= len(rows)
    columns = [
        typed_column(name, [row[index] for _, row in rows], declared, whole=is_complete)
        for index, (name, declared) in enumerate(peek.columns)
    ]
    head = f"{title}{peek.total:,} rows{_sample_note(len(rows), peek.total)}"
    return _Table(head, columns, rows=_all_rows(row for _, row in rows) if is_complete else "")


def _sample_note(looked: int, total: int) -> str:
    """Return a note that only a sample was examined."""
    return f" (types and values from {looked:,} of them)" if looked < total else ""


def _describe_sheet(
    title: str,
    rows: list[tuple[int, list[Any]]],
    total: int | None,
    column: Callable[..., Column],
    facts: str = "",
) -> _Table:
    """Describe a table of a sheet.

    Args:
        title: The beginning of the head line.
        rows: All rows or a sample.
        total: The approximate number of rows, if known.
        column: Describes a column, given its name and values.
        facts: Further facts for the head line.
    """
    if not rows:
        return _Table(f"{title}empty")
    headless = is_headless(rows)
    header_index = -1 if headless else header_of(rows)
    number, header = (0, []) if headless else rows[header_index]
    below = rows[header_index + 1 :]
    width = max(len(row) for _, row in rows[max(header_index, 0) :])
    names = columns_of(header, width)
    is_whole = total is not None and total <= len(rows)
    count = len(below) if is_whole else max((total or 0) - header_index - 1, len(below))
    head = f"{title}{'' if is_whole else 'about '}{count:,} rows"
    head += _sample_note(len(below), count) + facts
    title_lines = [_cells_line(row) for _, row in rows[: max(header_index, 0)]]
    if headless:
        head += "; no row names the columns: read it with header=0"
    elif title_lines:
        listed = " / ".join(filter(None, title_lines))
        head += f"; above the columns' names stands {listed}: read it with header={number}"
    last = _odd_last(below)
    all_rows = _all_rows(row for _, row in below) if is_whole else ""
    if last is not None:
        below = below[:-1]
    values = (
        [row[index] if index < len(row) else None for _, row in below] for index in range(width)
    )
    columns = [
        column(name, values_of_column, whole=is_whole)
        for name, values_of_column in zip(names, values, strict=True)
    ]
    rest = "" if last is None else f"  last row, unlike the others: {short(last)}"
    return _Table(head, columns, rest, all_rows)


def _cells_line(row: Sequence[Any]) -> str:
    """Return the distinct cells of a row above the column names."""
    filled = (cell for cell in row if cell is not None and str(cell).strip())
    return ", ".join(dict.fromkeys(map(short, filled)))[:80]


def _odd_last(rows: Sequence[tuple[int, Sequence[Any]]]) -> list[Any] | None:
    """Return the last row if it looks like a total, or has empty cells where no other row has."""
    if len(rows) < 3:
        return None
    last = rows[-1][1]
    filled = [cell for cell in last if cell not in (None, "")]
    if filled and isinstance(filled[0], str) and _TOTAL.match(filled[0].strip()):
        return filled
    others = [row for _, row in rows[:-1]]
    for index in range(min(map(len, others))):
        always = all(row[index] not in (None, "") for row in others)
        if always and (index >= len(last) or last[index] in (None, "")):
            return filled
    return None


def _describe_by_duckdb(path: str, kind: str) -> _Table:
    """Describe a Parquet or Arrow file by its columns and its first and last rows."""
    import duckdb

    connection = duckdb.connect(config={"threads": 1})
    connection.execute("SET TimeZone = 'UTC'")  # as in files.query and files.read
    if kind == "arrow":
        from delf_files.query_child import arrow_table

        connection.register("shown", arrow_table(path))
    else:
        from delf_files.query_child import READERS, plain_path

        quoted = "'" + plain_path(path).replace("'", "''") + "'"
        connection.execute(f"CREATE VIEW shown AS FROM {READERS['parquet'].format(path=quoted)}")
    kinds = connection.sql("DESCRIBE shown").fetchall()
    names = [str(name[0]) for name in kinds]
    filled = ", ".join(f"count({_quoted(name)})" for name in names)
    ((total, *counts),) = connection.sql(f"SELECT count(*), {filled} FROM shown").fetchall()  # noqa: S608 - names of the file
    max_rows = max(_ROWS, _CELLS // len(names))
    rows = connection.sql(f"FROM shown LIMIT {max_rows}").fetchall()
    if total > max_rows:
        rows += connection.sql(f"FROM shown LIMIT {_ROWS} OFFSET {total - _ROWS}").fetchall()
    columns: list[Column] = []
    for index, (name, count) in enumerate(zip(names, counts, strict=True)):
        values = [row[index] for row in rows]
        if count < total and None not in values:
            values.append(None)
        columns.append(typed_column(name, values, str(kinds[index][1]), whole=total <= len(rows)))
    all_rows = _all_rows(rows) if total <= len(rows) else ""
    return _Table(f"{total:,} rows{_sample_note(len(rows), total)}", columns, rows=all_rows)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _describe_text(
    path: str, name: str, ending: str, kind: str, size: int, most: int, room: int
) -> _Table:
    with Path(path).open("rb") as file:
        data = file.read(_WHOLE + 1 if kind != "json" else most + 1)
    if kind in DOCUMENTS and is_document(data, kind):
        return _describe_document(path, name, kind, room)
    form = form_of(data[:LOOKED_AT])
    if form is not None and (kind != "text" or not form.startswith("a page")):
        rest = (
            _archive_members(path) if zipfile.is_zipfile(path) else _compressed(path).lstrip("\n")
        )
        return _Table(form, rest=rest)
    is_whole = len(data) >= size
    pieces: list[bytes] = []
    if not is_whole and kind != "json":
        data = data[:_BEGINNING]
        data = data[: data.rfind(b"\n") + 1] or data
        pieces = _sample_lines(path, len(data), size)
    if kind == "other":
        found = decode_if_text(data)
        if found is None:
            return _Table(f"{size:,} bytes, not text")
        text = found
    else:
        text = decode(data, None, name)
    if not text.strip():
        return _Table("empty")
    encoding = encoding_of(data, name)
    encoding_note = "" if encoding == "utf-8" else f", {encoding}"
    if not encoding.startswith(_LINES_CUT_WRONG):
        further = [piece.decode(encoding, "replace") for piece in pieces]
    else:
        further = []
    about = "" if is_whole else "about "
    if kind == "csv":
        return _describe_separated(
            text, further, ending, encoding_note, None if is_whole else _count_lines(path)
        )
    if kind == "json":
        if not is_whole:
            return _Table(f"one value of JSON{encoding_note}, that begins with {short(text)}")
        return _describe_value(read_json(text, name), encoding_note)
    if kind == "jsonl":
        values = read_json_lines("".join([text, *further]), name)
        return _describe_value(values, encoding_note, None if is_whole else _count_lines(path))
    lines = text.splitlines()
    count = len(lines) if is_whole else _count_lines(path)
    return _text_lines(
        f"str, {about}{count:,} lines{encoding_note}", lines, room if is_whole else 0
    )


def _sample_lines(path: str, start: int, size: int) -> list[bytes]:
    """Return complete lines from positions spread over a file; the last line is the file's last."""
    pieces: list[bytes] = []
    step = max(_PIECE, (size - start) // _PIECES)
    with Path(path).open("rb") as file:
        for place in range(size - _PIECE, start, -step):
            file.seek(place)
            lines = file.read(_PIECE)
            end = len(lines) if place + _PIECE == size else lines.rfind(b"\n") + 1
            pieces.insert(0, lines[lines.find(b"\n") + 1 : end])
    return pieces


def _describe_document(path: str, name: str, kind: str, room: int) -> _Table:
    """Describe a PDF by its pages and text, or a .docx by its lines."""
    if kind == "docx":
        lines = [*docx_lines(path, name)]
        if not any(map(str.strip, lines)):
            return _Table(f"str, {len(lines):,} lines without text")
        return _text_lines(f"str, {len(lines):,} lines", lines, room)
    if find_spec("pypdf") is None:
        return _Table("a PDF; its text needs delf-plugin-files[pdf]")
    found = pdf_pages(path, name, _PAGES)
    head = f"list[str], the text of each of {found.total:,} pages"
    head += _glued_note(found.texts)
    pages = [text.splitlines() for text in found.texts]
    is_whole = found.total == len(pages) and any(map(any, pages))
    if is_whole and sum(map(_size_of, pages)) <= min(_SHORT, room):
        marks = (f"  page {number}" for number in range(1, len(pages) + 1))
        parts = ([mark, *_wrapped(lines)] for mark, lines in zip(marks, pages, strict=True))
        return _Table(f"{head}; all of it:", rest="\n".join(chain.from_iterable(parts)))
    for number, text in enumerate(found.texts, 1):
        if text:
            return _beginning(f"{head}; page {number} begins", text.splitlines())
    return _Table(f"{head}; the first have none, as pictures of pages have")


def _glued_note(texts: Sequence[str]) -> str:
    """Return a note that a PDF's columns are too close, so that words and numbers run together."""
    words = [word for text in texts for word in text.split()]
    glued = list(dict.fromkeys(filter(_GLUED.search, words)))
    if len(glued) < _FEWEST_GLUED:
        return ""
    return f" (columns may run together, as in {', '.join(map(short, glued[:2]))})"


def _text_lines(head: str, lines: Sequence[str], room: int) -> _Table:
    """Return a text in full if the text fits, otherwise its first lines."""
    if _size_of(lines) <= min(_SHORT, room):
        return _Table(f"{head}; all of it:", rest="\n".join(_wrapped(lines)))
    return _beginning(f"{head}; it begins", lines)


def _size_of(lines: Sequence[str]) -> int:
    return sum(len(line) + 1 for line in lines)


def _wrapped(lines: Sequence[str]) -> Iterable[str]:
    """Yield marked lines; continuations of a long line begin with a colon instead of a bar."""
    for line in lines:
        text = line.rstrip()
        for start in range(0, len(text), _LONGEST_LINE):
            mark = ":" if start else "|"
            yield f"  {mark} {_escaped(text[start : start + _LONGEST_LINE])}"


def _beginning(head: str, lines: Sequence[str]) -> _Table:
    first = [f"  {_line(line)}" for line in lines if line.strip()][:_LINES]
    return _Table(head, rest="\n".join(first))


def _archive_members(path: str) -> str:
    """Return the names of the files in an archive, which scripts read with zipfile."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            first_lines: list[str] = []
            # Members whose names differ only in numbers, such as months, are probably alike.
            kinds = {re.sub(r"\d+", "0", name): name for name in reversed(names)}
            texts = [name for name in reversed(kinds.values()) if name.lower().endswith(_TEXTS)]
            for name in texts[:_MEMBERS]:
                with archive.open(name) as member:
                    data = member.read(_PIECE)
                encoding = encoding_of(data, name)
                about = f"{short(name)} begins{'' if encoding == 'utf-8' else f' ({encoding})'}"
                first_lines.append(_first_lines(data, about, encoding))
    except (zipfile.BadZipFile, zlib.error, OSError, RuntimeError, NotImplementedError):
        return "  a damaged or locked archive"
    more_note = f" and {len(names) - _LINES:,} more" if len(names) > _LINES else ""
    return f"  holds {', '.join(map(short, names[:_LINES]))}{more_note}{''.join(first_lines)}"


def _compressed(path: str) -> str:
    """Return the first lines of a text that is compressed by gzip, bzip2 or xz."""
    for opened in (gzip.open, bz2.open, lzma.open):
        with suppress(OSError, EOFError, lzma.LZMAError), opened(path, "rb") as file:
            return _first_lines(file.read(_PIECE), "it begins")
    return ""


def _first_lines(data: bytes, about: str, encoding: str = "") -> str:
    """Return a head line, the first lines of a text, and its last line, which may be a total.

    Empty for binary content. The last line of a long text is omitted.
    """
    cut = data[: data.rfind(b"\n") + 1] or data
    text = decode_if_text(cut if len(data) == _PIECE else data)
    if text is None and encoding and b"\0" not in cut:
        text = data.decode(encoding, "replace")
    lines = [f"\n  {_line(line)}" for line in (text or "").splitlines() if line.strip()]
    first_lines = lines[:_MEMBER_LINES]
    if len(data) < _PIECE and len(lines) > _MEMBER_LINES:
        first_lines += ["\n  …"] if len(lines) > _MEMBER_LINES + 1 else []
        first_lines.append(lines[-1])
    return f"\n  {about}{''.join(first_lines)}" if lines else ""


def _line(text: str) -> str:
    cut = text.rstrip()[:_LONGEST_LINE]
    return f"| {_escaped(cut)}{'…' if len(text.rstrip()) > len(cut) else ''}"


def _escaped(text: str) -> str:
    return _CONTROL.sub(lambda match: repr(match[0])[1:-1], text)


def _describe_separated(
    text: str, further: Sequence[str], ending: str, encoding_note: str, total: int | None
) -> _Table:
    """Describe separated values.

    Args:
        text: The whole text or its beginning.
        further: Sample lines from the rest.
        ending: The file's extension.
        encoding_note: The encoding, if unusual.
        total: The approximate number of lines, if the text is incomplete.
    """
    dialect = dialect_of(text, ending)
    rows = rows_of(text, ending)
    if not rows:
        return _Table("empty")
    width = len(rows[-1][1])
    for index, piece in enumerate(further, 1):
        with suppress(ValueError):  # a sample may begin in a quoted cell
            lines = lines_of(piece, dialect)
            is_end = index == len(further)
            rows += [
                (0, row)
                for row in lines
                if len(row) == width or (is_end and row is lines[-1] and len(row) < width)
            ]
    by = _SEPARATORS.get(dialect.separator, repr(dialect.separator))
    facts = (
        f"{f', split at {by}' if dialect.separator != ',' else ''}{encoding_note}, every value str"
    )
    numbered = cast("list[tuple[int, list[Any]]]", rows)
    return _describe_sheet("", numbered, total or len(rows), text_column, facts)


def _describe_value(value: Any, encoding_note: str, lines: int | None = None) -> _Table:
    """Describe a JSON value.

    Args:
        value: The value.
        encoding_note: The encoding, if unusual.
        lines: The approximate length of a list, if the value is incomplete.
    """
    if isinstance(value, list):
        items = cast("list[Any]", value)
        sample_items = spread(items, _ITEMS)
        count = lines or len(items)
        is_complete = len(sample_items) >= count
        head = f"list of {'about ' if lines else ''}{count:,}"
        sample = _sample_note(len(sample_items), count)
        if sample_items and all(isinstance(item, dict) for item in sample_items):
            all_rows = _all_rows([record] for record in sample_items) if is_complete else ""
            columns = record_columns(sample_items, whole=is_complete)
            return _Table(f"{head} dicts{sample}{encoding_note}", columns, rows=all_rows)
        return _Table(
            f"{head}{sample}{encoding_note}: {described(sample_items, whole=is_complete)}"
        )
    if isinstance(value, dict):
        record = cast("dict[str, Any]", value)
        if is_by_name([record]):
            return _Table(f"dict{encoding_note}: {described([record], whole=True)}")
        return _Table(
            f"dict{encoding_note}", [_describe_member(key, item) for key, item in record.items()]
        )
    return _Table(f"{type(value).__name__}{encoding_note}: {short(value)}")


def _describe_member(key: str, value: Any) -> Column:
    if isinstance(value, list) and value:
        items = cast("list[Any]", value)
        looked = spread(items, _ITEMS)
        kinds = described(looked, 1, whole=looked is items)
        return Column(
            key, f"list of {len(items):,}{_sample_note(len(looked), len(items))}: {kinds}"
        )
    return Column(key, described([value], whole=True))


def _count_lines(path: str) -> int:
    """Return the number of lines of a file."""
    count = read = 0
    with Path(path).open("rb") as file:
        for chunk in _chunks(file):
            count += chunk.count(b"\n")
            read += len(chunk)
            if read > _MAX_COUNTED:
                break
    return count


def _chunks(file: Any) -> Iterable[bytes]:
    while chunk := file.read(_CHUNK):
        yield chunk
