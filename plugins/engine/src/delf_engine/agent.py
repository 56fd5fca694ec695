"""``Agent``: tools, a model, and tasks in plain words."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import (
    AsyncGenerator,
    Callable,
    Collection,
    Coroutine,
    Mapping,
    Sequence,
)
from dataclasses import replace
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    Generic,
    NoReturn,
    Protocol,
    Self,
    Unpack,
    get_args,
    overload,
)

from delf.attributes import FixedAttributes
from delf.errors import (
    AgentConfirmationError,
    AgentStateError,
    ConfigurationError,
    UnknownKeywordError,
    check_above_zero,
    check_one_of,
)
from delf.events import end_event
from delf.protocols.approval import (
    AlreadyDone,
    Answered,
    Approved,
    ChangesRequested,
    Decision,
    Edited,
    Rejected,
    RememberedDecision,
)
from delf.protocols.journal import Journal
from delf.protocols.memory import SupportsStore
from delf.protocols.services import Service
from delf.terminal import visible
from delf.types import Settle, TaskState
from delf.values.sequences import one_or_more
from delf_engine.background import (
    BackgroundTask,
    BackgroundTasks,
    Granularity,
    stream_of,
)
from delf_engine.closing import close_all
from delf_engine.foreign_tools import as_connections
from delf_engine.handle import FollowsTasks, TaskHandle
from delf_engine.options import AgentOptions
from delf_engine.response import Response, past_response, response_of
from delf_engine.sync import RuntimeLoop
from delf_engine.task import MODEL, TaskRequest
from delf_engine.task_options import (
    ARESUME,
    ARUN,
    ASUBMIT,
    RUN,
    SUBMIT,
    OfTask,
    SubmitOptions,
    TaskRequests,
    Watching,
    queue_options,
    with_queue_options,
)
from delf_engine.views.trace import TASK_PRINTER

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from delf.events import Covers, Event, Remember
    from delf.messages import ModelDelta, Usage
    from delf.plugins.host import PluginHost
    from delf.protocols.memory import MemoryStore
    from delf.protocols.people import PersonChange
    from delf.protocols.strategy import Strategy
    from delf.trust.decisions import Trust
    from delf_engine.agent_context import AgentChat, AgentContext
    from delf_engine.approvals.channels import Ask, Confirm
    from delf_engine.config import AgentConfig
    from delf_engine.journal.log import Listener
    from delf_engine.models.money import Ledger
    from delf_engine.project.any_project import AnyProject
    from delf_engine.runtime import Runtime
    from delf_engine.views.records import StreamEvent

    T = TypeVar("T", default=Any)
    Out = TypeVar("Out", default=Any)  # a JSON Schema does not determine the Python type
    U = TypeVar("U")
else:  # only type checkers need the defaults
    from typing import TypeVar

    T = TypeVar("T")


class Agent(FollowsTasks, FixedAttributes, Generic[T]):
    """Runs tasks by letting a model write scripts that call its tools.

    An agent starts on first use and works on one event loop: the loop of the first ``await``, or a
    loop in its own thread if first used from synchronous code. Calls from other threads and loops
    are passed on to that loop.

    Configure an agent with a :class:`delf_engine.config.AgentConfig`, or with the fields of that
    class as keywords; ``docs/configuration.md`` lists all fields and defaults. None means not
    given.

    Args:
        config: An ``AgentConfig``, whose fields the keywords override; the model's name; or a list
            of tools.
        tools: Connections, ``@tool`` functions, or plain functions.
        chat: The conversation to continue: a ``Chat``, the options of a ``Chat``, or True for a
            conversation in memory.
        memory: A store of facts that are recalled for each task, or the name of a store.
        strategy: A strategy object, or the name of a strategy.
        on_confirm: Called for calls that need approval; returns True, False, or None to leave the
            call to the next channel. Plain or async.
        on_ask: Called for questions of scripts; returns the answer, or None to leave the question
            to the next channel. Plain or async.
        output: The type of the answers, if not text: a pydantic model, a dataclass, a TypedDict, or
            a JSON Schema. ``response.value`` is then the answer as an object of this type.
        host: The plugins; all installed ones when omitted.
        project: A project, whose settings apply where options are omitted, and whose plugins and
            environment variables the agent uses; :meth:`from_project` finds a project.
        options: Fields of the configuration.

    Raises:
        ConfigurationError: For an unknown or invalid option.
        ModelConfigurationError: If no model is given.
        ToolDefinitionError: For something in ``tools`` that is not a tool.
    """

    _fixed_hint = "make another agent with {name}=…, as Agent(agent.config, {name}=…) does"
    _options = frozenset(
        (*AgentOptions.__annotations__, "strategy", "on_confirm", "on_ask", "output")
    )

    def __init__(
        self,
        config: AgentConfig | str | Sequence[Any] | None = None,
        *,
        tools: Sequence[Any] | None = None,
        chat: AgentChat | Mapping[str, Any] | bool | None = None,
        memory: MemoryStore | SupportsStore | str | None = None,
        strategy: str | Strategy | None = None,
        on_confirm: Confirm | None = None,
        on_ask: Ask | None = None,
        output: type[T] | Mapping[str, Any] | None = None,
        host: PluginHost | None = None,
        project: AnyProject | None = None,
        **options: Unpack[AgentOptions],
    ) -> None:
        from delf_engine.approvals.pending import PendingRequests
        from delf_engine.config import merged_config
        from delf_engine.models.money import Ledger
        from delf_engine.strategies import with_strategy

        if isinstance(config, str):
            if options.get("llm") is not None:
                raise ConfigurationError(
                    f"two models are given: {config!r} and llm={options.get('llm')!r}",
                    hint='Agent("gpt-4o-mini", tools=[…]) or Agent(llm="gpt-4o-mini", tools=[…])',
                )
            options["llm"] = config
            config = None
        elif isinstance(config, Sequence):
            tools = [*as_connections(config), *as_connections(tools or ())]
            config = None
        # A memory or a strategy given by name becomes a setting. Given as an object, it stays with
        # this agent.
        memory_name = memory if isinstance(memory, str) else None
        self.memory = None if isinstance(memory, str) else memory
        strategy_name = strategy if isinstance(strategy, str) else None
        self._strategy = None if isinstance(strategy, str) else strategy
        settings = {**options, "memory": memory_name, "strategy": strategy_name}
        project_config = None if project is None else project.agent
        merged = merged_config(project_config, config, settings)
        self._config = with_strategy(merged, host)
        _ = self.config.main_llm  # without a model, this raises here and not in the first task
        _check_callback("on_confirm", on_confirm)
        _check_callback("on_ask", on_ask)
        self.agent_id = f"agent_{secrets.token_hex(6)}"
        self.tools = as_connections(tools or ())
        chosen_chat = self.config.chat if chat is None else chat
        self._requests = TaskRequests(
            self.config.timeout,
            self._chat_of(chosen_chat, host),
            output,
            project_folder=None if project is None else project.root,
        )
        self._context: AgentContext | None = None
        self._chats: list[AgentChat] = []
        self._on_confirm = on_confirm
        self._on_ask = on_ask
        self._host = host
        self._project = project
        self._ledger = Ledger(self.config.budget_usd, allow_unpriced=self.config.allow_unpriced)
        self._pending_requests = PendingRequests()
        self._tasks = BackgroundTasks()
        self._runtime_loop = RuntimeLoop(self._make_runtime, f"delf-{self.agent_id}")

    @classmethod
    def from_project(
        cls,
        path: str | os.PathLike[str] | AnyProject = ".",
        *,
        trust: bool | Trust = False,
        connections: Collection[str] | None = None,
        tools: Sequence[Any] = (),
        host: PluginHost | None = None,
        **overrides: Any,
    ) -> Self:
        """Make an agent as ``delf run`` does, from the nearest ``delf.toml`` and its environment.

        The agent has a durable journal if one is installed.

        Args:
            path: A directory from which ``delf.toml`` is searched upwards, the path of the file, or
                a project object.
            trust: Trust the project's folder. Otherwise its files have no effect until the user
                trusts them, with `delf trust` or ``DELF_TRUST``.
            connections: The names of the connections to use; all connections of the project when
                omitted.
            tools: Further tools.
            host: The plugins; all installed ones when omitted.
            overrides: Any other parameters of :class:`Agent`, which override the project.

        Raises:
            FolderNotTrustedError: If the folder's files are not trusted.
            ConfigurationError: If a setting is invalid; the error names file or variable, key and
                allowed values.
        """
        from delf.plugins.host import PluginHost
        from delf_engine.project.any_project import journal_name, project_at

        project = project_at(path, trust)
        host = host or PluginHost.discover(environ=project.environ)
        connect = project.connector(host)
        if connections is None:
            connections = project.connections
        elif isinstance(connections, str):
            connections = [connections]
        # Each connection is made once, even if its name is given twice.
        named = [connect(name) for name in dict.fromkeys(connections)]
        overrides.setdefault("journal", journal_name(project, host))
        return cls(tools=[*named, *as_connections(tools)], host=host, project=project, **overrides)

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled or copied, because an agent belongs to one process.

        Raises:
            AgentStateError: Always.
        """
        raise AgentStateError(
            "an agent cannot be pickled or copied",
            hint="make the agent in a module, which other processes import; or make another "
            "agent, as Agent(agent.config, tools=agent.tools) does",
        )

    # -- its parts ----------------------------------------------------------------------

    @property
    def config(self) -> AgentConfig:
        """The agent's configuration."""
        return self._config

    @property
    def plugins(self) -> PluginHost:
        """The agent's plugins: the given host, or the installed plugins."""
        from delf.plugins.host import PluginHost

        return self._host or PluginHost.discover()

    @property
    def project(self) -> AnyProject | None:
        """The project that the agent's options come from; None without a project."""
        return self._project

    def use_journal(self, work: Callable[[Journal], Coroutine[Any, Any, U]]) -> U:
        """Run an async function with the agent's journal on the agent's event loop.

        Args:
            work: Called with the journal.
        """
        # The two names are for the error that call() raises on the agent's own event loop.
        return self._runtime_loop.call(lambda r: work(r.journal), "use_journal", "ause_journal")

    async def ause_journal(self, work: Callable[[Journal], Coroutine[Any, Any, U]]) -> U:
        """Async version of :meth:`use_journal`."""
        return await self._runtime_loop.call_async(lambda runtime: work(runtime.journal))

    def set_default_journal(self, name: str) -> None:
        """Set the journal to use if the configuration names none.

        Args:
            name: The name of a journal plugin.

        Raises:
            AgentStateError: If the configuration names no journal and the agent has already
                started.
        """
        if "journal" in self.config.model_fields_set:
            return
        if self.started:
            raise AgentStateError(
                "the agent has started with a journal", hint=f"Agent(journal={name!r})"
            )
        self._config = self.config.model_copy(update={"journal": name})

    @property
    def chat(self) -> AgentChat | None:
        """The chat that tasks continue; a new value applies to later tasks.

        Accepts the same values as ``Agent(chat=…)``; None ends the conversation.
        """
        return self._requests.chat

    @chat.setter
    def chat(self, value: AgentChat | Mapping[str, Any] | bool | None) -> None:
        chat = self._chat_of(value, self._host)
        # Before the start, there is no context: the start attaches the chat.
        if chat is not None and self._context is not None:
            self._attach(chat, self._context)
        self._requests.chat = chat

    @staticmethod
    def _chat_of(
        chat: AgentChat | Mapping[str, Any] | bool | None, host: PluginHost | None
    ) -> AgentChat | None:
        if chat is None or chat is False:
            return None
        from delf_engine.agent_context import as_chat

        return as_chat(chat, host)

    def _attach(self, chat: AgentChat, context: AgentContext) -> None:
        """Let a chat use the agent's models and plugins; the chat is closed with the agent."""
        chat.attach(context)
        if chat not in self._chats:
            self._chats.append(chat)

    async def _close_chats(self) -> None:
        self._context = None  # a chat that is set after the stop is attached at the next start
        chats = {f"the chat number {number}": chat for number, chat in enumerate(self._chats, 1)}
        self._chats = []
        await close_all(chats)

    # -- life ---------------------------------------------------------------------------

    def start(self) -> Self:
        """Load tools and prepare the sandbox now rather than with the first task."""
        self._runtime_loop.start()
        return self

    async def astart(self) -> Self:
        """Async version of :meth:`start`."""
        await self._runtime_loop.astart()
        return self

    def stop(self) -> None:
        """Cancel running tasks; free sandboxes, connections and threads. Idempotent."""
        self._runtime_loop.stop()

    async def astop(self, *, keep_resumable: bool = False) -> None:
        """Async version of :meth:`stop`.

        With ``keep_resumable``, the journal does not record the end of running tasks, so that any
        process can resume the tasks.
        """
        await self._runtime_loop.astop(keep_resumable=keep_resumable)

    async def acheck(self) -> tuple[str, ...]:
        """Check that a task could start; raise ``DelfError`` if not. No model is asked.

        Returns:
            Warnings about connections and packages that do not prevent tasks.
        """
        return await self._runtime_loop.call_async(lambda runtime: runtime.check())

    @property
    def started(self) -> bool:
        """True if the agent has started and was not stopped."""
        return self._runtime_loop.is_bound

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_error: object) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        return await self.astart()

    async def __aexit__(self, *_error: object) -> None:
        await self.astop()

    # -- tasks --------------------------------------------------------------------------

    @overload
    def run(
        self,
        task: str,
        timeout: float | None = None,
        *,
        output: type[Out] | Mapping[str, Any],
        **more: Unpack[OfTask],
    ) -> Response[Out]: ...
    @overload
    def run(
        self, task: str, timeout: float | None = None, **more: Unpack[OfTask]
    ) -> Response[T]: ...
    def run(self, task: str, timeout: float | None = None, **options: Any) -> Response[Any]:
        """Run a task and wait for it.

        Args:
            task: The task, in plain words.
            timeout: Seconds until this method returns at the latest; the task is then stopped and
                the response has a timeout error. When omitted, the configuration's timeout (60)
                applies, which does not count time spent waiting for a person.
            options: Options of this task instead of the agent's: ``output`` (the type of
                ``response.value``), ``files`` (input files), ``conversation_id`` (the current
                conversation when omitted), ``strategy`` and ``llm`` (names).

        Raises:
            ConfigurationError: If the agent cannot start, its model cannot be asked, its
                conversation cannot be opened, or a file cannot be read.
            AgentStateError: If called from the event loop that the agent works on.
        """
        UnknownKeywordError.check(self.run, options, RUN)
        # Only a timeout that the caller gave also counts the time spent waiting for a person.
        counts_waits_for_people = timeout is not None
        request = self._requests.make(task, timeout, bounded=counts_waits_for_people, **options)
        return self._runtime_loop.call(lambda runtime: self._run(runtime, request), "run", "arun")

    @overload
    async def arun(
        self,
        task: str,
        timeout: float | None = None,
        *,
        output: type[Out] | Mapping[str, Any],
        **more: Unpack[Watching],
    ) -> Response[Out]: ...
    @overload
    async def arun(
        self, task: str, timeout: float | None = None, **more: Unpack[Watching]
    ) -> Response[T]: ...
    async def arun(
        self,
        task: str,
        timeout: float | None = None,
        *,
        listeners: Sequence[Listener] = (),
        child_listeners: Sequence[Listener] = (),
        on_delta: Callable[[ModelDelta], None] | None = None,
        **options: Any,
    ) -> Response[Any]:
        """Async version of :meth:`run`. Cancelling it stops the task.

        Args:
            task: The task, in plain words.
            timeout: Seconds, without the time spent waiting for a person (use ``asyncio.timeout``
                to count all time). When omitted, the configured timeout applies.
            listeners: Called with each event once it is journalled.
            child_listeners: Called with events of child tasks at any depth.
            on_delta: Called with pieces of the model's answers, with ``stream=True``.
            options: The options of :meth:`run`. One more option is ``setup``, plain data without
                secrets, which the journal stores for the process that resumes the task.
        """
        UnknownKeywordError.check(self.arun, options, ARUN)
        request = self._requests.make(task, timeout, **options)
        watched = replace(
            request,
            listeners=one_or_more(listeners),
            child_listeners=one_or_more(child_listeners),
            on_delta=on_delta,
        )
        return await self._runtime_loop.call_async(lambda r: self._run(r, watched))

    def resume(
        self,
        task_id: str,
        timeout: float | None = None,
        *,
        settle: Settle = "ask",
        budget_usd: float | None = None,
    ) -> Response:
        """Resume a task whose process was killed, and wait for it.

        A task that ended at its timeout or budget continues if a higher limit is given.

        No recorded call is made twice. An interrupted read is repeated; about any other interrupted
        call a person is asked (:attr:`ApprovalRequest.outcome_unknown`).

        Args:
            task_id: The task, in this agent's journal.
            timeout: Seconds from now; the configuration's when omitted.
            settle: The decision about interrupted calls: ``ask`` a person, make the calls
                ``again``, or treat the calls as ``done`` without a result.
            budget_usd: The new limit of the agent's total costs, which include all earlier costs.

        Returns:
            The response, from the journal if the task is over. The task stays ``interrupted`` if
            the script behaves differently from its record (the response's error is then
            ``ReplayMismatch``), or if nobody decided about an interrupted call
            (``UndecidedCallError``).

        Raises:
            DelfError: If the journal does not have the task, or a live process works on it.
        """
        options: dict[str, Any] = {"settle": settle, "budget_usd": budget_usd}
        return self._runtime_loop.call(
            lambda r: self._resume(r, str(task_id), timeout, **options), "resume", "aresume"
        )

    async def aresume(
        self,
        task_id: str,
        timeout: float | None = None,
        *,
        listeners: Sequence[Listener] = (),
        on_delta: Callable[[ModelDelta], None] | None = None,
        **options: Any,
    ) -> Response:
        """Async version of :meth:`resume`; listeners get new events only.

        More options are ``settle`` and ``budget_usd`` (see :meth:`resume`), ``retries`` and
        ``retry_after`` (see :meth:`submit`), ``before_start`` (see :meth:`asubmit`) and a
        ``ledger``, which counts the cost. With ``continue_past_limit=True``, a task that ended at
        its timeout or budget continues. This is the default if ``timeout`` or ``budget_usd`` is
        given.
        """
        UnknownKeywordError.check(self.aresume, options, ARESUME)
        options |= {"listeners": one_or_more(listeners), "on_delta": on_delta}
        return await self._runtime_loop.call_async(
            lambda runtime: self._resume(runtime, str(task_id), timeout, **options)
        )

    def fork(
        self,
        task_id: str,
        at: int | None = None,
        *,
        script: str | None = None,
        llm: str | None = None,
    ) -> str:
        """Create a task with a copy of another task's events up to one event.

        :meth:`resume` then continues the new task: earlier calls are not made again.

        Args:
            task_id: The other task, in this agent's journal.
            at: The number of the last event to copy. When omitted, the last copied event is the one
                just before the last request to the model.
            script: The script to run instead of the model's next script.
            llm: The name of another model for the following scripts.

        Returns:
            The new task's id.

        Raises:
            UnknownTaskError: If the task or the event does not exist.
        """
        return self._runtime_loop.call(
            lambda r: self._fork(r, str(task_id), at, script=script, llm=llm), "fork", "afork"
        )

    async def afork(
        self,
        task_id: str,
        at: int | None = None,
        *,
        script: str | None = None,
        llm: str | None = None,
        user: str | None = None,
        setup: Mapping[str, Any] | None = None,
    ) -> str:
        """Async version of :meth:`fork`; ``user`` and ``setup`` as for :meth:`asubmit`."""
        return await self._runtime_loop.call_async(
            lambda r: self._fork(r, str(task_id), at, user, setup, script=script, llm=llm)
        )

    async def _fork(
        self,
        runtime: Runtime,
        task_id: str,
        at: int | None,
        user: str | None = None,
        setup: Mapping[str, Any] | None = None,
        *,
        script: str | None = None,
        llm: str | None = None,
    ) -> str:
        from delf_engine.journal.forks import fork

        fork_setup = dict(setup or {})
        if llm is not None:
            fork_setup[MODEL] = llm
        return await fork(runtime.journal, task_id, at, user=user, setup=fork_setup, script=script)

    async def _resume(
        self,
        runtime: Runtime,
        task_id: str,
        timeout: float | None,
        *,
        budget_usd: float | None = None,
        continue_past_limit: bool | None = None,
        **options: Any,
    ) -> Response:
        """Resume a task, or return the response of a task that is over.

        Args:
            runtime: The agent's runtime.
            task_id: The task.
            timeout: Seconds from now; the configuration's when omitted.
            budget_usd: The new limit of the agent's total costs.
            continue_past_limit: Whether to continue a task that ended at its timeout or budget; if
                omitted, true if a new timeout or budget is given.
            options: Other options of :meth:`aresume`.
        """
        check_one_of("settle", options.get("settle", "ask"), get_args(Settle))
        if timeout is not None:
            check_above_zero("timeout", timeout)
        if budget_usd is not None:
            check_above_zero("budget_usd", budget_usd)
        if continue_past_limit is None:
            continue_past_limit = timeout is not None or budget_usd is not None
        events = await runtime.claim(task_id, even_if_ended_at_limit=continue_past_limit)
        end = end_event(events)
        if end is not None:
            can_continue = continue_past_limit and end.at_limit
            if not can_continue:  # the task is over, and claim() has not claimed it
                return past_response(events, end)
        # Forget the events and the response from before the resume, which are outdated now.
        self._tasks.forget(task_id)
        try:
            request = self._requests.resumed(task_id, events, timeout, **options)
        except Exception:
            await runtime.release(task_id)
            raise
        if budget_usd is not None:
            self._ledger.set_budget(budget_usd)
        return await self._run(runtime, request)

    @overload
    def submit(
        self,
        task: str,
        timeout: float | None = None,
        *,
        output: type[Out] | Mapping[str, Any],
        **more: Unpack[SubmitOptions],
    ) -> TaskHandle[Out]: ...
    @overload
    def submit(
        self, task: str, timeout: float | None = None, **more: Unpack[SubmitOptions]
    ) -> TaskHandle[T]: ...
    def submit(self, task: str, timeout: float | None = None, **options: Any) -> TaskHandle[Any]:
        """Run a task in the background; return when the journal has recorded the task.

        From then on, the task can be resumed after a crash. Requests for approval go to
        ``on_confirm`` and :meth:`get_pending_approvals`. With the option ``queue``, a runner
        process runs the task; :class:`~delf_engine.task_options.QueueOptions` lists the options of
        queued tasks.

        Args:
            task: The task, in plain words.
            timeout: Seconds from the start of execution; the configuration's when omitted.
            options: The options of :meth:`run`, and the options of queued tasks.

        Returns:
            A handle, which is also the task's id for :meth:`poll`, :meth:`wait` and :meth:`cancel`.

        Raises:
            AgentStateError: If called from the event loop that the agent works on.
        """
        UnknownKeywordError.check(self.submit, options, SUBMIT)
        events: list[Event] = []  # grows while the task runs, for poll()
        request = self._submitted_request(task, timeout, options, [events.append])
        request = self._runtime_loop.call(lambda r: r.enqueue(request), "submit", "asubmit")
        return self._start_in_background(request, events)

    @overload
    async def asubmit(
        self,
        task: str,
        timeout: float | None = None,
        *,
        output: type[Out] | Mapping[str, Any],
        **more: Any,
    ) -> TaskHandle[Out]: ...
    @overload
    async def asubmit(
        self, task: str, timeout: float | None = None, **more: Any
    ) -> TaskHandle[T]: ...
    async def asubmit(
        self,
        task: str,
        timeout: float | None = None,
        *,
        listeners: Sequence[Listener] = (),
        **options: Any,
    ) -> TaskHandle[Any]:
        """Async version of :meth:`submit`.

        Args:
            task: The task, in plain words.
            timeout: Seconds from the start of execution; the configuration's when omitted.
            listeners: Called with each event once it is journalled, if the task runs in this
                process.
            options: The options of :meth:`submit` and :meth:`arun`, and also ``task_id``, ``user``
                (the name of the person who owns the task; None for the local user), ``ledger``
                (the costs and the budget of that person) and ``before_start`` (awaited when the
                task may start in this process; a ``DelfError`` ends the task unstarted).
        """
        UnknownKeywordError.check(self.asubmit, options, ASUBMIT)
        events: list[Event] = []  # grows while the task runs, for poll()
        all_listeners = [*one_or_more(listeners), events.append]
        request = self._submitted_request(task, timeout, options, all_listeners)
        request = await self._runtime_loop.call_async(lambda runtime: runtime.enqueue(request))
        return self._start_in_background(request, events)

    def _submitted_request(
        self,
        task: str,
        timeout: float | None,
        options: Mapping[str, Any],
        listeners: Sequence[Listener],
    ) -> TaskRequest:
        """Return the request of a submitted task, prepared for a queue if options name one."""
        options_for_queue = queue_options(options)
        request_options = dict(options)
        for name in options_for_queue or ():
            del request_options[name]
        request = self._requests.make(
            task, timeout, interactive=False, listeners=listeners, **request_options
        )
        if options_for_queue is None:
            return request
        return with_queue_options(request, options_for_queue)

    def _start_in_background(self, request: TaskRequest, events: list[Event]) -> TaskHandle[Any]:
        """Start a journalled task, and return its handle.

        A task with a queue is not started here, but by a runner process.
        """
        if request.queue is None:
            outcome = self._runtime_loop.post(lambda runtime: self._run(runtime, request))
            self._tasks.add(BackgroundTask(request.task_id, events, outcome))
        return TaskHandle(request.task_id, self)

    def stream(
        self,
        task: str,
        granularity: Granularity = "event",
        timeout: float | None = None,
        *,
        conversation_id: str | None = None,
        output: type[Any] | Mapping[str, Any] | None = None,
        files: Sequence[str | os.PathLike[str]] | None = None,
    ) -> AsyncGenerator[StreamEvent]:
        """Run a task and yield its events as they happen; closing the iterator cancels the task.

        Args:
            task: The task, in plain words.
            granularity: ``token`` adds the pieces of the model's answers.
            timeout: Seconds; the configuration's when omitted.
            conversation_id: As for :meth:`run`.
            output: As for :meth:`run`.
            files: As for :meth:`run`.
        """
        request = self._requests.make(task, timeout, conversation_id, output=output, files=files)
        return stream_of(request, self._run_on_loop, granularity)

    async def _run_on_loop(self, request: TaskRequest) -> Response:
        return await self._runtime_loop.call_async(lambda runtime: self._run(runtime, request))

    async def _run(self, runtime: Runtime, request: TaskRequest) -> Response:
        """Run a task; with the setting ``verbose``, print its events and a summary to stderr."""
        if self.config.verbose:
            tell = self.plugins.service(TASK_PRINTER).tell_of_event
            request = replace(request, listeners=(tell, *request.listeners))
        response = response_of(await runtime.run(request), request.output)
        response.raise_if_never_begun()
        if self.config.verbose:
            summary = self.plugins.service(TASK_PRINTER).summary_of(response.trace)
            if sys.stderr is not None:  # None in a Windows program without a console
                sys.stderr.write(visible(summary) + "\n")
        return response

    def run_chat(self, timeout: float | None = None, **options: Any) -> None:
        """Run tasks typed on the terminal until the user leaves; needs the plugin ``chat``.

        Args:
            timeout: Seconds for one task; by default the agent's timeout, or 300 seconds if no
                timeout was set.
            options: ``verbose=True`` writes each step, script and call.
        """
        self.plugins.service(_TERMINAL_CHAT).run(self, timeout=timeout, **options)

    async def arun_chat(self, timeout: float | None = None, **options: Any) -> None:
        """Async version of :meth:`run_chat`."""
        await self.plugins.service(_TERMINAL_CHAT).arun(self, timeout=timeout, **options)

    def serve(self, host: str = "127.0.0.1", port: int = 8080, **options: Any) -> None:
        """Serve the agent and its web page over HTTP; ``options`` are settings of ``serve``."""
        self.plugins.service(_HTTP_SERVER).serve(self, host=host, port=port, **options)

    def asgi_app(self, **options: Any) -> Any:
        """Return an ASGI application for the agent; its lifespan starts and stops the agent."""
        return self.plugins.service(_HTTP_SERVER).asgi_app(self, **options)

    # -- approvals -----------------------------------------------------------------------

    def approve(
        self,
        request_id: str,
        response: str = "Approved",
        *,
        remember: Remember = "no",
        covers: Covers = "call",
    ) -> None:
        """Approve a call or a script.

        Args:
            request_id: The id from :meth:`get_pending_approvals`.
            response: A note for the journal.
            remember: Let later calls pass without a question: in this ``task``, or in all tasks
                ``until_revoked``.
            covers: With ``remember``, the calls that pass: ``call`` for calls with the same
                arguments, ``action`` for all calls of the action.

        Raises:
            UnknownRequestError: If the request is not pending.
        """
        decision = Approved(remember=remember, covers=covers, reason=response)
        self._decide(request_id, decision)

    def reject(self, request_id: str, reason: str = "Rejected") -> None:
        """Reject a call. The script gets the reason as an error.

        If the task continues with another model request, the model gets the reason, too.

        Args:
            request_id: The id from :meth:`get_pending_approvals`.
            reason: The reason.
        """
        self._decide(request_id, Rejected(reason=reason))

    def request_changes(self, request_id: str, reason: str) -> None:
        """Send a call or script back to the model, with the changes that a person wants.

        Raises ``DelfError`` if no model works on the task; the request then stays pending.

        Args:
            request_id: The id from :meth:`get_pending_approvals`.
            reason: The wanted changes, for the model.
        """
        self._decide(request_id, ChangesRequested(reason=reason))

    def edit(self, request_id: str, arguments: Mapping[str, Any]) -> None:
        """Approve a call with other arguments, which are checked again.

        A script, or an interrupted call, cannot be edited (``DelfError``); the request stays
        pending.
        """
        self._decide(request_id, Edited(arguments=dict(arguments)))

    def settle(self, request_id: str, result: Any = None, note: str | None = None) -> None:
        """Declare that an interrupted call did happen, with its result; the call is not repeated.

        Raises ``DelfError`` if the request is not about an interrupted call; the request then stays
        pending.
        """
        self._decide(request_id, AlreadyDone(result=result, reason=note))

    def answer(self, request_id: str, answer: str | bool | float) -> None:
        """Answer a question of a script; an answer that does not fit leaves the question pending.

        Args:
            request_id: The id from :meth:`get_pending_approvals`.
            answer: The answer, or a text that means the answer, such as ``"yes"`` for True.

        Raises:
            UnknownRequestError: If the question is not pending.
            DelfError: If the answer does not fit the question, or the request is not a question.
        """
        self._decide(request_id, Answered(answer))

    def _decide(self, request_id: str, decision: Decision) -> None:
        from delf_engine.approvals.decision import Answer

        self._pending_requests.submit(request_id, Answer(decision))

    def get_remembered_approvals(self) -> list[RememberedDecision]:
        """Return the approvals that hold until they are revoked."""
        from delf_engine.approvals.remembered import require_remembered

        return list(
            self._runtime_loop.call(
                lambda r: require_remembered(r.journal).remembered(),
                "get_remembered_approvals",
                "aget_remembered_approvals",
            )
        )

    async def aget_remembered_approvals(self) -> list[RememberedDecision]:
        """Async version of :meth:`get_remembered_approvals`."""
        from delf_engine.approvals.remembered import require_remembered

        return list(
            await self._runtime_loop.call_async(
                lambda r: require_remembered(r.journal).remembered()
            )
        )

    def revoke(self, request_id: str) -> RememberedDecision:
        """Revoke a remembered approval for all processes that use the journal.

        Args:
            request_id: The request whose approval is remembered.

        Raises:
            UnknownRequestError: If no approval of this request is remembered.
        """
        from delf_engine.approvals.remembered import require_remembered

        revoker = self.agent_id
        return self._runtime_loop.call(
            lambda r: require_remembered(r.journal).revoke(request_id, revoker), "revoke", "arevoke"
        )

    async def arevoke(self, request_id: str) -> RememberedDecision:
        """Async version of :meth:`revoke`."""
        from delf_engine.approvals.remembered import require_remembered

        revoker = self.agent_id
        return await self._runtime_loop.call_async(
            lambda r: require_remembered(r.journal).revoke(request_id, revoker)
        )

    @property
    def journal(self) -> Journal:
        """The journal of the agent's tasks; raises ``AgentStateError`` before the start."""
        if (runtime := self._runtime_loop.runtime) is None:
            raise AgentStateError("the agent has no journal yet", hint="await agent.astart()")
        return runtime.journal

    @property
    def retry_count(self) -> int:
        """The maximum number of repairs of a failed script."""
        return self.config.retry_count

    @property
    def rerun_count(self) -> int:
        """The maximum number of ``rerun()`` calls in a task after a write call.

        A script calls ``rerun()`` to request a further script.
        """
        return self.config.rerun_count

    @property
    def usage(self) -> Usage:
        """The number of tokens that all tasks have used."""
        return self._ledger.usage

    @property
    def total_cost_usd(self) -> float:
        """The total cost of all tasks since the last reset, ignoring calls of unknown price."""
        return self._ledger.cost_usd

    @property
    def ledger(self) -> Ledger:
        """The costs and tokens of all tasks, and the budget."""
        return self._ledger

    def tell_observers(self, change: PersonChange) -> None:
        """Notify the observers that a person was added, changed or removed.

        A no-op before the agent is started.
        """
        runtime = self._runtime_loop.runtime
        if runtime is not None:
            runtime.resources.observers.tell(change)

    def reset_budget(self, limit: float | None = None) -> None:
        """Reset the cost to zero, with a new limit if one is given (USD)."""
        if limit is not None:
            check_above_zero("limit", limit)
        self._ledger.reset(limit)

    def status(self) -> dict[str, Any]:
        """Return the agent's state, tasks and cost as JSON-ready data.

        The part ``budget`` has the costs, and the limit as ``limit_usd``, which is None without a
        limit.
        """
        runtime = self._runtime_loop.runtime
        running_count, queued = (0, 0) if runtime is None else runtime.counts
        tasks = {TaskState.RUNNING.value: running_count, TaskState.QUEUED.value: queued}
        return {
            "agent_id": self.agent_id,
            "state": self._runtime_loop.state,
            "tasks": {**tasks, "kept": len(self._tasks)},
            "pending_approvals": len(self._pending_requests),
            "sandbox": None if runtime is None else runtime.sandbox,
            **self._ledger.report(),
        }

    def info(self) -> dict[str, Any]:
        """Return the agent's components and :meth:`status` as JSON-ready data."""
        return {
            **self.status(),
            **self.config.main_settings(),
            "tools": [connection.name for connection in self.tools],
        }

    def get_llm_config_string(self) -> str:
        """Return the models as text: ``gpt-5.5``, or ``heavy gpt-5.5, light gpt-5.5-mini``."""
        return self.config.model_description

    def inspect(self, *, verbose: bool = False) -> dict[str, Any]:
        """Return the agent's tools as data; with ``verbose`` their descriptions and parameters."""
        descriptions: list[Any] = []
        for item in self.tools:
            inspect_item = getattr(item, "inspect", None)  # a user's connection may have none
            if inspect_item is None:
                descriptions.append({"tool": item.name})
            else:
                descriptions.append(inspect_item(verbose=verbose))
        return {"agent": self.agent_id, "tools": descriptions, "total": len(descriptions)}

    def __repr__(self) -> str:
        names = ", ".join(item.name for item in self.tools) or "no tools"
        return f"<{type(self).__name__} {self.agent_id}: {names}>"

    async def _make_runtime(self) -> Runtime:
        """Make the runtime with the resources of the agent, which are opened now."""
        from delf_engine.agent_context import AgentContext
        from delf_engine.resources import AgentParts, Resources
        from delf_engine.runtime import Runtime

        context = AgentContext.of(self._project, self._host, self.config, self._ledger)
        self._host = context.host  # kept for :attr:`plugins` and for later starts
        self._context = context
        if self.chat is not None:
            self._attach(self.chat, context)
        parts = AgentParts(
            agent_id=self.agent_id,
            config=self.config,
            context=context,
            connections=self.tools,
            ledger=self._ledger,
            pending_requests=self._pending_requests,
            memory=self.memory.store if isinstance(self.memory, SupportsStore) else self.memory,
            strategy=self._strategy,
            on_confirm=self._on_confirm,
            on_ask=self._on_ask,
            close=self._close_chats,
        )
        return Runtime(await Resources.open(parts))


def _check_callback(option: str, callback: object) -> None:
    if callback is not None and not callable(callback):
        raise AgentConfirmationError(
            f"{option} is a {type(callback).__name__}", hint="give a function"
        )


def keep_cancelled_tasks_resumable(agent: Agent[Any]) -> None:
    """Let any process resume the tasks that are cancelled from now on.

    The journal then does not record the end of a cancelled task.

    Call this function on the agent's event loop. To cancel the tasks as well, call
    :meth:`Agent.astop` with ``keep_resumable``.

    Args:
        agent: The agent of the tasks.
    """
    runtime = agent._runtime_loop.runtime  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] - not for programs
    if runtime is not None:
        runtime.keep_all_resumable()


class ChatsOnTerminal(Protocol):
    """A chat with an agent on the terminal, exported by a plugin as ``terminal_chat``.

    A protocol instead of an import, because the plugin ``chat`` depends on the engine.
    """

    def run(self, agent: Agent[Any], *, timeout: float | None = None, **options: Any) -> None:
        """Run tasks that the user types, until the user leaves."""
        ...

    async def arun(
        self, agent: Agent[Any], *, timeout: float | None = None, **options: Any
    ) -> None:
        """Async version of :meth:`run`."""
        ...


class ServesAgents(Protocol):
    """An HTTP server for an agent, exported by a plugin as ``http_server``.

    A protocol instead of an import, because the plugin ``serve`` depends on the engine.
    """

    def serve(self, agent: Agent[Any], *, host: str, port: int, **options: Any) -> None:
        """Serve until the process is asked to stop."""
        ...

    def asgi_app(self, agent: Agent[Any], **options: Any) -> Any:
        """Return the ASGI application of an agent."""
        ...


_TERMINAL_CHAT: Final = Service("terminal_chat", ChatsOnTerminal, "Agent.run_chat()")
_HTTP_SERVER: Final = Service("http_server", ServesAgents, "Agent.serve()")
