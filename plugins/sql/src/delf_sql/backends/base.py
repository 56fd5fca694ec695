"""The protocol of a backend, and what all of them share."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Literal, Protocol

from delf.errors import OptionalDependencyError, ToolExecutionError, ToolRefusedError
from delf_sql.catalog import Relation, Table
from delf_sql.gate import Statement
from delf_sql.placeholders import Bound, Params
from delf_sql.rows import Fetched
from delf_sql.target import Target

Cause = Literal["statement", "timeout", "read-only", "unavailable"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a statement may take.

    Args:
        timeout: Seconds.
        connect_timeout: Seconds to wait for the server.
        max_rows: The most rows.
        max_bytes: About how much the rows may hold.
        functions: Functions that a query may call although they are refused by default.
        create: Make a SQLite file that does not exist.
        role: PostgreSQL's role that a query takes on.
    """

    timeout: float
    connect_timeout: float
    max_rows: int
    max_bytes: int
    functions: frozenset[str]
    create: bool
    role: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """What a driver's exception means.

    Args:
        cause: What kind of failure it is.
        text: The database's own words, one line.
        table: A table that does not exist.
        column: A column that does not exist.
    """

    cause: Cause
    text: str
    table: str | None = None
    column: str | None = None


class Written:
    """What a write did so far: rows changed, and rows returned by it."""

    def __init__(self) -> None:
        self.rowcount = 0
        self.columns: tuple[str, ...] = ()
        self.rows: list[Sequence[Any]] = []

    def room(self, limit: int) -> int:
        """How many more rows may be returned."""
        return limit - len(self.rows)

    def add(self, rowcount: int, fetched: Fetched | None = None) -> None:
        """Take in what one execution did.

        Args:
            rowcount: What the driver says; negative when it does not know.
            fetched: Rows that it returned, each a row that it changed.

        Raises:
            ToolExecutionError: When it returned more rows than there is room for.
        """
        if fetched is None or not fetched.columns:
            self.rowcount += max(rowcount, 0)
            return
        if fetched.more:
            raise ToolExecutionError(
                "it returns too many rows, so nothing was changed: leave out RETURNING, or change "
                "fewer rows at a time"
            )
        self.rowcount += len(fetched.rows)
        self.columns = fetched.columns
        self.rows += fetched.rows

    @property
    def fetched(self) -> Fetched:
        """All rows that were returned."""
        return Fetched(self.columns, self.rows)


def can_batch(statement: Statement, bounds: Sequence[Bound]) -> bool:
    """Whether the driver can run all sets of parameters at once."""
    if len(bounds) < 2 or any(token.word == "RETURNING" for token in statement.tokens):
        return False
    return all(bound.text == bounds[0].text and bound.values for bound in bounds)


class Backend(Protocol):
    """How to speak with one kind of database. ``driver`` is the driver's own connection."""

    target: Target

    async def connect(self, *, reader: bool) -> Any:
        """A new connection of the driver; a reader's cannot change anything.

        Args:
            reader: Whether it is for reading.
        """
        ...

    async def read(self, driver: Any, statement: Statement, params: Params, limit: int) -> Fetched:
        """Run a query in a transaction that cannot write.

        Args:
            driver: A reader's connection.
            statement: What passed the gate.
            params: Its parameters.
            limit: The most rows to fetch.
        """
        ...

    async def write(self, driver: Any, statement: Statement, batches: Sequence[Params]) -> Written:
        """Run a statement once for each set of parameters, all in one transaction.

        Args:
            driver: A writer's connection.
            statement: What passed the gate.
            batches: Sets of parameters, at least one.
        """
        ...

    async def relations(self, driver: Any) -> list[Relation]:
        """All tables and views, without columns."""
        ...

    async def tables(self, driver: Any, relations: Sequence[Relation]) -> list[Table]:
        """These tables and views with their columns, in the same order."""
        ...

    async def version(self, driver: Any) -> str:
        """The product and its version: ``PostgreSQL 15.8``."""
        ...

    async def interrupted(self, driver: Any) -> None:
        """Stop what a cancelled task left running on the server."""
        ...

    async def reset(self, driver: Any) -> None:
        """Undo whatever its statement left in the session: settings, locks, transactions."""
        ...

    async def revive(self, driver: Any) -> bool:
        """Make ready a connection that has rested; False when it has ended meanwhile."""
        ...

    async def close(self, driver: Any) -> None:
        """End a connection in good order."""
        ...

    def is_usable(self, driver: Any) -> bool:
        """Whether the connection can go back to the pool."""
        ...

    def abandon(self, driver: Any) -> None:
        """End a connection at once, whatever it does, and whether its event loop runs or not."""
        ...

    def explain(self, error: BaseException) -> Problem | None:
        """What a driver's exception means; None when it is no such exception."""
        ...


def import_driver(module: str, extra: str, what: str) -> ModuleType:
    """A driver that comes with an extra.

    Args:
        module: The module to import.
        extra: The extra of this distribution that installs it.
        what: What it is for.

    Raises:
        OptionalDependencyError: When it is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError:
        raise OptionalDependencyError(
            f"{what} needs the package {module}", package=f"delf-plugin-sql[{extra}]"
        ) from None


def unlisted(name: str) -> ToolRefusedError:
    """The error for a function of the database that nobody listed.

    Args:
        name: The function's; after a dot where the query may mean a column.
    """
    called = f"{name}()" if not name.startswith(".") else f"{name} (PostgreSQL may call it)"
    return ToolRefusedError(
        f"query cannot use {called}: it is a function of this database, which may do more than "
        "read",
        hint="if it only reads, the connection's setting functions may list "
        f"{name.removeprefix('.')!r}; a column of that name can be written without its table",
    )


def first_line(text: str) -> str:
    """The first line that says something."""
    return next((line.strip() for line in text.splitlines() if line.strip()), "")
