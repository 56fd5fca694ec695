"""Sessions of people who are logged in. Everything here blocks: it is called in threads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from delf.protocols.sessions import SessionRecord
from delf_journal_sql.database import Connection

_AT_ONCE: Final = 500
"""Sessions of one query: databases limit its parameters."""
_COLUMNS: Final = "digest, name, began, until"


def begin(connection: Connection, session: SessionRecord) -> None:
    """Keep a session, and forget those that were over when it began."""
    connection.execute("DELETE FROM delf_sessions WHERE until < :now", {"now": session.began})
    connection.execute(
        f"INSERT INTO delf_sessions ({_COLUMNS}) VALUES (:digest, :name, :began, :until)",  # noqa: S608 - own names
        {
            "digest": session.digest,
            "name": session.name,
            "began": session.began,
            "until": session.until,
        },
    )


def end(connection: Connection, digest: str) -> None:
    """Forget a session."""
    connection.execute("DELETE FROM delf_sessions WHERE digest = :digest", {"digest": digest})


def find(
    connection: Connection, now: float, digests: Sequence[str] | None = None
) -> list[SessionRecord]:
    """The sessions that are not over, the oldest first; all, or these."""
    if digests is not None and len(digests) > _AT_ONCE:
        rest = find(connection, now, digests[_AT_ONCE:])
        return [*find(connection, now, digests[:_AT_ONCE]), *rest]
    some = {f"id{n}": digest for n, digest in enumerate(digests or ())}
    only = "" if digests is None else f"AND digest IN ({', '.join(f':{n}' for n in some)}) "
    if digests is not None and not some:
        return []
    rows = connection.execute(
        f"SELECT {_COLUMNS} FROM delf_sessions WHERE until >= :now {only}ORDER BY began",  # noqa: S608 - own names
        {"now": now, **some},
    )
    return [
        SessionRecord(digest=digest, name=name, began=began, until=until)
        for digest, name, began, until in rows
    ]
