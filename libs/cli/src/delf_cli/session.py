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
from delf.events import PROJECT_FOLDER, Event, TaskFinished
from delf.records import dataclass
from delf.types import IN_PROCESS, TaskState
from delf_cli import errors, output
from delf_cli.ids import short_id
from delf_cli.interrupt import run_until_done
from delf_cli.progress import REPLAYING, LiveStatus, Narrator
from delf_cli.state import State
from delf_cli.story import short_name
from delf_cli.streams import real_stdout
from delf_cli.summary import summary_of
from delf_engine.agent import Agent, keep_cancelled_tasks_resumable
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
    try:
        setup = Setup.of(state, options)
        outcome = _Run(state, setup, work).run()
    except DelfError as error:
        if options.as_json:
            click.echo(output.failure_json(error, redact=state.redact))
        return errors.report(error, debug=state.debug, redact=state.redact)
    _hint_after_failure(outcome, options)
    if outcome.signal_error is not None:  # the signal decides, even if the task has succeeded
        return outcome.signal_error.status
    return outcome.exit_status


def _hint_after_failure(outcome: _Outcome, options: Options) -> None:
    """Print the command with which a person goes on after a task that did not succeed."""
    response = outcome.response
    has_succeeded: bool = response.status
    is_for_programs = options.as_json or options.events
    if has_succeeded or is_for_programs or _error_says_enough(response, outcome.exit_status):
        return
    name = short_id(response.trace.task_id)
    if not outcome.is_journalled:  # no other command can find the task
        if options.verbose:
            return
        hint = "--verbose shows the scripts of a task, which no journal keeps here"
    elif options.resumes and response.state is TaskState.STOPPED:
        hint = f"a stopped task does not go on; as a new task: delf runs fork {name}"
    elif response.state is TaskState.INTERRUPTED:
        hint = f"delf resume {name}"
    else:
        hint = f"{_SHOW_COMMAND} {name}"
    errors.say("hint", hint)


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
    submitted = {"task_id": task_id, "queue": queue_options.get("queue")}
    click.echo(json.dumps(submitted) if options.as_json else task_id)
    return errors.OK


def _write_response(
    state: State, options: Options, screen: output.Screen, response: Response
) -> int:
    """Write a response as the options ask; return the exit status."""
    _write_result(response, options, screen)
    exit_status = errors.OK if response.status else errors.FAILED
    # A stopped task has no error to report: show_end() writes that the task was stopped.
    was_stopped = response.state is TaskState.STOPPED
    if response.exception is not None and not was_stopped:
        exit_status = errors.report(
            response.exception,
            debug=state.debug,
            redact=state.redact,
            # _hint_after_failure() prints a better hint than this, such as one with the task's id.
            hint_to_omit=_SHOW_COMMAND,
        )
    if options.verbose:
        screen.line(summary_of(response.trace, width=screen.width), "dim")
    if not options.events and not _error_says_enough(response, exit_status):
        output.show_end(response, screen)
    return exit_status


def _write_result(response: Response, options: Options, screen: output.Screen) -> None:
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


def _error_says_enough(response: Response, exit_status: int) -> bool:
    """Return True after a configuration error that came before the task did anything.

    Neither a hint nor the end of the task is written after such an error.

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
        if "timeout" not in config.model_fields_set:  # use the default of --timeout
            approval_seconds = config.approval_timeout if config.wait_approvals else 0.0
            overrides = {"timeout": TIMEOUT_SECONDS + approval_seconds, **overrides}
        if self.options.conversation is not None:
            conversation_options = {"persist": True, "conversation_id": self.options.conversation}
            overrides = {"chat": as_chat(conversation_options, self.host), **overrides}
        # ``verbose=False``, because the command itself writes the events, as suits the terminal.
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
        events nor its chat.

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
            return agent
        except JournalUnavailableError as error:
            is_chosen = error.chosen or self.journal_was_chosen
            continues_conversation = self.options.conversation is not None
            if require_journal or is_chosen or continues_conversation:
                raise
            errors.say("warning", f"nothing of this task is kept: {error.message}")
        # The chat would be stored in the same unwritable journal.
        chat = None if agent.chat is None else agent.chat.in_memory()
        agent_without_journal = self.agent(journal=IN_PROCESS, chat=chat)
        await self._start_in_time(agent_without_journal)
        return agent_without_journal

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


@dataclass(frozen=True, kw_only=True)
class _Outcome:
    """The outcome of a run, after its response was written.

    Args:
        response: The response.
        exit_status: The exit status, which applies only if no signal came.
        is_journalled: Whether the task's events are in a journal that `delf runs` reads.
        signal_error: The signal that stopped the run; None if no signal came.
    """

    response: Response
    exit_status: int
    is_journalled: bool
    signal_error: errors.InterruptedRunError | None = None


class _Run:
    """Works with an agent, and writes the progress and the response.

    Args:
        state: The program's flags.
        setup: The project, plugins and options.
        work: The function that does the task.
    """

    def __init__(self, state: State, setup: Setup, work: Work) -> None:
        self._state = state
        self._setup = setup
        self._options = setup.options
        self._work = work
        self._screen = output.Screen()
        self._agent = setup.agent()
        self._events: list[Event] = []
        self._event_lines = EventLines()
        self._live = self._new_live_status()
        self._is_journalled = False
        self._outcome: _Outcome | None = None  # set once the response is written

    def run(self) -> _Outcome:
        """Do the work, and write the response before the agent stops.

        Raises:
            InterruptedRunError: If a signal stopped the work before any response.
            BrokenPipeError: If the reader of the events is gone.
        """
        if self._live is not None:
            title = f"delf · {short_name(self._agent.config.main_llm.model)}"
            self._screen.line(f"{title} · {named_tools(self._agent)}", "dim")
            self._live.start()
        began = time.monotonic()
        try:
            run_until_done(self._do_and_write, self._keep_resumable)
        except errors.InterruptedRunError as signal_error:
            if self._event_lines.is_broken:  # the broken pipe cancelled the run, not a signal
                raise BrokenPipeError from None
            self._stop_live_status()  # before the next function writes the outcome
            return self._outcome_after_signal(signal_error, time.monotonic() - began)
        finally:
            self._stop_live_status()
        assert self._outcome is not None  # noqa: S101 - _do_and_write() set it or raised
        return self._outcome

    async def _do_and_write(self) -> None:
        """Start the agent, do the work, write the response, and stop the agent."""
        listeners = self._listeners()
        agent = await self._setup.start(self._agent)
        # The start may fall back to another agent, whose journal is in memory.
        self._is_journalled = self._setup.is_journalled and agent is self._agent
        try:
            response = await self._work(agent, {"listeners": listeners})
            self._stop_live_status()
            # Write the response before stopping: a signal may interrupt the closing of the tools.
            self._outcome = self._write(response)
        finally:
            await agent.astop()

    def _write(self, response: Response) -> _Outcome:
        exit_status = _write_response(self._state, self._options, self._screen, response)
        return _Outcome(
            response=response, exit_status=exit_status, is_journalled=self._is_journalled
        )

    def _outcome_after_signal(
        self, signal_error: errors.InterruptedRunError, seconds: float
    ) -> _Outcome:
        """Return the outcome of work that a signal stopped after some seconds."""
        outcome = self._outcome
        if outcome is None:  # the signal came before a response was written
            response = _response_after_signal(
                self._events, signal_error, seconds, is_resumable=self._is_journalled
            )
            if response is None:  # the task has no recorded end, and cannot be resumed
                raise signal_error
            outcome = self._write(response)
        return replace(outcome, signal_error=signal_error)

    def _keep_resumable(self) -> None:
        if self._is_journalled:
            keep_cancelled_tasks_resumable(self._agent)

    def _listeners(self) -> list[Callable[[Event], None]]:
        narrator = Narrator(
            self._screen,
            show_calls=self._options.calls,
            verbose=self._options.verbose,
            show_requests=self._agent.config.wait_approvals and not sys.stdin.isatty(),
            asks_person=self._asks_person,
            root=self._setup.project.root,
        )
        listeners: list[Callable[[Event], None]] = [narrator, self._events.append]
        if self._live is not None:
            listeners.append(self._live)
        if self._options.events:
            listeners.append(self._event_lines)
            self._event_lines.set_task_to_cancel()
        return listeners

    def _new_live_status(self) -> LiveStatus | None:
        if self._screen.console is None or self._options.events:
            return None
        first = REPLAYING if self._options.resumes else "starting"
        return LiveStatus(self._screen.console, asks_person=self._asks_person, doing=first)

    def _stop_live_status(self) -> None:
        if self._live is not None:
            self._live.stop()

    @property
    def _asks_person(self) -> bool:
        return self._agent.config.approval_mode == "interactive"


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
        ConfigurationError: If the folder is gone, or the stored value of a needed option is
            redacted.
    """
    folder = record.get("folder", record.get(PROJECT_FOLDER))
    if not isinstance(folder, str):
        return options  # the task of a program without a project
    # The user's paths are relative to the current folder, which changes in the next line.
    options = _with_absolute_paths(state, options)
    _enter_folder(folder)
    if "folder" not in record:  # the task of a server or a program, without options of a command
        return options
    state.config = state.config or record["config"]
    # The person who resumes the task has to name its plugin files again.
    state.missing_plugins = tuple(
        file for file in record.get("plugins", ()) if file not in state.plugin
    )
    return replace(
        options,
        flags={**options.flags, **_needed_flags(options, record)},
        connections=options.connections or tuple(record["connections"]),
        # These files are run without a check: whoever can write the journal is trusted anyway,
        # because a stored `--set` can start a program.
        tool_files=options.tool_files or tuple(record["tool_files"]),
        overrides=(*_needed_overrides(options, record), *options.overrides),  # the last one counts
    )


def _enter_folder(folder: str) -> None:
    try:
        os.chdir(folder)
    except OSError as error:
        raise ConfigurationError(
            f"the task's folder {folder!r} cannot be entered: {error.strerror}",
            hint="if the project was moved: delf resume ID --here, in its new folder",
        ) from None


def _needed_flags(options: Options, record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the stored flags that are not given now."""
    needed_flags: dict[str, Any] = {}
    for name, value in record["flags"].items():
        if options.flags.get(name) is None:
            _check_not_redacted(f"--{name.replace('_', '-')}", value)
            needed_flags[name] = value
    return needed_flags


def _needed_overrides(options: Options, record: Mapping[str, Any]) -> list[str]:
    """Return the stored ``--set KEY=VALUE`` texts, except for keys that are set again now."""
    later_keys = set(map(_overridden_key, options.overrides))
    needed_overrides: list[str] = []
    # Of several overrides of one key, only the last has an effect.
    for override in reversed(record["overrides"]):
        key = _overridden_key(override)
        if key not in later_keys:
            _check_not_redacted(f"--set {key}=…", override)
            needed_overrides.insert(0, override)
            later_keys.add(key)
    return needed_overrides


def _check_not_redacted(option: str, stored_value: Any) -> None:
    """Raise ConfigurationError if the stored value of an option is redacted.

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
    if state.config:
        state.config = absolute(state.config)
    state.plugin = tuple(map(absolute, state.plugin))
    for name in ("output_dir", "record"):
        if flags.get(name):
            flags[name] = absolute(flags[name])
    if flags.get("files"):
        flags["files"] = [absolute(file) for file in flags["files"]]
    tools = tuple(absolute(file) for file in options.tool_files)
    return replace(options, flags=flags, tool_files=tools)


def plugin_warnings(host: PluginHost, project: Project) -> Iterator[str]:
    """Yield a warning for each section ``[plugins.NAME]`` whose plugin is not installed.

    Args:
        host: The discovered plugins.
        project: The project.
    """
    for name in project.plugin_options:
        if name not in host.names:
            suggestion = did_you_mean(name, host.names)
            yield f"{project.file} [plugins.{name}]: no such plugin is installed{suggestion}"
