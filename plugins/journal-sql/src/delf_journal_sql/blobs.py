"""Large values of tasks, which are kept apart from their events."""

from __future__ import annotations

from delf_journal_sql.database import Connection
from delf_journal_sql.errors import JournalError


def blob_data(connection: Connection, key: int, digest: str) -> bytes:
    """Return a large value of a task, compressed.

    Raises:
        JournalError: When it is missing.
    """
    rows = connection.execute(
        "SELECT data FROM delf_blobs WHERE task = :task AND digest = :digest",
        {"task": key, "digest": digest},
    )
    if not rows:
        raise JournalError(f"the journal is damaged: the value {digest[:12]}… is missing")
    return bytes(rows[0][0])
