"""A session with Monty's interpreter: one worker process with persistent variables."""

from __future__ import annotations

import asyncio
import decimal
import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath
from typing import Any, NoReturn, TypeVar, cast

from delf.machine.contexts import without_context
from delf.protocols.sandbox import (
    CallAnswer,
    CallRequest,
    Crashed,
    Done,
    Failed,
    LimitReached,
    Outcome,
    Raised,
    Rerun,
    ScriptHost,
    SessionSpec,
    ToolMessage,
    check_script,
)
from delf.values.encoding import TooLargeError, UnsupportedValueError, check_size, dumps, loads
from delf.values.sizes import is_large
from delf_sandbox.budget import Budget
from delf_sandbox.folders import remove_folder, used_space
from delf_sandbox.guest.arguments import ADD_FILE, RERUN, FunctionWithUsage
from delf_sandbox.guest.failure import describe_collection, describe_keys
from delf_sandbox.guest.limits import FileLimits, LimitReachedError
from delf_sandbox.guest.names import rebound_names_note
from delf_sandbox.guest.output import NOT_GIVEN, FileSender
from delf_sandbox.guest.scratch import Scratch
from delf_sandbox.inputs import visible_path
from delf_sandbox.modules import modules_of
from delf_sandbox.wire import limits_by_name, size_in_memory
from delf_sandbox_monty.aliases import ALIASES, PREAMBLE
from delf_sandbox_monty.lowering import SHIMS, method_name
from delf_sandbox_monty.script import (
    Prepared,
    ScriptNames,
    initial_names_of,
    prelude,
    prepare,
)
from delf_sandbox_monty.uses import UncalledTools, type_name
from delf_sandbox_monty.values import TOO_DEEP, for_monty, plain, plain_or_text
from delf_sandbox_monty.words import (
    STANDARD_MODULES,
    Source,
    describe,
    ended_itself,
    with_input_path,
)

T = TypeVar("T")
_log = logging.getLogger(__name__)

SCRATCH = "/scratch"
"""The path under which scripts see their scratch folder."""
# The maximum number of calls that a script's tasks may make after the script's end.
_MAX_CALLS_AFTER_END = 500
_POLL_SECONDS = 0.25
# The prelude's function describes a value by its type, its length, the types of its items, and the
# keys of the value or of its first item.
_VARIABLES = """{n: __delf_describe__(v) for n, v in locals().items()
if type(v).__name__ != "module"}"""
_MAX_VARIABLES = 60
_HIDDEN = frozenset({"asyncio", "callable", "vars", "exit", "open", "quit", *ALIASES})
_EXCEPTIONS: Mapping[str, type[Exception]] = {
    name: getattr(decimal, alias) for name, alias in ALIASES.items()
}


@dataclass
class _ScriptState:
    """The state of a script.

    Args:
        host: Makes the script's calls; None after the script's end.
    """

    host: ScriptHost | None
    reached_limit: LimitReached | None = None
    """The limit that ended the script."""
    requested_rerun: Rerun | None = None
    """The request of ``rerun()``, which ended the script."""
    remaining_calls_after_end: int | None = None
    """The number of calls that tasks may still make; None before the script's last line."""
    call_ids_by_exception: dict[tuple[str, str], int] = field(
        default_factory=dict[tuple[str, str], int]
    )
    """The ids of failed calls by the names and messages of their exceptions."""


class MontySession:
    """A session with a worker process that runs Monty.

    Implements :class:`delf.protocols.sandbox.SandboxSession`.

    Args:
        pool_session: The entered session of Monty's pool.
        spec: The specification of the session.
        mounts: The folders that scripts can open, in Monty's form.
        folder: The folder on the host that contains these folders, removed with the session.
        forget: Called with the session when it is closed.
    """

    def __init__(
        self,
        pool_session: Any,
        spec: SessionSpec,
        mounts: list[Any],
        folder: Path,
        forget: Callable[[MontySession], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._pool_session = pool_session
        self._spec = spec
        self._mounts = mounts
        self.folder = folder
        self._forget = forget
        self._tools = {tool.name: tool.methods for tool in spec.tools}
        self._script_names = ScriptNames()
        self._initial_names = initial_names_of(
            spec.tools, STANDARD_MODULES | SHIMS, self._script_names
        )
        self._reassigned_tools: set[str] = set()
        self._uncalled_tools = UncalledTools(self._tools)
        self._script = _ScriptState(host=None)  # of the running script, or of the last one
        self._sources: dict[str, Source] = {}  # the scripts, by Monty's name of the file
        self._run_count = 0  # the number of texts that Monty ran; Monty numbers their files
        self._calls: set[asyncio.Task[CallAnswer]] = set()
        self._running: asyncio.Task[Any] | None = None
        self._last_call_id = 0
        # The HTTP statuses of failed calls by the names and messages of their exceptions, to which
        # Monty can add no attributes.
        self._statuses: dict[tuple[str, str], int | None] = {}
        self._budget = Budget(spec.limits)
        # The maximum estimated size of a value from Monty, such as the arguments of a call. A list
        # that contains one long text a thousand times is small in Monty, but huge when encoded.
        self._max_copied_bytes = 2 * spec.limits.frame_bytes
        self._chunks: list[bytes] = []
        self._files = self._make_file_sender()
        self._provided_names = self._make_provided_names()
        self._closed = False

    def _make_file_sender(self) -> FileSender:
        sender = FileSender(self._take_chunk)
        sender.limits = FileLimits(limits_by_name(self._spec.limits))
        sender.row_files = self._spec.row_files
        sender.scratch = Scratch(str(self.folder / "scratch"), SCRATCH)
        return sender

    @property
    def alive(self) -> bool:
        """True if the session can run another script."""
        return not self._closed

    @property
    def worker(self) -> int:
        """The process id of the session's interpreter."""
        return self._pool_session.worker_pid

    @property
    def _input_paths(self) -> dict[str, str]:
        """The paths of the input files as scripts see them, by name."""
        return {name: visible_path(path) for name, path in self._spec.path_by_name.items()}

    async def begin(self) -> None:
        """Define tools' exceptions and the helpers of rewritten scripts in the interpreter."""
        methods_by_type = {
            type_name(name): list(methods) for name, methods in self._tools.items() if methods
        }
        tools_by_name = ", ".join(f"{name!r}: {name}" for name in self._tools)
        tables = f"__delf_methods__ = {methods_by_type!r}\n__delf_tools__ = {{{tools_by_name}}}"
        inputs = f"__delf_inputs__ = {self._input_paths!r}"
        await self._run_in_monty(f"{PREAMBLE}\n{prelude()}\n{tables}\n{inputs}")

    async def execute(self, code: str, host: ScriptHost) -> Outcome:
        """Run a script and return its outcome; ``host`` makes the script's calls."""
        if self._running is not None:
            raise RuntimeError("a session runs one script at a time")
        if not self.alive:
            return Crashed(message="the sandbox is gone")
        if (too_long := check_script(code)) is not None:
            return too_long
        prepared = prepare(code, self._initial_names)
        if isinstance(prepared, Failed):
            return prepared
        await self._restore_tool_names()
        self._script_names.add(prepared)
        self._reassigned_tools.update(prepared.reassigned_tools)
        # The key is Monty's file name for the next text. Compute the name only here, because
        # _restore_tool_names() may have run a text.
        self._sources[f"<python-input-{self._run_count}>"] = Source(code, prepared.lines)
        self._script = _ScriptState(host)
        self._budget.begin_script()
        try:
            outcome = await self._run_to_the_end(prepared)
        except asyncio.CancelledError:
            # Later scripts must not find the half-done variables and calls of a cancelled script.
            await self.aclose()
            raise
        finally:
            self._script.host = None
            self._cancel_calls()
        if isinstance(outcome, (Done, Failed, Rerun)):
            return await self._add_variables_to(outcome)
        # Monty itself enforces the memory limit, and its interpreter stays usable afterwards.
        is_still_usable = isinstance(outcome, LimitReached) and outcome.limit == "memory"
        if not is_still_usable:
            await self.aclose()
        return outcome

    async def _restore_tool_names(self) -> None:
        """Bind tool names to their tools again if earlier scripts bound them to other values."""
        if self._reassigned_tools:
            names = self._reassigned_tools
            await self._run_in_monty(
                "\n".join(f"{name} = __delf_tools__[{name!r}]" for name in names)
            )
            self._reassigned_tools.clear()

    async def _run_to_the_end(self, prepared: Prepared) -> Outcome:
        """Run a script, then the asyncio tasks that it left running; send the files that it wrote.

        If the script does not succeed, its tasks are not run and its files are not sent.
        """
        outcome = await self._run(prepared.code)
        note = rebound_names_note(prepared.reassigned_tools)
        if isinstance(outcome, Failed):
            return replace(outcome, message=outcome.message + note)
        if isinstance(outcome, Rerun):
            return replace(outcome, context=outcome.context + note)
        if not isinstance(outcome, Done):
            return outcome
        if prepared.may_leave_calls_unawaited:
            # Run leftover tasks after the script's last line, as an event loop does, with a limit
            # for tasks that never end.
            self._script.remaining_calls_after_end = _MAX_CALLS_AFTER_END
            end_outcome = await self._run("await __delf_end__()")
            if not isinstance(end_outcome, Done):
                return end_outcome
            if missed := cast("list[str]", end_outcome.value):
                message = f"never awaited, so never made: {', '.join(missed[:5])}; write `await …`"
                return Failed(kind="NotAwaitedError", message=message)
        failure = await asyncio.to_thread(self._send_written_files)
        return outcome if failure is None else failure

    def _send_written_files(self) -> Outcome | None:
        """Send the files that the script wrote to its folder. Runs in a thread.

        Return an outcome if that fails, else None.
        """
        try:
            self._files.send_written()
        except LimitReachedError as error:
            return LimitReached(limit=error.limit, message=error.message)
        except (OSError, ValueError, TypeError) as error:
            return Failed(kind="OutputFileError", message=str(error))
        return None

    async def _run(self, code: str) -> Outcome:
        """Run code in the interpreter, and return the outcome."""
        running = self._running = asyncio.ensure_future(self._run_in_monty(code))
        watching = self._loop.create_task(self._watch_scratch(running))
        try:
            await asyncio.wait({running})
        except asyncio.CancelledError:
            running.cancel()
            await asyncio.wait({running})
            raise
        finally:
            self._running = None
            await asyncio.wait({watching})
        error = asyncio.CancelledError() if running.cancelled() else running.exception()
        # A reached limit and rerun() both stop the code by an error that does not tell the reason.
        if self._script.reached_limit is not None:
            return self._script.reached_limit
        if self._script.requested_rerun is not None:
            return self._script.requested_rerun
        if error is None:
            return await self._outcome_of_result(running.result())
        return self._outcome_of_error(error)

    async def _outcome_of_result(self, result: Any) -> Outcome:
        value = await _in_thread_if_large(plain_or_text, result, self._max_copied_bytes)
        # The value may be a tool that the script should have called.
        problem = await _in_thread_if_large(self._uncalled_tools.error_message, value)
        if problem is not None:
            return Failed(kind="TypeError", message=problem)
        return Done(value=value)

    def _outcome_of_error(self, error: BaseException) -> Outcome:
        from pydantic_monty import MontyCrashedError, MontyError

        if isinstance(error, MontyCrashedError) or not isinstance(error, MontyError):
            return Crashed(message=f"the interpreter is gone: {error}")
        if ended_itself(error):
            return Done()
        limits = self._spec.limits
        modules = modules_of(self._spec)
        outcome = describe(error, self._sources, self._tools, modules, limits)
        if not isinstance(outcome, Failed):
            return outcome
        call_id = self._script.call_ids_by_exception.get((outcome.kind, outcome.message))
        if outcome.kind == "FileNotFoundError":
            message = with_input_path(outcome.message, SCRATCH, self._input_paths)
            outcome = replace(outcome, message=message)
        return replace(outcome, call_id=call_id)

    async def _watch_scratch(self, running: asyncio.Task[Any]) -> None:
        """End the script if its scratch folder on the host's disk grows beyond the limit."""
        max_bytes = self._spec.limits.scratch_bytes
        scratch = str(self.folder / "scratch")
        while not running.done():
            await asyncio.wait({running}, timeout=_POLL_SECONDS)
            used_bytes = await asyncio.to_thread(used_space, scratch, max_bytes)
            if used_bytes > max_bytes:
                self._end_by_limit(
                    "file", f"the script filled its scratch space of {max_bytes:,} bytes"
                )
                return

    async def _run_in_monty(self, code: str) -> Any:
        """Run code in the interpreter; return the value of its last expression."""
        self._run_count += 1
        # Without this, Monty's threads would keep the current context for a while after the run.
        return await without_context(
            self._pool_session.feed_run,
            code,
            external_lookup=self._provided_names,
            print_callback=self._record_print,
            mount=self._mounts,
        )

    async def _add_variables_to(self, outcome: Done | Failed | Rerun) -> Outcome:
        """Return the outcome with a description of the variables, if available."""
        from pydantic_monty import MontyError

        try:
            listing = await self._run_in_monty(_VARIABLES)
        except MontyError:
            return outcome
        except RuntimeError:  # the worker is gone, although the script has ended
            await self.aclose()
            return outcome
        return replace(outcome, variables=_describe_variables(listing, self._tools))

    async def aclose(self) -> None:
        """End the worker process. Idempotent."""
        if self._closed:
            return
        self._closed = True
        self._forget(self)
        self._cancel_calls()
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait({self._running})
        try:
            await without_context(self._pool_session.__aexit__, None, None, None)
        except RuntimeError as error:
            _log.debug("a worker ended before its session: %s", error)
        for mount in self._mounts:
            mount.close()
        await asyncio.to_thread(remove_folder, str(self.folder))

    # -- what scripts can call ----------------------------------------------------------

    def _make_provided_names(self) -> dict[str, Any]:
        """Return a mapping from the names that scripts use to functions and connections."""
        from pydantic_monty import ClassInstance

        names: dict[str, Any] = {
            "add_to_output_files": FunctionWithUsage(ADD_FILE, self._add_file),
            "rerun": FunctionWithUsage(RERUN, self._rerun),
            # Called by the prelude for ``error.status``, which an exception in Monty cannot have.
            "__delf_status__": self._status,
        }
        for name, methods in self._tools.items():
            if not methods:
                names[name] = self._caller(name, "")
                continue
            callers = {method: self._caller(name, method) for method in methods}
            # Rewritten scripts use plain functions where a method is used as a value.
            names |= {method_name(name, method): call for method, call in callers.items()}
            # The object whose methods a script calls, as in ``mail.send()``.
            members = {method: _as_method(call) for method, call in callers.items()}
            connection = type(type_name(name), (), members)()
            names[name] = ClassInstance(connection, allowed_methods=set(methods))
        return names

    def _caller(self, connection: str, method: str) -> Callable[..., Any]:
        """Return the async function that makes the calls of an action or plain tool."""

        async def call(*args: Any, **kwargs: Any) -> Any:
            # The prelude's wait_for() passes its timeout with the arguments of the call.
            timeout = kwargs.pop("__delf_timeout__", None)
            async with asyncio.timeout(timeout):
                return await self._call(connection, method, args, kwargs)

        call.__name__ = method or connection
        return call

    async def _call(
        self, connection: str, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Make a call on the host, and return its result or raise its exception in the script."""
        host = self._script.host
        if host is None:
            raise _EXCEPTIONS["ToolError"]("the script is over; no call can be made any more")
        # Number the call before the first ``await``, so that numbers follow the script's order even
        # if a thread checks large arguments.
        self._last_call_id += 1
        call_id = self._last_call_id
        self._check_calls_after_script()
        plain_args, plain_kwargs, size = await _in_thread_if_large(
            self._check_arguments, args, kwargs
        )
        # The length is 0, because Monty passes the arguments in memory, not in a frame on a wire.
        exceeded = self._budget.count_call(length=0, size=size)
        if exceeded is not None:
            self._end_by_limit(exceeded.limit, exceeded.message)
            raise _EXCEPTIONS["ToolError"](exceeded.message)
        request = CallRequest(
            call_id=call_id,
            connection=connection,
            method=method,
            args=plain_args,
            kwargs=plain_kwargs,
        )
        task = asyncio.ensure_future(host.call(request))
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)
        answer = await task
        if isinstance(answer, Raised):
            # Monty reports an uncaught exception by type and message, without the call's number.
            self._script.call_ids_by_exception[answer.kind, answer.message] = call_id
            self._statuses[answer.kind, answer.message] = answer.http_status
        return await _in_thread_if_large(self._unpack, answer)

    def _check_calls_after_script(self) -> None:
        """Count a call that is made after the script's last line, and raise an error at the limit.

        Do nothing before the last line.
        """
        if self._script.remaining_calls_after_end is None:
            return
        if self._script.remaining_calls_after_end == 0:
            raise _EXCEPTIONS["ToolError"](
                "a task goes on with calls after the script's end: await it"
            )
        self._script.remaining_calls_after_end -= 1

    def _check_arguments(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[list[Any], dict[str, Any], int]:
        """Convert arguments to plain data. Return them with their size in memory, in bytes.

        Raise an exception in the script if the arguments are invalid.
        """
        limit = self._spec.limits.frame_bytes
        # Valid arguments are returned in the try block. In all other cases, ``problem`` is set, and
        # the code after the try block raises. The inspection of refused arguments takes time, too,
        # so the budget counts its bytes.
        inspected_bytes = 0
        try:
            copied = plain([list(args), kwargs], self._max_copied_bytes)
            # A tool among the arguments shows that the script forgot to call this tool.
            self._uncalled_tools.raise_if_in(copied)
            check_size(copied, limit)
            # Encode and decode, so that tools get the same values as from other sandboxes.
            data = dumps(copied)
            if len(data) <= limit:
                plain_args, plain_kwargs = loads(data)
                return plain_args, plain_kwargs, size_in_memory(data)
            problem = f"the arguments are too large: {len(data):,} bytes of at most {limit:,}"
            inspected_bytes = len(data)
        except TooLargeError as error:  # copying stopped at the limit
            problem = str(error)
            inspected_bytes = self._max_copied_bytes
        except UnsupportedValueError as error:
            problem = str(error)
        exceeded = self._budget.count_call(0, inspected_bytes)
        if exceeded is not None:
            self._end_by_limit(exceeded.limit, exceeded.message)
        raise _EXCEPTIONS["ToolArgumentError"](problem)

    def _unpack(self, answer: CallAnswer) -> Any:
        """Return the value in the host's answer to a call; raise if the answer is an error."""
        if isinstance(answer, Raised):
            exception_type = _EXCEPTIONS.get(answer.kind, _EXCEPTIONS["ToolError"])
            raise exception_type(answer.message)
        if isinstance(answer, ToolMessage):
            return answer.message
        limit = self._spec.limits.frame_bytes
        try:
            data = answer.encoded or dumps(answer.value)
        except UnsupportedValueError as error:
            problem = f"the result cannot be passed to the script: {error}"
            raise _EXCEPTIONS["ToolError"](problem) from None
        if len(data) > limit:
            problem = (
                f"the result is too large: {len(data):,} bytes, and at most {limit:,} can be passed"
            )
            raise _EXCEPTIONS["ToolError"](f"{problem}; ask for less")
        # Decoding makes a copy for the script, so that the script cannot change the host's value.
        try:
            return for_monty(loads(data))
        except RecursionError:
            problem = f"the result cannot be passed to the script: {TOO_DEEP}"
            raise _EXCEPTIONS["ToolError"](problem) from None

    def _status(self, kind: str, message: str) -> int | None:
        """Return the HTTP status of the failed call that raised an exception; None if unknown.

        Args:
            kind: The name of the exception.
            message: The message of the exception.
        """
        return self._statuses.get((kind, message))

    def _cancel_calls(self) -> None:
        for task in self._calls:
            if not task.cancelling():  # a second cancellation would interrupt the clean-up
                task.cancel()

    # -- what scripts say ---------------------------------------------------------------

    def _record_print(self, _stream: str, text: str) -> None:
        """Record printed text; end the script if the text exceeds the output limit.

        Monty calls this in one of its threads.

        Raises:
            TypeError: If the script printed a tool instead of calling the tool.
        """
        host = self._script.host
        if host is None or self._script.reached_limit is not None:
            return
        self._uncalled_tools.raise_if_in(text)
        exceeded = self._budget.count_printed_text(text)
        if exceeded is not None:
            self._end_by_limit(exceeded.limit, exceeded.message)
        else:
            encodable_text = text.encode("utf-8", "replace").decode("utf-8")
            self._loop.call_soon_threadsafe(host.printed, encodable_text)

    def _add_file(self, name: Any, content: Any = NOT_GIVEN) -> None:
        """Implement ``add_to_output_files``. Monty calls this in one of its threads."""
        if content is NOT_GIVEN:
            content_argument = ()
        else:
            content_argument = (plain(_to_pathlib(content), self._max_copied_bytes),)
        try:
            self._files(_to_pathlib(name), *content_argument)
        except LimitReachedError as error:
            self._end_by_limit(error.limit, error.message)
            # The script must not be able to catch the error by ``except Exception``.
            raise KeyboardInterrupt from None

    def _take_chunk(self, kind: str, name: str, last: bool, chunk: bytes) -> None:
        """Collect the chunks of a file; with the last chunk, send the file to the host.

        A script that has reached a limit sends no more files.
        """
        self._chunks.append(chunk)
        if not last:
            return
        data = b"".join(self._chunks)
        self._chunks.clear()
        # A tool written to the file as text shows that the script forgot to call this tool.
        self._uncalled_tools.raise_if_in_file(data)
        host = self._script.host
        if host is not None and self._script.reached_limit is None:
            take = host.wrote_rows if kind == "rows" else host.wrote_file
            # Block the script's thread until the host has accepted or refused the file.
            asyncio.run_coroutine_threadsafe(_call_async(take, name, data), self._loop).result()

    def _rerun(self, context: str, remaining: str, carry: Any = None) -> NoReturn:
        """End the script, so that the model writes another script.

        Scripts call this method as ``rerun()``.

        Args:
            context: The facts that the model needs for the other script.
            remaining: The work that the other script has to do.
            carry: The names of the variables that the other script needs: one name, or a list.
        """
        self._uncalled_tools.raise_if_in([context, remaining])
        if isinstance(carry, str):
            carry = [carry]
        carried_names = tuple(map(str, carry or ()))
        self._script.requested_rerun = Rerun(
            context=str(context), remaining=str(remaining), carry=carried_names
        )
        # The script cannot catch this by ``except Exception``; _run() then returns the request.
        raise KeyboardInterrupt("the script asked for another script")

    def _end_by_limit(self, limit: str, message: str) -> None:
        """End the script because it exceeded a limit. The script cannot catch this."""
        self._script.reached_limit = LimitReached(limit=limit, message=message)
        running = self._running
        if running is not None:
            self._loop.call_soon_threadsafe(running.cancel)


def _to_pathlib(value: Any) -> Any:
    """Convert a path object of Monty to one of pathlib; return any other value unchanged."""
    return Path(value) if isinstance(value, PurePath) else value


async def _in_thread_if_large(work: Callable[..., T], *values: Any) -> T:
    """Call a function with some values, in a thread if the values are large."""
    if is_large(values):
        return await asyncio.to_thread(work, *values)
    return work(*values)


async def _call_async(take: Callable[[str, bytes], None], name: str, data: bytes) -> None:
    """Call a function in a coroutine, because run_coroutine_threadsafe() takes only coroutines."""
    take(name, data)


def _as_method(function: Callable[..., Any]) -> Callable[..., Any]:
    async def method(_self: object, *args: Any, **kwargs: Any) -> Any:
        return await function(*args, **kwargs)

    method.__name__ = function.__name__
    return method


def _describe_variables(listing: Any, tools: Collection[str]) -> dict[str, str]:
    """Return descriptions of a script's variables by name, such as "list of 3 int | str".

    Args:
        listing: The untrusted answer of the interpreter: for each variable, the properties that
            :func:`_describe_variable` takes.
        tools: The names of tools, which are left out.
    """
    if not isinstance(listing, dict):
        return {}
    descriptions: dict[str, str] = {}
    variables = list(cast("dict[Any, Any]", listing).items())
    newest_variables = variables[-_MAX_VARIABLES:]
    for name, properties in newest_variables:
        if str(name).startswith("_") or name in _HIDDEN or name in tools:
            continue
        description = _describe_variable(properties)
        if description is not None:
            descriptions[str(name)] = description
    return descriptions


def _describe_variable(properties: Any) -> str | None:
    """Describe a variable of a script; None for delf's own objects and malformed properties.

    Args:
        properties: The name of the variable's type, its length or -1, the names of its items'
            types, and the first keys and the number of keys of a dict or of a list's first dict.
    """
    match properties:
        case (str(kind), int(size), [*item_kinds], [*item_keys], int(key_count)):
            pass
        case _:
            return None
    if kind.startswith("__delf_"):
        return None
    keys = [str(key) for key in item_keys]
    if kind == "dict":
        return describe_keys(kind, key_count, keys)
    if kind in ("list", "tuple", "set"):
        kinds = [str(item_kind) for item_kind in item_kinds]
        first_item = describe_keys("the first", key_count, keys) if keys else ""
        return describe_collection(kind, size, kinds, first_item)
    return f"{kind} of length {size}" if size >= 0 else kind
