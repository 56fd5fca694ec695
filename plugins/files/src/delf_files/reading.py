"""Reading of one input file, in a child process that can read only this file.

The functions called from outside have plain arguments and results; see
:mod:`delf_confined.readers`.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from delf.errors import ToolExecutionError, ToolRefusedError
from delf.notes import note
from delf.protocols.formats import SupportsPeek
from delf_confined.documents import docx_lines, pdf_pages
from delf_confined.office import is_locked
from delf_confined.text import decode, decode_if_text
from delf_files.forms import DETECTION_BYTES, find_format, refuse_other_format
from delf_files.json_text import read_json, read_json_lines
from delf_files.tables import (
    TooWideError,
    columns_of,
    note_no_rows,
    read_table,
    records_of,
    rows_from_header,
)

if TYPE_CHECKING:
    from delf.protocols.formats import FileFormat

DOCUMENTS: Final = {"pdf": b"%PDF-", "docx": b"PK\x03\x04"}
"""A mapping from kind of document to the bytes with which such a file begins."""
_HEADER_REFUSAL: Final = "header= is for sheets, whose rows name the columns; leave it out"


def read_content(
    path: str,
    name: str,
    ending: str,
    kind: str,
    encoding: str | None,
    max_bytes: int,
    header: int | None = None,
) -> Any:
    """Return the content of a file that no FileFormat plugin reads.

    The content is rows, parsed JSON, text or bytes, depending on the kind.

    Args:
        path: The path of the file.
        name: The file's name in the script.
        ending: The file's extension.
        kind: ``csv``, ``json``, ``jsonl``, ``text``, ``pdf``, ``docx`` or ``other``.
        encoding: The encoding that the script names; None to detect the encoding.
        max_bytes: The maximum number of bytes.
        header: The number of the row with column names, for ``csv``; 0 if no row has names; None
            for the first row.

    Returns:
        A dict with the content under ``content``, or for too large files with the reason under
        ``too_large``.

    Raises:
        ToolExecutionError: If the file cannot be read.
    """
    data = _bytes_of(path, name, max_bytes + 1)
    if len(data) > max_bytes:  # the file has grown, or reports no size, as in /proc
        return {"too_large": f"has more than {max_bytes:,} bytes"}
    try:
        if kind in DOCUMENTS:
            if is_document(data, kind):
                return {"content": read_document(path, name, kind)}
            if is_locked(path):
                raise ToolExecutionError(f"{name} has a password; save it without one")
            _note_other_format(data, name, kind)
        return {"content": _parse(data, name, ending, kind, encoding, max_bytes, header)}
    except TooWideError:
        return {"too_large": "is too large as rows"}
    except (ValueError, RecursionError) as error:
        raise ToolExecutionError(f"{name}: {error}") from None


def _note_other_format(data: bytes, name: str, kind: str) -> None:
    """Add a note about the real format of a file with the wrong extension ``kind``."""
    real_format = find_format(data[:DETECTION_BYTES]) if data else "empty"
    if real_format is None:
        real_format = "an unknown binary format" if decode_if_text(data) is None else "text"
    note(f"{name} is no .{kind} but {real_format}, and was returned unchanged")


def is_document(data: bytes, kind: str) -> bool:
    """Return True if the first bytes of a file show that it is a document of the given kind."""
    return DOCUMENTS[kind] in data[:DETECTION_BYTES]


def read_document(path: str, name: str, kind: str) -> str | list[str]:
    """Return the text of a .docx file, or the text of each page of a PDF.

    Args:
        path: The path of the file.
        name: The file's name in the script.
        kind: ``pdf`` or ``docx``.

    Raises:
        ToolExecutionError: If the document cannot be read.
    """
    if kind == "docx":
        return "\n".join(docx_lines(path, name))
    return pdf_pages(path, name).texts


def _parse(
    data: bytes,
    name: str,
    ending: str,
    kind: str,
    encoding: str | None,
    max_bytes: int,
    header: int | None,
) -> Any:
    """Parse a file by its kind; for an unknown kind, return text if possible, else bytes."""
    if kind in ("csv", "json", "jsonl"):
        # Refuse, for example, a workbook whose name ends in .csv.
        refuse_other_format(data[:DETECTION_BYTES])
    if kind == "csv":
        text = decode(data, encoding, name)
        # Each record repeats the column names, so the records may be larger than the file.
        return read_table(text, ending=ending, most_bytes=3 * max_bytes, header=header)
    if kind == "json":
        return read_json(decode(data, encoding, name), name)
    if kind == "jsonl":
        return read_json_lines(decode(data, encoding, name), name)
    if kind == "text" or encoding is not None:
        return decode(data, encoding, name)
    text = decode_if_text(data)
    return data if text is None else text


def _bytes_of(path: str, name: str, max_bytes: int) -> bytes:
    try:
        with Path(path).open("rb") as file:
            return file.read(max_bytes)
    except OSError as error:
        raise ToolExecutionError(f"{name} cannot be read: {error.strerror}") from error


async def read_rows(
    factory: Sequence[str], path: str, name: str, part: str | None, header: int | None = None
) -> list[dict[str, Any]]:
    """Return the rows of a file that a FileFormat plugin reads.

    If the file has further sheets and ``part`` is None, a note beside the call's result names them.

    Args:
        factory: The module, attribute and file of the format's factory.
        path: The path of the file.
        name: The file's name in the script.
        part: The sheet or table; the first when None.
        header: The number of the row with column names; 0 if no row has names; None for the first
            row.

    Raises:
        ToolExecutionError: If the file cannot be read.
    """
    file_format = format_of(factory)
    with file_name_in_errors(name):
        _, rows = await table_of_format(file_format, path, part, header)
        parts: Sequence[str] = () if part is not None else await file_format.parts(path)
    if len(parts) > 1:
        others = ", ".join(map(repr, parts[1:]))
        note(f"{name}: the first sheet, {parts[0]!r}, was read; there are {others}, too")
    return rows


async def table_of_format(
    file_format: FileFormat, path: str, part: str | None, header: int | None
) -> tuple[list[str], list[dict[str, Any]]]:
    """Return the column names and the rows of a table; add a note if the table has no rows.

    Args:
        file_format: The format of the file.
        path: The path of the file.
        part: The sheet or table; the first when None.
        header: The number of the row with column names; 0 if no row has names; None for the first
            row.

    Raises:
        ToolExecutionError: If the row with the number ``header`` does not exist.
        ToolRefusedError: If ``header`` is given, and no row can name the columns, because the table
            declares its own column names or the format reads only records.
    """
    peek = None
    if isinstance(file_format, SupportsPeek):
        peek = await file_format.peek(path, part, None)
    is_sheet = peek is not None and peek.columns is None  # a row of the sheet names the columns
    if header is not None and not is_sheet:
        raise ToolRefusedError(_HEADER_REFUSAL)
    if peek is None:  # the format has no previews, only records
        records = await file_format.read(path, part)
        if not records:
            note_no_rows(column_names=[])
        distinct_names = dict.fromkeys(name for row in records for name in row)
        return list(distinct_names), records
    if peek.columns is not None:  # a table of a database
        names = [column for column, _ in peek.columns]
        if not peek.rows:
            note_no_rows(column_names=names)
        return names, [dict(zip(names, row, strict=True)) for _, row in peek.rows]
    try:
        rows = [row for _, row in rows_from_header([*peek.rows], header)]
    except ValueError as error:
        raise ToolExecutionError(str(error)) from None
    columns = columns_of(rows[0], max(map(len, rows))) if rows else []
    return columns, records_of(rows)  # adds a note if there are no rows


async def read_parts(factory: Sequence[str], path: str) -> list[str]:
    """Return the names of the sheets or tables of a file that a FileFormat plugin reads.

    Args:
        factory: The module, attribute and file of the format's factory.
        path: The path of the file.

    Raises:
        ToolExecutionError: If the file cannot be read.
    """
    return [*await format_of(factory).parts(path)]


@contextmanager
def file_name_in_errors(name: str) -> Generator[None]:
    """Add a file's name to tool errors that the code in the ``with`` statement raises.

    The functions that parse a file get only its content, so they cannot name the file.
    """
    try:
        yield
    except (ToolExecutionError, ToolRefusedError) as error:
        if name in error.message:
            raise
        raise type(error)(f"{name}: {error.message}", hint=error.hint) from error


def format_of(factory: Sequence[str]) -> FileFormat:
    """Import the factory of a file format, and create the format.

    Args:
        factory: The module, the attribute and the file of the factory. The file is the path of the
            module's source, which is used if no module of that name can be imported; "" for none.
    """
    module, attribute, file = factory
    try:
        module_object = importlib.import_module(module)
    except ModuleNotFoundError as error:
        # Without ``file``, or if the missing module is one that ``module`` imports, raise the
        # error. If ``module`` itself or its package is missing, load the module from ``file``.
        is_module_missing = error.name is not None and f"{module}.".startswith(f"{error.name}.")
        if not file or not is_module_missing:
            raise
        spec = importlib.util.spec_from_file_location(module, file)
        if spec is None or spec.loader is None:
            raise
        module_object = sys.modules[module] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module_object)
    return attrgetter(attribute)(module_object)()
