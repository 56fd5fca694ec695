"""``Resources``: everything that a started agent holds, opened and closed together."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field, replace
from functools import cached_property, partial
from typing import Any, Self

from delf.environment import using_environ
from delf.errors import DelfError
from delf.plugins.factories import check_protocol, make
from delf.protocols.connection import (
    ConnectionLike,
    SupportsNotices,
    SupportsPluginContext,
    SupportsSecrets,
)
from delf.protocols.context import PluginContext
from delf.protocols.formats import InputFile
from delf.protocols.journal import Journal, SupportsJournal
from delf.protocols.memory import MemoryStore
from delf.protocols.queues import TASK_QUEUE, TaskQueue
from delf.protocols.sandbox import Limits, SessionSpec, SupportsWarmUp
from delf.protocols.strategy import Strategy, runs_scripts
from delf.records import dataclass
from delf.specs import ApprovalSpec, MemorySpec, Spec, StrategySpec
from delf_engine.agent_context import AgentContext
from delf_engine.agent_tools import AgentTools
from delf_engine.approvals.channels import (
    Ask,
    CallbackChannel,
    Confirm,
    NamedChannel,
    QuestionCallback,
)
from delf_engine.approvals.inbox import Inbox, open_journal
from delf_engine.approvals.pending import PendingRequests
from delf_engine.approvals.rule_names import check_rule_names
from delf_engine.approvals.shared import Approvals
from delf_engine.asking_people import AskTool
from delf_engine.bounded import WARM_SECONDS, failures_named, within
from delf_engine.closing import all_ended, close_all, failures_in
from delf_engine.config import AgentConfig
from delf_engine.embedders import Embedders
from delf_engine.formats import Formats
from delf_engine.inputs import TaskFiles, find_inputs, input_files, readers_of
from delf_engine.journal.factory import make_journal
from delf_engine.journal.observers import Observers, open_observers
from delf_engine.live_facts import facts_of
from delf_engine.memory import AgentMemory, Memories
from delf_engine.models.money import Ledger
from delf_engine.models.pool import ModelPool, load_pricing
from delf_engine.notice import Notice
from delf_engine.output import check_output_folder
from delf_engine.redact import Redactor
from delf_engine.sandboxes.starting import ChosenSandbox, choose_sandbox, make_limits
from delf_engine.secrets import secrets_of_agent, secrets_of_settings
from delf_engine.toolset import load_toolset

_log = logging.getLogger(__name__)
Close = Callable[[], Awaitable[None]]


@dataclass(frozen=True)
class Closing:
    """The objects to close together with an agent's resources.

    Args:
        parts: Objects of plugins, by the names that error messages use for them.
        closers: Functions that close further objects, with a time limit for each object.
        shared: Functions that close shared objects after all other objects, which use the shared
            objects until their own end. For example, a channel that is closed reads from the
            journal how its requests ended.
    """

    parts: dict[str, object]
    closers: list[Close] = field(default_factory=list[Close])
    shared: list[Close] = field(default_factory=list[Close])

    async def close(self, redactor: Redactor) -> None:
        """Close the objects that use the shared objects, then the shared objects; log failures."""
        closers_of_users = (partial(close_all, self.parts), *self.closers)
        for closers in (closers_of_users, self.shared):
            try:
                await all_ended(close() for close in closers)
            except Exception as error:
                for failure in failures_in(error):
                    message = redactor.redact_text(f"{type(failure).__name__}: {failure}")
                    _log.warning("while stopping: %s", message)


@dataclass(frozen=True, kw_only=True)
class AgentParts:
    """The objects that a program passed to its agent.

    Args:
        agent_id: The agent's id.
        config: The configuration.
        context: The plugins, settings and environment variables of the agent.
        connections: The tools.
        ledger: The costs, which outlast a restart of the agent.
        pending_requests: The pending approval requests.
        memory: The memory store, if given as an object.
        strategy: The strategy, if given as an object.
        on_confirm: The callback for approval requests, asked before all channels.
        on_ask: The callback for questions of scripts, asked before all channels.
        close: Closes objects that were made for the agent, such as its chats.
    """

    agent_id: str
    config: AgentConfig
    context: AgentContext
    connections: Sequence[ConnectionLike]
    ledger: Ledger
    pending_requests: PendingRequests = field(default_factory=PendingRequests)
    memory: MemoryStore | None = None
    strategy: Strategy | None = None
    on_confirm: Confirm | None = None
    on_ask: Ask | None = None
    close: Close | None = None

    @cached_property
    def embedders(self) -> Embedders:
        """The embedding models, which memory and prefilters share."""
        agent_context = self.context
        config = self.config
        context = PluginContext(
            namespace=config.memory_config.namespace,
            environ=agent_context.environ,
            providers=config.providers,
            api_key_for=config.api_key_for,
            conversations=agent_context.open_conversation_journal,
        )
        return Embedders(agent_context.host, agent_context.plugin_options, context, config.embedder)

    @property
    def plugin_context(self) -> PluginContext:
        """The context that the factories of the agent's plugins get."""
        return self.embedders.context

    def make(self, kind: type[Spec], name: str, context: PluginContext | None = None) -> Any:
        """Create a plugin's object with the user's options.

        Args:
            kind: The kind of plugin.
            name: The name of the plugin.
            context: The context for the plugin's factory; the agent's own when omitted.

        Raises:
            DelfError: If the plugin is missing or refuses its options.
        """
        agent_context = self.context
        spec = agent_context.host.spec(kind, name)
        with using_environ(agent_context.environ):
            return make(
                agent_context.host,
                spec,
                agent_context.plugin_options,
                context or self.plugin_context,
                spec.arguments(name),
            )


@dataclass(frozen=True, kw_only=True)
class Resources:
    """The connections, sandbox, models and journal of a started agent.

    Args:
        agent: The objects that the program passed to the agent.
        redactor: Redacts all output.
        models: The models.
        sandbox: The chosen sandbox.
        tools: The callable tools, and the set-up of their connections.
        files: The input files and file formats.
        journal: The journal.
        approvals: The approvals.
        observers: The observers.
        memories: The memories, if a store is configured.
        isolation_notice: The notice about weak isolation, shown once.
        closing: All objects to close.
    """

    agent: AgentParts
    redactor: Redactor
    models: ModelPool
    sandbox: ChosenSandbox
    tools: AgentTools
    files: TaskFiles
    journal: Journal
    approvals: Approvals
    observers: Observers
    memories: Memories | None
    isolation_notice: Notice
    closing: Closing

    @classmethod
    async def open(cls, agent: AgentParts) -> Self:
        """Load the tools, choose the sandbox and open the journal.

        If this fails, everything is closed again.

        Raises:
            ConfigurationError: If a configured component cannot be used.
            SandboxUnavailableError: If no sandbox is available.
        """
        agent_context = agent.context
        agent_secrets = secrets_of_agent(
            agent.config,
            agent.connections,
            agent_context.environ,
            agent_context.host.providers.keys,
        )
        redactor = Redactor((*agent_secrets, *agent_context.secrets))
        closing = Closing({f"the connection {each.name!r}": each for each in agent.connections})
        if agent.close is not None:
            closing.closers.append(agent.close)
        try:
            return await cls._open(agent, redactor, closing)
        except BaseException as error:
            if isinstance(error, DelfError):
                redactor.redact_error(error)
            await closing.close(redactor)
            raise

    @classmethod
    async def _open(cls, agent: AgentParts, redactor: Redactor, closing: Closing) -> Self:
        """Open all components; later ones use earlier ones.

        Each component is added to ``closing`` at once, so that a later failure leaves nothing open.
        """
        config, context = agent.config, agent.context
        # Learn the secrets first, so that errors of the start are redacted, too.
        _learn_secrets(agent.connections, redactor)
        _check_plugins(agent)
        models = _models_of(agent, redactor, closing)
        limits = make_limits(config.sandbox_config)
        check_output_folder(config.output_dir)
        names_by_path = find_inputs(config.files)
        sandbox = await choose_sandbox(
            context.host, config, context.plugin_options, agent.plugin_context
        )
        closing.parts[_sandbox_label(sandbox)] = sandbox.backend
        inputs = input_files(names_by_path, sandbox.backend.visible_path, config.own_files)
        files = TaskFiles(inputs, Formats(context.host))
        closing.shared.append(files.formats.aclose)
        tools = await _tools_of(agent.connections, files, context)
        _check_rules(agent, tools)
        libraries = sandbox.importable(config.allowed_libs)
        spec = _session_spec(libraries, limits, tools, files.formats, inputs)
        # The processes for scripts start in the background, during the imports below.
        await _warm_up_sandbox(sandbox, spec, redactor)
        journal = await _open_journal(agent, closing)
        approvals = _approvals_of(agent, journal, closing)
        closing.shared.append(agent.embedders.aclose)
        _give_context(agent.connections, agent.plugin_context)
        memories = _memories_of(agent)
        if memories is not None:
            closing.closers.append(memories.aclose)
        observers = open_observers(context.host, config.observers, agent.make, redactor)
        closing.closers.append(observers.aclose)
        for model in (config.main_llm, *config.main_llm.fallbacks):
            models.get(model)  # raises now for an unknown name
        strategy = agent.strategy or _plugin(agent, closing, StrategySpec, config.strategy)
        isolation_notice = Notice(sandbox.warning, agent.plugin_context.data_dir)
        is_isolation_relevant = sandbox.passed_over and runs_scripts(strategy)
        if is_isolation_relevant and isolation_notice.is_new:
            # With ``in_events``, commands do not print the message: the first task records it.
            _log.warning("%s", sandbox.warning, extra={"in_events": True})
        return cls(
            agent=agent,
            redactor=redactor,
            models=models,
            sandbox=sandbox,
            tools=tools,
            files=files,
            journal=journal,
            approvals=approvals,
            observers=observers,
            memories=memories,
            isolation_notice=isolation_notice,
            closing=closing,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close all objects; a failure of one does not prevent closing the others."""
        await self.closing.close(self.redactor)

    @property
    def config(self) -> AgentConfig:
        """The agent's configuration."""
        return self.agent.config

    def plugin(self, kind: type[Spec], name: str) -> Any:
        """Return a plugin's object, created on first use and closed with the agent.

        Args:
            kind: The kind of plugin.
            name: The name of the plugin.

        Raises:
            DelfError: If the plugin is missing or refuses its options.
        """
        return _plugin(self.agent, self.closing, kind, name)

    def strategy(self, name: str) -> Strategy:
        """Return the strategy object that the program gave, or the installed strategy of a name.

        Raises:
            PluginError: If the strategy is not installed.
        """
        return self.agent.strategy or self.plugin(StrategySpec, name)

    @cached_property
    def queue(self) -> TaskQueue:
        """The queue in which tasks wait for runners.

        Raises:
            OptionalDependencyError: If no plugin with runners is installed.
        """
        agent_context = self.agent.context
        make = agent_context.host.service(TASK_QUEUE)
        queue = make(agent_context.plugin_options, agent_context.environ, agent_context.folder)
        self.closing.parts["the task queue"] = queue
        return queue

    @cached_property
    def limits(self) -> Limits:
        """The limits of one task's scripts."""
        return make_limits(self.config.sandbox_config)

    def session_spec(self, tools: AgentTools, inputs: Sequence[InputFile]) -> SessionSpec:
        """Return the limits, tools and input files for a task's sandbox sessions."""
        libraries = self.sandbox.importable(self.config.allowed_libs)
        return _session_spec(libraries, self.limits, tools, self.files.formats, inputs)

    def take_warnings(self, tools: AgentTools, strategy: Strategy) -> tuple[str, ...]:
        """Return the warnings to show before a task starts.

        The notice about weak isolation is returned only once on a machine.
        """
        warnings: list[str] = []
        if runs_scripts(strategy):
            warnings += self.isolation_notice.take()
            warnings += self._library_warnings()
        return (*warnings, *_notices_of(tools))

    def _library_warnings(self) -> list[str]:
        missing = self.sandbox.missing_libraries
        return [f"scripts cannot import {name}: {reason}" for name, reason in missing.items()]

    async def tools_with(
        self, connections: Sequence[ConnectionLike] | None, inputs: Sequence[InputFile]
    ) -> AgentTools:
        """Return the tools of a task that has its own connections or input files.

        The redactor first learns the secrets of the connections.

        Args:
            connections: The connections of a child task; None for the agent's connections.
            inputs: The task's input files.
        """
        if connections is None:
            connections = self.agent.connections
        for connection in connections:
            secrets = secrets_of_settings(getattr(connection, "settings", None))
            self.redactor.learn(f"a connection of a task: {connection.name}", list(secrets))
        _learn_secrets(connections, self.redactor)  # secrets that connections get while they work
        files = TaskFiles(inputs, self.files.formats)
        return await _tools_of(connections, files, self.agent.context)

    async def check(self) -> tuple[str, ...]:
        """Check that tools, sandbox and model are usable, without asking the model.

        Returns:
            Warnings about connections and packages that do not prevent tasks.

        Raises:
            DelfError: If a component is missing or unusable.
        """
        try:
            await self.models.check(self.config.main_llm)  # only some tasks use other models
            spec = self.session_spec(self.tools, self.files.inputs)
            session = await self.sandbox.backend.open(spec)
            await session.aclose()
            # Connections that add facts to the prompt must be able to load them, for any task.
            sources = self.tools.tools.with_context.items()
            no_task = ""
            await asyncio.gather(*(facts_of(name, source, no_task) for name, source in sources))
        except DelfError as error:
            self.redactor.redact_error(error)
            raise
        warnings = (*self._library_warnings(), *_notices_of(self.tools))
        return tuple(map(self.redactor.redact_text, warnings))

    async def warm_up(self) -> None:
        """Prepare the model while the first task loads its context."""
        # Log errors here, because nobody awaits the result.
        with _warm_up_errors_logged(self.redactor):
            await self.models.warm_up(self.config.main_llm)


def _check_plugins(agent: AgentParts) -> None:
    """Check the plugins and objects of the agent, even those that only some tasks would use.

    Raises:
        PluginError: If a plugin that the configuration names is not installed, or if an object does
            not have the methods of its protocol.
    """
    check_protocol("strategy", agent.strategy, "strategy")
    check_protocol("memory", agent.memory, "memory")
    given_objects: dict[type[Spec], object] = {
        StrategySpec: agent.strategy,
        MemorySpec: agent.memory,
    }
    for kind, name in agent.config.plugins():
        is_needed = given_objects.get(kind) is None
        if is_needed:
            agent.context.host.spec(kind, name)


def _plugin(agent: AgentParts, closing: Closing, kind: type[Spec], name: str) -> Any:
    """Return a plugin's object; create the object on first use.

    The object is stored in ``closing.parts``, so that it is closed when the agent stops.
    """
    part = f"the {kind.kind} {name!r}"
    if part not in closing.parts:
        closing.parts[part] = agent.make(kind, name)
    return closing.parts[part]


def _sandbox_label(sandbox: ChosenSandbox) -> str:
    return f"the sandbox {sandbox.spec.name!r}"


async def _warm_up_sandbox(sandbox: ChosenSandbox, spec: SessionSpec, redactor: Redactor) -> None:
    if isinstance(sandbox.backend, SupportsWarmUp):
        warm_up = partial(sandbox.backend.warm_up, spec)
        with _warm_up_errors_logged(redactor):
            await within(WARM_SECONDS, _sandbox_label(sandbox), "warm_up", warm_up)


@contextmanager
def _warm_up_errors_logged(redactor: Redactor) -> Generator[None]:
    """Suppress a DelfError of the block, and log it at debug level.

    The task will fail with the same error and report it.
    """
    try:
        yield
    except DelfError as error:
        _log.debug("warming up: %s", redactor.redact_text(str(error)))


def _notices_of(tools: AgentTools) -> list[str]:
    """Return the notices of the connections for the user."""
    notices: list[str] = []
    for connection in tools.connections:
        if isinstance(connection, SupportsNotices):
            notices += connection.notices()
    return notices


def _session_spec(
    libraries: tuple[str, ...],
    limits: Limits,
    tools: AgentTools,
    formats: Formats,
    inputs: Sequence[InputFile],
) -> SessionSpec:
    """Build the specification of a sandbox session."""
    return SessionSpec(
        tools=tools.tools.names_for_sandbox(),
        libraries=libraries,
        limits=limits,
        files=tuple(file.path for file in inputs),
        file_names=tuple(file.name for file in inputs),
        row_files=formats.writable,  # a script sends rows, and the host writes the file
    )


def _models_of(agent: AgentParts, redactor: Redactor, closing: Closing) -> ModelPool:
    host = agent.context.host
    pricing = load_pricing(agent.context.pricing_files, host.providers)
    models = ModelPool(host, agent.plugin_context, agent.config.record, redactor, pricing)
    closing.shared.append(models.aclose)
    return models


async def _open_journal(agent: AgentParts, closing: Closing) -> Journal:
    name, context = agent.config.journal, agent.context
    journal = make_journal(context.host, name, context.plugin_options, context.environ)
    closing.shared.append(partial(close_all, {f"the journal {name!r}": journal}))
    await open_journal(journal, agent.config.lease)
    return journal


async def _tools_of(
    connections: Sequence[ConnectionLike], files: TaskFiles, agent_context: AgentContext
) -> AgentTools:
    """Load the tools of an agent: the given connections, the readers of files, and ``ask``."""
    tools = await load_toolset(connections)
    readers = readers_of(files.inputs, agent_context.host, files.formats)
    return AgentTools(await tools.with_builtins([*readers, AskTool()]), connections)


def _check_rules(agent: AgentParts, tools: AgentTools) -> None:
    """Check the names in ``approval_rules``; log a warning for each rule that may never apply.

    Raises:
        AgentConfirmationError: If a name is probably misspelt.
    """
    own_connections = {connection.name for connection in tools.connections}
    unused_connections = agent.context.connection_names - own_connections
    for warning in check_rule_names(agent.config.approval_rules, tools.tools, unused_connections):
        _log.warning("%s", warning)


def _learn_secrets(connections: Sequence[ConnectionLike], redactor: Redactor) -> None:
    for connection in connections:
        if isinstance(connection, SupportsSecrets):
            with failures_named(f"the connection {connection.name!r}", "tell_secrets"):
                connection.tell_secrets(redactor)


def _give_context(connections: Sequence[ConnectionLike], context: PluginContext) -> None:
    for connection in connections:
        if isinstance(connection, SupportsPluginContext):
            with failures_named(f"the connection {connection.name!r}", "use_context"):
                connection.use_context(context)


def _approvals_of(agent: AgentParts, journal: Journal, closing: Closing) -> Approvals:
    """Create the approval channels, and let them use the journal."""
    channels: list[NamedChannel] = []
    for each in _channels_of(agent):
        subject = f"the approval channel {each.name!r}"
        closing.parts[subject] = each.channel
        channels.append(each)
        if isinstance(each.channel, SupportsJournal):
            with failures_named(subject, "use_journal"):
                each.channel.use_journal(journal)
    return Approvals(
        config=agent.config,
        channels=tuple(channels),
        pending_requests=agent.pending_requests,
        inbox=Inbox(journal, agent.pending_requests),
        journal=journal,
        project=str(agent.context.folder.resolve()),
    )


def _channels_of(agent: AgentParts) -> Iterator[NamedChannel]:
    """Create and yield the approval channels: those of callbacks, then those of plugins."""
    if agent.on_confirm is not None:
        confirm_channel = CallbackChannel(agent.on_confirm)
        yield NamedChannel("on_confirm", confirm_channel, needs_presence=False)
    if agent.on_ask is not None:
        ask_channel = QuestionCallback(agent.on_ask)
        yield NamedChannel("on_ask", ask_channel, needs_presence=False)
    host = agent.context.host
    installed = {spec.name for spec in host.specs(ApprovalSpec)}
    is_default_list = "approvals" not in agent.config.model_fields_set
    for name in agent.config.approvals:
        if is_default_list and name not in installed:
            continue  # the user has not asked for this channel
        spec = host.spec(ApprovalSpec, name)
        channel = agent.make(ApprovalSpec, name)
        yield NamedChannel(name, channel, needs_presence=spec.needs_presence)


def _memories_of(agent: AgentParts) -> Memories | None:
    """Create the memories, and start opening the local user's store.

    None if the agent has neither a memory store as an object nor the name of a memory plugin.
    """
    options = agent.config.memory_config
    context = agent.plugin_context
    memory = agent.memory
    name = agent.config.memory
    if memory is None and name is None:
        return None

    def make_memory(user: str | None) -> AgentMemory:
        namespace = context.namespace if user is None else f"{context.namespace}/{user}"
        memory_context = replace(context, namespace=namespace)
        return AgentMemory(
            partial(_memory_store, agent, memory_context),
            name=name or type(memory).__name__,
            top_k=options.top_k,
            threshold=options.threshold,
        )

    # A store that is given as an object is one store for all people.
    by_person = memory is None and options.scope == "person"
    memories = Memories(make_memory, by_person=by_person)
    memories.of(None).start_warm_up()
    return memories


def _memory_store(agent: AgentParts, context: PluginContext) -> MemoryStore:
    """Return the memory store given in code, or make the store that the configuration names."""
    if agent.memory is not None:
        return agent.memory
    name = agent.config.memory
    assert name is not None  # noqa: S101 - called only if there is a store or a name
    return agent.make(MemorySpec, name, context)
