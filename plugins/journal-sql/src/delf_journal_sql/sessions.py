"""Login sessions of people. All functions block; call them in threads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, fields
from typing import Final

from delf.protocols.sessions import SessionRecord
from delf_journal_sql.codec import plain_text
from delf_journal_sql.database import Connection
from delf_journal_sql.store import placeholders_for

# The time for which the record of a session is kept after the login, in seconds.
_KEPT_SECONDS: Final = 90 * 86_400.0
_COLUMNS: Final = "digest, name, began, until, holder, shown_key, way, client, browser"


def begin(connection: Connection, session: SessionRecord) -> None:
    """Store a new login session, and remove old records of expired sessions."""
    connection.execute(
        "DELETE FROM delf_sessions WHERE until < :now AND began < :before",
        {"now": session.began, "before": session.began - _KEPT_SECONDS},
    )
    # The columns ``holder`` and ``shown_key`` get the fields ``user`` and ``key``.
    connection.execute(
        f"INSERT INTO delf_sessions ({_COLUMNS}) VALUES (:digest, :name, :began, :until, "  # noqa: S608 - only names of this module
        ":user, :key, :way, :client, :browser)",
        {**asdict(session), "browser": plain_text(session.browser)},
    )


def end(connection: Connection, digest: str) -> None:
    """End a login session; its record is kept."""
    connection.execute(
        "UPDATE delf_sessions SET until = 0 WHERE digest = :digest", {"digest": digest}
    )


def find(
    connection: Connection,
    now: float,
    digests: Sequence[str] | None = None,
    *,
    ended: bool = False,
) -> list[SessionRecord]:
    """Return login sessions, oldest first.

    Args:
        connection: A connection for reading.
        now: The current Unix time.
        digests: The digests of the sessions to return; None for all.
        ended: Whether to include the records of ended sessions.
    """
    parameters: dict[str, str] = {}
    condition = ""
    if digests is not None:
        placeholders, parameters = placeholders_for(digests, "id")
        condition = f"AND digest IN ({placeholders}) "
    rows = connection.execute(
        f"SELECT {_COLUMNS} FROM delf_sessions WHERE until >= :now {condition}ORDER BY began",  # noqa: S608 - only names of this module
        # Every session ends after time 0, so 0 includes ended sessions.
        {"now": 0.0 if ended else now, **parameters},
    )
    names = [item.name for item in fields(SessionRecord)]
    return [SessionRecord(**dict(zip(names, row, strict=True))) for row in rows]
