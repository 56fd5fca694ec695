"""A run, from the options of ``delf run`` to its output and exit status."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import sys
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from delf.errors import (
    ConfigurationError,
    DelfError,
    JournalUnavailableError,
    TaskTimeoutError,
    did_you_mean,
)
from delf.events import Event, TaskFinished
from delf.records import dataclass
from delf.types import IN_PROCESS, TaskState
from delf_cli import errors, output
from delf_cli.interrupt import run_until_done
from delf_cli.progress import REPLAYING, LiveStatus, Narrator
from delf_cli.state import State
from delf_cli.story import short_name
from delf_cli.streams import real_stdout
from delf_cli.summary import summary_of
from delf_engine.agent import Agent, leave_tasks
from delf_engine.agent_context import as_chat
from delf_engine.project.any_project import journal_name
from delf_engine.redact import REDACTED
from delf_engine.response import Response, past_response, response_of_interrupted_task

if TYPE_CHECKING:
    from delf.plugins.host import PluginHost
    from delf_engine.project.project import Project
    from delf_engine.task_options import QueueOptions

TIMEOUT_SECONDS: Final = 300.0
_SHOW_COMMAND: Final = "delf runs show"
_MAX_TOOL_NAMES: Final = 6


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of ``delf run``.

    Args:
        flags: A mapping from field of the agent's configuration to value; None for an option that
            was not given.
        connections: Names of connections.
        tool_files: Paths of Python files with tools.
        overrides: The ``KEY=VALUE`` texts of ``--set``.
        calls: Whether to write a line for each call to stderr.
        verbose: Whether to write each step, script and call to stderr, and a summary at the end.
        as_json: Whether to write the response as JSON.
        events: Whether to write each event as a line of JSON.
        conversation: The id of the stored conversation to continue.
        resumes: Whether the run resumes a task, whose recorded steps are replayed first.
        schema: The JSON Schema of the answer; None for a text answer.
    """

    flags: Mapping[str, Any]
    connections: tuple[str, ...] = ()
    tool_files: tuple[str, ...] = ()
    overrides: tuple[str, ...] = ()
    calls: bool = False
    verbose: bool = False
    as_json: bool = False
    events: bool = False
    conversation: str | None = None
    resumes: bool = False
    schema: Mapping[str, Any] | None = None

    def to_record(self, state: State) -> dict[str, Any]:
        """Return the options as data from which ``delf resume`` creates the same agent again."""
        flags = {name: value for name, value in self.flags.items() if value is not None}
        return {
            "folder": str(Path.cwd()),
            "config": state.config,
            "flags": flags,
            "connections": list(self.connections),
            "tool_files": list(self.tool_files),
            "overrides": list(self.overrides),
            "plugins": list(map(os.path.abspath, state.plugin)),
        }


Work = Callable[[Agent, Mapping[str, Any]], Coroutine[Any, Any, "Response"]]
"""An async function that does a task with an agent.

The mapping holds the event listeners, as keyword arguments for the agent's method.
"""


def run_session(state: State, task: str, options: Options) -> int:
    """Run a task and write its outcome.

    Returns:
        The exit status.

    Raises:
        InterruptedRunError: If a signal stopped the task.
        BrokenPipeError: If the reader of stdout is gone.
    """

    def run_task(agent: Agent, listeners: Mapping[str, Any]) -> Coroutine[Any, Any, Response]:
        setup = options.to_record(state)
        if options.schema is None:
            return agent.arun(task, setup=setup, **listeners)
        return agent.arun(task, output=options.schema, setup=setup, **listeners)

    return work_session(state, run_task, options)


def work_session(state: State, work: Work, options: Options) -> int:
    """Create an agent, let a function do a task with the agent, and write the outcome.

    Args:
        state: The command-line flags that every command accepts, such as ``--debug``.
        work: The function that does the task.
        options: The command-line options of commands that run a task.

    Returns:
        The exit status.

    Raises:
        InterruptedRunError: If a signal stopped the task.
        BrokenPipeError: If the reader of stdout is gone.
    """
    screen = output.Screen()
    try:
        setup = Setup.of(state, options)
        options = setup.options  # the project's configuration may have set ``verbose``
        # After a failure, this function prints a hint with the short id of the task, so the hint
        # of the error that names the same command is omitted.
        hint_to_omit = _SHOW_COMMAND if setup.is_journalled else None
        show = partial(_write_response, options, screen, state, hint_to_omit)
        response, exit_status, signal_error = _run_work(setup, work, options, screen, show)
    except DelfError as error:
        if options.as_json:
            click.echo(output.failure_json(error, redact=state.redact))
        return errors.report(error, debug=state.debug, redact=state.redact)
    has_succeeded: bool = response.status
    is_for_programs = options.as_json or options.events
    can_hint = setup.is_journalled and not is_for_programs
    if can_hint and not has_succeeded and not _error_says_enough(response, exit_status):
        errors.say("hint", _hint_after_failure(response, options))
    if signal_error is not None:  # a signal decides the status, even if the task has succeeded
        return signal_error.status
    return exit_status


def _hint_after_failure(response: Response, options: Options) -> str:
    """Return the command with which the user goes on after a task that did not succeed."""
    name = response.trace.task_id.removeprefix("task_")[:7]
    if options.resumes and response.state is TaskState.STOPPED:
        return f"a stopped task does not go on; as a new task: delf runs fork {name}"
    if response.state is TaskState.INTERRUPTED:
        return f"delf resume {name}"
    return f"delf runs show {name}"


def submit_task(state: State, task: str, options: Options, queue_options: QueueOptions) -> int:
    """Submit a task to a queue for runners, and print the task's id.

    Args:
        state: The program's flags.
        task: The task.
        options: The options, from which the runner's agent is created.
        queue_options: The queue, and options such as the number of retries.

    Returns:
        The exit status.
    """

    async def submit() -> str:
        async with Setup.of(state, options).agent() as agent:
            all_options: QueueOptions = {**queue_options, "setup": options.to_record(state)}
            return await agent.asubmit(task, output=options.schema, **all_options)

    task_id = asyncio.run(submit())
    submitted = {"task_id": task_id, "queue": queue_options["queue"]}
    click.echo(json.dumps(submitted) if options.as_json else task_id)
    return errors.OK


def _write_response(
    options: Options,
    screen: output.Screen,
    state: State,
    hint_to_omit: str | None,
    response: Response,
) -> int:
    """Write a response as the options ask; return the exit status."""
    has_succeeded: bool = response.status
    if options.as_json:
        click.echo(output.response_json(response))
    elif options.events:
        pass  # the events have been written, and the last one has the outcome
    elif has_succeeded:
        answer = response.text
        if options.schema is not None:
            answer = output.json_text(response.value, indent=2)
        output.show_answer(answer)
        real_stdout().flush()
    else:
        output.show_failure(response, screen)
    exit_status = errors.OK if has_succeeded else errors.FAILED
    # A stopped task has no error to report: show_end() writes that the task was stopped.
    was_stopped = response.state is TaskState.STOPPED
    if response.exception is not None and not was_stopped:
        exit_status = errors.report(
            response.exception,
            debug=state.debug,
            redact=state.redact,
            hint_to_omit=hint_to_omit,
        )
    if options.verbose:
        screen.line(summary_of(response.trace, width=screen.width), "dim")
    if not options.events and not _error_says_enough(response, exit_status):
        output.show_end(response, screen)
    return exit_status


def _error_says_enough(response: Response, exit_status: int) -> bool:
    """Return True after a configuration error that came before the task did anything.

    Args:
        response: The response.
        exit_status: The exit status, which is ``USAGE`` for configuration errors.
    """
    has_done_anything = response.trace.model_calls or response.changes or response.files
    return exit_status == errors.USAGE and not has_done_anything


@dataclass(frozen=True)
class Setup:
    """The project, plugins and options from which a command creates its agent."""

    project: Project
    host: PluginHost
    options: Options

    @classmethod
    def of(cls, state: State, options: Options) -> Setup:
        """Load the project and the plugins, and print warnings about them.

        Raises:
            DelfError: If a setting or plugin cannot be used.
        """
        project = state.load_project(options.overrides, options.flags)
        host = state.discover(project.environ)
        for warning in (*project.warnings, *plugin_warnings(host, project)):
            errors.say("warning", state.redact(warning))
        options = replace(options, verbose=options.verbose or project.agent.verbose)
        return cls(project, host, options)

    @property
    def journal_was_chosen(self) -> bool:
        """True if the user configured a journal."""
        return "journal" in self.project.agent.model_fields_set

    @property
    def is_journalled(self) -> bool:
        """True if events are stored in a journal that `delf runs` reads."""
        return journal_name(self.project, self.host) != IN_PROCESS

    @property
    def in_memory_was_chosen(self) -> bool:
        """True if the user configured that events are in memory only."""
        return self.journal_was_chosen and self.project.agent.journal == IN_PROCESS

    def agent(self, **overrides: Any) -> Agent:
        """Create an agent that is not started.

        ``overrides`` take precedence over the project's configuration and components.
        """
        config = self.project.agent
        if "timeout" not in config.model_fields_set:
            approval_seconds = config.approval_timeout if config.wait_approvals else 0.0
            overrides = {"timeout": TIMEOUT_SECONDS + approval_seconds, **overrides}
        if self.options.conversation is not None:
            conversation_options = {"persist": True, "conversation_id": self.options.conversation}
            overrides = {"chat": as_chat(conversation_options, self.host), **overrides}
        # The agent itself reports no events: the command does, as the terminal allows.
        return Agent.from_project(
            self.project,
            connections=self.options.connections or None,
            tools=_tools(self.project, self.options),
            host=self.host,
            verbose=False,
            **overrides,
        )

    async def start(self, agent: Agent | None = None, *, require_journal: bool = False) -> Agent:
        """Start an agent, and return the started agent.

        If the default journal is not writable, a new agent is started instead, which stores neither
        a journal nor its chat.

        Args:
            agent: The agent to start; a new agent when omitted.
            require_journal: Whether to raise if the default journal is not writable.

        Raises:
            JournalUnavailableError: If the journal is not writable, and the user chose the journal
                or continues a conversation, or ``require_journal`` is set.
        """
        agent = agent or self.agent()
        try:
            await self._start_in_time(agent)
        except JournalUnavailableError as error:
            is_chosen = error.chosen or self.journal_was_chosen
            if require_journal or is_chosen or self.options.conversation is not None:
                raise
            errors.say("warning", f"nothing of this task is kept: {error.message}")
        else:
            return agent
        # The chat would be stored in the same unwritable journal.
        chat = agent.chat
        if chat is not None:
            chat = chat.in_memory()
        agent = self.agent(journal=IN_PROCESS, chat=chat)
        await self._start_in_time(agent)
        return agent

    async def _start_in_time(self, agent: Agent) -> None:
        """Start the agent within the task's timeout, if the user configured a timeout.

        Raises:
            TaskTimeoutError: If the start takes longer, for example because a container engine does
                not answer.
        """
        seconds = agent.config.timeout if "timeout" in self.project.agent.model_fields_set else None
        # The task's timeout begins after the start, which a container engine may delay forever.
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                await agent.astart()
        except TimeoutError:
            # A TimeoutError that a plugin raises has a message of its own.
            if not limit.expired():
                raise
            raise TaskTimeoutError(
                f"Timeout: the task could not begin within {seconds:g} s",
                hint="delf doctor shows the reason; or allow more time: --timeout SECONDS",
            ) from None


def _tools(project: Project, options: Options) -> list[Any]:
    tools: list[Any] = []
    if options.tool_files:
        from delf_cli.toolfile import load_tools

        for file in dict.fromkeys(options.tool_files):
            tools += load_tools(Path(file), project.environ)
    return tools


def _run_work(
    setup: Setup,
    work: Work,
    options: Options,
    screen: output.Screen,
    show: Callable[[Response], int],
) -> tuple[Response, int, errors.InterruptedRunError | None]:
    """Run work with an agent, and show the response before the agent stops.

    If a signal stops the work, there is still a response in three cases: the response was shown
    before the signal, the task has recorded its end, or the task can be resumed.

    Returns:
        The response, the exit status that ``show`` returned, and the signal that stopped the work
        (None if no signal came).

    Raises:
        InterruptedRunError: If a signal came before the task started, or if the stopped task has no
            end and cannot be resumed.
        BrokenPipeError: If the reader of the events is gone.
    """
    agent = setup.agent()
    asks_person = agent.config.approval_mode == "interactive"
    live: LiveStatus | None = None
    if screen.console is not None and not options.events:
        first = REPLAYING if options.resumes else "starting"
        live = LiveStatus(screen.console, asks_person=asks_person, doing=first)
        title = f"delf · {short_name(agent.config.main_llm.model)} · {named_tools(agent)}"
        screen.line(title, "dim")
    narrator = Narrator(
        screen,
        show_calls=options.calls,
        verbose=options.verbose,
        show_requests=agent.config.wait_approvals and not sys.stdin.isatty(),
        asks_person=asks_person,
        root=setup.project.root,
    )
    events: list[Event] = []
    listeners: list[Callable[[Event], None]] = [narrator, events.append]
    if live is not None:
        listeners.append(live)
    event_lines = EventLines()
    progress = _Progress()

    async def run_and_show() -> None:
        if options.events:
            listeners.append(event_lines)
            event_lines.set_task_to_cancel()
        started_agent = await setup.start(agent)
        # The start may fall back to another agent, whose journal is in memory.
        progress.is_resumable = setup.is_journalled and started_agent is agent
        try:
            response = await work(started_agent, {"listeners": listeners})
            if live is not None:
                live.stop()
            # Show the response before stopping: a signal may interrupt the closing of the tools.
            progress.shown = response, show(response)
        finally:
            await started_agent.astop()

    if live is not None:
        live.start()
    began = time.monotonic()
    try:
        run_until_done(run_and_show, lambda: leave_tasks(agent) if progress.is_resumable else None)
    except errors.InterruptedRunError as signal_error:
        if event_lines.is_broken:  # EventLines cancelled the run; there was no signal
            raise BrokenPipeError from None
        if live is not None:
            live.stop()
        if progress.shown is not None:  # the signal came while the agent stopped
            return *progress.shown, signal_error
        seconds = time.monotonic() - began
        response = _response_after_signal(
            events, signal_error, seconds, is_resumable=progress.is_resumable
        )
        if response is None:
            raise
        return response, show(response), signal_error
    finally:
        if live is not None:
            live.stop()
    assert progress.shown is not None  # noqa: S101 - run_and_show() set it or raised
    return *progress.shown, None


@dataclass()
class _Progress:
    """The progress of :func:`_run_work`, which is needed if a signal stops the work.

    Args:
        is_resumable: Whether the task can be resumed.
        shown: The response and the exit status of ``show``; None before the response is shown.
    """

    is_resumable: bool = False
    shown: tuple[Response, int] | None = None


def _response_after_signal(
    events: Sequence[Event],
    signal_error: errors.InterruptedRunError,
    seconds: float,
    *,
    is_resumable: bool,
) -> Response | None:
    """Return the response of a task that a signal stopped before its response was shown.

    None if the task has not started, or if it has no end and cannot be resumed.

    Args:
        events: The task's events.
        signal_error: The signal.
        seconds: The seconds that the task ran.
        is_resumable: Whether the task can be resumed.
    """
    if not events:
        return None
    if isinstance(events[-1], TaskFinished):
        return past_response(events, events[-1])
    if is_resumable:
        message = f"{signal_error} ended its process; it can be resumed"
        return response_of_interrupted_task(events, message, seconds)
    return None


def named_tools(agent: Agent) -> str:
    """Return the names of an agent's tools as a short text."""
    names = [item.name for item in agent.tools]
    omitted_count = len(names) - _MAX_TOOL_NAMES
    rest_note = f" and {omitted_count} more" if omitted_count > 0 else ""
    if names:
        return ", ".join(names[:_MAX_TOOL_NAMES]) + rest_note
    return "no tools"


class EventLines:
    """An event listener that writes each event to stdout as a line of JSON.

    When the reader of stdout is gone, the listener cancels the run.
    """

    def __init__(self) -> None:
        self.is_broken = False
        self._task_to_cancel: asyncio.Task[Any] | None = None

    def set_task_to_cancel(self) -> None:
        """Store the current asyncio task, to cancel it when the reader of stdout is gone."""
        self._task_to_cancel = asyncio.current_task()

    def __call__(self, event: Event) -> None:
        """Write an event."""
        if self.is_broken:
            return
        try:
            click.echo(output.event_line(event), file=real_stdout())
            real_stdout().flush()
        except BrokenPipeError:
            self.is_broken = True
            if self._task_to_cancel is not None:
                self._task_to_cancel.cancel()


def _overridden_key(override: str) -> str:
    return override.partition("=")[0]


def tool_options(record: Mapping[str, Any]) -> str:
    """Return the stored options that name connections and tools, as text for a command.

    Args:
        record: The stored options, as :meth:`Options.to_record` returned them.

    Returns:
        A text such as `` --tools tools.py``, which begins with a space if it is not empty.
    """
    connections = (f" -c {shlex.quote(name)}" for name in record.get("connections", ()))
    files = (f" --tools {shlex.quote(path)}" for path in record.get("tool_files", ()))
    return "".join((*connections, *files))


def restore_options(state: State, options: Options, record: Mapping[str, Any]) -> Options:
    """Complete the given options with a task's stored options, and change to the task's folder.

    Options given now take precedence.

    Args:
        state: The program's flags. This function sets ``config``, and ``missing_plugins``: the
            plugin files that were given when the task was started, but are not given now.
        options: The options of the current command.
        record: The stored options, as :meth:`Options.to_record` returned them.

    Raises:
        ConfigurationError: If the folder is gone, or a needed option was stored without its secret.
    """
    if "folder" not in record:
        return options  # the task did not come from the command line
    # Before the folder changes, because the user's paths are relative to the current folder.
    options = _with_absolute_paths(state, options)
    folder = str(record["folder"])
    try:
        os.chdir(folder)
    except OSError as error:
        raise ConfigurationError(
            f"the task's folder {folder!r} cannot be entered: {error.strerror}",
            hint="if the project was moved: delf resume ID --here, in its new folder",
        ) from None
    state.config = state.config or record["config"]
    # Stored plugin files are not loaded: the person who resumes the task has to name them again.
    state.missing_plugins = tuple(
        file for file in record.get("plugins", ()) if file not in state.plugin
    )
    given_names = {name for name, value in options.flags.items() if value is not None}
    needed_flags = {
        name: value for name, value in record["flags"].items() if name not in given_names
    }
    for name, value in needed_flags.items():
        _check_not_redacted(f"--{name.replace('_', '-')}", value)
    given_keys = set(map(_overridden_key, options.overrides))
    needed_overrides = [
        text for text in record["overrides"] if _overridden_key(text) not in given_keys
    ]
    # Of several overrides of one key, only the last has an effect.
    last_overrides = {_overridden_key(text): text for text in needed_overrides}
    for key, text in last_overrides.items():
        _check_not_redacted(f"--set {key}=…", text)
    return replace(
        options,
        flags={**options.flags, **needed_flags},
        connections=options.connections or tuple(record["connections"]),
        # Unlike plugin files, stored files with tools are loaded again. Whoever writes the journal
        # is trusted: a stored `--set` could start a program, too.
        tool_files=options.tool_files or tuple(record["tool_files"]),
        overrides=(*needed_overrides, *options.overrides),
    )


def _check_not_redacted(option: str, stored_value: Any) -> None:
    """Raise ConfigurationError if the journal stored an option without its secret.

    Args:
        option: The option as the user would write it.
        stored_value: The stored value.
    """
    if REDACTED in repr(stored_value):
        raise ConfigurationError(
            f"the option {option} of the task holds a secret, which the journal does not keep",
            hint=f"give it again: {option}",
        )


def _with_absolute_paths(state: State, options: Options) -> Options:
    """Make the paths in ``state`` absolute; return the options with absolute paths."""
    absolute = os.path.abspath
    flags = dict(options.flags)
    state.config = state.config and absolute(state.config)
    state.plugin = tuple(map(absolute, state.plugin))
    for name in ("output_dir", "record"):
        if flags.get(name):
            flags[name] = absolute(flags[name])
    if flags.get("files"):
        flags["files"] = [absolute(file) for file in flags["files"]]
    tools = tuple(absolute(file) for file in options.tool_files)
    return replace(options, flags=flags, tool_files=tools)


def plugin_warnings(host: PluginHost, project: Project) -> Iterator[str]:
    """Yield a warning for each ``[plugins.NAME]`` whose plugin is not installed.

    Args:
        host: The discovered plugins.
        project: The project.
    """
    for name in project.plugin_options:
        if name not in host.names:
            suggestion = did_you_mean(name, host.names)
            yield f"{project.file} [plugins.{name}]: no such plugin is installed{suggestion}"
