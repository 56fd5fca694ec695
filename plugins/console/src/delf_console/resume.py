"""``delf resume``: continue a task whose process was killed, or whose limits were reached."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from delf.errors import DelfError
from delf.events import PROJECT_FOLDER, start_event
from delf_cli import complete
from delf_cli.options import flags_of, remaining_options, run_options
from delf_cli.state import State, state_of

if TYPE_CHECKING:
    from delf import Agent, Response
    from delf.events import TaskQueued, TaskStarted
    from delf.types import Settle
    from delf_cli.session import Options


@click.command(
    "resume",
    epilog="Exit status: 0 done, 1 the task failed, 2 usage or configuration, 3 nobody could be "
    "asked about a call that was begun, 130 interrupted.",
)
@click.argument("task_id", metavar="ID", shell_complete=complete.task_ids)
@click.option(
    "--settle",
    type=click.Choice(["ask", "again", "done"]),
    default="ask",
    show_default=True,
    help="What to do with calls that were begun and may have changed something.",
)
@click.option(
    "--here", is_flag=True, help="Continue in this folder, to which the project was moved."
)
@click.pass_context
def resume(
    ctx: click.Context, task_id: str, settle: Settle, here: bool, **run_options: Any
) -> None:
    """Resume the task ID of the journal; you may shorten ID if it stays unique.

    The task continues in its folder, or with --here in this one. It has the options with which it
    was started; options that you give now replace them. Finished work is not repeated, because
    answers and results come from the journal. If a call was begun and may have changed something,
    a person is asked. If nobody can be asked, the task stays interrupted. With --settle you decide
    in advance: make such calls again, or count them as done without a result.

    A task that failed because its time or its budget was over goes on if you give it more:
    --timeout or --budget. The budget includes what the task has cost before.

    \b
    delf runs list --state interrupted
    delf resume 3f9a
    delf resume 3f9a --settle done
    delf resume 3f9a --timeout 10m
    """  # noqa: D301 - click's mark for lines that stay as they are
    from delf_cli.session import Options, restore_options, work_session

    state = state_of(ctx)
    flags = flags_of(run_options)
    options = Options(flags=flags, **remaining_options(run_options), resumes=True)
    full_id, begin_event = asyncio.run(find_task(state, options, task_id))
    parent = getattr(begin_event, "parent", None)  # a queued task has no parent
    if parent is not None:
        raise DelfError(
            f"{full_id} is a child task: it goes on with the task that started it",
            hint=f"delf resume {parent}",
        )
    # Before restore_options() adds the old limits: only a limit that the user gives now lets the
    # task continue past its old limit.
    extends_limits = _sets_limit(options)
    setup: Mapping[str, Any] = {} if begin_event is None else begin_event.setup
    if here:
        recorded_folders = setup.keys() & {"folder", PROJECT_FOLDER}
        setup = {**setup, **dict.fromkeys(recorded_folders, str(Path.cwd()))}
    options = restore_options(state, options, setup)
    # The resumed task of a chat still adds its messages to the conversation.
    if begin_event is not None and setup.get("chat"):
        options = replace(options, conversation=begin_event.conversation)

    def resume_task(agent: Agent, listeners: Mapping[str, Any]) -> Coroutine[Any, Any, Response]:
        return agent.aresume(
            full_id, settle=settle, continue_past_limit=extends_limits, **listeners
        )

    ctx.exit(work_session(state, resume_task, options))


resume.params += run_options()


async def find_task(
    state: State, options: Options, text: str
) -> tuple[str, TaskQueued | TaskStarted | None]:
    """Return a task's id, and the event that queued or started the task.

    The event is None if the journal has no such event of the task.
    """
    from delf.protocols.shared_journal import SharedJournal
    from delf_cli.journals import CurrentProject, find_id, project_journal

    project = state.load_project(options.overrides, {"journal": options.flags["journal"]})
    journal = project_journal(project, state.discover(project.environ))
    try:
        full_id = text
        if isinstance(journal, SharedJournal):
            full_id = await find_id(journal, text, CurrentProject.of(state))
        events = await journal.read(full_id)
    finally:
        await journal.aclose()
    return full_id, start_event(events)


def _sets_limit(options: Options) -> bool:
    """Return True if the command gives the task a new timeout or budget."""
    from delf_engine.project.texts import from_override

    if options.flags["timeout"] is not None or options.flags["budget_usd"] is not None:
        return True
    for text in options.overrides:
        section, path, _ = from_override(text)
        if section == "agent" and path in (("timeout",), ("budget_usd",)):
            return True
    return False
