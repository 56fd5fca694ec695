"""``delf journal``: how large the journal is, and how it is kept, copied and moved."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click

from delf.errors import DelfError
from delf.events import Event, decode, encode
from delf.protocols.journal import JournalSize, SharedJournal, SupportsUpkeep
from delf_cli.journals import history_journal, work_with
from delf_cli.lazy import LazyGroup
from delf_cli.output import counted, json_text
from delf_plugin_cli.runs import as_json_option, prune

_FORMAT: Final = {"delf_journal": 1}
_AT_ONCE: Final = 32
_ALL: Final = 2**31 - 1


@click.group("journal", cls=LazyGroup, group="journal ", bare="size")
def journal() -> None:
    """Look after the journal: its size, old tasks, copies.

    \b
    delf journal size
    delf journal backup /backup/journal.db
    delf journal export tasks.jsonl
    """  # noqa: D301 - click's mark for lines that stay as they are


@journal.command("size")
@as_json_option
@click.pass_context
def size(ctx: click.Context, as_json: bool) -> None:
    """Show where the journal is, how large it is, and what is in it."""

    async def look(kept: SharedJournal) -> tuple[JournalSize, dict[str, int]]:
        states: dict[str, int] = {}
        for task in await kept.find(_ALL):
            states[task.state] = states.get(task.state, 0) + 1
        return await _upkeep(kept).size(), states

    found, states = work_with(history_journal(ctx), look)
    if as_json:
        data = {"place": found.place, "bytes": found.bytes, "free_bytes": found.free_bytes}
        click.echo(json_text({**data, "events": found.events, "tasks": states}, indent=2))
        return
    click.echo(
        f"{found.place}: {_bytes(found.bytes)}, of which {_bytes(found.free_bytes)} are free"
    )
    listed = ", ".join(f"{number:,} {state}" for state, number in sorted(states.items()))
    click.echo(f"{counted(sum(states.values()), 'task')} ({listed or 'none'})")
    click.echo(counted(found.events, "event"))


journal.add_command(prune, "prune")


@journal.command("check")
@click.pass_context
def check(ctx: click.Context) -> None:
    """Read all of it, and say whether some of it is damaged."""
    work_with(history_journal(ctx), lambda kept: kept.check())
    click.echo("nothing is damaged")


@journal.command("backup")
@click.argument("path", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path))
@click.pass_context
def backup(ctx: click.Context, path: Path) -> None:
    """Copy the journal into a new FILE, as it is at one moment; tasks may run meanwhile.

    The file is a journal itself: give it as plugins.journal-sql.url, or put it in the place of the
    one that was lost.
    """
    _refuse_to_overwrite(path)
    work_with(history_journal(ctx), lambda kept: _upkeep(kept).back_up(path))
    click.echo(f"{path}: {_bytes(path.stat().st_size)}", err=True)


@journal.command("export")
@click.argument("path", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path))
@click.pass_context
def export(ctx: click.Context, path: Path) -> None:
    """Write all tasks with their events into a new FILE, as JSON lines, the oldest first."""
    _refuse_to_overwrite(path)
    tasks = work_with(history_journal(ctx), lambda kept: _export(kept, path))
    click.echo(f"{path}: {counted(tasks, 'task')}", err=True)


@journal.command("import")
@click.argument(
    "path", metavar="FILE", type=click.Path(exists=True, dir_okay=False, path_type=Path)
)
@click.pass_context
def import_(ctx: click.Context, path: Path) -> None:
    """Add the tasks of a FILE that `export` wrote; those that are here already stay as they are.

    A task that was not over is interrupted here, and can be resumed; a queued one waits for a
    worker.
    """
    tasks = work_with(history_journal(ctx), lambda kept: _import(kept, path))
    click.echo(f"{counted(tasks, 'task')} added", err=True)


async def _export(kept: SharedJournal, path: Path) -> int:
    tasks = list(await kept.find(_ALL))[::-1]
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(json_text(_FORMAT) + "\n")
            for task in tasks:
                for event in await kept.read(task.task_id):
                    file.write(json_text(encode(event)) + "\n")
    except OSError as error:
        raise DelfError(f"{path} cannot be written: {error.strerror}") from error
    return len(tasks)


async def _import(kept: SharedJournal, path: Path) -> int:
    here = {task.task_id for task in await kept.find(_ALL)}
    added = 0
    some: list[list[Event]] = []

    async def keep() -> None:
        async def one(events: list[Event]) -> None:
            for event in events:
                await kept.append(event)

        await asyncio.gather(*map(one, some))
        some.clear()

    for events in _tasks_of(path):
        if events[0].task_id in here:
            continue
        here.add(events[0].task_id)
        added += 1
        some.append(events)
        if len(some) == _AT_ONCE:
            await keep()
    await keep()
    return added


def _tasks_of(path: Path) -> Iterator[list[Event]]:
    """The events of each task in turn.

    Raises:
        DelfError: When a line is none of an export.
    """
    events: list[Event] = []
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(itertools.chain([file.readline()], file), 1):
            try:
                record: Any = json.loads(line)
                if number == 1:
                    if record != _FORMAT:
                        raise ValueError("no export")  # noqa: TRY301 - said below, as all others
                    continue
                event = decode(record)
            except (ValueError, KeyError, TypeError, DelfError) as error:
                raise DelfError(
                    f"{path}, line {number}: this is no event of a journal",
                    hint="give a file that `delf journal export` wrote",
                ) from error
            if events and event.task_id != events[0].task_id:
                yield events
                events = []
            events.append(event)
    if events:
        yield events


def _upkeep(kept: SharedJournal) -> SupportsUpkeep:
    if not isinstance(kept, SupportsUpkeep):
        raise DelfError(
            f"the journal {type(kept).__name__} does not say how large it is, and copies nothing",
            hint="delf journal export writes its tasks into a file",
        )
    return kept


def _refuse_to_overwrite(path: Path) -> None:
    if path.exists():
        raise DelfError(f"{path} is there already", hint="name a new file")


def _bytes(number: int) -> str:
    return f"{number / 1_000_000:,.1f} MB"
