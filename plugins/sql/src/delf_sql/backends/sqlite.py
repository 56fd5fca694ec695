"""SQLite, each connection in a process of its own (``sqlite_child``).

Reading is confined by a read-only file handle, an authorizer, and bounds of the system.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO, Final, cast
from urllib.parse import quote

from delf.errors import ConnectionFileNotFoundError
from delf_sql import sqlite_child
from delf_sql.backends.base import Limits, Problem, Written, can_batch, first_line
from delf_sql.catalog import Column, Relation, Table
from delf_sql.functions import known_functions
from delf_sql.gate import Statement
from delf_sql.placeholders import Params, bind
from delf_sql.rows import Fetched, too_large
from delf_sql.sqlite_child import Opening, Work, receive, send
from delf_sql.target import Target
from delf_sql.values import for_sqlite

_BUSY_SECONDS: Final = 5.0
_STOP_SECONDS: Final = 1.0
_SPARE_FILE: Final = 1_000_000_000
_KEPT_VARIABLES: Final = ("LD_LIBRARY_PATH", "SQLITE_TMPDIR", "TMPDIR")
_ALL: Final = 1_000_000

_MISSING_TABLE: Final = re.compile(r"no such table: (?:\w+\.)?(.+)")
_MISSING_COLUMN: Final = re.compile(r"(?:no such column: (?:\w+\.)?|has no column named )(.+)")
_RELATIONS: Final = """
SELECT name, type, sql LIKE 'CREATE VIRTUAL%' FROM sqlite_master
WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY name
"""
_COLUMNS: Final = 'SELECT name, type, "notnull", pk, hidden FROM pragma_table_xinfo(?) ORDER BY cid'
_KEYS: Final = (
    'SELECT id, seq, "table", "from", "to" FROM pragma_foreign_key_list(?) ORDER BY id, seq'
)


class _SqliteError(Exception):
    """What SQLite said."""


class _Child:
    """A process that has the file open, and the thread that waits for it."""

    def __init__(self, opening: Opening) -> None:
        self._opening = opening
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="delf-sqlite")
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self._is_ended = False
        self.passed_over: str | None = None

    async def start(self) -> None:
        """Start it and open the file.

        Raises:
            _SqliteError: When the file cannot be opened.
        """
        starting = asyncio.get_running_loop().run_in_executor(self._thread, self._start)
        try:
            await asyncio.shield(starting)
        except asyncio.CancelledError:  # nobody else asks the thread what became of it
            starting.add_done_callback(lambda done: done.cancelled() or done.exception())
            raise

    async def run(self, work: Work) -> Fetched:
        """Run a statement.

        Args:
            work: Which.

        Raises:
            _SqliteError: What SQLite says.
            TimeoutError: When it took too long.
        """
        return await self._in_thread(self._run, work)

    async def _in_thread(self, call: Any, *arguments: Any) -> Any:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, call, *arguments)

    def _start(self) -> None:
        kept = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
        command = [sys.executable, "-I", "-S", sqlite_child.__file__]
        pipe = subprocess.PIPE
        with self._lock:
            if self._is_ended:  # while the thread came to it
                raise _SqliteError("it was closed before it was open")
            self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, env=kept)  # noqa: S603 - ours
        (self.passed_over,) = self._ask(tuple(self._opening))

    def _run(self, work: Work) -> Fetched:
        started = time.monotonic()
        try:
            columns, rows, more, changed, mended = self._ask(tuple(work))
        except (EOFError, BrokenPipeError):
            process = cast("subprocess.Popen[bytes]", self._process)
            process.kill()
            process.wait()  # it may close its pipes a while before it is gone
            if time.monotonic() - started >= self._opening.timeout:
                raise TimeoutError from None
            raise _SqliteError("disk I/O error: its process ended") from None
        return Fetched(tuple(columns), rows, more, changed, tuple(mended))

    def _ask(self, message: Any) -> Sequence[Any]:
        process = cast("subprocess.Popen[bytes]", self._process)
        send(cast("BinaryIO", process.stdin), message)
        kind, *answer = receive(cast("BinaryIO", process.stdout))
        if kind == "large":
            raise too_large(self._opening.max_bytes, answer[0])
        if kind == "failed":
            raise _SqliteError(answer[0])
        return answer

    @property
    def is_reader(self) -> bool:
        """Whether it is for reading."""
        return self._opening.reader

    @property
    def is_alive(self) -> bool:
        """Whether the process runs."""
        return self._process is not None and self._process.poll() is None

    async def stop(self) -> None:
        """End what it runs, and it: a writer first by itself, which leaves no journal."""
        if self._process is not None and not self._opening.reader:
            self._process.send_signal(signal.SIGTERM)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_STOP_SECONDS):
                    await self._in_thread(lambda: None)  # after what it runs
        self.kill()

    def kill(self) -> None:
        """End the process at once; one that is about to start does not."""
        with self._lock:
            self._is_ended = True
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            for pipe in (self._process.stdin, self._process.stdout):
                with contextlib.suppress(OSError):
                    cast("BinaryIO", pipe).close()
        self._thread.shutdown(wait=False)


class SqliteBackend:
    """Speaks with SQLite, a process for each connection.

    Args:
        target: The file.
        limits: What a statement may take.
    """

    def __init__(self, target: Target, limits: Limits) -> None:
        self.target = target
        self._limits = limits

    async def connect(self, *, reader: bool) -> _Child:
        """A new connection; a reader's has the file open for reading only.

        Args:
            reader: Whether it is for reading.

        Raises:
            ConnectionFileNotFoundError: When there is no such file and none is to be made.
        """
        path = Path.cwd() / self.target.database
        size = await asyncio.to_thread(_size, path)
        if size is None and (reader or not self._limits.create):
            raise ConnectionFileNotFoundError(
                f"there is no SQLite file {self.target.database!r}",
                hint="check the path (it is taken from the working directory), or set create = true"
                " and make the tables with write",
            )
        mode = "ro" if reader else "rwc" if self._limits.create else "rw"
        limits = self._limits
        child = _Child(
            Opening(
                uri=f"file:{quote(str(path))}?mode={mode}",
                reader=reader,
                timeout=limits.timeout,
                busy=min(_BUSY_SECONDS, limits.timeout),
                max_bytes=limits.max_bytes,
                functions=sorted(known_functions("sqlite") | limits.functions),
                temporary=4 * (size or 0) + _SPARE_FILE,
            )
        )
        try:
            await child.start()
        except BaseException:
            child.kill()
            raise
        return child

    async def read(
        self, driver: _Child, statement: Statement, params: Params, limit: int
    ) -> Fetched:
        """Run a query; sqlite3 itself refuses a second statement in the text.

        Args:
            driver: A reader's connection.
            statement: What passed the gate.
            params: Its parameters.
            limit: The most rows to fetch.
        """
        bound = bind(statement.text, statement.tokens, params, "sqlite", for_sqlite)
        return await self._run(driver, bound.text, bound.values, limit)

    async def _run(
        self, driver: _Child, text: str, values: Sequence[Any] | None, limit: int
    ) -> Fetched:
        return await driver.run(Work([(text, list(values or ()))], limit, many=False))

    async def write(
        self, driver: _Child, statement: Statement, batches: Sequence[Params]
    ) -> Written:
        """Run a statement for each set of parameters, and commit.

        Args:
            driver: A writer's connection.
            statement: What passed the gate.
            batches: Sets of parameters, at least one.
        """
        bounds = [
            bind(statement.text, statement.tokens, params, "sqlite", for_sqlite)
            for params in batches
        ]
        runs = [(bound.text, list(bound.values or ())) for bound in bounds]
        many = can_batch(statement, bounds)
        try:
            fetched = await driver.run(Work(runs, self._limits.max_rows, many))
        except TimeoutError:
            await self._recover()
            raise
        written = Written()
        written.add(fetched.changed, fetched)
        return written

    async def relations(self, driver: _Child) -> list[Relation]:
        """All tables and views but SQLite's own."""
        found = (await self._run(driver, _RELATIONS, None, _ALL)).rows
        shadows = tuple(f"{name}_" for name, _, virtual in found if virtual)
        return [
            Relation(name=name, kind="view" if kind == "view" else "table", key=name)
            for name, kind, _ in found
            if not name.startswith(shadows)
        ]

    async def tables(self, driver: _Child, relations: Sequence[Relation]) -> list[Table]:
        """These with their columns.

        Args:
            driver: A reader's connection.
            relations: Of :meth:`relations`.
        """
        return [await self._table(driver, relation) for relation in relations]

    async def _table(self, driver: _Child, relation: Relation) -> Table:
        table = Table(relation)
        try:
            columns = await self._run(driver, _COLUMNS, (relation.key,), _ALL)
        except _SqliteError as error:
            if not driver.is_alive:
                raise
            table.broken = first_line(str(error))
            return table
        if not columns.rows:
            table.broken = "its definition makes no sense"
        for name, kind, not_null, key, hidden in columns.rows:
            if hidden != 1:
                table.columns.append(
                    Column(
                        name=name,
                        type=(kind or "any").lower(),
                        nullable=not not_null and not key,
                        primary_key=bool(key),
                    )
                )
        for _, _, other, mine, theirs in (
            await self._run(driver, _KEYS, (relation.key,), _ALL)
        ).rows:
            column = table.column(mine)
            if column is not None:
                column.references = f"{other}.{theirs}" if theirs else other
        return table

    async def version(self, driver: _Child) -> str:
        """SQLite's version, and what of the file it passes over."""
        told = f"; passed over: {first_line(driver.passed_over)}" if driver.passed_over else ""
        return f"SQLite {sqlite3.sqlite_version}{told}"

    async def interrupted(self, driver: _Child) -> None:
        """End the process of a cancelled statement."""
        await driver.stop()
        if not driver.is_reader:
            await self._recover()

    async def _recover(self) -> None:
        """Roll back what a killed writer left, which a reader may not."""
        (await self.connect(reader=False)).kill()

    async def reset(self, driver: _Child) -> None:
        """Nothing to do: a reader keeps no state, a writer opens the file anew for each write."""

    async def revive(self, driver: _Child) -> bool:
        """Whether its process still runs."""
        return driver.is_alive

    def is_usable(self, driver: _Child) -> bool:
        """Whether its process still runs."""
        return driver.is_alive

    async def close(self, driver: _Child) -> None:
        """End the process."""
        driver.kill()

    def abandon(self, driver: _Child) -> None:
        """End the process."""
        driver.kill()

    def explain(self, error: BaseException) -> Problem | None:
        """What SQLite's error means.

        Args:
            error: Any exception.
        """
        if not isinstance(error, _SqliteError):
            return None
        text = first_line(str(error))
        if text == "interrupted":
            return Problem(cause="timeout", text=text)
        if text.startswith("attempt to write a readonly"):
            return Problem(cause="read-only", text=text)
        if "not authorized" in text or "prohibited" in text:
            return Problem(cause="read-only", text="this is not allowed on a SQLite connection")
        if text.startswith(("unable to open", "file is not a database", "disk I/O")):
            return Problem(cause="unavailable", text=text)
        table, column = _MISSING_TABLE.search(text), _MISSING_COLUMN.search(text)
        return Problem(
            cause="statement",
            text=text,
            table=table.group(1) if table else None,
            column=column.group(1) if column else None,
        )


def _size(path: Path) -> int | None:
    return path.stat().st_size if path.is_file() else None
