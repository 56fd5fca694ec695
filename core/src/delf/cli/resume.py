"""``delf resume``: a task whose process was killed goes on."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import click

from delf.cli import complete
from delf.cli.run import HANDING, flags_of, rest_of
from delf.cli.run import run as run_command
from delf.cli.state import State, state_of
from delf.errors import ConfigurationError

if TYPE_CHECKING:
    from delf.agent import Agent
    from delf.cli.session import Options
    from delf.events import TaskQueued, TaskStarted
    from delf.response import Response

_NOT_SHARED: Final = {"task", "no_journal", "detach", *HANDING}


@click.command(
    "resume",
    epilog="Exit status: 0 done, 1 the task failed, 2 usage or configuration, 130 interrupted.",
)
@click.argument("task_id", metavar="ID", shell_complete=complete.task_ids)
@click.pass_context
def resume(ctx: click.Context, task_id: str, **given: Any) -> None:
    """Go on with the task ID of the journal, which may be shortened while it is unique.

    The task runs with the options that it was started with, in its folder; those that are given
    here come first. What it did is not done again: the answers of models and calls come from the
    journal. Of a call that was begun and may have changed something, a person is asked.

    \b
    delf runs list --state interrupted
    delf resume 3f9a
    """  # noqa: D301 - click's mark for lines that stay as they are
    if given["as_json"] and given["events"]:
        raise click.UsageError("--json and --events exclude each other", ctx)
    from delf.cli.session import Options, work_session
    from delf.errors import DelfError

    state = state_of(ctx)
    flags = flags_of({**given, "no_journal": False})
    options = Options(flags=flags, **rest_of(given), resumes=True)
    try:
        name, started = asyncio.run(_find(state, options, task_id))
        record: Mapping[str, Any] = {} if started is None else started.setup
        options = as_before(state, options, record)
        if started is not None and record.get("chat"):
            options = replace(options, conversation=started.conversation)
    except DelfError as error:
        from delf.cli import errors

        ctx.exit(errors.report(error, debug=state.debug, clean=state.clean))

    def do(agent: Agent, seen: Mapping[str, Any]) -> Coroutine[Any, Any, Response]:
        return agent.aresume(name, **seen)

    ctx.exit(work_session(state, do, options))


resume.params += [option for option in run_command.params if option.name not in _NOT_SHARED]


async def _find(
    state: State, options: Options, text: str
) -> tuple[str, TaskQueued | TaskStarted | None]:
    """A task's id, and how it began."""
    from delf.events import TaskQueued, TaskStarted
    from delf.plugins.journals import project_journal
    from delf.protocols.journal import SupportsHistory

    project = state.load_project(options.overrides, {"journal": options.flags["journal"]})
    journal = project_journal(project, state.discover(project.environ))
    try:
        name = await journal.resolve(text) if isinstance(journal, SupportsHistory) else text
        events = await journal.read(name)
    finally:
        await journal.aclose()
    return name, next(
        (event for event in events if isinstance(event, (TaskQueued, TaskStarted))), None
    )


def as_before(state: State, options: Options, record: Mapping[str, Any]) -> Options:
    """The options of the task, under those that are given now; its folder becomes this one's.

    Raises:
        ConfigurationError: When its folder is gone, or an option held a secret.
    """
    from delf.engine.secrets.redaction import REDACTED

    if not record:
        return options  # not of the command line: the options given now describe the agent
    options = _with_whole_paths(state, options)
    folder = str(record["folder"])
    try:
        os.chdir(folder)
    except OSError as error:
        raise ConfigurationError(
            f"the task's folder {folder!r} cannot be entered: {error.strerror}"
        ) from None
    state.config = state.config or record["config"]
    flags = {name: value for name, value in options.flags.items() if value is not None}
    for name, value in record["flags"].items():
        if name not in flags and REDACTED in repr(value):
            raise ConfigurationError(
                f"the option of the task that sets {name!r} holds a secret, which the journal "
                "does not keep",
                hint="give that option again",
            )
    overrides = [*record["overrides"], *options.overrides]
    held = [text for text in record["overrides"] if REDACTED in text]
    given = {text.partition("=")[0] for text in options.overrides}
    for text in held:
        name = text.partition("=")[0]
        if name not in given:
            raise ConfigurationError(
                f"the value of --set {name}=… is a secret, which the journal does not keep",
                hint=f"give it again: --set {name}=…",
            )
        overrides.remove(text)
    return replace(
        options,
        flags={**options.flags, **record["flags"], **flags},
        connections=options.connections or tuple(record["connections"]),
        tool_files=options.tool_files or tuple(record["tool_files"]),
        overrides=tuple(overrides),
    )


def _with_whole_paths(state: State, options: Options) -> Options:
    """The options with paths that hold in any folder: they are those of the user's own."""
    whole, flags = os.path.abspath, dict(options.flags)
    state.config = state.config and whole(state.config)
    for name in ("output_dir", "record"):
        flags[name] = flags[name] and whole(flags[name])
    flags["files"] = flags["files"] and [whole(file) for file in flags["files"]]
    tools = tuple(whole(file) for file in options.tool_files)
    return replace(options, flags=flags, tool_files=tools)
