"""Selection of the database by a journal's settings."""

from __future__ import annotations

import urllib.parse
from pathlib import Path
from typing import Final

from delf_journal_sql.database import Database
from delf_journal_sql.errors import JournalSetupError
from delf_journal_sql.settings import JournalSettings

_POSTGRES: Final = ("postgres", "postgresql", "postgresql+psycopg")


def open_database(settings: JournalSettings) -> Database:
    """Create the database object for the URL in the settings, without connecting.

    Raises:
        JournalSetupError: If the URL cannot be used.
        OptionalDependencyError: If the driver is not installed.
    """
    url = settings.url.get_secret_value().strip() if settings.url is not None else ""
    scheme, separator, address = url.partition("://")
    if separator and scheme in _POSTGRES:
        from delf_journal_sql.postgresql import PostgresDatabase

        return PostgresDatabase(address, settings)
    if separator and scheme != "sqlite":
        raise JournalSetupError(
            f"the journal cannot be kept at {scheme[:40]}://…",
            hint="it takes sqlite:///path, a path, or postgresql://user@host/database",
        )
    from delf_journal_sql.sqlite import SqliteDatabase

    return SqliteDatabase(
        _path(urllib.parse.unquote(address) if separator else url, separator), settings
    )


def _path(text: str, separator: str) -> Path:
    if not (text or separator):
        from platformdirs import user_data_path

        return user_data_path("delf", appauthor=False) / "journal.db"
    # sqlite:///relative and sqlite:////absolute, as SQLAlchemy has it
    name = text.removeprefix("/") if separator else text
    if name in ("", ":memory:"):
        raise JournalSetupError("a SQLite journal cannot be in memory", hint='use journal = "none"')
    return Path(name).expanduser().absolute()
