"""Journals of every version are read, and two versions work on one journal."""

from __future__ import annotations

import json

import pytest

from delf.events import Printed, TaskFinished, TaskStarted
from delf_journal_sql import schema
from delf_journal_sql.errors import JournalSetupError
from delf_journal_sql.opening import open_database
from delf_journal_sql.settings import JournalSettings
from support import journal_schemas

NEWEST = len(schema.MIGRATIONS)
VERSIONS = range(1, NEWEST + 1)
END = {"status": True, "text": "", "duration_ms": 1.0}


def test_a_journal_of_each_version_is_kept():
    kept = sorted(path.name for path in journal_schemas.FOLDER.iterdir())
    assert kept == [journal_schemas.file_of(version).name for version in VERSIONS], (
        "run: python -m support.journal_schemas"
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_what_a_version_made_is_never_changed(version, tmp_path):
    journal_schemas.load(tmp_path / "kept.db", version)
    journal_schemas.make(tmp_path / "made.db", version)
    kept, made = (journal_schemas.tables_of(tmp_path / f"{name}.db") for name in ("kept", "made"))
    assert made == kept, "add a version rather than change one that others have"


async def check(journal, version):
    """All that a delf of a version left is there, and goes on."""
    states = {task.task_id: task.state for task in await journal.find()}
    assert states == {"done": "done", "bad": "failed", "waits": "interrupted"}
    for name in states:
        assert list(await journal.read(name)) == journal_schemas.events_of(name)
    assert [r.request_id for r in await journal.remembered()] == ["req_done"]
    assert len(await journal.notes()) == (version >= 2)
    talks = [record.conversation for record in await journal.conversations("me").find()]
    assert talks == (["c"] if version >= 4 else [])
    await journal.claim("waits")
    await journal.append(TaskFinished(task_id="waits", seq=5, at=9.0, **END))
    await journal.append(TaskStarted(task_id="new", seq=1, at=10.0, task="new"))
    assert dict(await journal.count()) == {"done": 2, "failed": 1, "running": 1}


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_journal_of_a_version_goes_on(version, tmp_path, open_journal):
    path = tmp_path / "journal.db"
    journal_schemas.load(path, version)
    await check(open_journal(str(path)), version)
    journal_schemas.make(tmp_path / "fresh.db", NEWEST)
    here, fresh = (
        dict(journal_schemas.tables_of(place)) for place in (path, tmp_path / "fresh.db")
    )
    assert here.keys() == fresh.keys()


@pytest.mark.parametrize("version", [1, 6, NEWEST - 1])
async def test_a_journal_of_a_version_goes_on_in_postgresql(version, postgres_url, open_journal):
    database = open_database(JournalSettings(url=postgres_url))
    schema.migrate(database, schema.MIGRATIONS[:version])
    with database.reader() as connection:
        connection.begin(write=True)
        for key, name in enumerate(("done", "bad", "waits"), 1):
            state = {"done": "done", "bad": "error", "waits": "running"}[name]
            connection.insert(
                "delf_tasks",
                ("id", "task_id", "task", "origin", "state", "started_at"),
                [(key, name, "x", "", "failed" if version >= 5 and name == "bad" else state, 1.0)],
            )
            rows = []
            for event in journal_schemas.events_of(name):
                record = journal_schemas.encode(event)
                rows.append(
                    (key, event.seq, event.at, record["type"], 1, json.dumps(record["data"]))
                )
            connection.insert("delf_events", ("task", "seq", "at", "type", "v", "data"), rows)
        if version >= 2:
            connection.insert("delf_notes", ("task", "at", "kind", "data"), [(3, 9.0, "x", "{}")])
        connection.number_on({"delf_tasks"})
        connection.commit()
    database.close()
    await check(open_journal(postgres_url), min(version, 3))


async def test_two_versions_work_on_one_journal(journal_url, open_journal, monkeypatch):
    """The older one had it open when the newer one came; it goes on until it is closed."""

    def migrate(database):
        schema.migrate(database, schema.MIGRATIONS[:-1])

    old, new = open_journal(journal_url), open_journal(journal_url)
    with monkeypatch.context() as patch:
        patch.setattr("delf_journal_sql.journal.migrate", migrate)
        await old.append(TaskStarted(task_id="old", seq=1, at=1.0, task="old"))
    await new.append(TaskStarted(task_id="new", seq=1, at=2.0, task="new"))
    live = old.subscribe()
    await old.append(Printed(task_id="old", seq=2, at=3.0, text="x"))
    await new.append(Printed(task_id="new", seq=2, at=4.0, text="y"))
    seen = [await anext(live), await anext(live)]
    assert {event.task_id for event in seen} == {"old", "new"}
    for one, other in ((old, new), (new, old)):
        assert [task.state for task in await one.find()] == ["running", "running"]
        name = "new" if one is old else "old"
        await one.post(name, "approval", {})
        assert [note.task_id for note in await other.notes(name)] == [name]
        with pytest.raises(Exception, match="is being worked on"):
            await one.claim(name)
    await old.append(TaskFinished(task_id="old", seq=3, at=5.0, **END))
    assert (await new.task("old")).state == "done"
    await old.aclose()
    with monkeypatch.context() as patch:
        patch.setattr("delf_journal_sql.journal.migrate", migrate)
        with pytest.raises(JournalSetupError, match=f"of version {NEWEST}.* knows {NEWEST - 1}"):
            await old.find()
    assert [task.state for task in await new.find()] == ["running", "done"]
