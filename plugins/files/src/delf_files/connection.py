"""``files`` as scripts know it: list the input files, read one."""

from __future__ import annotations

import asyncio
import unicodedata
from collections.abc import Sequence
from typing import Any, Final, NotRequired, TypedDict

from delf import CallContext, Connection, action
from delf.errors import (
    DelfError,
    OptionalDependencyError,
    ToolExecutionError,
    ToolRefusedError,
    did_you_mean,
)
from delf.protocols.formats import InputFile, SharedFormats
from delf_confined.readers import Readers
from delf_files.children import PRELOADS, readable

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
        self, files: Sequence[InputFile], formats: SharedFormats, most_bytes: int = MAX_READ_BYTES
    ) -> None:
        super().__init__(name="files")
        self._files = tuple(files)
        self._formats = formats
        self._most_bytes = most_bytes

    @action("reading", effect="read")
    async def list(self, context: CallContext | None = None) -> Sequence[FileFacts]:
        """The input files: name, size, type, path for open(), sheets of workbooks, any problem."""
        facts = await asyncio.gather(*(self._facts(file, context) for file in self._files))
        return [*facts]

    @action("reading", effect="read")
    async def read(
        self,
        name: str,
        sheet: str | None = None,
        encoding: str | None = None,
        context: CallContext | None = None,
    ) -> Any:
        """Rows as list[dict] (.csv .tsv: text; .xlsx), parsed .json, .jsonl as list, str, bytes."""
        file = self._find(name)
        factory, kind = self._formats.factory(file.ending), _kind(file)
        if sheet is not None and factory is None and kind != "excel":
            raise ToolRefusedError(f"{file.name} has no sheets; leave sheet out")
        if kind in ("parquet", "arrow"):
            statement = "FROM '{}'".format(file.name.replace("'", "''"))
            return await self.query(statement, context=context)
        self._check_size(file)
        if factory is not None:
            given = {"factory": factory, "path": file.path, "name": file.name, "part": sheet}
            return await self._in_child("read_rows", given, file, context)
        if kind == "excel":
            raise OptionalDependencyError(
                f"reading {file.ending} files needs a library that is not installed",
                package="delf-plugin-files[excel]",
            )
        given = {"path": file.path, "name": file.name, "ending": file.ending, "kind": kind}
        given |= {"encoding": encoding, "most": self._most_bytes}
        found = await self._in_child("read_content", given, file, context)
        if "too_large" in found:
            raise self._too_large(file, found["too_large"])
        return found["content"]

    @action("reading", effect="read")
    async def query(
        self,
        statement: str,
        params: dict[str, Any] | list[Any] | None = None,
        limit: int | None = None,
        context: CallContext | None = None,
    ) -> list[dict[str, Any]]:
        """Rows of one SQL statement of DuckDB over input files, large ones, too:
        SELECT region, sum(n) FROM 'sales.parquet' GROUP BY 1. Parquet, Arrow, .csv (all text:
        CAST), JSON, 'book.xlsx/Sheet', 'shop.db/table'. Over 1000 rows: aggregate, or pass limit.
        """  # noqa: D205 - the model reads the whole paragraph
        from delf_files.query import query

        return await query(
            statement, params, limit, self._files, self._formats, key=_asker(context)
        )

    async def _in_child(
        self, function: str, given: dict[str, Any], file: InputFile, context: CallContext | None
    ) -> Any:
        """Call a function of :mod:`delf_files.reading` in a child process."""
        return await self._formats.shared(Readers).call(
            f"delf_files.reading:{function}",
            given,
            about=f"reading {file.name}",
            key=_asker(context),
            readable=readable(file),
            preload=PRELOADS.get(file.ending, ()),
        )

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
        size = _size(file)
        if size > self._most_bytes:
            raise self._too_large(file, f"has {size:,} bytes")

    def _too_large(self, file: InputFile, how: str) -> ToolExecutionError:
        return ToolExecutionError(
            f"{file.name} {how}, and files.read takes at most {self._most_bytes:,}; read it in the "
            f"script, in pieces: open({file.visible!r}) with csv.DictReader or line by line"
        )

    async def _facts(self, file: InputFile, context: CallContext | None) -> FileFacts:
        facts = FileFacts(name=file.name, size=0, type=_kind(file), path=file.visible)
        try:
            facts["size"] = _size(file)
            factory = self._formats.factory(file.ending)
            if factory is not None and facts["size"] <= self._most_bytes:
                given = {"factory": factory, "path": file.path}
                facts["sheets"] = await self._in_child("read_parts", given, file, context)
        except DelfError as error:  # one file that is broken says nothing of the others
            facts["problem"] = error.message
        return facts


def _asker(context: CallContext | None) -> str:
    return "" if context is None else context.task_id


def _size(file: InputFile) -> int:
    try:
        return file.size
    except OSError as error:
        raise ToolExecutionError(f"{file.name} cannot be read: {error.strerror}") from error


def _kind(file: InputFile) -> str:
    """Return the kind of a file by its name: csv, json, jsonl, excel, text or other."""
    return _KINDS.get(file.ending, "other")


def _composed(name: str) -> str:
    """Return the same text for names that differ only in how their letters are encoded."""
    return unicodedata.normalize("NFC", name)
