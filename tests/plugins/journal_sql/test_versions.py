"""Journals of every version are read, and two versions work on one journal."""

from __future__ import annotations

import pytest

from delf.events import Printed, TaskFinished, TaskStarted
from delf_journal_sql import schema
from delf_journal_sql.errors import JournalSetupError

from . import journal_schemas

NEWEST = schema.newest()
VERSIONS = range(schema.OLDEST_VERSION, NEWEST + 1)
NEXT = "ALTER TABLE delf_tasks ADD COLUMN later TEXT; CREATE TABLE delf_later (x INTEGER)"
"""Changes that a version to come might make."""
END = {"status": True, "text": "", "duration_ms": 1.0}


def test_schema_of_every_version_is_stored():
    kept = sorted(path.name for path in journal_schemas.FOLDER.iterdir())
    assert kept == [journal_schemas.file_of(version).name for version in VERSIONS], (
        "run: python -m plugins.journal_sql.journal_schemas"
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_released_schema_is_unchanged(version, tmp_path):
    journal_schemas.load(tmp_path / "kept.db", version)
    journal_schemas.make(tmp_path / "made.db", version)
    kept, made = (journal_schemas.tables_of(tmp_path / f"{name}.db") for name in ("kept", "made"))
    assert made == kept, "add a version rather than change one that others have"


@pytest.mark.parametrize("version", VERSIONS)
async def test_journal_of_each_version_can_be_continued(version, tmp_path, open_journal):
    """All tasks of the earlier version are there and can be continued."""
    path = tmp_path / "journal.db"
    journal_schemas.load(path, version)
    journal = open_journal(str(path))
    states = {task.task_id: task.state for task in await journal.find(users=[journal_schemas.USER])}
    assert states == {"done": "done", "bad": "failed", "waits": "interrupted"}
    for name in states:
        assert list(await journal.read(name)) == journal_schemas.events_of(name)
    assert [r.request_id for r in await journal.remembered()] == ["req_done"]
    assert len(await journal.notes()) == 1
    assert [r.conversation for r in await journal.conversations("me").find()] == ["c"]
    await journal.claim("waits")
    await journal.append(TaskFinished(task_id="waits", seq=5, at=9.0, **END))
    await journal.append(TaskStarted(task_id="new", seq=1, at=10.0, task="new"))
    assert dict(await journal.count()) == {"done": 2, "failed": 1, "running": 1}
    journal_schemas.make(tmp_path / "fresh.db", NEWEST)
    here, fresh = (
        dict(journal_schemas.tables_of(place)) for place in (path, tmp_path / "fresh.db")
    )
    assert here.keys() == fresh.keys()


async def test_journal_is_usable_by_two_versions_until_closed(
    journal_url, open_journal, monkeypatch
):
    """The older version opened the journal before the newer one, and works until it closes it."""

    def migrate(database):
        schema.migrate(database, [*schema.MIGRATIONS, NEXT])

    old, new = open_journal(journal_url), open_journal(journal_url)
    await old.append(TaskStarted(task_id="old", seq=1, at=1.0, task="old"))
    with monkeypatch.context() as patch:
        patch.setattr("delf_journal_sql.journal.migrate", migrate)
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
    with pytest.raises(JournalSetupError, match=f"of version {NEWEST + 1}.* knows {NEWEST}"):
        await old.find()
    assert [task.state for task in await new.find()] == ["running", "done"]
