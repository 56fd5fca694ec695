"""``files`` as scripts know it: list the input files, read one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from delf.engine.files.formats import Formats
from delf.engine.files.inputs import InputFile, composed
from delf.engine.files.tables import TooWideError, read_table
from delf.engine.files.text import decode, decode_if_text
from delf.errors import ToolExecutionError, ToolRefusedError, did_you_mean
from delf.tools.action import action
from delf.tools.connection import Connection

MAX_READ_BYTES = 16 * 1024 * 1024


class FileFacts(TypedDict):
    """What ``files.list`` says about a file."""

    name: str
    size: int
    type: str
    path: str
    sheets: NotRequired[list[str]]


class Files(Connection):
    """The input files, which open(path) reads as well; nothing here writes."""

    def __init__(
        self, files: Sequence[InputFile], formats: Formats, most_bytes: int = MAX_READ_BYTES
    ) -> None:
        super().__init__(name="files")
        self._files = tuple(files)
        self._formats = formats
        self._most_bytes = most_bytes

    @action("read", effect="read")
    async def list(self) -> Sequence[FileFacts]:
        """The input files: name, size in bytes, type, path for open(), sheets of workbooks."""
        return [await self._facts(file) for file in self._files]

    @action("read", effect="read")
    async def read(self, name: str, sheet: str | None = None, encoding: str | None = None) -> Any:
        """Rows as list[dict] (.csv .tsv: text; .xlsx), parsed .json, .jsonl as list, str, bytes."""
        file = self._find(name)
        if sheet is not None and file.kind != "excel" and self._formats.reader(file.ending) is None:
            raise ToolRefusedError(f"{file.name} has no sheets; leave sheet out")
        self._check_size(file)
        if file.kind == "excel":
            return await self._formats.require("excel", file.ending).read(file.path, sheet)
        special = self._formats.reader(file.ending)
        if special is not None:
            return await special.read(file.path, sheet)
        return await asyncio.to_thread(self._parse, file, encoding)

    def _find(self, name: str) -> InputFile:
        for file in self._files:
            if name in (file.name, file.visible):
                return file
        # A model writes one form of "é", and a file's name may have the other.
        for file in self._files:
            if composed(name) in (composed(file.name), composed(file.visible)):
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
        facts = FileFacts(
            name=file.name,
            size=await asyncio.to_thread(_reading, file, lambda: file.size),
            type=file.kind,
            path=file.visible,
        )
        special = self._formats.reader(file.ending)
        if special is not None and facts["size"] <= self._most_bytes:
            facts["sheets"] = [*await special.parts(file.path)]
        return facts

    def _parse(self, file: InputFile, encoding: str | None) -> Any:
        """The file's content; in a thread."""
        data: bytes = _reading(file, lambda: _read(file.path, self._most_bytes + 1))
        if len(data) > self._most_bytes:  # it grew, or does not know its size, as those of /proc
            raise self._too_large(file, f"has more than {self._most_bytes:,} bytes")
        try:
            if file.kind == "csv":
                text = decode(data, encoding)
                return read_table(text, ending=file.ending, most_bytes=3 * self._most_bytes)
            if file.kind == "json":
                return json.loads(decode(data, encoding))
            if file.kind == "jsonl":
                return _json_lines(decode(data, encoding))
            if file.kind == "text" or encoding is not None:
                return decode(data, encoding)
        except TooWideError:
            raise self._too_large(file, "is too large as rows") from None
        except (ValueError, RecursionError) as error:
            raise ToolExecutionError(f"{file.name}: {error}") from None
        text_or_none = decode_if_text(data)
        return data if text_or_none is None else text_or_none


def _reading(file: InputFile, read: Callable[[], Any]) -> Any:
    try:
        return read()
    except OSError as error:
        raise ToolExecutionError(f"{file.name} cannot be read: {error.strerror}") from error


def _read(path: str, most: int) -> bytes:
    with Path(path).open("rb") as file:
        return file.read(most)


def _json_lines(text: str) -> list[Any]:
    values: list[Any] = []
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                values.append(json.loads(line))
            except ValueError as error:
                raise ValueError(f"line {number}: {error}") from None
    return values
