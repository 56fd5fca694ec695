"""``delf runs fork``: repeat a task from one of its events on."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TextIO

import click

from delf_cli import complete
from delf_cli.options import flags_of, remaining_options, run_options
from delf_cli.state import state_of
from delf_console.resume import find_task

if TYPE_CHECKING:
    from delf import Agent, Response


@click.command("fork", epilog="Exit status: 0 done, 1 the task failed, 2 usage or configuration.")
@click.argument("task_id", metavar="ID", shell_complete=complete.task_ids)
@click.option(
    "--at",
    type=click.IntRange(min=1),
    metavar="N",
    help="The last event to keep; by default the one before the last model call.",
)
@click.option(
    "--script",
    type=click.File(encoding="utf-8-sig"),
    metavar="FILE",
    help="A script to run instead of the model's next script; - reads the standard input.",
)
@click.pass_context
def fork(
    ctx: click.Context, task_id: str, at: int | None, script: TextIO | None, **run_options: Any
) -> None:
    """Repeat the task ID from one of its events on, as a new task.

    Earlier work is not repeated, because answers and results come from the journal. The new task
    has the options of the old one; options that you give now replace them.

    \b
    delf runs events 3f9a
    delf runs fork 3f9a --at 12
    delf runs fork 3f9a --llm gpt-5.5
    delf runs code 3f9a > mine.py
    delf runs fork 3f9a --script mine.py
    """  # noqa: D301 - click's mark for lines that stay as they are
    from delf_cli.session import Options, restore_options, work_session

    state = state_of(ctx)
    flags = flags_of(run_options)
    options = Options(flags=flags, **remaining_options(run_options), resumes=True)
    full_id, begin_event = asyncio.run(find_task(state, options, task_id))
    setup: Mapping[str, Any] = {} if begin_event is None else begin_event.setup
    # The fork does not become part of the chat of the old task.
    options = restore_options(state, options, {**setup, "chat": None})
    try:
        code = None if script is None else script.read()
    except UnicodeDecodeError:
        raise click.UsageError("the script is not UTF-8", ctx) from None

    async def fork_and_run(agent: Agent, listeners: Mapping[str, Any]) -> Response:
        return await agent.aresume(await agent.afork(full_id, at, script=code), **listeners)

    ctx.exit(work_session(state, fork_and_run, options))


fork.params += run_options()
