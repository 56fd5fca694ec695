"""Login sessions of people. All functions block; call them in threads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, fields
from typing import Final

from delf.protocols.sessions import SessionRecord
from delf_journal_sql.codec import plain_text
from delf_journal_sql.database import Connection

_COLUMNS: Final = "digest, name, began, until, holder, shown_key, way, client, browser"


def begin(connection: Connection, session: SessionRecord) -> None:
    """Store a session, removing expired ones."""
    connection.execute("DELETE FROM delf_sessions WHERE until < :now", {"now": session.began})
    connection.execute(
        f"INSERT INTO delf_sessions ({_COLUMNS}) VALUES (:digest, :name, :began, :until, "  # noqa: S608 - own names
        ":holder, :key, :way, :client, :browser)",
        {**asdict(session), "browser": plain_text(session.browser)},
    )


def end(connection: Connection, digest: str) -> None:
    """Forget a session."""
    connection.execute("DELETE FROM delf_sessions WHERE digest = :digest", {"digest": digest})


def find(
    connection: Connection, now: float, digests: Sequence[str] | None = None
) -> list[SessionRecord]:
    """Return sessions that have not expired, oldest first, optionally only some."""
    some = {f"id{n}": digest for n, digest in enumerate(digests or ())}
    only = "" if digests is None else f"AND digest IN ({', '.join(f':{n}' for n in some)}) "
    if digests is not None and not some:
        return []
    rows = connection.execute(
        f"SELECT {_COLUMNS} FROM delf_sessions WHERE until >= :now {only}ORDER BY began",  # noqa: S608 - own names
        {"now": now, **some},
    )
    names = [item.name for item in fields(SessionRecord)]
    return [SessionRecord(**dict(zip(names, row, strict=True))) for row in rows]
