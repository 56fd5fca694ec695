"""Options of one task as keywords, and the request made from them."""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypedDict

from delf.errors import ConfigurationError, check_above_zero
from delf.events import PROJECT_FOLDER, Event, start_event
from delf.machine.folders import expand_home
from delf.types import Trust
from delf.values.sequences import one_or_more
from delf_engine.task import MODEL, TRUST, VARIABLES, TaskRequest, check_task, new_task_id
from delf_engine.variables import given_variables

if TYPE_CHECKING:
    from delf.messages import ModelDelta
    from delf_engine.agent_context import AgentChat
    from delf_engine.journal.log import Listener
    from delf_engine.models.money import Ledger
    from delf_engine.outputs import Output


class OfTask(TypedDict, total=False):
    """The options of one task.

    Args:
        files: Input files instead of the agent's.
        conversation_id: A conversation of the agent's chat; the current one when omitted.
        strategy: The name of a strategy instead of the agent's.
        llm: The name of a main model instead of the agent's.
        variables: Plain data by name, which scripts find as variables. The data may be untrusted:
            only the task's words are instructions.
        trust: ``own`` if the user wrote all words of the task, ``outside`` if others wrote some.
    """

    files: Sequence[str | os.PathLike[str]] | None
    conversation_id: str | None
    strategy: str | None
    llm: str | None
    variables: Mapping[str, Any] | None
    trust: Trust


class Watching(OfTask, total=False):
    """The options of one task, and its listeners.

    Args:
        listeners: Called with each event once it is journalled.
        child_listeners: Called with events of child tasks at any depth.
        on_delta: Called with pieces of the model's answers, with ``stream=True``.
        setup: Plain data without secrets, stored in the journal for the process that resumes the
            task.
    """

    listeners: Sequence[Listener]
    child_listeners: Sequence[Listener]
    on_delta: Callable[[ModelDelta], None] | None
    setup: Mapping[str, Any] | None


class QueueOptions(TypedDict, total=False):
    """Options of a task that runs in a runner process: ``agent.submit(task, queue="reports")``.

    Args:
        queue: The queue from which a runner (``delf runner``) takes the task.
        user: The user for whom the task runs, such as ``customer-7``: a queue limits the tasks of
            each user.
        priority: The order in the queue; the lowest comes first, and 0 is the default.
        delay: Seconds before which no runner takes the task.
        retries: The maximum number of retries after an outage; the queue's when omitted.
        retry_after: Seconds until the first retry; the pause doubles each time.
        setup: Data for a runner to build the same agent; the project's when omitted.
    """

    queue: str
    user: str
    priority: int
    delay: float
    retries: int
    retry_after: float
    setup: Mapping[str, Any]


class SubmitOptions(OfTask, QueueOptions, total=False):
    """The options of a submitted task: those of any task, and those of :class:`QueueOptions`."""


RUN: Final = ("output", *OfTask.__annotations__)
ARUN: Final = ("output", *Watching.__annotations__)
_GOING_ON: Final = (
    "settle",
    "budget_usd",
    "continue_past_limit",
    "retries",
    "retry_after",
    "ledger",
)
ARESUME: Final = (*_GOING_ON, "before_start")
_QUEUED: Final = tuple(QueueOptions.__annotations__)
SUBMIT: Final = (*RUN, *_QUEUED)
ASUBMIT: Final = (*SUBMIT, "task_id", "ledger", "before_start")
"""The keywords that :meth:`Agent.asubmit` accepts beside its parameters."""


def queue_options(keywords: Mapping[str, Any]) -> QueueOptions | None:
    """Return the options for a queue among the keywords; None if there are none.

    A task without a queue may have ``user`` and ``setup``, too. So these two count only together
    with ``queue``.
    """
    options: Any = {name: keywords[name] for name in _QUEUED if name in keywords}
    if "queue" not in keywords:
        options.pop("user", None)
        options.pop("setup", None)
    return options or None


def with_queue_options(request: TaskRequest, options: QueueOptions) -> TaskRequest:
    """Add the options for a queue to a task's request.

    Raises:
        ConfigurationError: If no queue is named.
    """
    if "queue" not in options:
        names = ", ".join(options)
        raise ConfigurationError(
            f"submit() takes {names} only with a queue", hint='name one: queue="reports"'
        )
    delay = options.get("delay", 0.0)
    priority = options.get("priority", 0)
    for name in ("delay", "retry_after"):
        value = options.get(name)
        if value:  # 0 is the same as no option
            check_above_zero(name, value)
    if not isinstance(priority, int) or not isinstance(options.get("retries", 0), int):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigurationError("priority and retries are whole numbers", hint="priority=0")
    not_before = time.time() + delay if delay > 0 else None
    return replace(
        request,
        queue=options["queue"],
        user=options.get("user") or None,
        priority=priority,
        not_before=not_before,
        retries=options.get("retries"),
        retry_after=options.get("retry_after"),
        setup={**request.setup, **options.get("setup", {})},
    )


class TaskRequests:
    """Builds the ``TaskRequest`` with which each task of an agent is started.

    Args:
        default_timeout: The timeout in seconds of tasks that have none of their own.
        chat: The chat that tasks continue, if any; may be replaced between tasks.
        output: The declared type of the tasks' answers, if not text.
        project_folder: The folder of the agent's project; None without a project.
    """

    def __init__(
        self,
        default_timeout: float,
        chat: AgentChat | None,
        output: type[Any] | Mapping[str, Any] | None,
        project_folder: Path | None,
    ) -> None:
        self._default_timeout = default_timeout
        self.chat = chat
        self._output = _output_of(output)
        self._project_folder = project_folder

    def make(
        self,
        task: str,
        timeout: float | None,
        conversation_id: str | None = None,
        *,
        interactive: bool = True,
        bounded: bool = False,
        files: Sequence[str | os.PathLike[str]] | None = None,
        output: type[Any] | Mapping[str, Any] | None = None,
        strategy: str | None = None,
        llm: str | None = None,
        variables: Mapping[str, Any] | None = None,
        trust: Trust = "own",
        setup: Mapping[str, Any] | None = None,
        task_id: str | None = None,
        user: str | None = None,
        ledger: Ledger | None = None,
        listeners: Sequence[Listener] = (),
        before_start: Callable[[], Awaitable[None]] | None = None,
    ) -> TaskRequest:
        """Build the request of a new task from its options.

        The options are those of :meth:`Agent.run`, and fields of :class:`TaskRequest`: with
        ``interactive``, the caller waits for the task, so that a person may be asked at the
        terminal; with ``bounded``, the timeout includes the time spent waiting for a person;
        ``trust`` is ``own`` if the user wrote the task.

        Raises:
            ConfigurationError: If the task is invalid, there is no conversation to continue, or a
                variable cannot be given to scripts.
        """
        check_task(task)
        if timeout is not None:
            check_above_zero("timeout", timeout)
        if self.chat is None and conversation_id is not None:
            raise ConfigurationError("the agent has no chat", hint="Agent(chat=Chat(…))")
        # Without an id, the chat's current conversation continues.
        conversation = None if self.chat is None else self.chat.conversation_for(conversation_id)
        answer_type = self._output if output is None else _output_of(output)
        paths: list[str] | None = None
        if files is not None:
            given_paths: tuple[str | os.PathLike[str], ...] = one_or_more(files)
            paths = [os.fspath(path) for path in given_paths]
        # The journal stores these options, so that another process can resume the task with them.
        recorded_options = {
            "output": None if answer_type is None else answer_type.schema,
            "strategy": strategy,
            MODEL: llm,
            VARIABLES: given_variables(variables) if variables else None,
            TRUST: None if trust == "own" else trust,
            "input_files": None if paths is None else _absolute(paths),
        }
        setup_data = self._with_project_folder(setup or {})
        setup_data |= {name: value for name, value in recorded_options.items() if value is not None}
        return TaskRequest(
            task=task,
            task_id=task_id or new_task_id(),
            timeout=self._default_timeout if timeout is None else timeout,
            conversation=conversation,
            interactive=interactive,
            wait_approvals=not interactive,
            bounded=bounded,
            user=user,
            ledger=ledger,
            listeners=one_or_more(listeners),
            before_start=before_start,
            files=paths,
            output=answer_type,
            setup=setup_data,
        )

    def _with_project_folder(self, setup: Mapping[str, Any]) -> dict[str, Any]:
        """Return a task's setup; add the project's folder if the setup names no folder."""
        # "folder" is the key of the folder in which a command was typed.
        has_folder = "folder" in setup or PROJECT_FOLDER in setup
        if self._project_folder is None or has_folder:
            return dict(setup)
        return {**setup, PROJECT_FOLDER: str(self._project_folder)}

    def resumed(
        self, task_id: str, events: Sequence[Event], timeout: float | None, **changes: Any
    ) -> TaskRequest:
        """Build the request of a resumed task.

        The task, the files, the answer type and the setup are those that the journal recorded.

        Args:
            task_id: The task.
            events: The recorded events of the task.
            timeout: Seconds from now; the configuration's when None.
            changes: Fields of the request that differ from the recorded ones.
        """
        start = start_event(events)
        assert start is not None  # noqa: S101 - the first event of every task
        conversation_id = None if self.chat is None else start.conversation
        request = self.make(start.task, timeout, conversation_id, task_id=task_id)
        return replace(
            request,
            past=events,
            # Without a recorded conversation, make() has chosen the chat's current one.
            conversation=None if conversation_id is None else request.conversation,
            # A task that was not started interactively waits for people.
            wait_approvals=not start.interactive,
            files=start.setup.get("input_files"),
            setup=start.setup,
            user=start.user,
            output=self._output_with(start.setup.get("output")),
            **changes,
        )

    def _output_with(self, schema: Mapping[str, Any] | None) -> Output[Any] | None:
        """Return the answer type for a JSON schema from a task's journal; None without a schema."""
        if schema is None:
            return None
        if self._output is not None and self._output.schema == schema:
            return self._output
        return _output_of(schema)


def _absolute(paths: Sequence[str]) -> list[str]:
    """Make paths independent of the working folder, which another process may not share."""
    return [str(expand_home(path).absolute()) for path in paths]


def _output_of(kind: type[Any] | Mapping[str, Any] | None) -> Output[Any] | None:
    if kind is None:
        return None
    from delf_engine.outputs import Output

    return Output(kind)
