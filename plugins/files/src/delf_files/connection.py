"""``files`` as scripts know it: list the input files, read one."""

from __future__ import annotations

import asyncio
import unicodedata
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NotRequired, TypedDict

from delf import Connection, action
from delf.errors import (
    DelfError,
    OptionalDependencyError,
    ToolExecutionError,
    ToolRefusedError,
    did_you_mean,
)
from delf.notes import note
from delf.protocols.formats import FileFormat, FileFormats, InputFile
from delf_files.forms import LOOKED_AT, check_form
from delf_files.json_text import read_json, read_json_lines
from delf_files.tables import TooWideError, read_table
from delf_files.text import decode, decode_if_text

MAX_READ_BYTES: Final = 16 * 1024 * 1024
_TEXTS: Final = (
    ".txt .md .rst .log .xml .html .htm .css .js .ts .py .sql .sh .yaml .yml .toml .ini .cfg "
    ".conf .env .tex .svg .eml .ics .vcf .srt"
)
_KINDS: Final = {
    **dict.fromkeys((".csv", ".tsv", ".tab"), "csv"),
    **dict.fromkeys((".json", ".geojson"), "json"),
    **dict.fromkeys((".jsonl", ".ndjson"), "jsonl"),
    **dict.fromkeys((".xlsx", ".xlsm", ".xls"), "excel"),
    **dict.fromkeys((".parquet", ".pq"), "parquet"),
    **dict.fromkeys((".arrow", ".feather", ".ipc"), "arrow"),
    **dict.fromkeys((".sqlite", ".sqlite3", ".db"), "sqlite"),
    **dict.fromkeys(_TEXTS.split(), "text"),
}


class FileFacts(TypedDict):
    """The facts about a file in ``files.list``."""

    name: str
    size: int
    type: str
    path: str
    sheets: NotRequired[list[str]]
    problem: NotRequired[str]


class Files(Connection):
    """The input files, for reading only; open(path) reads them as well."""

    def __init__(
        self, files: Sequence[InputFile], formats: FileFormats, most_bytes: int = MAX_READ_BYTES
    ) -> None:
        super().__init__(name="files")
        self._files = tuple(files)
        self._formats = formats
        self._most_bytes = most_bytes

    @action("reading", effect="read")
    async def list(self) -> Sequence[FileFacts]:
        """The input files: name, size, type, path for open(), sheets of workbooks, any problem."""
        return [await self._facts(file) for file in self._files]

    @action("reading", effect="read")
    async def read(self, name: str, sheet: str | None = None, encoding: str | None = None) -> Any:
        """Rows as list[dict] (.csv .tsv: text; .xlsx), parsed .json, .jsonl as list, str, bytes."""
        file = self._find(name)
        special, kind = self._formats.reader(file.ending), _kind(file)
        if sheet is not None and special is None and kind != "excel":
            raise ToolRefusedError(f"{file.name} has no sheets; leave sheet out")
        if kind in ("parquet", "arrow"):
            return await self.query("FROM '{}'".format(file.name.replace("'", "''")))
        self._check_size(file)
        if special is not None:
            return await self._rows(special, file, sheet)
        if kind == "excel":
            raise OptionalDependencyError(
                f"reading {file.ending} files needs a library that is not installed",
                package="delf-plugin-files[excel]",
            )
        return await asyncio.to_thread(self._parse, file, kind, encoding)

    @action("reading", effect="read")
    async def query(
        self,
        statement: str,
        params: dict[str, Any] | list[Any] | None = None,
        limit: int | None = None,
    ) -> list[dict[str, Any]]:
        """Rows of one SQL statement of DuckDB over input files, large ones, too:
        SELECT region, sum(n) FROM 'sales.parquet' GROUP BY 1. Parquet, Arrow, .csv (all text:
        CAST), JSON, 'book.xlsx/Sheet', 'shop.db/table'. Over 1000 rows: aggregate, or pass limit.
        """  # noqa: D205 - the model reads the whole paragraph
        from delf_files.query import query

        return await query(statement, params, limit, self._files, self._formats)

    async def _rows(self, special: FileFormat, file: InputFile, sheet: str | None) -> Any:
        rows = await special.read(file.path, sheet)
        parts: Sequence[str] = () if sheet is not None else await special.parts(file.path)
        if len(parts) > 1:
            others = ", ".join(map(repr, parts[1:]))
            note(f"{file.name}: the first sheet, {parts[0]!r}, was read; there are {others}, too")
        return rows

    def _find(self, name: str) -> InputFile:
        for file in self._files:
            if name in (file.name, file.visible):
                return file
        # A model writes one form of "é", and a file's name may have the other.
        for file in self._files:
            if _composed(name) in (_composed(file.name), _composed(file.visible)):
                return file
        known = [file.name for file in self._files]
        raise ToolRefusedError(
            f"there is no input file {name[:200]!r}{did_you_mean(name, known)}. "
            f"Input files: {', '.join(known)}"
        )

    def _check_size(self, file: InputFile) -> None:
        size = _reading(file, lambda: file.size)
        if size > self._most_bytes:
            raise self._too_large(file, f"has {size:,} bytes")

    def _too_large(self, file: InputFile, how: str) -> ToolExecutionError:
        return ToolExecutionError(
            f"{file.name} {how}, and files.read takes at most {self._most_bytes:,}; read it in the "
            f"script, in pieces: open({file.visible!r}) with csv.DictReader or line by line"
        )

    async def _facts(self, file: InputFile) -> FileFacts:
        facts = FileFacts(name=file.name, size=0, type=_kind(file), path=file.visible)
        try:
            facts["size"] = await asyncio.to_thread(_reading, file, lambda: file.size)
            special = self._formats.reader(file.ending)
            if special is not None and facts["size"] <= self._most_bytes:
                facts["sheets"] = [*await special.parts(file.path)]
        except DelfError as error:  # one file that is broken says nothing of the others
            facts["problem"] = error.message
        return facts

    def _parse(self, file: InputFile, kind: str, encoding: str | None) -> Any:
        """The file's content; in a thread."""
        data: bytes = _reading(file, lambda: _read(file.path, self._most_bytes + 1))
        if len(data) > self._most_bytes:  # it grew, or does not know its size, as those of /proc
            raise self._too_large(file, f"has more than {self._most_bytes:,} bytes")
        try:
            if kind in ("csv", "json", "jsonl"):
                check_form(data[:LOOKED_AT])
            if kind == "csv":
                text = decode(data, encoding, file.name)
                return read_table(text, ending=file.ending, most_bytes=3 * self._most_bytes)
            if kind == "json":
                return read_json(decode(data, encoding, file.name), file.name)
            if kind == "jsonl":
                return read_json_lines(decode(data, encoding, file.name), file.name)
            if kind == "text" or encoding is not None:
                return decode(data, encoding, file.name)
        except TooWideError:
            raise self._too_large(file, "is too large as rows") from None
        except (ValueError, RecursionError) as error:
            raise ToolExecutionError(f"{file.name}: {error}") from None
        text_or_none = decode_if_text(data)
        return data if text_or_none is None else text_or_none


def _kind(file: InputFile) -> str:
    """Return the kind of a file by its name: csv, json, jsonl, excel, text or other."""
    return _KINDS.get(file.ending, "other")


def _composed(name: str) -> str:
    """Return the same text for names that differ only in how their letters are encoded."""
    return unicodedata.normalize("NFC", name)


def _reading(file: InputFile, read: Callable[[], Any]) -> Any:
    try:
        return read()
    except OSError as error:
        raise ToolExecutionError(f"{file.name} cannot be read: {error.strerror}") from error


def _read(path: str, most: int) -> bytes:
    with Path(path).open("rb") as file:
        return file.read(most)
