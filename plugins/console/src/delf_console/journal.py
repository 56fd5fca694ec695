"""``delf journal``: how large the journal is, and how it is kept, copied and moved."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final, TypedDict

import click

from delf.errors import DelfError, UnknownTaskError, UnreadableEventError
from delf.events import ApprovalDecided, Event, decode, encode
from delf.protocols.journal import JournalSize
from delf.protocols.shared_journal import SharedJournal
from delf.types import TaskState
from delf_cli.as_json import as_json_option, write_result
from delf_cli.formats import format_count
from delf_cli.journals import ask_journal
from delf_cli.lazy import LazyGroup
from delf_cli.output import json_text
from delf_cli.streams import wrap_text
from delf_console.runs import prune

_FORMAT: Final = {"delf_journal": 1}
_SQLITE_HEADER: Final = b"SQLite format 3\x00"
# The number of events after which the tasks so far are stored in one transaction.
_EVENTS_PER_BATCH: Final = 1000


class _SizeRow(TypedDict):
    """The JSON of ``delf journal size``.

    Args:
        place: The file or the URL, without the password.
        bytes: The size in bytes.
        free_bytes: The number of these bytes that hold nothing any more; 0 on PostgreSQL, where the
            number is not known.
        events: The number of events in the journal.
        tasks: The number of tasks in each state.
    """

    place: str
    bytes: int
    free_bytes: int
    events: int
    tasks: dict[TaskState, int]


class _CheckRow(TypedDict):
    """The JSON of ``delf journal check``.

    Args:
        ok: Always true, as damage is an error.
    """

    ok: bool


class _BackupRow(TypedDict):
    """The JSON of ``delf journal backup``.

    Args:
        path: The new file.
        bytes: The size.
    """

    path: str
    bytes: int


class _ExportRow(TypedDict):
    """The JSON of ``delf journal export``.

    Args:
        path: The new file.
        tasks: The number of tasks in it.
    """

    path: str
    tasks: int


class _ImportRow(TypedDict):
    """The JSON of ``delf journal import``.

    Args:
        tasks: The number of tasks that were added.
    """

    tasks: int


@click.group("journal", cls=LazyGroup, group="journal ", bare_command="size")
def journal() -> None:
    """Manage the journal: its size, old tasks, copies.

    \b
    delf journal size
    delf journal backup /backup/journal.db
    delf journal export tasks.jsonl
    """  # noqa: D301 - click's mark for lines that stay as they are


@journal.command("size")
@as_json_option(_SizeRow)
@click.pass_context
def size(ctx: click.Context, as_json: bool) -> None:
    """Show where the journal is, how large it is, and what is in it."""

    async def measure(journal: SharedJournal) -> tuple[JournalSize, Mapping[TaskState, int]]:
        return await journal.size(), await journal.count()

    total, tasks_by_state = ask_journal(ctx, measure)
    if as_json:
        data = _SizeRow(
            place=total.place,
            bytes=total.bytes,
            free_bytes=total.free_bytes,
            events=total.events,
            tasks=dict(tasks_by_state),
        )
        click.echo(json_text(data, indent=2))
        return
    free = _megabytes(total.free_bytes)
    size_text = f"{total.place}: {_megabytes(total.bytes)}, of which {free} are free"
    click.echo(wrap_text(size_text))
    counts = ", ".join(f"{number:,} {state}" for state, number in sorted(tasks_by_state.items()))
    click.echo(f"{format_count(sum(tasks_by_state.values()), 'task')} ({counts or 'none'})")
    click.echo(format_count(total.events, "event"))


journal.add_command(prune, "prune")


@journal.command("check")
@as_json_option(_CheckRow)
@click.pass_context
def check(ctx: click.Context, as_json: bool) -> None:
    """Read the whole journal, and report damage."""
    ask_journal(ctx, lambda journal: journal.check())
    click.echo(json_text(_CheckRow(ok=True)) if as_json else "nothing is damaged")


@journal.command("backup")
@click.argument("path", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path))
@as_json_option(_BackupRow)
@click.pass_context
def backup(ctx: click.Context, path: Path, as_json: bool) -> None:
    """Copy the journal into a new FILE; tasks may run meanwhile.

    FILE becomes a SQLite journal, also if the journal is in PostgreSQL. To restore it, name it
    in plugins.journal-sql.url, copy it to the path of the lost file, or import it.
    """
    _refuse_to_overwrite(path)
    ask_journal(ctx, lambda journal: journal.back_up(path))
    size = path.stat().st_size
    data = _BackupRow(path=str(path), bytes=size)
    write_result(f"{path}: {_megabytes(size)}", data, as_json=as_json)


@journal.command("export")
@click.argument("path", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path))
@as_json_option(_ExportRow)
@click.pass_context
def export(ctx: click.Context, path: Path, as_json: bool) -> None:
    """Write all tasks with their events into a new FILE, as JSON lines, the oldest first."""
    _refuse_to_overwrite(path)
    tasks = ask_journal(ctx, lambda journal: _export(journal, path))
    data = _ExportRow(path=str(path), tasks=tasks)
    write_result(f"{path}: {format_count(tasks, 'task')}", data, as_json=as_json)


@journal.command("import")
@click.argument(
    "path", metavar="FILE", type=click.Path(exists=True, dir_okay=False, path_type=Path)
)
@as_json_option(_ImportRow)
@click.pass_context
def import_(ctx: click.Context, path: Path, as_json: bool) -> None:
    """Add the tasks of a FILE from `export`, or restore a FILE from `backup`.

    Tasks that the journal already has stay as they are. A backup needs an empty journal. A task
    that was not over becomes interrupted, and can be resumed; a queued task waits for a runner. An
    approval that was remembered for all tasks holds, after `export`, only for the task in which it
    was given.
    """
    with path.open("rb") as file:
        is_backup = file.read(len(_SQLITE_HEADER)) == _SQLITE_HEADER
    tasks = ask_journal(ctx, lambda j: j.restore(path) if is_backup else _import_tasks(j, path))
    write_result(f"{format_count(tasks, 'task')} added", _ImportRow(tasks=tasks), as_json=as_json)


async def _export(journal: SharedJournal, path: Path) -> int:
    """Write the events of all tasks into a new file; return the number of tasks."""
    task_count = 0
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(json_text(_FORMAT) + "\n")
            async for events in journal.read_all():
                task_count += 1
                for event in events:
                    file.write(json_text(encode(event)) + "\n")
    except UnreadableEventError as error:
        raise DelfError(
            f"{path} has {format_count(task_count, 'task')}, without what cannot be read: "
            f"{error.message}",
            hint=error.hint,
        ) from error
    except OSError as error:
        raise DelfError(f"{path} cannot be written: {error.strerror}") from error
    return task_count


async def _import_tasks(journal: SharedJournal, path: Path) -> int:
    """Import an export file's tasks that the journal does not have; return their number."""
    added_ids: set[str] = set()
    batch: list[Event] = []
    for events in _tasks_of(path):
        task_id = events[0].task_id
        # The file may have a task twice. If its first events are still in ``batch``, _has_task()
        # does not find the task in the journal, but ``added_ids`` has it.
        if task_id in added_ids or await _has_task(journal, task_id):
            continue
        added_ids.add(task_id)
        batch += map(_limit_approval_to_task, events)
        if len(batch) >= _EVENTS_PER_BATCH:
            await journal.append_all(batch)
            batch.clear()
    await journal.append_all(batch)
    return len(added_ids)


def _limit_approval_to_task(event: Event) -> Event:
    """Return an event of an export, with a remembered decision limited to its task.

    An export does not tell which decisions were revoked, and may come from somebody else.
    """
    if isinstance(event, ApprovalDecided) and event.remember == "until_revoked":
        return replace(event, remember="task")
    return event


async def _has_task(journal: SharedJournal, task_id: str) -> bool:
    try:
        await journal.task(task_id)
    except UnknownTaskError:
        return False
    return True


def _tasks_of(path: Path) -> Iterator[list[Event]]:
    """Yield the events of each task in an export file, one list per task.

    Raises:
        DelfError: If the file is no export.
    """
    for _, events in itertools.groupby(_events_of(path), lambda event: event.task_id):
        yield list(events)


def _events_of(path: Path) -> Iterator[Event]:
    """Yield the events in an export file; see :func:`_tasks_of`."""
    with path.open("rb") as file:  # decoded line by line, so that an error names the right line
        number = 1
        try:
            if json.loads(file.readline()) != _FORMAT:
                raise ValueError("no export")  # noqa: TRY301 - reported below, as all others
            for number, line in enumerate(file, 2):  # noqa: B007 - named by the error below
                yield decode(json.loads(line))
        # AttributeError: the line is a list or a number.
        except (
            ValueError,
            KeyError,
            TypeError,
            AttributeError,
            RecursionError,
            DelfError,
        ) as error:
            raise DelfError(
                f"{path}, line {number}: this is not an event of a journal",
                hint="give a file that delf journal export FILE wrote",
            ) from error


def _refuse_to_overwrite(path: Path) -> None:
    if path.exists():
        raise DelfError(f"{path} already exists", hint="name a new file")


def _megabytes(number: int) -> str:
    return f"{number / 1_000_000:,.1f} MB"
