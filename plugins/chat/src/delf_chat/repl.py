"""The conversation on a terminal: read a task, run it, show the answer, repeat."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from delf.errors import AgentStateError, DelfError
from delf.events import Event, TaskFinished
from delf.machine.threads import running_loop
from delf_chat.chat import Chat, chat_of
from delf_chat.lines import EditedLines, PipedLines, history_file, open_reader
from delf_chat.slash import COMMANDS, EXIT_WORDS, Tally, is_command, run_slash_command
from delf_cli import errors, output
from delf_cli.interrupt import run_until_done
from delf_cli.progress import LiveStatus, Narrator
from delf_cli.session import TIMEOUT_SECONDS, named_tools
from delf_cli.story import short_name
from delf_cli.streams import real_stdout
from delf_engine.waiting import is_cancelled

if TYPE_CHECKING:
    from delf import Agent, Response

Listener = Callable[[Event], None]

_END_SECONDS: Final = 2.0


@dataclass(frozen=True, kw_only=True)
class SessionOptions:
    """The options of a chat session.

    Args:
        timeout: The timeout of each task in seconds; None for the agent's own timeout.
        verbose: Whether to print each step, script and call.
        as_json: Whether to print each response as a line of JSON.
        setup: Data with which ``delf resume`` creates the same agent again.
    """

    timeout: float | None = None
    verbose: bool = False
    as_json: bool = False
    setup: Mapping[str, Any] | None = None


class Repl:
    """An interactive session, which runs tasks and slash commands.

    Args:
        agent: The agent, with a chat.
        reader: The source of tasks.
        options: The options.
    """

    def __init__(
        self, agent: Agent, reader: EditedLines | PipedLines, options: SessionOptions
    ) -> None:
        self._agent = agent
        self._reader = reader
        self._options = options
        self._screen = output.Screen()
        self._tally = Tally(agent)

    async def run(self) -> bool:
        """Run commands and tasks until ``/exit`` or the end of the input.

        Returns:
            True if all tasks succeeded.
        """
        if self._reader.interactive:
            self._greet()
        while (text := await self._reader.read()) is not None:
            text = text.strip()
            if not text:
                continue
            if text.lower() in EXIT_WORDS and self._reader.interactive:
                break
            if is_command(text):
                if not await run_slash_command(text, self._agent, self._screen, self._tally):
                    break
            else:
                await self._run_task(text)
        if self._reader.interactive:
            self._screen.line(self._tally.line(), "dim")
        return not self._tally.failed

    def _greet(self) -> None:
        agent = self._agent
        model = short_name(agent.config.main_llm.model)
        line = f"delf · {model} · {named_tools(agent)}"
        if (chat := chat_of(agent)) is not None:
            suffix = "" if chat.persist else " (in memory)"
            line += f" · conversation {chat.conversation_id}{suffix}"
        self._screen.line(line, "dim")
        self._screen.line(
            "/help shows the commands; Ctrl-C stops a task, Ctrl-D or exit leaves", "dim"
        )

    async def _run_task(self, task: str) -> None:
        """Run a task, and show its response. A stopped task does not end the session."""
        self._tally.tasks += 1
        events = _TaskEvents()
        narrator = Narrator(self._screen, verbose=self._options.verbose, root=Path.cwd())
        with self._live_status() as status_listeners:
            result = await self._result_of(task, events, [narrator, events, *status_listeners])
        match result:
            case None:
                if not self._reader.interactive:  # a person's Ctrl-C on a terminal is no failure
                    self._tally.failed += 1
                self._show_stopped(events.received)
            case DelfError():
                self._tally.failed += 1
                self._show_error(result)
            case _:
                if not result.status:
                    self._tally.failed += 1
                self._show(result)

    @contextmanager
    def _live_status(self) -> Generator[Sequence[Listener]]:
        """Show the status of a task while the block runs; yield the listeners that update it."""
        if self._screen.console is None:
            yield ()
            return
        asks_person = self._agent.config.approval_mode == "interactive"
        live_status = LiveStatus(self._screen.console, asks_person=asks_person)
        live_status.start()
        try:
            yield (live_status,)
        finally:
            live_status.stop()

    async def _result_of(
        self, task: str, events: _TaskEvents, listeners: Sequence[Listener]
    ) -> Response | DelfError | None:
        """Run a task, and return its response or error; None if the task was stopped."""
        options = self._options
        work = asyncio.ensure_future(
            self._agent.arun(task, options.timeout, listeners=listeners, setup=options.setup)
        )
        try:
            with self._stop_on_interrupt(work):
                return await work
        except DelfError as error:
            return error
        except asyncio.CancelledError:
            if is_cancelled():
                raise  # this session is cancelled; Ctrl-C would have cancelled only ``work``
            await events.wait_for_end()
            return None

    def _show(self, response: Response) -> None:
        if self._options.as_json:
            click.echo(output.response_json(response, **self._json_fields()))
        elif response.status:
            output.show_answer(response.text)
        else:
            output.show_failure(response, self._screen)
        real_stdout().flush()
        if response.exception is not None:
            errors.report(response.exception)
        output.show_end(response, self._screen)

    def _show_stopped(self, events: Sequence[Event]) -> None:
        if not output.show_stopped(events, self._screen):
            errors.say("", "stopped")

    def _show_error(self, error: DelfError) -> None:
        if self._options.as_json:
            click.echo(output.failure_json(error, **self._json_fields()))
            real_stdout().flush()
        errors.report(error)

    def _json_fields(self) -> Mapping[str, Any]:
        chat = chat_of(self._agent)
        return {"conversation": None if chat is None else chat.conversation_id}

    @contextmanager
    def _stop_on_interrupt(self, work: asyncio.Future[Response]) -> Generator[None]:
        """Cancel only the task at Ctrl-C while the block runs; do nothing without a terminal."""
        loop = asyncio.get_running_loop()
        if not self._reader.interactive:
            yield
            return
        try:
            loop.add_signal_handler(signal.SIGINT, work.cancel)
        except (NotImplementedError, ValueError, RuntimeError):  # Windows, or not the main thread
            yield
            return
        try:
            yield
        finally:
            loop.remove_signal_handler(signal.SIGINT)


class _TaskEvents:
    """Listener that collects the events of a task."""

    def __init__(self) -> None:
        self.received: list[Event] = []
        self._loop = asyncio.get_running_loop()
        self._has_ended = asyncio.Event()

    def __call__(self, event: Event) -> None:
        """Add an event. The agent may call this from another thread."""
        self.received.append(event)
        if isinstance(event, TaskFinished):
            self._loop.call_soon_threadsafe(self._has_ended.set)

    async def wait_for_end(self) -> None:
        """Wait at most :data:`_END_SECONDS` until the end of a cancelled task is recorded."""
        if not self.received:
            return  # no end is recorded for a task that has not begun
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_END_SECONDS):
                await self._has_ended.wait()


def run_chat(agent: Agent, **options: Any) -> None:
    """Run a chat session with an agent on this terminal.

    If the agent is not running yet, start the agent, and stop the agent after the session.

    Args:
        agent: The agent. An agent without a chat gets a chat in memory.
        options: Fields of :class:`SessionOptions`.

    Raises:
        AgentStateError: If called inside an event loop.
    """
    if running_loop() is not None:
        raise AgentStateError(
            "run_chat() was called from inside an event loop", hint="use `await agent.arun_chat()`"
        )
    was_started = agent.started

    async def main() -> None:
        try:
            await arun_chat(agent, **options)
        finally:
            if not was_started:
                await agent.astop()

    try:
        run_until_done(main)
    except errors.InterruptedRunError as stop:
        if stop.status == errors.INTERRUPTED:  # Ctrl-C, which Python programs know as an exception
            raise KeyboardInterrupt from None
        raise SystemExit(stop.status) from None  # another signal, such as SIGTERM


async def arun_chat(agent: Agent, timeout: float | None = None, **options: Any) -> None:
    """Async version of :func:`run_chat`. The agent keeps running after the session."""
    if agent.chat is None:
        agent.chat = Chat()
    reader = open_reader(COMMANDS, history_file())
    seconds = timeout
    if timeout is None and "timeout" not in agent.config.model_fields_set:
        seconds = TIMEOUT_SECONDS
    await Repl(agent, reader, SessionOptions(timeout=seconds, **options)).run()
