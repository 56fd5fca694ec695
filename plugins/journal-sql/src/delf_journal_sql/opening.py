"""Selection of the database by a journal's settings."""

from __future__ import annotations

import urllib.parse
from pathlib import Path
from typing import Final

from delf.machine.folders import expand_home, user_folder
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
    is_url = bool(separator)
    if is_url and scheme in _POSTGRES:
        from delf_journal_sql.postgresql import PostgresDatabase

        return PostgresDatabase(address, settings)
    if is_url and scheme != "sqlite":
        raise JournalSetupError(
            f"the journal cannot be kept at {scheme[:40]}://…",
            hint="it takes sqlite:///path, a path, or postgresql://user@host/database",
        )
    from delf_journal_sql.sqlite import SqliteDatabase

    text = urllib.parse.unquote(address) if is_url else url
    return SqliteDatabase(_sqlite_path(text, is_url=is_url), settings)


def _sqlite_path(text: str, *, is_url: bool) -> Path:
    """Return the path of a SQLite journal, by default in the folder of the user's data."""
    if not text and not is_url:  # no journal is configured
        return user_folder("data") / "journal.db"
    # As in SQLAlchemy, sqlite:///path is relative and sqlite:////path is absolute.
    name = text.removeprefix("/") if is_url else text
    if name in ("", ":memory:"):
        raise JournalSetupError("a SQLite journal cannot be in memory", hint='use journal = "none"')
    return expand_home(name).absolute()
