"""Describes one input file for the prompt: its tables, their columns with types and examples.

All of it runs in a child process that can read the file and no more, as :mod:`reading` does.
Whatever stands in a file is written as a literal of Python, so that it makes no line of its own.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from delf.protocols.formats import SupportsPeek
from delf_confined.documents import docx_lines, pdf_pages
from delf_files.columns import (
    Column,
    described,
    record_columns,
    short,
    text_column,
    typed_column,
)
from delf_files.dialects import dialect_of
from delf_files.forms import LOOKED_AT, form_of
from delf_files.headers import header_of
from delf_files.json_text import read_json, read_json_lines
from delf_files.reading import DOCUMENTS, format_of, is_document
from delf_files.tables import columns_of, rows_of
from delf_files.text import decode, decode_if_text, encoding_of

if TYPE_CHECKING:
    from delf.protocols.formats import FileFormat

_WHOLE: Final = 2 * 1024 * 1024
"""The size up to which every value of a text is analysed."""
_BEGINNING: Final = 256 * 1024
_CHUNK: Final = 4 * 1024 * 1024
_MOST_COUNTED: Final = 2 * 1024**3
_ROWS: Final = 200
_MOST_PARTS: Final = 20
_LINES: Final = 8
_SHORT: Final = 1_500
"""The characters of a text that is shown whole, if there is room."""
_PAGES: Final = 3
"""Pages of a PDF that are looked at."""
_LONGEST_LINE: Final = 120
_SEPARATORS: Final = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


class _Table(NamedTuple):
    """The description of a table: a line, then its columns."""

    head: str
    columns: Sequence[Column] = ()
    rest: str = ""


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
        path: Where it is.
        name: The file's name in the script.
        ending: The end of its name.
        kind: ``csv``, ``json``, ``jsonl``, ``parquet``, ``arrow``, ``text``, ``pdf``, ``docx`` or
            ``other``.
        factory: The format's that reads it, if there is one.
        most: The most bytes that ``files.read`` takes.
        room: The most characters.
    """
    size = _size(path)
    if factory is not None:
        tables = await _of_format(format_of(factory), path)
    elif kind in ("parquet", "arrow"):
        tables = [_of_duckdb(path, kind)]
    else:
        tables = [_of_text(path, name, ending, kind, size, most, room)]
    if size > most and factory is None:
        quoted = name.replace("'", "''")
        way = f"files.query(\"… FROM '{quoted}'\")" if find_spec("duckdb") else "open()"
        first = tables[0]
        tables[0] = first._replace(head=f"{first.head}; too large for files.read: use {way}")
    return _fit(tables, room)


def _size(path: str) -> int:
    return Path(path).stat().st_size


def _fit(tables: Sequence[_Table], room: int) -> str:
    """Lay tables out within a number of characters: first the examples go, then names."""
    share = room // max(1, len(tables))
    return "\n".join(_table(table, share) for table in tables)


def _table(table: _Table, room: int) -> str:
    lines = [table.head]
    used, left = len(table.head) + len(table.rest), list(table.columns)
    while left:
        line = f"  {short(left[0].name)}: {left[0].line}"
        names = sum(len(short(column.name)) + 2 for column in left)
        if used + len(line) + min(names, room // 3) > room:
            break
        lines.append(line)
        used += len(line) + 1
        left.pop(0)
    if left:
        lines.append(_names_of(left, max(room - used, 80)))
    return "\n".join([*lines, table.rest] if table.rest else lines)


def _names_of(columns: Sequence[Column], room: int) -> str:
    names: list[str] = []
    for column in columns:
        if sum(map(len, names)) + 2 * len(names) > room:
            break
        names.append(short(column.name))
    more = len(columns) - len(names)
    return f"  also {', '.join(names)}" + (f" and {more:,} more" if more else "")


async def _of_format(made: FileFormat, path: str) -> list[_Table]:
    parts: Sequence[str | None] = [*await made.parts(path)] or [None]
    tables: list[_Table] = []
    for part in parts[:_MOST_PARTS]:
        title = "" if part is None else f"sheet={short(part)}, "
        if isinstance(made, SupportsPeek):
            peek = await made.peek(path, part, _ROWS)
            rows, total = [*peek.rows], peek.total
            if peek.columns is None:
                tables.append(_sheet(title, rows, total))
                continue
            columns = [
                typed_column(
                    name, [row[index] for _, row in rows], declared, whole=total == len(rows)
                )
                for index, (name, declared) in enumerate(peek.columns)
            ]
            count = "a view" if total is None else f"{total:,} rows"
            tables.append(_Table(f"{title}{count}", columns))
        else:
            records = await made.read(path, part)
            tables.append(
                _Table(
                    f"{title}{len(records):,} rows",
                    record_columns(records[:_ROWS], whole=len(records) <= _ROWS),
                )
            )
    if len(parts) > _MOST_PARTS:
        tables.append(_Table(f"and {len(parts) - _MOST_PARTS} more: files.list() names them"))
    if len(parts) > 1:
        tables.insert(0, _Table(f"{len(parts)} tables, the first without sheet="))
    return tables


def _sheet(title: str, rows: list[tuple[int, list[Any]]], total: int | None) -> _Table:
    """Describe a table as people wrote it."""
    if not rows:
        return _Table(f"{title}empty")
    at = header_of(rows)
    head, (number, header), below = title, rows[at], rows[at + 1 :]
    width = max(len(row) for _, row in rows[at:])
    names = columns_of(header, width)
    is_whole = total == len(rows)
    count = len(below) if is_whole else max((total or 0) - at - 1, len(below))
    head += f"{'' if is_whole else 'about '}{count:,} rows"
    if at:
        above = " / ".join(
            ", ".join(dict.fromkeys(short(cell) for cell in row if cell not in (None, "")))[:80]
            for _, row in rows[:at]
        )
        head += f"; above the columns' names stands {above}: read it with header={number}"
    last = _odd_last(below) if is_whole else None
    if last is not None:
        below = below[:-1]
    columns: list[Column] = []
    for index, name in enumerate(names):
        values = [row[index] if index < len(row) else None for _, row in below]
        columns.append(typed_column(name, values, whole=is_whole))
    rest = "" if last is None else f"  last row, unlike the others: {short(last)}"
    return _Table(head, columns, rest)


def _odd_last(rows: Sequence[tuple[int, Sequence[Any]]]) -> list[Any] | None:
    """Return the last row if it lacks cells that all others have: often a total."""
    if len(rows) < 3:
        return None
    last = rows[-1][1]
    others = [row for _, row in rows[:-1]]
    for index in range(min(map(len, others))):
        always = all(row[index] not in (None, "") for row in others)
        if always and (index >= len(last) or last[index] in (None, "")):
            return [cell for cell in last if cell not in (None, "")]
    return None


def _of_duckdb(path: str, kind: str) -> _Table:
    import duckdb

    connection = duckdb.connect(config={"threads": 1})
    if kind == "arrow":
        from delf_files.query_child import arrow_table

        connection.register("shown", arrow_table(path))
    else:
        from delf_files.query_child import READERS, plain_path

        quoted = "'" + plain_path(path).replace("'", "''") + "'"
        connection.execute(f"CREATE VIEW shown AS FROM {READERS['parquet'].format(path=quoted)}")
    kinds = connection.sql("DESCRIBE shown").fetchall()
    ((total,),) = connection.sql("SELECT count(*) FROM shown").fetchall()
    rows = connection.sql(f"FROM shown LIMIT {_ROWS}").fetchall()
    columns = [
        typed_column(
            str(name[0]), [row[index] for row in rows], str(name[1]), whole=total == len(rows)
        )
        for index, name in enumerate(kinds)
    ]
    return _Table(f"{total:,} rows", columns)


def _of_text(
    path: str, name: str, ending: str, kind: str, size: int, most: int, room: int
) -> _Table:
    with Path(path).open("rb") as file:
        data = file.read(_WHOLE + 1 if kind != "json" else most + 1)
    if kind in DOCUMENTS and is_document(data, kind):
        return _of_document(path, name, kind, room)
    form = form_of(data[:LOOKED_AT])
    if form is not None and (kind != "text" or not form.startswith("a page")):
        return _Table(form, rest=_members(path) if zipfile.is_zipfile(path) else "")
    is_whole = len(data) >= size
    if not is_whole and kind != "json":
        data = data[:_BEGINNING]
        data = data[: data.rfind(b"\n") + 1] or data
    if kind == "other":
        found = decode_if_text(data)
        if found is None:
            return _Table(f"{size:,} bytes, not text")
        text = found
    else:
        text = decode(data, None, name)
    if not text.strip():
        return _Table("empty")
    odd = "" if (encoding := encoding_of(data, name)) == "utf-8" else f", {encoding}"
    about = "" if is_whole else "about "
    if kind == "csv":
        return _separated(text, ending, odd, None if is_whole else _count(path))
    if kind == "json":
        if not is_whole:
            return _Table(f"one value of JSON{odd}, that begins with {short(text)}")
        return _value(read_json(text, name), odd)
    if kind == "jsonl":
        values = read_json_lines(text, name)
        table = _value(values, odd)
        return table if is_whole else table._replace(head=f"about {_count(path):,} records{odd}")
    lines = text.splitlines()
    count = len(lines) if is_whole else _count(path)
    return _text_lines(f"str, {about}{count:,} lines{odd}", lines, room if is_whole else 0)


def _of_document(path: str, name: str, kind: str, room: int) -> _Table:
    """Describe a PDF by its pages and their text, a .docx by its lines; a long one by the first."""
    if kind == "docx":
        lines = [*docx_lines(path, name)]
        if not any(lines):
            return _Table("str, no text")
        return _text_lines(f"str, {len(lines):,} lines", lines, room)
    if find_spec("pypdf") is None:
        return _Table("a PDF; its text needs delf-plugin-files[pdf]")
    found = pdf_pages(path, name, _PAGES)
    head = f"list[str], the text of each of {found.total:,} pages"
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


def _text_lines(head: str, lines: Sequence[str], room: int) -> _Table:
    """Show a text whole if it is short and there is room, else its first lines."""
    if _size_of(lines) <= min(_SHORT, room):
        return _Table(f"{head}; all of it:", rest="\n".join(_wrapped(lines)))
    return _beginning(f"{head}; it begins", lines)


def _size_of(lines: Sequence[str]) -> int:
    return sum(len(line) + 1 for line in lines)


def _wrapped(lines: Sequence[str]) -> Iterable[str]:
    """Lines as they are; a long one goes on below a colon, and none is a line of the prompt."""
    for line in lines:
        text = line.rstrip()
        for start in range(0, len(text), _LONGEST_LINE):
            mark = ":" if start else "|"
            yield f"  {mark} {_escaped(text[start : start + _LONGEST_LINE])}"


def _beginning(head: str, lines: Sequence[str]) -> _Table:
    first = [f"  {_line(line)}" for line in lines if line.strip()][:_LINES]
    return _Table(head, rest="\n".join(first))


def _members(path: str) -> str:
    """Return the files in an archive, which zipfile reads in the script."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (zipfile.BadZipFile, OSError):
        return "  a damaged archive"
    more = f" and {len(names) - _LINES:,} more" if len(names) > _LINES else ""
    return f"  holds {', '.join(map(short, names[:_LINES]))}{more}"


def _line(text: str) -> str:
    cut = text.rstrip()[:_LONGEST_LINE]
    return f"| {_escaped(cut)}{'…' if len(text.rstrip()) > len(cut) else ''}"


def _escaped(text: str) -> str:
    return _CONTROL.sub(lambda found: repr(found[0])[1:-1], text)


def _separated(text: str, ending: str, odd: str, total: int | None) -> _Table:
    separator = dialect_of(text, ending).separator
    rows = rows_of(text, ending)
    if not rows:
        return _Table("empty")
    table = _sheet("", cast("list[tuple[int, list[Any]]]", rows), total or len(rows))
    by = "" if separator == "," else f", split at {_SEPARATORS.get(separator, repr(separator))}"
    at = header_of(rows)
    below = [row for _, row in rows[at + 1 :]]
    if table.rest:
        below = below[:-1]
    names = columns_of(rows[at][1], max(len(row) for _, row in rows[at:]))
    columns = [
        text_column(
            name, [row[index] if index < len(row) else "" for row in below], whole=total is None
        )
        for index, name in enumerate(names)
    ]
    count, _, title = table.head.partition("; ")
    description = f"{count}{by}{odd}, every value str"
    return _Table(f"{description}; {title}" if title else description, columns, table.rest)


def _value(value: Any, odd: str) -> _Table:
    """Describe a value of JSON."""
    if isinstance(value, list):
        items = cast("list[Any]", value)
        if items and all(isinstance(item, dict) for item in items[:_ROWS]):
            return _Table(
                f"list of {len(items):,} dicts{odd}",
                record_columns(items[:_ROWS], whole=len(items) <= _ROWS),
            )
        return _Table(
            f"list of {len(items):,}{odd}: {described(items[:_ROWS], whole=len(items) <= _ROWS)}"
        )
    if isinstance(value, dict):
        record = cast("dict[str, Any]", value)
        if len(record) > 40:
            return _Table(f"dict{odd}: {described([record], whole=True)}")
        return _Table(f"dict{odd}", [_member(key, item) for key, item in record.items()])
    return _Table(f"{type(value).__name__}{odd}: {short(value)}")


def _member(key: str, value: Any) -> Column:
    if isinstance(value, list) and value:
        items = cast("list[Any]", value)
        return Column(
            key, f"list of {len(items):,}: {described(items[:_ROWS], 1, whole=len(items) <= _ROWS)}"
        )
    return Column(key, described([value], whole=True))


def _count(path: str) -> int:
    """Return the number of lines of a file."""
    count = read = 0
    with Path(path).open("rb") as file:
        for chunk in _chunks(file):
            count += chunk.count(b"\n")
            read += len(chunk)
            if read > _MOST_COUNTED:
                break
    return count


def _chunks(file: Any) -> Iterable[bytes]:
    while chunk := file.read(_CHUNK):
        yield chunk
