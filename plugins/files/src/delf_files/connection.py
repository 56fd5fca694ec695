"""``files`` in scripts: list the input files, read or query one."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, NotRequired, TypedDict

from delf import CallContext, Connection, action
from delf.errors import (
    DelfError,
    OptionalDependencyError,
    ToolExecutionError,
    ToolRefusedError,
    did_you_mean,
)
from delf.protocols.formats import InputFile, InstalledFormats
from delf.tools.action import Action
from delf.types import Trust
from delf.values.unicode import normalized
from delf_confined.limits import Limits
from delf_confined.readers import Readers
from delf_files.children import PRELOADS, readable_paths
from delf_files.reading import DOCUMENTS

MAX_READ_BYTES: Final = 16 * 1024 * 1024
MAX_DESCRIBED_FILES: Final = 30
MAX_CHARACTERS_OF_ALL_FILES: Final = 10_000
MAX_CHARACTERS_PER_FILE: Final = 4_000
DESCRIBE_SECONDS: Final = 5.0
_DESCRIPTIONS_HEADING: Final = (
    "What files.read(name) gives, with an example of each column; look again only for what is not "
    "here."
)
_TEXT_ENDINGS: Final = (
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
    **dict.fromkeys(_TEXT_ENDINGS.split(), "text"),
    ".pdf": "pdf",
    ".docx": "docx",
}

# The extra of this package for each kind of file, and the modules that the extra installs.
_LIBRARIES: Final = {
    "excel": ("openpyxl", "xlrd"),
    "pdf": ("pypdf",),
    "parquet": ("duckdb",),
    "arrow": ("duckdb",),
}


class FileFacts(TypedDict):
    """The data about a file that ``files.list`` returns."""

    name: str
    size: int
    type: str
    path: str
    sheets: NotRequired[list[str]]
    problem: NotRequired[str]


class Files(Connection):
    """The input files, for reading only; the builtin open(path) can read these files, too."""

    def __init__(
        self,
        files: Sequence[InputFile],
        formats: InstalledFormats,
        most_bytes: int = MAX_READ_BYTES,
    ) -> None:
        super().__init__(name="files")
        self._files = tuple(files)
        self._formats = formats
        self._most_bytes = most_bytes
        # If the user wrote all files, their descriptions are trusted text in the prompt.
        if all(file.trust == "own" for file in self._files):
            self.context_trust = "own"
        # A cache of descriptions, by path of the file, maximum length, and the file's size and
        # mtime.
        self._descriptions: dict[tuple[str, int, int, int], str] = {}

    async def actions(self) -> Sequence[Action]:
        """Return the actions; without DuckDB, those that need no SQL."""
        actions = await super().actions()
        if find_spec("duckdb"):
            return actions
        return [each for each in actions if each.name != "query"]

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
        header: int | None = None,
        encoding: str | None = None,
        context: CallContext | None = None,
    ) -> Any:
        """Read a file: .csv, .tsv (every value is str), .xlsx (the first sheet, or sheet=): rows
        as list[dict]; .json: parsed; .jsonl: list; .docx: str; .pdf: list[str], one per page; other
        files: bytes.
        header: the number of the row with the columns' names, if it is not the first; 0: none.
        """  # noqa: D205 - the model reads the whole paragraph
        file = self._find(name)
        # The factory makes the reader of a format that a plugin adds; None if no plugin reads the
        # file.
        factory = self._formats.factory(file.ending)
        kind = _kind(file)
        if factory is None:
            _refuse_useless_arguments(file, sheet, header)
        if header is not None and header < 0:
            raise ToolRefusedError("header is the number of a row, from 1, or 0 for none")
        missing_library_error = self._missing_library_error(file)
        if missing_library_error is not None:
            raise missing_library_error
        if kind in ("parquet", "arrow"):
            statement = "FROM '{}'".format(file.name.replace("'", "''"))
            return await self.query(statement, context=context)
        # Refuse a large file before a child process starts and reads the file for nothing.
        self._check_size(file)
        if factory is not None:
            arguments = {
                "factory": factory,
                "path": file.path,
                "name": file.name,
                "part": sheet,
                "header": header,
            }
            return await self._in_child("delf_files.reading:read_rows", arguments, file, context)
        arguments = {
            "path": file.path,
            "name": file.name,
            "ending": file.ending,
            "kind": kind,
            "encoding": encoding,
            "max_bytes": self._most_bytes,
            "header": header,
        }
        result = await self._in_child("delf_files.reading:read_content", arguments, file, context)
        if "too_large" in result:
            raise self._too_large_error(file, result["too_large"])
        return result["content"]

    @action("reading", effect="read")
    async def query(
        self,
        statement: str,
        params: dict[str, Any] | list[Any] | None = None,
        limit: int | None = None,
        header: int | dict[str, int] | None = None,
        context: CallContext | None = None,
    ) -> list[dict[str, Any]]:
        """Rows of one SQL statement of DuckDB over input files, large ones, too:
        SELECT region, sum(n) FROM 'sales.parquet' GROUP BY 1. Parquet, Arrow, .csv (each column is
        text: CAST it), JSON, 'book.xlsx/Sheet', 'shop.db/table'. Over 1000 rows: aggregate, page
        with OFFSET, or pass limit (1000 at most). header: a row number as in read; for several
        files a dict, such as {'a.csv': 3}.
        """  # noqa: D205 - the model reads the whole paragraph
        from delf_files.query import query

        return await query(
            statement, params, limit, header, self._files, self._formats, key=_task_key(context)
        )

    def result_trust(self, action: str, arguments: Mapping[str, Any]) -> Trust:
        """Return ``own`` if the user has declared that they wrote each file that a call may read.

        Return ``outside`` for any other call. The action ``read`` reads the named file. The actions
        ``query`` and ``list`` may read any file.

        Implements :class:`delf.protocols.connection.SupportsResultTrust`.
        """
        # Scripts may name a file by its name or by its path in the sandbox.
        named_files = [
            file for file in self._files if arguments.get("name") in (file.name, file.visible)
        ]
        readable_files = named_files if action == "read" else self._files
        is_own = bool(readable_files) and all(file.trust == "own" for file in readable_files)
        return "own" if is_own else "outside"

    async def context(self, task: str) -> str | None:
        """Describe the first 30 files for the prompt: tables, columns, types and examples."""
        files = self._files[:MAX_DESCRIBED_FILES]
        if not files:
            return None
        share_per_file = MAX_CHARACTERS_OF_ALL_FILES // len(files)
        max_characters = min(MAX_CHARACTERS_PER_FILE, share_per_file)
        parts = await asyncio.gather(*(self._describe(file, max_characters) for file in files))
        return "\n".join([_DESCRIPTIONS_HEADING, *parts])

    async def _describe(self, file: InputFile, max_characters: int) -> str:
        """Return the name and the description of a file; on failure, the name and the error."""
        name = file.name if file.name.isprintable() else repr(file.name)
        missing_library_error = self._missing_library_error(file)
        if missing_library_error is not None:
            return f"{name}: {missing_library_error.message} ({missing_library_error.hint})"
        try:
            key = (file.path, max_characters, *_size_and_mtime(file))
            if key not in self._descriptions:
                arguments = {
                    "path": file.path,
                    "name": file.name,
                    "ending": file.ending,
                    "kind": _kind(file),
                    "factory": self._formats.factory(file.ending),
                    "max_bytes": self._most_bytes,
                    "max_characters": max_characters,
                }
                self._descriptions[key] = await self._in_child(
                    "delf_files.shape:shape",
                    arguments,
                    file,
                    context=None,
                    limits=Limits(seconds=DESCRIBE_SECONDS),
                    activity="looking into",
                )
            return f"{name}: {self._descriptions[key]}"
        except (DelfError, OSError) as error:
            return f"{name}: {error}"

    async def _in_child(
        self,
        function: str,
        arguments: dict[str, Any],
        file: InputFile,
        context: CallContext | None,
        limits: Limits = Limits(),  # noqa: B008 - frozen
        activity: str = "reading",
    ) -> Any:
        """Call a function in a child process that can read only one input file.

        Args:
            function: The function, as ``module:name``.
            arguments: The keyword arguments of the function.
            file: The input file.
            context: The context of the action's call; None outside of a call.
            limits: The limits of the child process.
            activity: The words before the file's name in error messages, such as ``reading``.
        """
        return await self._formats.shared(Readers).call(
            function,
            arguments,
            about=f"{activity} {file.name}",
            key=_task_key(context),
            readable=readable_paths(file),
            limits=limits,
            preload=PRELOADS.get(file.ending, ()),
        )

    def _find(self, name: str) -> InputFile:
        """Return an input file by its name or path.

        Raises:
            ToolRefusedError: If no input file has the name.
        """
        for file in self._files:
            if name in (file.name, file.visible):
                return file
        # Unicode has two forms of a letter such as "é". A model may write one form, and the file's
        # name may have the other.
        for file in self._files:
            if normalized(name) in (normalized(file.name), normalized(file.visible)):
                return file
        names = [file.name for file in self._files]
        raise ToolRefusedError(
            f"there is no input file {name[:200]!r}; input files: {', '.join(names)}"
            f"{did_you_mean(name, names)}"
        )

    def _missing_library_error(self, file: InputFile) -> OptionalDependencyError | None:
        """Return the error for a file whose library is not installed; otherwise None."""
        if self._formats.factory(file.ending) is not None:
            return None  # the plugin that reads the file brings its libraries
        kind = _kind(file)
        if all(map(find_spec, _LIBRARIES.get(kind, ()))):
            return None
        extra = "duckdb" if kind in ("parquet", "arrow") else kind
        return OptionalDependencyError(
            f"reading {file.ending} files needs a library that is not installed",
            package=f"delf-plugin-files[{extra}]",
        )

    def _check_size(self, file: InputFile) -> None:
        size = _size(file)
        if size > self._most_bytes:
            raise self._too_large_error(file, f"has {size:,} bytes")

    def _too_large_error(self, file: InputFile, reason: str) -> ToolExecutionError:
        """Return the error for a file that is too large for :meth:`read`.

        Args:
            file: The file.
            reason: The size, to stand after the file's name, such as ``has 9,000,000 bytes``.
        """
        path_for_scripts = file.visible
        advice = f"read it in the script, in pieces: open({path_for_scripts!r})"
        if _kind(file) not in DOCUMENTS:
            advice += " with csv.DictReader or line by line"
        limit = f"files.read takes at most {self._most_bytes:,}"
        return ToolExecutionError(f"{file.name} {reason}, and {limit}; {advice}")

    async def _facts(self, file: InputFile, context: CallContext | None) -> FileFacts:
        """Return the data about a file for ``files.list``.

        If the file cannot be read, the data contain the reason as ``problem``.
        """
        path_for_scripts = file.visible
        facts = FileFacts(name=file.name, size=0, type=_kind(file), path=path_for_scripts)
        try:
            facts["size"] = _size(file)
            factory = self._formats.factory(file.ending)
            if factory is not None and facts["size"] <= self._most_bytes:
                arguments = {"factory": factory, "path": file.path}
                facts["sheets"] = await self._in_child(
                    "delf_files.reading:read_parts", arguments, file, context
                )
        except DelfError as error:  # report a broken file, and list the others
            facts["problem"] = error.message
        return facts


def _refuse_useless_arguments(file: InputFile, sheet: str | None, header: int | None) -> None:
    """Raise an error if ``sheet`` or ``header`` is given for a kind of file that has none.

    The file is one that no FileFormat plugin reads.
    """
    if sheet is not None and _kind(file) != "excel":
        raise ToolRefusedError(f"{file.name} has no sheets; leave sheet out")
    if header is not None and _kind(file) != "csv":
        raise ToolRefusedError(f"{file.name} has no row that names columns; leave header out")


def _task_key(context: CallContext | None) -> str:
    return "" if context is None else context.task_id


def _size(file: InputFile) -> int:
    try:
        return file.size
    except OSError as error:
        raise ToolExecutionError(f"{file.name} cannot be read: {error.strerror}") from error


def _size_and_mtime(file: InputFile) -> tuple[int, int]:
    status = Path(file.path).stat()
    return status.st_size, status.st_mtime_ns


def _kind(file: InputFile) -> str:
    return _KINDS.get(file.ending, "other")
