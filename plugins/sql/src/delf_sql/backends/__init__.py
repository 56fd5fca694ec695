"""Differences between databases: one module for each backend.

A backend's methods are synchronous, and are called in threads. A ``session`` is the backend's own
object, used in one thread at a time, except for ``stop``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from delf_sql.backends.base import import_driver
from delf_sql.settings import SQLSettings
from delf_sql.target import Target

if TYPE_CHECKING:
    from delf_sql.backends.duckdb import DuckdbBackend
    from delf_sql.backends.engine import EngineBackend
    from delf_sql.backends.sqlite import SqliteBackend

    Backend = DuckdbBackend | EngineBackend | SqliteBackend


def make_backend(target: Target, settings: SQLSettings) -> Backend:
    """Make the backend for a target.

    Raises:
        OptionalDependencyError: If the backend's driver is not installed.
    """
    if target.dialect == "sqlite":
        from delf_sql.backends.sqlite import SqliteBackend

        return SqliteBackend(target, settings)
    if target.dialect == "postgresql":
        import_driver("psycopg", "postgresql", target.label)
        from delf_sql.backends.postgresql import PostgresBackend

        return PostgresBackend(target, settings)
    if target.dialect == "mysql":
        import_driver("pymysql", "mysql", target.label)
        from delf_sql.backends.mysql import MysqlBackend

        return MysqlBackend(target, settings)
    if target.dialect == "duckdb":
        import_driver("duckdb_engine", "duckdb", target.label)
        from delf_sql.backends.duckdb import DuckdbBackend

        return DuckdbBackend(target, settings)
    from delf_sql.backends.engine import EngineBackend

    backend = EngineBackend(target, settings)
    backend.check_driver()
    return backend
