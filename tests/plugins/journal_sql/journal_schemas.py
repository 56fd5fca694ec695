"""A small journal of each version of the tables, as text: ``python -m plugins.journal_sql.journal_schemas``.

It writes the files that are missing. One that is there is never written again: it is what a delf of
that version left behind.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
import tempfile
from pathlib import Path
from typing import Any, Final

from delf.events import (
    ApprovalDecided,
    ApprovalRequested,
    CallFinished,
    CallStarted,
    Event,
    ScriptGenerated,
    TaskFinished,
    TaskQueued,
    TaskStarted,
    encode,
)
from delf_journal_sql import schema
from delf_journal_sql.opening import open_database
from delf_journal_sql.settings import JournalSettings

FOLDER: Final = Path(__file__).with_name("schemas")
USER: Final = "ada:1"
_CALL: Final[dict[str, Any]] = {"call_id": 1, "action": "bank.pay"}
_STATES: Final = {"done": "done", "bad": "failed", "waits": "running"}


def file_of(version: int) -> Path:
    """Return the file of a version."""
    return FOLDER / f"{version:02}.sql"


def events_of(name: str) -> list[Event]:
    """Return the events of a task: ``done`` and ``bad`` are over, ``waits`` waits for a person."""
    digest = "ab" * 32
    made: list[Event] = [
        TaskQueued(task_id=name, seq=1, at=1.0, task=f"pay {name}", user=USER),
        TaskStarted(
            task_id=name, seq=2, at=2.0, task=f"pay {name}", origin="agent", user=USER
        ),
        ScriptGenerated(task_id=name, seq=3, at=3.0, attempt=1, code="await bank.pay(5)"),
        ApprovalRequested(
            task_id=name, seq=4, at=4.0, request_id=f"req_{name}", arguments={"n": 5},
            effect="irreversible", digest=digest, **_CALL,
        ),
    ]  # fmt: skip
    if name == "waits":
        return made
    return [
        *made,
        ApprovalDecided(
            task_id=name, seq=5, at=5.0, request_id=f"req_{name}", decision="approved", by="ann",
            remember="until_revoked" if name == "done" else "no",
        ),
        CallStarted(
            task_id=name, seq=6, at=6.0, arguments={"n": 5}, effect="irreversible", digest=digest,
            **_CALL,
        ),
        CallFinished(task_id=name, seq=7, at=7.0, status="ok", duration_ms=1.0, result=5, **_CALL),
        TaskFinished(
            task_id=name, seq=8, at=8.0, status=name == "done", text="paid", duration_ms=2.0,
            error=None if name == "done" else "no",
        ),
    ]  # fmt: skip


def fill(raw: sqlite3.Connection) -> None:
    """Write tasks and a conversation into the tables, as this version of delf would."""
    for key, (name, state) in enumerate(_STATES.items(), 1):
        over = None if name == "waits" else 8.0
        raw.execute(
            "INSERT INTO delf_tasks (id, task_id, task, origin, state, started_at, finished_at, "
            "error, limit_key) VALUES (?, ?, ?, 'agent', ?, 1.0, ?, ?, ?)",
            (key, name, f"pay {name}", state, over, "no" if name == "bad" else None, USER),
        )
        for event in events_of(name):
            record = encode(event)
            raw.execute(
                "INSERT INTO delf_events (task, seq, at, type, v, data) VALUES (?, ?, ?, ?, 1, ?)",
                (key, event.seq, event.at, record["type"], json.dumps(record["data"])),
            )
    raw.execute("INSERT INTO delf_notes (task, at, kind, data) VALUES (3, 9.0, 'x', '{}')")
    raw.execute(
        "INSERT INTO delf_conversations (namespace, name, title, updated_at, messages, last, "
        "summarized) VALUES ('me', 'c', 'hi', 1.0, 1, 1, 0)"
    )
    raw.execute("INSERT INTO delf_messages VALUES (1, 1, 'user', 'hi', 1.0, NULL, 'own')")
    raw.commit()


def make(path: Path, version: int) -> None:
    """Make an empty journal of a version."""
    database = open_database(JournalSettings.model_validate({"url": str(path)}))
    schema.migrate(database, schema.MIGRATIONS[: version - schema.OLDEST_VERSION + 1])
    database.close()


def load(path: Path, version: int) -> None:
    """Make the journal that is stored in the file of a version."""
    with contextlib.closing(sqlite3.connect(path)) as raw:
        raw.executescript(file_of(version).read_text(encoding="utf-8"))


def tables_of(path: Path) -> list[tuple[str, str]]:
    """Return the statements of a journal's tables and indexes, without white space."""
    with contextlib.closing(sqlite3.connect(path)) as raw:
        rows = raw.execute(
            "SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL "
            "AND name NOT LIKE 'sqlite!_%' ESCAPE '!'"
        )
        return sorted((str(name), "".join(str(sql).split())) for name, sql in rows)


def main() -> None:
    """Write the missing files."""
    FOLDER.mkdir(exist_ok=True)
    for version in range(schema.OLDEST_VERSION, schema.newest() + 1):
        if file_of(version).exists():
            continue
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "journal.db"
            make(path, version)
            with contextlib.closing(sqlite3.connect(path)) as raw:
                fill(raw)
                text = "\n".join(raw.iterdump())
        file_of(version).write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
