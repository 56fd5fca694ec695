"""``Runtime``: what an agent holds while it is started, on one event loop."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any, cast

from delf.config import AgentConfig
from delf.engine.approvals.channels import CallbackChannel, NamedChannel
from delf.engine.approvals.inbox import Inbox, open_journal
from delf.engine.approvals.pending import PendingRequests
from delf.engine.approvals.policy import Approvals
from delf.engine.calls.children import ChildTasks
from delf.engine.calls.gate import Gate
from delf.engine.calls.threads import ToolThreads
from delf.engine.elsewhere import outcome_of
from delf.engine.host import TaskHost
from delf.engine.inputs import find_inputs, input_files, readers_of
from delf.engine.journal.claims import Claims, is_over
from delf.engine.journal.log import TaskLog
from delf.engine.journal.observers import ObserverFeed, names_of, notes_of
from delf.engine.journal.replay import PATIENCE_SECONDS, Replay
from delf.engine.loop.pipeline import TaskPipeline, handed_in
from delf.engine.loop.setup import SetUp
from delf.engine.memory import AgentMemory
from delf.engine.models.client import ModelClient, ModelPool
from delf.engine.models.money import FindPrice, Ledger, load_pricing
from delf.engine.origins import origins_of
from delf.engine.output import OutputFiles, OutputFolder, check_output_folder, written_before
from delf.engine.prefilters import Prefilters
from delf.engine.sandboxes import ChosenSandbox, choose_sandbox, make_limits
from delf.engine.scripts import ScriptRunner
from delf.engine.secrets.redaction import Redactor
from delf.engine.task import TaskContext, TaskOutcome, TaskRequest, TaskState
from delf.engine.toolset import Toolset, load_toolset
from delf.engine.waiting import LEFT, Slot, Stops, TaskClock, Turns, to_its_end
from delf.environment import using_environ
from delf.errors import AgentStateError, ConfigurationError, DelfError, TaskStoppedError
from delf.events import Event, TaskFinished, end_of
from delf.libraries import applying
from delf.plugins.embedders import Embedders
from delf.plugins.factories import check_made, make
from delf.plugins.formats import Formats
from delf.plugins.host import PluginHost
from delf.plugins.journals import make_journal
from delf.protocols.connection import (
    ConnectionLike,
    SupportsClose,
    SupportsNotices,
    SupportsPluginContext,
    SupportsSecrets,
)
from delf.protocols.context import PluginContext
from delf.protocols.conversation import SupportsConversations
from delf.protocols.formats import InputFile
from delf.protocols.journal import Journal, SharedJournal
from delf.protocols.memory import MemoryStore
from delf.protocols.model import ModelContext
from delf.protocols.sandbox import SessionSpec, SupportsWarmUp
from delf.protocols.strategy import Strategy
from delf.records import dataclass
from delf.secrets import secrets_of_agent, secrets_of_settings
from delf.specs import ApprovalSpec, MemorySpec, ObserverSpec, Spec, StrategySpec
from delf.tools.context import ChildResult, Connect
from delf.zones import local_zone

_log = logging.getLogger(__name__)
_TOOL_THREADS = 64


@dataclass(frozen=True, kw_only=True)
class RuntimeParts:
    """What a runtime is made of.

    Args:
        agent_id: The agent's id.
        config: Its configuration.
        host: Its plugins.
        connections: Its tools.
        plugin_options: Options by plugin name.
        environ: Where keys are looked up.
        ledger: What it has spent, which outlives a runtime.
        pending: Where its requests for approval wait.
        memory: Facts from before.
        strategy: How its tasks become tool calls, where that was given as an object.
        on_confirm: Asked first about calls that need approval.
        pricing_files: Where the user's own prices may be.
        conversations: Opens the journal that keeps conversations.
        attached: What is closed with it.
        connect: Makes further connections.
        secrets: Those of its project.
        folder: The project's folder, which actions may ask for.
    """

    agent_id: str
    config: AgentConfig
    host: PluginHost
    connections: Sequence[ConnectionLike]
    plugin_options: Mapping[str, Mapping[str, Any]]
    environ: Mapping[str, str] = field(repr=False)
    ledger: Ledger
    conversations: Callable[[str | None], SupportsConversations]
    connect: Connect = field(repr=False)
    pending: PendingRequests = field(default_factory=PendingRequests)
    memory: MemoryStore | None = None
    strategy: Strategy | None = None
    on_confirm: Callable[[Any], Any] | None = None
    pricing_files: tuple[Path, ...] = ()
    attached: tuple[SupportsClose, ...] = ()
    secrets: tuple[str, ...] = field(default=(), repr=False)
    folder: Path = field(default_factory=Path.cwd)


class Runtime:
    """Connections, sandbox, models, journal and threads of a started agent.

    Args:
        parts: What it is made of.
    """

    def __init__(self, parts: RuntimeParts) -> None:
        self._parts = parts
        self._config = parts.config
        self._host = parts.host
        own = secrets_of_agent(parts.config, parts.connections, parts.environ)
        self._redactor = Redactor((*own, *parts.secrets))
        for connection in parts.connections:
            if isinstance(connection, SupportsSecrets):
                connection.tell_secrets(self._redactor)
        self._models = ModelPool(
            parts.host,
            ModelContext(
                environ=parts.environ,
                providers=parts.config.providers,
                api_key_for=parts.config.api_key_for,
            ),
            parts.config.record,
            self._redactor,
        )
        self._threads = ToolThreads(_TOOL_THREADS)
        self._running: set[asyncio.Task[TaskOutcome]] = set()
        self._claims = Claims()
        self._places = asyncio.Semaphore(parts.config.max_tasks)
        self._turns = Turns()
        self._background: set[asyncio.Future[None]] = set()
        self._feeds: list[ObserverFeed] = []
        self._strategies: dict[str, Strategy] = {}
        self._stopped = False
        self._working = 0
        self._warming: asyncio.Future[None] | None = None
        self._set_up: SetUp
        self._stops: Stops
        self._notes: Sequence[Callable[[], Mapping[str, Any]]]
        self._sandbox: ChosenSandbox
        self._inputs: list[InputFile]
        self._formats: Formats
        self._journal: Journal
        self._approvals: Approvals
        self._pricing: FindPrice
        self._embedders: Embedders
        self._prefilters: Prefilters
        self._memory: AgentMemory | None = None

    async def start(self) -> None:
        """Load tools, choose the sandbox, open the journal.

        Raises:
            ConfigurationError: When something that was configured cannot be used.
            SandboxUnavailableError: When no sandbox can.
        """
        try:
            await self._start()
        except DelfError as error:
            self._redactor.error(error)
            raise

    async def _start(self) -> None:
        parts, config = self._parts, self._config
        libraries = applying(config.allowed_libs)
        self._pricing = load_pricing(parts.pricing_files)
        self._limits = make_limits(config.sandbox_config)
        check_output_folder(config.output_dir)
        inputs = find_inputs(config.files)
        self._sandbox = await choose_sandbox(parts.host, config, parts.plugin_options)
        if self._sandbox.passed_over and self._sandbox.warning is not None:
            _log.warning("%s", self._sandbox.warning, extra={"in_events": True})
        self._inputs = input_files(inputs, self._sandbox.backend.visible_path)
        self._formats = Formats(parts.host)
        tools = await load_toolset(parts.connections)
        self._set_up = await self._all_tools(tools, self._inputs, parts.connections)
        journal = make_journal(parts.host, config.journal, parts.plugin_options, parts.environ)
        self._journal = await open_journal(journal, config.lease)
        self._stops = Stops(self._journal)
        self._approvals = Approvals(
            config.approval_mode,
            self._channels(),
            config.approval_timeout,
            parts.pending,
            Inbox(self._journal, parts.pending),
            wait=config.wait_approvals,
            pre_approved=config.pre_approved,
            must_ask="approval_mode" in config.model_fields_set,
            journal=self._journal,
            project=str(parts.folder.resolve()),
            flows=config.flows,
            flow_rules=config.flow_rules,
        )
        self._open_hooks()
        for name in names_of(parts.host, config.observers):
            observer = self._make(ObserverSpec, name)
            self._feeds.append(ObserverFeed(name, observer, self._redactor))
        self._notes = notes_of(parts.host, config.observers)
        self._spec = SessionSpec(
            tools=self._set_up.tools.names_for_sandbox(),
            libraries=libraries,
            limits=self._limits,
            files=tuple(inputs),
            row_files=self._formats.writable,
        )
        self._models.get(config.main_llm)
        self._strategy(config.strategy)
        self._warming = asyncio.ensure_future(self._warm_up())

    def _open_hooks(self) -> None:
        """Get embedders, prefilters and memory ready; the store is opened meanwhile."""
        parts, config = self._parts, self._config
        check_made("strategy", parts.strategy, "strategy")
        check_made("memory", parts.memory, "memory")
        context = PluginContext(
            namespace=config.memory_namespace,
            environ=parts.environ,
            providers=config.providers,
            api_key_for=config.api_key_for,
        )
        options = parts.plugin_options
        self._embedders = Embedders(parts.host, options, context, config.embedder)
        context = replace(context, embedder=self._embedders.get, conversations=parts.conversations)
        for connection in parts.connections:
            if isinstance(connection, SupportsPluginContext):
                connection.use_context(context)
        self._prefilters = Prefilters(parts.host, options, context, config.prefilter_mode)
        if parts.memory is None and config.memory is None:
            return
        spec = None if config.memory is None else parts.host.spec(MemorySpec, config.memory)

        def make_store() -> MemoryStore:
            if parts.memory is not None or spec is None:
                return cast("MemoryStore", parts.memory)
            with using_environ(parts.environ):
                return make(parts.host, spec, options, {"context": context})

        memory = AgentMemory(
            make_store, top_k=config.memory_top_k, threshold=config.memory_threshold
        )
        memory.open()
        self._memory = memory

    @property
    def sandbox(self) -> dict[str, str]:
        """The name of the sandbox, and its isolation."""
        return {"name": self._sandbox.spec.name, "isolation": self._sandbox.isolation}

    @property
    def counts(self) -> tuple[int, int]:
        """How many tasks run, and how many wait for a place."""
        return self._working, len(self._running) - self._working

    async def check(self) -> None:
        """Look whether a task could begin: its models can be asked, and a sandbox opens.

        Raises:
            DelfError: Saying what is missing.
        """
        try:
            for config in self._config.models.values():
                await self._models.check(config)
            await (await self._sandbox.backend.open(self._spec)).aclose()
        except DelfError as error:
            self._redactor.error(error)
            raise

    async def _warm_up(self) -> None:
        """Prepare sandboxes and the model while the first task looks for its context."""
        backend = self._sandbox.backend
        try:
            if isinstance(backend, SupportsWarmUp):
                await backend.warm_up(self._spec)
            await self._models.warm_up(self._config.main_llm)
        except DelfError as error:
            told = self._redactor.text(str(error))
            _log.debug("warming up: %s", told)  # the task that needs it will say so

    def _make(self, kind: type[Spec], name: str) -> Any:
        with using_environ(self._parts.environ):
            return make(self._host, self._host.spec(kind, name), self._parts.plugin_options)

    def _strategy(self, name: str) -> Strategy:
        """The strategy that was given as an object, or that of a name.

        Raises:
            PluginError: When it is not installed.
        """
        strategy = self._parts.strategy or self._strategies.get(name)
        if strategy is None:
            strategy = self._strategies[name] = self._make(StrategySpec, name)
        return strategy

    def _channels(self) -> list[NamedChannel]:
        channels: list[NamedChannel] = []
        if self._parts.on_confirm is not None:
            asks = CallbackChannel(self._parts.on_confirm)
            channels.append(NamedChannel("on_confirm", asks, needs_presence=False))
        installed = {spec.name for spec in self._host.specs(ApprovalSpec)}
        chosen = "approvals" in self._config.model_fields_set
        for name in self._config.approvals:
            if chosen or name in installed:
                spec = self._host.spec(ApprovalSpec, name)
                channel = self._make(ApprovalSpec, name)
                channels.append(NamedChannel(name, channel, needs_presence=spec.needs_presence))
        return channels

    async def run(self, request: TaskRequest) -> TaskOutcome:
        """Work one task to its end; many may be worked at once.

        Raises:
            AgentStateError: When the runtime was stopped.
        """
        if self._stopped:
            raise AgentStateError("the agent was stopped")
        work = asyncio.ensure_future(self._work(self._noted(request)))
        self._running.add(work)
        work.add_done_callback(self._running.discard)
        self._claims.in_hand.add(request.task_id)
        with self._stops.heeded(request.task_id, work) as stop:
            try:
                return await work
            except asyncio.CancelledError:
                own = asyncio.current_task()
                if (own is not None and own.cancelling()) or not (self._stopped or stop.asked):
                    raise
                if self._stopped:
                    raise AgentStateError("the agent was stopped") from None
                return await outcome_of(self._journal, request.task_id)
            finally:
                if _is_over(work):  # as nearly every task is
                    self._claims.in_hand.discard(request.task_id)
                else:
                    await to_its_end(self._leave(work, request.task_id))

    def _noted(self, request: TaskRequest) -> TaskRequest:
        """A new task with what observers want to stay with it; this is in its caller's context."""
        if request.past or request.child is not None:
            return request
        noted: dict[str, Any] = {}
        for note in self._notes:
            noted |= note()
        return replace(request, setup={**noted, **request.setup}) if noted else request

    async def _leave(self, work: asyncio.Task[TaskOutcome], task_id: str) -> None:
        """Give a task back once its work is over."""
        await asyncio.wait({work})
        if _is_over(work):
            self._claims.in_hand.discard(task_id)
        else:
            await self._claims.release(self._journal, task_id)

    async def _work(self, request: TaskRequest) -> TaskOutcome:
        slot, pipeline = Slot(self._places), None
        ledger = self._ledger_of(request)
        ledger.begin(request.task_id, request.past)
        try:
            await self._turns.mine()
            async with slot.taken():  # a task that waits for its place is no more than its request
                pipeline = await self._prepare(request, slot)
                self._working += 1
                try:
                    outcome = await pipeline.run(self._parts.agent_id)
                finally:
                    self._working -= 1
        except asyncio.CancelledError:
            if pipeline is None and not self._stopped:
                await to_its_end(self._never_begun(request))
            raise
        ledger.end(request.task_id)
        return outcome

    def _ledger_of(self, request: TaskRequest) -> Ledger:
        """Where a task's cost counts: the agent's, or that of a child with a budget of its own."""
        own = None if request.child is None else request.child.ledger
        return self._parts.ledger if own is None else own

    async def _never_begun(self, request: TaskRequest) -> None:
        """A task of the journal that was cancelled while it waited for a place is over."""
        if request.past and not is_over(request.past):
            end = end_of(request.past, TaskStoppedError("the task was stopped"))
            await self._journal.append(end)
            for listener in (*self._feeds, *request.listeners):
                listener(end)

    async def enqueue(self, request: TaskRequest) -> TaskRequest:
        """A task as it is once the journal has it, to be worked on later, here or elsewhere."""
        if request.queue is not None and not isinstance(self._journal, SharedJournal):
            raise ConfigurationError(
                f"no worker sees the journal {self._config.journal!r}",
                hint='use one that other processes share: journal = "sql"',
            )
        request = self._noted(request)
        queued = handed_in(request, self._parts.agent_id, self._redactor)
        await self._journal.append(queued)
        for listener in (*self._feeds, *request.listeners):
            listener(queued)
        return replace(request, past=(queued,))

    async def run_child(self, request: TaskRequest) -> ChildResult:
        """Work a child task to its end. Implements :class:`delf.engine.calls.children.RunsTasks`.

        Raises:
            DelfError: When it has no end, and can be resumed.
        """
        end = next((event for event in request.past if isinstance(event, TaskFinished)), None)
        if end is not None:
            ledger = self._ledger_of(request)
            ledger.begin(request.task_id, request.past)
            ledger.end(request.task_id)
        else:
            outcome = await self.run(request)
            events = outcome.events
            end = next((event for event in events if isinstance(event, TaskFinished)), None)
            if end is None:
                raise outcome.error or AgentStateError("the child task has no end")
        return ChildResult(
            task_id=request.task_id,
            text=end.text,
            status=end.status,
            error=end.error,
            cost_usd=end.cost_usd,
            files=dict(end.files),
            value=end.value,
        )

    async def take_up(self, task_id: str) -> Sequence[Event]:
        """Make a task of the journal this agent's own, as :meth:`Claims.take_up` does."""
        return await self._claims.take_up(self._journal, task_id)

    async def _prepare(self, request: TaskRequest, slot: Slot) -> TaskPipeline:
        """Put together what works a task."""
        config, set_up, inputs = await self._surroundings(request)
        redactor = self._redactor
        replay = Replay(request.past, PATIENCE_SECONDS)
        clock = TaskClock(request.timeout, None if request.child is None else request.child.clock)
        listeners = [*self._feeds, *request.listeners]
        log = TaskLog(request.task_id, self._journal, listeners, redactor, replay)
        models = self._model_client(request, config, log, replay)
        tools = set_up.tools
        task = TaskState(
            request=request,
            config=config,
            log=log,
            replay=replay,
            models=models,
            tools=tools,
            prefilters=self._prefilters,
            memory=None if request.child is not None else self._memory,
            context=TaskContext(files=[file.line for file in inputs]),
            seed=replay.seed or secrets.token_hex(16),
            zone=replay.zone or local_zone(),
        )
        approvals = self._approvals.for_task(request, log, slot, clock, origins_of(task))
        most = self._limits.frame_bytes - 1024
        folder = OutputFolder(config.output_dir, written_before(request.past))
        output = OutputFiles(folder, self._formats, log)
        children = ChildTasks(
            runtime=self,
            request=request,
            config=config,
            log=log,
            slot=slot,
            clock=clock,
            connections=set_up.connections,
            connect=self._parts.connect,
            folder=self._parts.folder,
            input_files={file.name: Path(file.path) for file in inputs},
            output=output,
            models=models,
            approvals=approvals,
        )
        gate = Gate(tools, approvals, log, self._threads, most, redactor, replay, children)
        files = tuple(file.path for file in inputs)
        scripts = ScriptRunner(
            task,
            gate,
            approvals,
            self._sandbox,
            replace(self._spec, tools=tools.names_for_sandbox(), files=files, zone=task.zone),
            output,
            self._in_background,
        )
        strategy = self._strategy(config.strategy)
        host = TaskHost(task, gate, approvals, scripts)
        return TaskPipeline(task, host, strategy, set_up, clock, self._warnings(set_up))

    def _warnings(self, set_up: SetUp) -> tuple[str, ...]:
        """What the user should know before a task begins."""
        own = () if self._sandbox.warning is None else (self._sandbox.warning,)
        noticing = (c for c in set_up.connections if isinstance(c, SupportsNotices))
        return (*own, *(notice for connection in noticing for notice in connection.notices()))

    def _model_client(
        self, request: TaskRequest, config: AgentConfig, log: TaskLog, replay: Replay
    ) -> ModelClient:
        return ModelClient(
            pool=self._models,
            ledger=self._ledger_of(request),
            pricing=self._pricing,
            log=log,
            system_prompt=config.system_prompt,
            stream=config.stream if request.stream is None else request.stream,
            on_delta=request.on_delta,
            redactor=self._redactor,
            replay=replay,
        )

    async def _surroundings(
        self, request: TaskRequest
    ) -> tuple[AgentConfig, SetUp, Sequence[InputFile]]:
        """What a task is worked with: the agent's, but for what it has of its own."""
        child = request.child
        config = self._config if child is None else child.config
        if request.files is None and (child is None or child.tools is None):
            if self._set_up.changing:
                await self._set_up.renew()
            return config, self._set_up, self._inputs
        inputs: Sequence[InputFile] = self._inputs
        if request.files is not None:
            found = find_inputs(request.files)
            inputs = input_files(found, self._sandbox.backend.visible_path)
        own = None if child is None else child.tools
        connections = self._parts.connections if own is None else own
        for connection in connections:
            self._redactor.learn(
                f"child tasks: {connection.name}",
                [*secrets_of_settings(getattr(connection, "settings", None))],
            )
            if isinstance(connection, SupportsSecrets):
                connection.tell_secrets(self._redactor)
        tools = await load_toolset(connections)
        return config, await self._all_tools(tools, inputs, connections), inputs

    async def _all_tools(
        self,
        tools: Toolset,
        inputs: Sequence[InputFile],
        connections: Sequence[ConnectionLike],
    ) -> SetUp:
        """Tools with those that are built in, and what gets their connections ready."""
        files = readers_of(inputs, self._parts.host, self._formats)
        return SetUp(await tools.with_builtins(files), connections)

    @property
    def journal(self) -> Journal:
        """Where all that happens is kept."""
        return self._journal

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def stop(self, *, leave: bool = False) -> None:
        """Cancel what runs (or ``leave`` it to be resumed) and free everything; safe twice."""
        if self._stopped:
            return
        self._stopped = True
        running: list[asyncio.Future[Any]] = list(self._running)
        if self._warming is not None:
            running.append(self._warming)
        for work in running:
            work.cancel(LEFT if leave else None)
        if running or self._background:
            await asyncio.wait({*running, *self._background})
        closing: list[Any] = [feed.aclose() for feed in self._feeds]
        closing += [c.aclose() for c in self._parts.connections if isinstance(c, SupportsClose)]
        closing += [item.aclose() for item in (self._models, *self._parts.attached)]
        for name in ("_memory", "_prefilters", "_embedders", "_sandbox", "_journal"):
            part = getattr(self, name, None)
            if part is not None:
                closing.append((part.backend if name == "_sandbox" else part).aclose())
        for outcome in await asyncio.gather(*closing, return_exceptions=True):
            if isinstance(outcome, Exception):
                told = self._redactor.text(f"{type(outcome).__name__}: {outcome}")
                _log.warning("while stopping: %s", told)
        self._threads.close()

    async def abandon(self) -> None:
        """Free what outlives the event loop it worked on, which was closed under it."""
        self._stopped = True
        self._threads.close()
        sandbox: ChosenSandbox | None = getattr(self, "_sandbox", None)
        if sandbox is not None:
            await sandbox.backend.aclose()


def _is_over(work: asyncio.Task[TaskOutcome]) -> bool:
    """Whether a task came to its end, so that nobody works on it again."""
    if not work.done() or work.cancelled() or work.exception() is not None:
        return False
    return work.result().is_over
