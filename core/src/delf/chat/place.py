"""Where a chat's conversations are kept, and which model summarises outside of a task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from delf.errors import ModelConfigurationError, OptionalDependencyError, PluginError

if TYPE_CHECKING:
    from delf.config.schema import AgentConfig
    from delf.engine.models.usage import Ledger
    from delf.llm import LLMConfig
    from delf.plugins.host import PluginHost
    from delf.protocols.conversation import SupportsConversations

_JOURNAL: Final = "sql"
_PLUGIN: Final = "journal-sql"


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """What a chat uses of the agent that it belongs to, or of the machine.

    Args:
        host: Plugins; those installed when None.
        plugin_options: Options by plugin name.
        environ: Where settings and keys are looked up; the process's when None.
        config: The agent's configuration.
        ledger: Counts what is spent.
        pricing_files: Where the user's own prices may be.
    """

    host: PluginHost | None = None
    plugin_options: Mapping[str, Mapping[str, Any]] = field(
        default_factory=dict[str, Mapping[str, Any]]
    )
    environ: Mapping[str, str] | None = field(default=None, repr=False)
    config: AgentConfig | None = None
    ledger: Ledger | None = None
    pricing_files: tuple[Path, ...] = ()

    def plugins(self) -> tuple[PluginHost, Mapping[str, str]]:
        """The plugins and the environment."""
        from delf.environment import current_environ
        from delf.plugins.host import PluginHost

        environ = self.environ if self.environ is not None else current_environ()
        return self.host or PluginHost.discover(environ=environ), environ


def open_journal(surroundings: Surroundings, path: str | None) -> SupportsConversations:
    """The journal that keeps conversations.

    Args:
        surroundings: Where its plugin is.
        path: A file or URL instead of the journal's own.

    Raises:
        OptionalDependencyError: When its plugin is not installed.
        PluginError: When it cannot be used, or keeps no conversations.
    """
    from delf.environment import using_environ
    from delf.plugins.factories import make
    from delf.protocols.conversation import SupportsConversations
    from delf.specs import JournalSpec

    host, environ = surroundings.plugins()
    try:
        spec = host.spec(JournalSpec, _JOURNAL)
    except PluginError as error:
        if _PLUGIN in host.names:
            raise  # installed, and it says why it cannot be used
        raise OptionalDependencyError(
            "a chat that persists needs the journal 'sql'", package=f"delf-plugin-{_PLUGIN}"
        ) from error
    more = {} if path is None else {"url": path}
    with using_environ(environ):
        journal = make(host, spec, surroundings.plugin_options, **more)
    if not isinstance(journal, SupportsConversations):
        raise PluginError(f"{host.origin(spec)} keeps no conversations; upgrade it")
    return journal


async def ask_alone(surroundings: Surroundings, llm: LLMConfig | None, question: str) -> str:
    """Ask the model that summarises, outside of a task.

    Args:
        surroundings: The agent, if there is one: its budget counts.
        llm: The model; the agent's quick one when None.
        question: What to ask.

    Raises:
        ModelConfigurationError: When there is no model.
        BudgetExceededError: Before anything is spent.
        DelfError: When the model failed.
    """
    from delf.engine.journal.log import TaskLog
    from delf.engine.journal.memory import MemoryJournal
    from delf.engine.models.client import Asker, ModelPool
    from delf.engine.models.pricing import load_pricing
    from delf.engine.models.usage import Ledger
    from delf.engine.request import new_task_id
    from delf.engine.secrets.known import secrets_of_agent, secrets_of_model
    from delf.engine.secrets.redaction import Redactor
    from delf.messages import ModelRequest, user
    from delf.protocols.model import ModelContext

    config = surroundings.config
    model = llm or (config.quick_llm if config is not None else None)
    if model is None:
        raise ModelConfigurationError(
            "the chat has no model to summarise with", hint="Chat(summarizer_llm=…)"
        )
    host, environ = surroundings.plugins()
    options = surroundings.plugin_options
    known = [*secrets_of_model(model), *secrets_of_agent(config, (), options, environ)]
    redactor = Redactor(known)
    keys = config.providers if config is not None else {}
    pool = ModelPool(host, ModelContext(environ=environ, providers=keys))
    asker = Asker(
        pool=pool,
        ledger=surroundings.ledger or Ledger(),
        pricing=load_pricing(surroundings.pricing_files),
        log=TaskLog(new_task_id(), MemoryJournal(), (), redactor),
        redactor=redactor,
    )
    try:
        request = ModelRequest(messages=(user(question),), purpose="summarize")
        return (await asker.ask(model, request)).text
    finally:
        await pool.aclose()
