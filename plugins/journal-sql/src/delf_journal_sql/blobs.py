"""Large values of tasks, stored separately from their events."""

from __future__ import annotations

from delf.errors import UnreadableEventError
from delf_journal_sql.database import Connection


def blob_data(connection: Connection, key: int, digest: str) -> bytes:
    """Load a large value of a task's event in compressed form.

    Args:
        connection: A connection for reading.
        key: The task's database key.
        digest: The digest of the value.

    Raises:
        UnreadableEventError: If the value is missing.
    """
    rows = connection.execute(
        "SELECT data FROM delf_blobs WHERE task = :task AND digest = :digest",
        {"task": key, "digest": digest},
    )
    if not rows:
        raise UnreadableEventError(f"the journal is damaged: the value {digest[:12]}… is missing")
    return bytes(rows[0][0])
