"""Conversion of drivers' exceptions to one-line redacted errors."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from delf.errors import (
    ConnectionUnavailableError,
    DelfError,
    OutcomeUnknownError,
    ToolExecutionError,
    ToolRefusedError,
)
from delf_sql.backends.base import FailedAt, Problem, first_line

if TYPE_CHECKING:
    from delf_sql.backends import Backend
    from delf_sql.gate import Statement

_MAX_TEXT_CHARS: Final = 400
_MAX_STATEMENT_CHARS: Final = 120
_SERVER_HINT: Final = "check that it runs, and the connection's url, user and password"
_FILE_HINT: Final = "check that it is such a file, whole, and that this user may open it"
_SCHEMA_HINT: Final = (
    "schema('table') or schema(search='words') tells which tables and columns there are"
)
_UNKNOWN_NAME: Final = re.compile(
    r"no such|does(?:n't| not) exist|unknown|not found", re.IGNORECASE
)
_FILE_DIALECTS: Final = ("sqlite", "duckdb")


class SQLSchemaError(DelfError):
    """The schema of a database could not be read."""

    code = "ERR-TOOL-003"


def problem_of(error: BaseException, backend: Backend) -> Problem | None:
    """Return the problem behind an error; None if a database did not cause the error.

    For a FailedAt, return the problem of its cause, with the number of the failed statement.
    """
    if isinstance(error, FailedAt):
        cause_problem = None if error.__cause__ is None else problem_of(error.__cause__, backend)
        if cause_problem is None:
            return None
        return replace(cause_problem, number=error.statement_number)
    problem = backend.explain(error)
    if problem is not None:
        return problem
    if isinstance(error, TimeoutError):
        return Problem(cause="timeout", text="no answer in time")
    if isinstance(error, OSError):
        return Problem(cause="unavailable", text=first_line(error.strerror or str(error)))
    return None


def unexplained_problem(error: BaseException) -> Problem:
    """Return the problem of an error that no database caused, such as ``KeyError: 'id'``.

    For a FailedAt, return the problem of its cause, with the number of the failed statement.
    """
    if isinstance(error, FailedAt) and error.__cause__ is not None:
        return replace(unexplained_problem(error.__cause__), number=error.statement_number)
    return Problem(cause="statement", text=first_line(f"{type(error).__name__}: {error}"))


def unavailable_error(error: BaseException, backend: Backend) -> ConnectionUnavailableError:
    """Make the error for an unreachable database."""
    problem = problem_of(error, backend)
    text = problem.text if problem is not None else type(error).__name__
    return _unreachable_error(text, backend)


def _unreachable_error(text: str, backend: Backend) -> ConnectionUnavailableError:
    target = backend.target
    return ConnectionUnavailableError(
        target.scrub(f"cannot use {target.place}: {_shortened(text, backend)}"),
        hint=_FILE_HINT if target.dialect in _FILE_DIALECTS else _SERVER_HINT,
    )


def lost_write_error(text: str, backend: Backend) -> OutcomeUnknownError:
    """Make the error for a write whose result was lost, with unknown outcome."""
    return OutcomeUnknownError(
        backend.target.scrub(
            f"{backend.target.label}: the write was sent and its answer was lost "
            f"({_shortened(text, backend)}), so it may have been done"
        ),
        hint="query the data before you repeat it",
    )


def failed_statement_error(
    problem: Problem,
    backend: Backend,
    *,
    read_only: bool,
    timeout: float,
    statements: Sequence[Statement] = (),
) -> DelfError:
    """Make the error for a failed statement.

    If there are several statements, the message has the number and text of the failed statement.
    """
    text = _shortened(problem.text, backend)
    prefix = _failed_statement_prefix(problem.number, statements)
    if problem.cause == "unavailable":
        if problem.is_connection_lost and not read_only:
            return lost_write_error(text, backend)
        return _unreachable_error(text, backend)
    if problem.cause == "timeout":
        return ToolExecutionError(
            f"{prefix}the statement took longer than {timeout:g} s and was cancelled",
            hint="statement_timeout sets the limit",
        )
    if problem.cause == "read-only" and read_only:
        return ToolRefusedError(f"query only reads, and the database refused this: {text}")
    hint = _SCHEMA_HINT if _UNKNOWN_NAME.search(text) else None
    return ToolExecutionError(f"{backend.target.label}: {prefix}{text}", hint=hint)


def _shortened(text: str, backend: Backend) -> str:
    """Redact secrets in a text, then truncate it: a truncated secret would not be found."""
    return backend.target.scrub(text)[:_MAX_TEXT_CHARS]


def _failed_statement_prefix(number: int | None, statements: Sequence[Statement]) -> str:
    """Return a prefix of an error that names the failed statement; empty for a single statement."""
    if len(statements) <= 1 or number is None or number > len(statements):
        return ""
    statement_text = " ".join(statements[number - 1].text.split())
    if len(statement_text) > _MAX_STATEMENT_CHARS:
        statement_text = f"{statement_text[:_MAX_STATEMENT_CHARS]}…"
    position = f"statement {number} of {len(statements)}"
    return f"{position}, {statement_text}, failed and none is done: "
