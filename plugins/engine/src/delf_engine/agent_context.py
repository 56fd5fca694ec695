"""``AgentContext``: the parts of a project or machine that agents and chats use."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, Self, runtime_checkable

from delf.environment import current_environ
from delf.errors import ConfigurationError, ModelConfigurationError, PluginError
from delf.machine.folders import user_folder
from delf.members import ProtocolMeta
from delf.messages import ModelRequest, user
from delf.packages.official import recommended_plugin
from delf.plugins.host import PluginHost
from delf.protocols.context import PluginContext
from delf.protocols.conversation import TaskConversation
from delf.protocols.services import Service
from delf.protocols.shared_journal import SharedJournal
from delf.records import dataclass
from delf.specs import JournalSpec
from delf.trust.decisions import digest_items
from delf.trust.folders import read_file, working_folder
from delf_engine.embedders import Embedders
from delf_engine.journal.factory import durable_journal, make_journal
from delf_engine.journal.log import TaskLog
from delf_engine.models.client import ModelClient
from delf_engine.models.money import Ledger
from delf_engine.models.pool import ModelPool, load_pricing
from delf_engine.project.any_project import connector_of, trust_of
from delf_engine.project.prices import PRICES_FILE
from delf_engine.redact import Redactor
from delf_engine.secrets import secrets_of_agent, secrets_of_model
from delf_engine.task import new_task_id

if TYPE_CHECKING:
    from delf.llm import LLMConfig
    from delf.tools.context import Connect
    from delf_engine.config import AgentConfig
    from delf_engine.project.any_project import AnyProject

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class AgentContext:
    """The plugins, settings and environment variables of an agent, or of a chat without an agent.

    Args:
        host: The plugins.
        plugin_options: The options of each plugin, by plugin name.
        environ: The environment variables.
        config: The agent's configuration; None for a chat without an agent.
        ledger: The record of costs.
        pricing_files: Files with the user's own model prices.
        folder: The project's folder.
        connect: Creates a connection from the name of one of the project's connections, or from a
            connection type.
        secrets: The secrets of the project.
        connection_names: The names of the project's connections, also of those that the agent does
            not use.
    """

    host: PluginHost
    plugin_options: Mapping[str, Mapping[str, Any]]
    environ: Mapping[str, str] = field(repr=False)
    config: AgentConfig | None = None
    ledger: Ledger | None = None
    pricing_files: tuple[Path, ...] = ()
    folder: Path
    connect: Connect = field(repr=False)
    secrets: tuple[str, ...] = field(default=(), repr=False)
    connection_names: frozenset[str] = frozenset()

    @classmethod
    def of(
        cls,
        project: AnyProject | None = None,
        host: PluginHost | None = None,
        config: AgentConfig | None = None,
        ledger: Ledger | None = None,
    ) -> Self:
        """Return the context of a project; without a project, the working directory's context.

        Args:
            project: The project.
            host: The plugins; all installed ones when omitted.
            config: The agent's configuration.
            ledger: The record of costs.
        """
        plugin_options: Mapping[str, Mapping[str, Any]] = {}
        secrets: Iterable[str] = ()
        connection_names: Iterable[str] = ()
        if project is None:
            environ = current_environ()
            root = working_folder()
        else:
            environ = project.environ
            root = project.root
            plugin_options = project.plugin_options
            secrets = project.secrets()
            connection_names = project.connections
        host = host or PluginHost.discover(environ=environ)
        return cls(
            host=host,
            plugin_options=plugin_options,
            environ=environ,
            config=config,
            ledger=ledger,
            pricing_files=(*_price_files_of(root, project), user_folder("config") / PRICES_FILE),
            folder=root,
            connect=connector_of(project, host, environ, root),
            secrets=tuple(secrets),
            connection_names=frozenset(connection_names),
        )

    def open_conversation_journal(self, url: str | None = None) -> SharedJournal:
        """Open a journal for conversations.

        The journal has the same kind as the agent's own journal if that kind is durable. Otherwise
        an installed durable kind is used. If none is installed, the kind that delf recommends is
        requested, which raises an error that says what to install.

        Args:
            url: A file or URL to use instead of the journal's own.

        Raises:
            PluginError: If no usable journal with conversations is installed.
        """
        durable_names = {spec.name for spec in self.host.specs(JournalSpec) if spec.durable}
        if self.config is not None and self.config.journal in durable_names:
            name = self.config.journal
        else:
            name = durable_journal(self.host) or recommended_plugin("journal")
        options = {} if url is None else {"url": url}
        journal = make_journal(self.host, name, self.plugin_options, self.environ, **options)
        if not isinstance(journal, SharedJournal):
            raise PluginError(f"the journal {name!r} keeps no conversations; use a shared one")
        return journal

    async def ask_outside_task(self, llm: LLMConfig | None, prompt: str) -> str:
        """Ask a model for a text such as a summary; the cost counts against the agent's budget.

        Args:
            llm: The model; the agent's model for small questions when None.
            prompt: The instructions, with the text to summarise.

        Raises:
            ModelConfigurationError: If no model is configured.
            BudgetExceededError: If a request could exceed the budget; the request is not sent.
            DelfError: If the call failed after retries.
        """
        config = self.config
        model = llm
        if model is None and config is not None:
            model = config.quick_llm
        if model is None:
            raise ModelConfigurationError(
                "the chat has no model to summarise with", hint="Chat(summarizer_llm=…)"
            )
        pool = self._model_pool()
        try:
            request = ModelRequest(messages=(user(prompt),), purpose="summarize")
            reply = await self._client_outside_task(pool, model).ask_whole(model, request)
            return reply.text
        finally:
            await pool.aclose()

    def _model_pool(self) -> ModelPool:
        context = PluginContext(environ=self.environ)
        if self.config is not None:
            context = replace(
                context, providers=self.config.providers, api_key_for=self.config.api_key_for
            )
        pricing = load_pricing(self.pricing_files, self.host.providers)
        return ModelPool(self.host, context, pricing=pricing)

    def _client_outside_task(self, pool: ModelPool, model: LLMConfig) -> ModelClient:
        agent_secrets = secrets_of_agent(self.config, (), self.environ, self.host.providers.keys)
        redactor = Redactor([*secrets_of_model(model), *agent_secrets, *self.secrets])
        return ModelClient(
            pool=pool,
            ledger=self.ledger or Ledger(),
            log=TaskLog(new_task_id(), None, (), redactor),  # a temporary log
            redactor=redactor,
        )


def _price_files_of(root: Path, project: AnyProject | None) -> tuple[Path, ...]:
    """Return a tuple with the path of a folder's price file.

    The tuple is empty if the file is missing or not trusted.
    """
    try:
        content = read_file(root / PRICES_FILE, root)
        if content is None:
            return ()
        trust_of(project).check(root, {PRICES_FILE: digest_items(content)})
    except ConfigurationError as error:
        _log.warning("%s is not read: %s", root / PRICES_FILE, error.describe())
        return ()
    return (root / PRICES_FILE,)


@runtime_checkable
class AgentChat(Protocol, metaclass=ProtocolMeta):
    """The conversations that an agent's tasks continue: ``Chat`` of the plugin ``chat``.

    A protocol instead of an import, because the plugin is optional and depends on the engine.
    """

    @classmethod
    def of(cls, value: Any) -> Self:
        """Make a chat: in memory if the value is True, otherwise from a mapping of options."""
        ...

    def attach(self, context: AgentContext) -> None:
        """Use an agent's plugins, options, environment, models and budget."""
        ...

    def conversation_for(self, conversation_id: str | None = None) -> TaskConversation:
        """Return the conversation that a task continues.

        Args:
            conversation_id: The id of the conversation; the chat's current one when omitted.
        """
        ...

    def in_memory(self) -> AgentChat:
        """Return a copy of the chat, with the same id, whose conversations are kept in memory.

        A chat whose conversations are in memory already returns itself.
        """
        ...

    async def aclose(self) -> None:
        """Release all resources. Idempotent; the chat can be used again."""
        ...


_CHATS: Final[Service[type[AgentChat]]] = Service("Chat", None, "conversations")


def as_chat(chat: Any, host: PluginHost | None = None) -> AgentChat:
    """Convert the chat option of ``Agent(chat=…)`` or ``delf.toml``.

    Args:
        chat: A chat, True for a chat in memory, or options.
        host: The plugins; all installed ones when omitted.

    Raises:
        ConfigurationError: For any other value, and for an unknown option.
        OptionalDependencyError: If no plugin with chats is installed.
    """
    if isinstance(chat, AgentChat):
        return chat
    return (host or PluginHost.discover()).service(_CHATS).of(chat)


def plugin_context(
    project: AnyProject | None = None, *, namespace: str = "default"
) -> PluginContext:
    """Build the context that plugins need to create objects, such as a memory, without an agent.

    Args:
        project: The project whose embedder, plugin options and environment variables apply; the
            working directory when omitted.
        namespace: The namespace of memories to use.
    """
    agent_context = AgentContext.of(project)
    context = PluginContext(
        namespace=namespace,
        environ=agent_context.environ,
        conversations=agent_context.open_conversation_journal,
    )
    default = None if project is None else project.agent.embedder
    embedders = Embedders(agent_context.host, agent_context.plugin_options, context, default)
    return embedders.context  # the given context, with the embedders added
