"""The guest's side of a session: runs scripts, one after another, in one namespace."""

from __future__ import annotations

import asyncio
import contextlib
import csv
import errno
import inspect
import os
import re
import sys
import time
import types
import warnings
from asyncio import FIRST_COMPLETED, wait  # the real ones; scripts get patched ones
from collections.abc import Sequence
from typing import Any, NoReturn

from delf.values.encoding import dumps, loads
from delf_sandbox.guest import records
from delf_sandbox.guest.arguments import ADD_FILE, RERUN, FunctionWithUsage
from delf_sandbox.guest.calls import (
    EXCEPTIONS,
    SCRIPT_NAME,
    Caller,
    ToolArgumentError,
    ToolFunction,
    ToolNamespace,
    misuse_in,
)
from delf_sandbox.guest.channel import Channel
from delf_sandbox.guest.failure import (
    ScriptLine,
    attempt,
    describe_type,
    describe_variables,
    find_failed_call,
    find_failed_line,
    hide_own_frames,
    is_a,
    kind_name,
    message_of,
    variables_of_main,
)
from delf_sandbox.guest.frames import FrameTooLargeError
from delf_sandbox.guest.limits import FileLimits, LimitReachedError, PrintLimits
from delf_sandbox.guest.loop import GuestLoop
from delf_sandbox.guest.names import InitialNames, rebound_names_note
from delf_sandbox.guest.output import FileSender, Printer
from delf_sandbox.guest.policy import RestrictedOpen, can_import, link_inputs, make_builtins
from delf_sandbox.guest.scratch import Scratch
from delf_sandbox.guest.script import Script
from delf_sandbox.guest.stand_ins import make_modules
from delf_sandbox.guest.waiting import ScriptHelpers, TolerantAsyncio
from delf_sandbox.guest.world import RecordedClockAndRandom

_STOP_SECONDS = 0.25
# The maximum number of iterations of the event loop for tasks that continue after a script's end.
#
# The limit applies only to tasks that wait for no tool call.
_MAX_ITERATIONS_AFTER_END = 10_000
_MAX_TEXT = 20_000


class RerunSignal(BaseException):
    """Ends a script that called ``rerun``, so that the model writes a new script."""


class NotAwaitedError(RuntimeError):
    """A script contains a tool call that was never awaited, so the call was not made."""


class GuestSession:
    """The guest's side of a session: runs scripts and handles the frames of the host.

    Args:
        loop: The event loop on which the scripts run.
    """

    def __init__(self, loop: GuestLoop) -> None:
        self._loop = loop
        self._channel = Channel(self._receive)
        # The host's frames that start a session or a script: _receive() puts them into the queue,
        # and serve() takes them out.
        self._commands: asyncio.Queue[list[Any]] = asyncio.Queue()
        self._caller = Caller(self._send_call, self._channel.receive_blocking, loop)
        # Every sender of frames holds this lock, because threads of the script may print.
        self._lock = self._channel.lock
        self._printer = Printer(self._send_print, self._lock)
        # The tools' objects by name; empty until _initialise().
        self._tools: dict[str, Any] = {}
        self._script_helpers = ScriptHelpers(loop, self._tools)
        # Replaces functions such as asyncio.gather() by variants that accept plain values, too.
        self._tolerant_asyncio = TolerantAsyncio(loop)
        self._replacement_modules = make_modules(self._printer, self._script_helpers.wait)
        # The tools, their exceptions and the helper functions, by the names under which scripts use
        # them. _initialise() fills the mapping, and each script begins with these values.
        self._provided_names: dict[str, Any] = {}
        # Tells the rewriting of a script which tools, modules and earlier variables exist; set by
        # _initialise().
        self._initial_names = InitialNames({})
        self._files = FileSender(self._send_file)
        self._clock_and_random = RecordedClockAndRandom(
            lambda readings: self._channel.send(["clock", readings])
        )
        # The loop calls these functions in its iterations: to send queued frames to the host, to
        # pass the answers of tool calls to the script, and to record or replay reads of the clock.
        loop.attach(
            self._flush,
            self._caller.replay_answers,
            self._caller.release_answers,
            self._clock_and_random.read_clock,
        )
        # The module whose namespace has the scripts' variables.
        self._main_module = types.ModuleType("__main__")
        self._namespace = self._main_module.__dict__
        # All names in the namespace before the first script, set by _initialise(). The description
        # of the scripts' variables for the model leaves them out.
        self._hidden_names: frozenset[str] = frozenset()
        self._source_by_filename: dict[str, str] = {}
        # The arguments that the script gave to ``rerun()``: the context, the remaining work and the
        # names of the variables that the next script needs. None if it did not call ``rerun()``.
        self._rerun_request: list[Any] | None = None
        # The tool names that the script binds to something else.
        self._rebound_names: list[str] = []
        self._patch_libraries()

    def _patch_libraries(self) -> None:
        """Patch the standard library for the scripts."""
        self._tolerant_asyncio.install()
        # The model can mend its script but not the sandbox, so tracebacks show only the script.
        hide_own_frames("delf_sandbox/guest")
        records.patch_json_and_dataclasses()
        self._clock_and_random.install()
        warnings.filterwarnings("always", "coroutine .* was never awaited", RuntimeWarning)
        warnings.showwarning = self._record_coroutine_warning

    async def warm_up(self) -> None:
        """Run a trivial script so that the first real script starts faster."""
        script = Script(
            "def nothing():\n    return [1]\nnothing()", "<rehearsal>", InitialNames({})
        )
        # Rewritten scripts call these helper functions, for example to await a result.
        await script.run(dict(self._script_helpers.names))
        loads(dumps(["exec", 1, "print()", None]))  # the first use of the encoding is slow

    async def serve(self, read_fd: int, write_fd: int) -> NoReturn:
        """Handle the host's frames until the host closes the connection.

        Args:
            read_fd: The descriptor for reading.
            write_fd: The descriptor for writing.
        """
        self._channel.open(read_fd, write_fd)
        self._channel.send(["ready"], at_once=True)
        self._loop.watch_wire(read_fd, self._channel.receive_available)
        sys.modules["__main__"] = self._main_module
        sys.stdout = sys.stderr = self._printer
        # Printed text is buffered. A timer (SIGALRM) sends it while the script computes or sleeps.
        self._printer.use_alarm()
        # ``input()`` fails at once, because nobody could answer it.
        sys.stdin = None
        sys.argv = ["script.py"]  # for argparse
        # A forked process copies each memory page when it first writes to the page. Let that happen
        # now, and not in the first script.
        await self.warm_up()
        while True:
            kind, *fields = await self._commands.get()
            if kind == "init":
                (spec,) = fields
                self._initialise(spec)
            else:  # the kind is ``exec``
                number, source, start = fields
                recorded_events: list[int] = []
                if start is not None:  # None for a script that is never replayed
                    # In the first run of a script, the recorded reads and events are empty.
                    seed, clock_reads, recorded_events = start
                    self._clock_and_random.begin(seed, clock_reads)
                self._send_final_frame(await self._execute(number, source, recorded_events))
                self._caller.close_script()

    def end_after(self, error: BaseException) -> None:
        """Report the end of the running script after an error of the event loop itself."""
        self._send_final_frame(self._build_final_frame(None, error))
        self._flush()

    def _receive(self, frame: list[Any]) -> None:
        if frame[0] in ("return", "raise", "message"):
            self._caller.accept_answer(frame)
        else:
            # The frame starts a session or a script. Leave that to serve(), which reads the queue:
            # this method may run in a callback of the event loop, where no script can run.
            self._commands.put_nowait(frame)

    def _flush(self) -> None:
        with self._lock:
            self._send_buffered()
            self._channel.flush()

    def _send_buffered(self) -> None:
        """Send the buffered clock reads, loop iterations and printed text.

        Called before any other frame is sent.
        """
        self._send_recorded()
        self._printer.queue_buffered_text()

    def _send_recorded(self) -> None:
        """Send the new clock reads and events of the event loop, which a replay needs."""
        self._clock_and_random.flush()
        recording = self._loop.event_log.take_new_recording()
        if recording:
            self._channel.send(["turns", recording])

    def _send_print(self, text: str, at_once: bool) -> None:
        """Send printed text, after the clock reads and events that led to it."""
        self._loop.event_log.record_late_frame()
        self._send_recorded()
        self._channel.send(["print", text], at_once)

    def _send_file(self, kind: str, name: str, last: bool, chunk: bytes) -> None:
        with self._lock:
            self._loop.event_log.record_late_frame()
            self._send_buffered()
            self._channel.send([kind, name, last, chunk])

    def _send_call(self, frame: list[Any], at_once: bool) -> None:
        """Send a call, after the buffered text and clock reads from before the call.

        Args:
            frame: The call.
            at_once: Whether to send all queued frames now, instead of before the loop's next wait.

        Raises:
            ToolArgumentError: If the arguments do not fit into a frame.
        """
        try:
            with self._lock:
                self._loop.event_log.record_late_frame()
                self._send_buffered()
                self._channel.send(frame, at_once)
        except FrameTooLargeError as error:
            raise ToolArgumentError(f"the arguments are too large: {error}") from None

    def _initialise(self, spec: dict[str, Any]) -> None:
        """Set up the limits, files, time zone and names that the host specified for the session."""
        limits = spec["limits"]
        self._channel.limit = limits["frame_bytes"]
        self._printer.limits = PrintLimits(limits)
        self._files.limits = FileLimits(limits)
        # The suffixes of the file formats that the host writes from rows.
        self._files.row_files = spec["row_files"]
        self._files.scratch = Scratch(spec["scratch"])
        csv.field_size_limit(2**31 - 1)  # a cell may fill a whole file
        if spec["libraries"]:
            _make_home(spec["scratch"])
        # The C library's localtime() reads this variable. Sessions with different time zones share
        # a template process, so each session sets the variable.
        os.environ["TZ"] = spec["zone"]
        time.tzset()
        link_inputs(spec["links"], spec["scratch"])
        self._define_names(spec)

    def _define_names(self, spec: dict[str, Any]) -> None:
        """Define the tools, helper functions and builtins in the namespace of the scripts."""
        methods: dict[str, list[str]] = {}
        write_actions: set[str] = set()
        for name, method_names, write_methods in spec["tools"]:
            methods[name] = method_names
            for method in write_methods:
                # A plain tool has no methods; an empty method name stands for the tool itself.
                write_actions.add(f"{name}.{method}" if method else name)
            if method_names:
                self._tools[name] = ToolNamespace(self._caller, name, method_names)
            else:
                self._tools[name] = ToolFunction(self._caller, name)
        self._provided_names = {**EXCEPTIONS, **self._tools, **self._script_helpers.names}
        self._provided_names["add_to_output_files"] = FunctionWithUsage(ADD_FILE, self._files)
        self._provided_names["rerun"] = FunctionWithUsage(RERUN, self._request_rerun)
        self._provided_names["asyncio"] = asyncio
        modules = spec["modules"]
        replacements = self._replacement_modules
        self._initial_names = InitialNames(
            tools=methods,
            write_actions=write_actions,
            can_import=lambda name: can_import(name, modules, replacements),
            is_bound=self._namespace.__contains__,
            is_async=lambda name: _is_async(self._namespace.get(name)),
        )
        restricted_open = RestrictedOpen(spec["readable"], [spec["scratch"]])
        self._namespace["__name__"] = "__main__"
        self._namespace["__builtins__"] = make_builtins(modules, replacements, restricted_open)
        self._namespace.update(self._provided_names)
        # The script's own variables are all names except for these.
        self._hidden_names = frozenset(self._namespace)

    def _record_coroutine_warning(
        self, message: Warning | str, category: type[Warning], filename: str, lineno: int, *_: Any
    ) -> None:
        """Record a warning about a coroutine that was never awaited; ignore all other warnings."""
        coroutine_match = re.fullmatch(r"coroutine '(.+)' was never awaited", str(message))
        if coroutine_match and filename in self._source_by_filename:
            self._caller.unawaited_calls.add(f"{coroutine_match[1]}(…)", lineno)

    def _request_rerun(self, context: str, remaining: str, carry: Any = None) -> NoReturn:
        """End the script, so that the model writes a new script.

        Scripts call this method as ``rerun``.

        Args:
            context: The facts that the model needs for the new script.
            remaining: A description of the work that is left.
            carry: The names of the variables that the new script needs; one name or several.
        """
        if isinstance(carry, str):
            carry = [carry]
        carried_names = list(map(str, carry or ()))
        # Truncate the texts, because the frame that takes them to the host has a size limit.
        self._rerun_request = [str(context)[:_MAX_TEXT], str(remaining)[:_MAX_TEXT], carried_names]
        # The signal is a BaseException, so the script's ``except Exception`` does not catch it.
        raise RerunSignal

    async def _execute(self, number: int, source: str, recorded_events: Sequence[int]) -> list[Any]:
        """Run a script and the asyncio tasks that it left running.

        Args:
            number: The number of the script.
            source: The script.
            recorded_events: The recording to replay; empty for no replay.

        Returns:
            The frame that reports the script's outcome to the host.
        """
        self._begin_script()
        self._loop.begin(recorded_events)
        filename = f"{SCRIPT_NAME}{number}>"
        self._source_by_filename[filename] = source
        value, error = await self._run_in_task(source, filename)
        # rerun() ends a script with an exception, and counts as a success.
        await self._end_tasks(is_success=error is None or self._rerun_request is not None)
        self._caller.end_script()
        # Record the final frame now: it is sent after this method, but loop.end() stops the
        # recording.
        self._loop.event_log.record_late_frame()
        self._loop.end()
        if error is None:
            # Report unfinished calls first: a call that was never made may explain other errors.
            # Besides, _final_value() marks the exception of a failed task as retrieved.
            error = self._unfinished_call_error()
        # Read the value after the tasks have ended: it may be a future that one of them completes.
        value = _final_value(value)
        if error is None:
            error = misuse_in(value) or self._send_written_files()
        with self._lock:
            self._send_buffered()
            self._printer.end()
        return self._build_final_frame(value, error)

    async def _run_in_task(self, source: str, filename: str) -> tuple[Any, BaseException | None]:
        """Run a script in its own task; return its final value and its error, if any.

        If the script cancels the current task, the session goes on.
        """
        task = asyncio.ensure_future(self._run(source, filename))
        while not task.done():
            with contextlib.suppress(asyncio.CancelledError):  # a script may cancel all tasks
                await wait({task})
        if task.cancelled():
            return None, asyncio.CancelledError()
        value, error = task.result()
        if is_a(error, SystemExit) and not error.code:  # exit() ends a script successfully
            error = None
        return value, error

    async def _end_tasks(self, *, is_success: bool) -> None:
        """End the tasks that the script left running.

        Args:
            is_success: Whether the script succeeded. If so, its tasks may first finish their tool
                calls. The tasks of a failed script are cancelled at once.
        """
        if is_success:
            self._caller.begin_limit_on_tasks()
            await self._finish_tasks()
            self._caller.end_limit_on_tasks()
        # Without this, a task would go on during the next script.
        await self._cancel_remaining_tasks()

    def _begin_script(self) -> None:
        """Reset what an earlier script has left."""
        self._printer.start()
        self._rerun_request = None  # set if the script calls rerun()
        self._caller.begin_script()
        self._script_helpers.begin_script()
        self._tolerant_asyncio.abandoned.clear()
        self._namespace.update(self._provided_names)  # an earlier script may have rebound them
        self._rebound_names = []

    async def _run(self, source: str, filename: str) -> tuple[Any, BaseException | None]:
        """Run a script; return its final value and None, or None and the exception."""
        try:
            script = Script(source, filename, self._initial_names)
            self._rebound_names = script.rebound_names
            value = await script.run(self._namespace)
        except BaseException as error:
            failure = error
            # Keep the variables of the script's main() for the next script. Ignore an error in this
            # step, because the model has to see the script's own failure.
            attempt(lambda: self._store_variables_of_main(failure), None)
            return None, failure
        return value, None

    def _store_variables_of_main(self, error: BaseException) -> None:
        """Make the variables of a failed ``main()`` global, so that the next script finds them."""
        for name, value in variables_of_main(error, self._source_by_filename).items():
            if name not in self._hidden_names:
                self._namespace.pop(name, None)  # move the name to the end: newest last
                self._namespace[name] = value

    async def _finish_tasks(self) -> None:
        """Run the script's remaining tasks until none of them makes or waits for a tool call.

        Give up after ``_MAX_ITERATIONS_AFTER_END`` iterations of the event loop, because a task may
        run on and on without a tool call.
        """
        current_task = asyncio.current_task()
        for _ in range(_MAX_ITERATIONS_AFTER_END):
            # After a timeout, the script no longer wants the results of the abandoned tasks.
            remaining_tasks = asyncio.all_tasks() - {
                current_task,
                *self._tolerant_asyncio.abandoned,
            }
            if not remaining_tasks:
                return
            if self._caller.has_open_calls:
                await wait(
                    {self._caller.when_idle(), *remaining_tasks}, return_when=FIRST_COMPLETED
                )
            elif self._loop.has_ready_callbacks:
                await asyncio.sleep(0)  # let the callbacks run: they may make a tool call
            else:
                return

    async def _cancel_remaining_tasks(self) -> None:
        """Cancel the tasks that the script left running."""
        current_task = asyncio.current_task()
        remaining_tasks = [task for task in asyncio.all_tasks() if task is not current_task]
        for task in remaining_tasks:
            task.cancel()
        if remaining_tasks:
            # A task may swallow its cancellation, so the wait has a timeout.
            await wait(remaining_tasks, timeout=_STOP_SECONDS)

    def _build_final_frame(self, value: Any, error: BaseException | None) -> list[Any]:
        """Build the final frame of a script from its final value and its error, if any."""
        if self._rerun_request is not None:  # the script called rerun(), which ended the script
            # The model reads the note, and writes another script for the remaining work.
            note_for_model, remaining_work, kept_variable_names = self._rerun_request
            note_for_model += rebound_names_note(self._rebound_names)
            variables = self._variables()
            return ["rerun", note_for_model, remaining_work, kept_variable_names, variables]
        error = _unwrap_single_exception(error)
        if error is None:
            return ["done", value, self._variables()]
        # attempt() guards each use of the exception, whose class may be the script's own.
        failed_line = attempt(
            lambda: find_failed_line(error, self._source_by_filename), ScriptLine()
        )
        end_fields = [failed_line.line, failed_line.source, self._variables()]
        limit = attempt(lambda: _find_exceeded_limit(error), None)
        if limit is not None:
            return ["limit", *limit, *end_fields]
        failed_call = attempt(lambda: find_failed_call(error), None)
        return [
            "failed",
            kind_name(error),
            _explain(error) + rebound_names_note(self._rebound_names),
            *end_fields,
            failed_call,
        ]

    def _send_written_files(self) -> BaseException | None:
        """Send the files that the script wrote to its scratch folder. Return an error, or None."""
        try:
            self._files.send_written()
        except (OSError, ValueError, LimitReachedError) as error:
            return error
        return None

    def _unfinished_call_error(self) -> BaseException | None:
        """Return an error if a call was never awaited or a task failed unnoticed, else None."""
        generator_lines = self._script_helpers.uniterated_lines()
        unfinished = self._caller.unawaited_calls.texts()
        unfinished += [
            f"the generator on line {line}, over which nothing loops" for line in generator_lines
        ]
        if unfinished:
            call_list = ", ".join(unfinished[:5])
            return NotAwaitedError(f"never awaited, so never made: {call_list}; write `await …`")
        errors = self._loop.unretrieved_exceptions()
        return errors[0] if errors else None

    def _variables(self) -> dict[str, str]:
        return attempt(lambda: describe_variables(self._namespace, self._hidden_names), {})

    def _send_final_frame(self, frame: list[Any]) -> None:
        """Send the final frame of a script.

        If the script's value cannot be encoded, send the value's text instead.
        """
        with self._lock:
            try:
                self._channel.send(frame)
            except Exception:
                is_success = frame[0] == "done"
                if not is_success:
                    raise
                _, value, variables = frame
                self._channel.send(["done", _display_value(value), variables])


def _final_value(value: Any) -> Any:
    """Return the script's final value; for a future, return its result.

    Return None for a future that failed or was cancelled.
    """
    if not asyncio.isfuture(value):
        return value
    has_result = value.done() and not value.cancelled() and value.exception() is None
    return value.result() if has_result else None


def _make_home(scratch: str) -> None:
    """Create a home folder in which libraries store caches, apart from the script's output.

    Args:
        scratch: The working folder.
    """
    import logging

    home = os.path.join(scratch, ".home")
    with contextlib.suppress(OSError):
        os.makedirs(home, exist_ok=True)
    os.environ["HOME"] = home
    # In an empty home folder, matplotlib warns that building its font cache takes long.
    logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)


def _is_async(value: object) -> bool:
    return is_a(value, types.FunctionType) and inspect.iscoroutinefunction(value)


def _display_value(value: Any) -> str:
    """Return a text that stands for a final value that cannot be encoded."""
    # Check the real type: isinstance() also reads the attribute ``__class__``, which a script may
    # set.
    if issubclass(type(value), (list, dict, set, tuple)):
        return f"<{describe_type(value)}>"
    try:
        # The outer call turns an instance of a subclass of str into a plain str.
        return str.__str__(str(value))[:_MAX_TEXT]
    except BaseException:  # the script's own ``__str__`` may even raise SystemExit
        return f"<{describe_type(value)}>"


def _unwrap_single_exception(error: BaseException | None) -> BaseException | None:
    """Return the exception in a group of one exception; any other error unchanged."""
    while is_a(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        inner = error.exceptions[0]
        # An inner exception that was not raised on its own has no traceback: give it the group's.
        error = inner if inner.__traceback__ else inner.with_traceback(error.__traceback__)
    return error


def _find_exceeded_limit(error: BaseException) -> tuple[str, str] | None:
    """Return the name of the exceeded limit that caused an exception, and a message.

    None if no exceeded limit was the cause.
    """
    if is_a(error, LimitReachedError):
        return error.limit, error.message
    if is_a(error, MemoryError):
        return "memory", "the script needed more memory than it may use"
    if is_a(error, OSError) and error.errno == errno.EFBIG:
        return "file", "the script wrote a file larger than it may be"
    if is_a(error, OSError) and error.errno == errno.ENOSPC:
        return "file", "the script filled its scratch space"
    return None


def _explain(error: BaseException) -> str:
    """Return the message of the error that ended a script."""
    if is_a(error, SystemExit):
        return attempt(lambda: f"the script ended itself: {error.code}"[:_MAX_TEXT], "")
    if is_a(error, asyncio.CancelledError):
        return "the script cancelled itself"
    if is_a(error, SyntaxError):
        return attempt(lambda: f"{error.msg} (line {error.lineno})"[:_MAX_TEXT], "not valid Python")
    return message_of(error)
