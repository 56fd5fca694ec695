"""``CallContext``: the task behind a call as an action sees it, and child tasks."""

from __future__ import annotations

from asyncio import AbstractEventLoop
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from delf.errors import TaskLimitError, ToolExecutionError, ToolRefusedError, did_you_mean
from delf.machine.threads import running_loop
from delf.records import dataclass
from delf.types import Trust

if TYPE_CHECKING:
    from delf.llm import LLMConfig
    from delf.messages import Message, ModelReply

Check = Callable[[str], "str | None"]


class Connect(Protocol):
    """A function that creates further connections for a task.

    This is a protocol because ``Callable`` cannot declare keywords.
    """

    def __call__(
        self,
        name: str,
        *,
        kind: str | None = None,
        settings: Mapping[str, Any] | None = None,
        where: str | None = None,
    ) -> Any:
        """Create a connection and return it as :class:`delf.protocols.connection.ConnectionLike`.

        Args:
            name: The name in scripts. Without ``kind``, the name also selects what is created: the
                connection of that name in ``delf.toml``, or the type of that name if there is no
                such connection or ``settings`` are given.
            kind: The name of a type, or the path of a class, such as ``mycompany.tools.Database``.
            settings: The settings as in ``[connections.NAME]``, including ``allow`` and
                ``confirm``. Relative paths count from the project's folder.
            where: The location of the configuration, for messages.

        Raises:
            ConfigurationError: If the type is unknown or the settings are invalid.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildTask:
    """A child task that an action delegates; options that are None are inherited from the parent.

    Args:
        task: The task, in plain words.
        tools: Connections and functions.
        llm: The model.
        system_prompt: Instructions for the model.
        files: Paths of input files.
        timeout: The timeout in seconds. The child also ends at the timeout of its parent.
        worker: The name of the worker that runs the task, shown in approval requests.
        budget_usd: The cost limit of the child and its own children, within the agent's budget.
        retry_count: The maximum number of retries of a failed script.
        rerun_count: The maximum number of times that a script may request to be followed by another
            script, with new context.
        strategy: The strategy's name.
        check: Checks the text of the answer: returns None to accept the answer, or a description of
            its fault, which the model then has to fix. Must be quick.
        output: The type of the answer, if it is not text: a type, or a JSON Schema.
        trust: ``own`` if the text of the task consists only of fixed text of the action and of
            arguments that the script passed to the action. With ``outside``, the child treats the
            text as untrusted data, unless the complete text is such an argument.
    """

    task: str
    tools: Sequence[Any] | None = None
    llm: str | LLMConfig | None = None
    system_prompt: str | None = None
    files: Sequence[str | Path] | None = None
    timeout: float | None = None
    worker: str | None = None
    budget_usd: float | None = None
    retry_count: int | None = None
    rerun_count: int | None = None
    strategy: str | None = None
    check: Check | None = None
    output: type[Any] | Mapping[str, Any] | None = None
    trust: Trust = "outside"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildResult:
    """The outcome of a child task.

    Args:
        task_id: The child's id, in the parent's journal.
        text: The answer, or the output of a failed task.
        status: Whether the child task succeeded.
        error: The error message, if the task failed.
        hint: The suggested next step, if known.
        cost_usd: The cost; None if a price is unknown. The parent's cost includes it.
        files: The output files: paths by name.
        value: The answer as plain data, if the child had an ``output`` type.
        at_limit: Whether the child failed because it reached its timeout or budget.
    """

    task_id: str
    text: str
    status: bool
    error: str | None = None
    hint: str | None = None
    cost_usd: float | None = 0.0
    files: Mapping[str, str] = field(default_factory=dict[str, str])
    value: Any = None
    at_limit: bool = False

    def raise_for_status(self, who: str) -> None:
        """Raise an error if the child task failed.

        Args:
            who: The name of the worker or tool, for the message.

        Raises:
            TaskLimitError: If the child reached its timeout or budget.
            ToolExecutionError: If the child failed in another way.
        """
        if self.status:  # True if the child task succeeded
            return
        error_type = TaskLimitError if self.at_limit else ToolExecutionError
        raise error_type(f"{who} failed: {self.error}", hint=self.hint)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallContext:
    """The task behind a call, which an action receives by a parameter of this type.

    Neither the model nor the script sees that parameter.

    Args:
        task_id: The task.
        task: The task, in plain words.
        call_id: The call's number in the task.
        connection: The name of the connection that is called.
        folder: The folder of the agent's project, or the working folder.
        depth: The nesting depth: 0 for the user's task, 1 for its children.
        worker: The name of the worker that does the task; None in a task of the user.
        user: The user for whom the task runs: a person of a server, or the ``user`` of
            ``submit()``; None for the local user.
        input_files: Paths of the task's input files, by name.
        llm: The model of the task.
        vision_llm: The agent's model for images and documents.
        strategy: The name of the strategy, which turns the task into tool calls.
        tools: The task's connections, by name.
        connect: A function that creates further connections.
        basis: The ``basis`` of the preview that a person approved, as returned by the connection's
            ``check``; None if nobody saw a preview. If the state now differs from the basis, the
            action must change nothing and raise an error.
    """

    task_id: str
    task: str
    call_id: int
    connection: str
    folder: Path
    depth: int
    input_files: Mapping[str, Path]
    llm: LLMConfig
    vision_llm: LLMConfig
    strategy: str
    tools: Mapping[str, Any] = field(repr=False)
    connect: Connect = field(repr=False)
    _say: Callable[[str], None] = field(repr=False)
    _loop: AbstractEventLoop = field(repr=False)
    _output_files: Callable[[], Mapping[str, Path]] = field(repr=False)
    _read_file: Callable[..., bytes] = field(repr=False)
    _add_file: Callable[[str, bytes], None] = field(repr=False)
    _delegate: Callable[[ChildTask], Awaitable[ChildResult]] = field(repr=False)
    _ask: Callable[..., Awaitable[ModelReply]] = field(repr=False)
    _consent: Callable[..., Awaitable[Mapping[str, Any] | None]] = field(repr=False)
    basis: str | None = None
    worker: str | None = None
    user: str | None = None

    @property
    def output_files(self) -> Mapping[str, Path]:
        """The files that the task has written so far, by name."""
        return self._output_files()

    def read_file(
        self, name: str, max_bytes: int, *, read: Callable[[], bytes] | None = None
    ) -> bytes:
        """Read a file that the call names. Blocking: call this method in a thread.

        If the connection's ``check`` has read the file before the approval, the action gets the
        same bytes, even if the file has changed since then.

        Args:
            name: The name of an input file, or of a file that the task has written.
            max_bytes: The maximum size of the file in bytes.
            read: Reads the file if it does not belong to the task, for example from another
                connection.

        Raises:
            ToolRefusedError: If the file is missing or too large.
            OSError: If the file cannot be read.
        """
        return self._read_file(name, max_bytes, read)

    def say(self, text: str) -> None:
        """Show the progress of a long call to people, such as the output of a command.

        The text is in the journal and in the trace, without secrets; the script does not see it.
        Thread-safe.

        Args:
            text: A message or a part of one.
        """
        self._call_on_loop(self._say, text)

    def add_output_file(self, name: str, data: bytes) -> None:
        """Add a file to the task's output, as ``add_to_output_files`` does in a script.

        The file is written in the background, before the next call is made. Thread-safe.

        Args:
            name: A relative name; a file of the task with that name is replaced.
            data: The content of the file.
        """
        self._call_on_loop(self._add_file, name, data)

    def _call_on_loop(self, function: Callable[..., None], *args: object) -> None:
        """Call a function on the agent's event loop: at once if this code already runs there."""
        if running_loop() is self._loop:
            # Call at once: a scheduled call would wait until the caller awaits something.
            function(*args)
        else:
            self._loop.call_soon_threadsafe(function, *args)

    async def delegate(
        self,
        task: str,
        *,
        tools: Sequence[Any] | None = None,
        llm: str | LLMConfig | None = None,
        system_prompt: str | None = None,
        files: Sequence[str | Path] | None = None,
        timeout: float | None = None,
        **more: Any,
    ) -> ChildResult:
        """Run a child task, and wait for it.

        The child shares budget, approvals and journal with its parent, asks the same people,
        appears in the parent's trace, and is cancelled with the call.

        If the process dies while the child runs, the resumed parent repeats the whole call without
        asking a person. The repeated ``delegate`` continues the child, or returns its recorded
        result. Everything else that an action with ``delegate`` does must be idempotent.

        Args:
            task: The task, in plain words.
            tools: Connections and functions; the agent's when omitted.
            llm: The model; the agent's when omitted.
            system_prompt: Instructions for the model; the agent's when omitted.
            files: Paths of input files; the agent's when omitted.
            timeout: The timeout in seconds; that of the parent when omitted.
            more: Further fields of :class:`ChildTask`.

        Raises:
            TaskLimitError: If the task is nested too deeply.
        """
        return await self._delegate(
            ChildTask(
                task=task,
                tools=tools,
                llm=llm,
                system_prompt=system_prompt,
                files=files,
                timeout=timeout,
                **more,
            )
        )

    async def ask(
        self,
        messages: Sequence[Message],
        *,
        llm: str | LLMConfig | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> ModelReply:
        """Ask a model during a call; the cost counts against the task's budget.

        Args:
            messages: The conversation.
            llm: The model; the agent's main one when omitted.
            settings: Generation settings. With ``max_tokens`` a longer answer is truncated, with
                ``broken_by`` set to ``length``. Without ``max_tokens`` the answer is continued to
                its end.

        Raises:
            BudgetExceededError: If the call could exceed the budget; nothing is spent.
            DelfError: If the call failed after retries, or the answer broke off.
        """
        return await self._ask(messages, llm, settings or {})

    async def consent(
        self,
        question: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        name: str = "consent",
        fit: Callable[[Mapping[str, Any]], dict[str, Any]] | None = None,
    ) -> Mapping[str, Any] | None:
        """Ask a person to approve something during a call, through the task's approval channels.

        Args:
            question: The question, in plain words.
            arguments: The values to approve; the person may edit the values before the approval.
            name: The question's name; people see ``<connection>.<name>``.
            fit: Validates values that the person edited and returns them converted; raises
                ``ToolRefusedError`` for invalid values. None to accept any values.

        Returns:
            The approved arguments; None if the person rejected them.
        """
        convert = dict if fit is None else fit  # dict() returns the values unchanged
        return await self._consent(question, dict(arguments or {}), name, convert)


def read_once(
    content_by_name: dict[str, bytes],
    path_by_name: Mapping[str, Path],
    name: str,
    max_bytes: int,
    reader: Callable[[], bytes] | None = None,
) -> bytes:
    """Return the content of a file for a call, reading each file at most once per call.

    Args:
        content_by_name: The content of the files that the call has read so far, by name. The
            function adds the content of the file.
        path_by_name: The paths of the task's files by name.
        name: The name of the file.
        max_bytes: The maximum size in bytes.
        reader: A function that reads a file that does not belong to the task.

    Raises:
        ToolRefusedError: If the file is missing or too large.
    """
    if reader is None and name not in path_by_name:
        name = Path(name).name  # a script may write "folder/a.csv" for the task's file "a.csv"
    if name not in content_by_name:
        content_by_name[name] = (
            _read_task_file(path_by_name, name, max_bytes) if reader is None else reader()
        )
    # The content may exceed this call's limit if the content was read earlier, or comes from
    # ``reader``.
    size = len(content_by_name[name])
    if size > max_bytes:
        raise ToolRefusedError(f"{name} has more than {max_bytes:,} bytes")
    return content_by_name[name]


def _read_task_file(path_by_name: Mapping[str, Path], name: str, max_bytes: int) -> bytes:
    """Read one of the task's files, refusing unknown and too large files."""
    path = path_by_name.get(name)
    if path is None:
        raise ToolRefusedError(
            f"the task has no file {name[:200]!r}; its files: "
            f"{', '.join(path_by_name) or 'none'}{did_you_mean(name, path_by_name)}"
        )
    with path.open("rb") as file:
        data = file.read(max_bytes + 1)  # one byte more, to notice a file that is too large
    if len(data) > max_bytes:
        raise ToolRefusedError(f"{name} has more than {max_bytes:,} bytes")
    return data
