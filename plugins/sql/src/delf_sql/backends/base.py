"""Code shared by backends."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Final, Literal

from delf.errors import (
    ConnectionConfigurationError,
    ConnectionFileNotFoundError,
    OptionalDependencyError,
    ToolExecutionError,
    ToolRefusedError,
)
from delf_sql.gate import Statement
from delf_sql.placeholders import BoundStatement
from delf_sql.rows import Fetched
from delf_sql.target import Target

Cause = Literal["statement", "timeout", "read-only", "unavailable"]
_MAX_WARNINGS: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """The explanation of a driver's exception.

    Args:
        cause: The kind of failure.
        text: The database's message in one line.
        is_connection_lost: Whether the connection was lost, so that the outcome of a statement is
            unknown.
        number: The number of the failed statement, from 1, if there were several.
    """

    cause: Cause
    text: str
    is_connection_lost: bool = False
    number: int | None = None


class FailedAt(Exception):  # noqa: N818 - tells which statement, not the fault
    """A failure of one of several statements, caused by the driver's exception.

    Args:
        statement_number: The number of the failed statement, from 1.
    """

    def __init__(self, statement_number: int) -> None:
        super().__init__(statement_number)
        self.statement_number = statement_number


def create_missing(target: Target, create: Callable[[], None]) -> None:
    """Create the file of a database if it does not exist.

    Args:
        target: The database.
        create: Creates its file.

    Raises:
        ConnectionFileNotFoundError: If the folder of the file does not exist.
        ConnectionConfigurationError: If the file cannot be created.
    """
    path = Path(target.database).absolute()
    if path.exists():
        return
    if not path.parent.is_dir():
        raise ConnectionFileNotFoundError(
            f"there is no folder {str(path.parent)!r} for {target.place}",
            hint="make the folder, or correct the path (it is taken from the working directory)",
        )
    try:
        create()
    except OSError as error:
        raise ConnectionConfigurationError(
            f"{target.place} cannot be created: {error.strerror or error}",
            hint="create = true makes it; check the rights of its folder",
        ) from None


def missing_file_error(product: str, file: str) -> ConnectionFileNotFoundError:
    """Build the error for a database file that does not exist."""
    return ConnectionFileNotFoundError(
        f"there is no {product} file {file!r}",
        hint="check the path (it is taken from the working directory), or set create = true"
        " and create the tables with the action `write`",
    )


class WriteResult:
    """The results of a write: the number of changed rows, and the rows that were returned."""

    def __init__(self) -> None:
        self.rowcount = 0
        self.columns: tuple[str, ...] = ()
        self.rows: list[Sequence[Any]] = []
        self.warnings: dict[str, None] = {}

    def room(self, limit: int) -> int:
        """Return how many more rows a statement may return within the limit."""
        return limit - len(self.rows)

    def add(
        self, rowcount: int, fetched: Fetched | None = None, *, returns_changes: bool = True
    ) -> None:
        """Add the result of one execution.

        Args:
            rowcount: The driver's count; negative if unknown.
            fetched: The rows returned by the statement.
            returns_changes: Whether the statement returns a row for each changed row.

        Raises:
            ToolExecutionError: If more rows were returned than allowed.
        """
        if fetched is not None:
            self.warn(fetched.warnings)
        if fetched is None or not fetched.columns:
            self.rowcount += max(rowcount, 0)
            return
        if fetched.more:
            raise ToolExecutionError(
                "the statement returns too many rows, so nothing was changed: leave out RETURNING, "
                "or change fewer rows at a time"
            )
        self.rowcount += len(fetched.rows) if returns_changes else 0
        self.columns = fetched.columns
        self.rows += fetched.rows

    def warn(self, warnings: Iterable[str]) -> None:
        """Add warnings of the database, unless there are enough already."""
        if len(self.warnings) < _MAX_WARNINGS:
            self.warnings |= dict.fromkeys(warnings)

    @property
    def fetched(self) -> Fetched:
        """All rows that were returned."""
        return Fetched(self.columns, self.rows, warnings=tuple(self.warnings))


def can_batch(statement: Statement, bound_statements: Sequence[BoundStatement]) -> bool:
    """Return True if the driver can run all sets of parameters in one call (``executemany``).

    The statement must return no rows, and its text must be the same for all sets.
    """
    if len(bound_statements) < 2 or statement.has_returning:
        return False
    # The texts around the placeholders differ if lists after IN have different lengths.
    first_pieces = bound_statements[0].pieces
    return all(bound.values and bound.pieces == first_pieces for bound in bound_statements)


def import_driver(module: str, extra: str, product: str) -> ModuleType:
    """Import a driver that an extra of this package installs.

    Raises:
        OptionalDependencyError: If the driver is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError:
        raise OptionalDependencyError(
            f"{product} needs the package {module}", package=f"delf-plugin-sql[{extra}]"
        ) from None


def disallowed_function_error(name: str) -> ToolRefusedError:
    """Make the error for a database function that is not allowed.

    Args:
        name: The function's name ``f``, or ``.f`` if the query has ``t.f``, which PostgreSQL may
            read as the call ``f(t)``.
    """
    plain_name = name.removeprefix(".")
    if name.startswith("."):
        used_name = f"{name} (which PostgreSQL may read as a call of {plain_name}())"
    else:
        used_name = f"{name}()"
    return ToolRefusedError(
        f"query cannot use {used_name}: {plain_name} is a function of this database, which may do "
        "more than read",
        hint=f"if {plain_name} only reads, the connection's setting functions may list "
        f"{plain_name!r}; a column of that name can be written without its table",
    )


def first_line(text: str) -> str:
    """Return the first non-empty line."""
    return next((line.strip() for line in text.splitlines() if line.strip()), "")
