"""The capability of this plugin: the journal ``sql``."""

from __future__ import annotations

from collections.abc import Iterable

from delf.hookspecs import hookimpl
from delf.specs import JournalSpec


@hookimpl
def delf_journals() -> Iterable[JournalSpec]:
    yield JournalSpec(
        name="sql",
        summary="Events in a database: a SQLite file of the user's, or PostgreSQL.",
        factory="delf_journal_sql.journal:SqlJournal",
        durable=True,
        shared=True,
        plugin_settings="delf_journal_sql.settings:JournalSettings",
    )
