"""``delf runs stop``."""

from __future__ import annotations

from typing import TypedDict

import click

from delf.protocols.shared_journal import SharedJournal
from delf.terminal import visible
from delf_cli.as_json import as_json_option
from delf_cli.ids import check_id_prefix
from delf_cli.journals import ask_journal
from delf_cli.output import json_text


class _StoppedRow(TypedDict):
    """The JSON of ``delf runs stop``.

    Args:
        task_id: The task.
        stopped: True if this command stopped the task; False if the task was over before.
        state: ``stopped``, ``done`` or ``failed``.
    """

    task_id: str
    stopped: bool
    state: str


@click.command("stop", epilog="Exit status: 0 done, 1 the task has not stopped or is not known.")
@click.argument("task_id", metavar="ID")
@as_json_option(_StoppedRow)
@click.pass_context
def stop(ctx: click.Context, task_id: str, *, as_json: bool) -> None:
    """Stop a task, on any machine.

    A task that waits for a runner, or whose process died, ends at once. A stopped task cannot be
    resumed.

    \b
    delf runs stop 3f9a2b1
    """  # noqa: D301 - click's mark for lines that stay as they are

    async def work(journal: SharedJournal) -> tuple[str, bool, str]:
        full_id = await journal.resolve(task_id)
        check_id_prefix(task_id, full_id)
        was_stopped = await journal.stop(full_id, "cli")
        return full_id, was_stopped, (await journal.task(full_id)).state

    full_id, was_stopped, state = ask_journal(ctx, work)
    if as_json:
        row = _StoppedRow(task_id=full_id, stopped=was_stopped, state=state)
        click.echo(json_text(row, indent=2))
        return
    message = "stopped" if was_stopped else f"was over already: {state}"
    click.echo(f"{visible(full_id)} {message}")
