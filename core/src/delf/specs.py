"""Specs that hooks return: frozen records that name a capability and the location of its code.

``factory`` is ``"module:attribute"`` and is resolved on first use, so that listing plugins imports
no vendor package. New versions add only optional fields.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Literal

from delf.records import dataclass
from delf.types import IN_PROCESS, Isolation


@dataclass(frozen=True, kw_only=True)
class Spec:
    """The fields of every spec.

    Each subclass declares a kind of plugin: ``kind``, the ``hook`` that returns such specs, the
    ``protocol`` of the factory's object (``"module:attribute"``), and in ``optional`` further
    protocols that the object may implement, each with the feature that depends on the protocol. An
    optional protocol is written as a bare name if it is in the module of ``protocol``, otherwise as
    ``"module:attribute"``. If the feature is an empty string, delf does not warn about an object
    without the protocol.

    An option of the agent selects a spec by its name, or by a value that matches one of its
    ``patterns``. A kind whose options have such values overrides ``patterns`` and ``arguments``.
    The option's values in ``special_values`` select no plugin, so no plugin can have such a name.

    Args:
        name: The name that users type; unique among the specs of its kind.
        summary: One line for lists.
        factory: ``"module:attribute"``, resolved on first use. It is called as
            ``factory(context, **options)`` with keywords: ``context``, a
            :class:`delf.protocols.context.PluginContext`, if it has this parameter, and the options
            of ``[plugins.NAME]``. Connections, formats and commands have no options.
        project_files: ``"module:attribute"`` of a function that returns the project files which
            configure this capability. It receives a :class:`delf.trust.folders.UntrustedFolder`;
            these files have no effect until the user trusts the folder.
        plugin_settings: ``"module:attribute"`` of a :class:`delf.settings.PluginSettings`: the
            options of ``[plugins.NAME]``, if they are not parameters of a factory. Environment
            variables use the plugin's name with ``_`` for ``-``.
    """

    kind: ClassVar[str] = "spec"
    hook: ClassVar[str] = ""
    protocol: ClassVar[str | None] = None
    optional: ClassVar[Mapping[str, str]] = {}
    special_values: ClassVar[tuple[str, ...]] = ()

    name: str
    summary: str
    factory: str
    project_files: str | None = None
    plugin_settings: str | None = None

    @property
    def patterns(self) -> tuple[str, ...]:
        """Patterns (``fnmatch``) of values that select this spec; the longest match wins."""
        return ()

    def arguments(self, value: str) -> Mapping[str, Any]:
        """Return the factory's arguments for the value that selected this spec.

        The factory receives only the arguments for which it has a parameter.
        """
        return {}


@dataclass(frozen=True, kw_only=True)
class ConnectionSpec(Spec):
    """A type of connection: a service whose actions a script can call.

    The factory is a subclass of :class:`delf.tools.connection.Connection`.

    Example::

        @hookimpl
        def delf_connections():
            yield ConnectionSpec(
                name="tickets",
                summary="The support desk's tickets.",
                factory="delf_tickets.connection:Tickets",
            )

    Args:
        input_files: When to create a connection automatically: True for each task with input files,
            ``"always"`` for every task, False for none. The class then receives ``files``
            (:class:`delf.protocols.formats.InputFile`) and ``formats``
            (:class:`delf.protocols.formats.InstalledFormats`).
    """

    kind: ClassVar[str] = "connection"
    hook: ClassVar[str] = "delf_connections"
    protocol: ClassVar[str | None] = "delf.protocols.connection:ConnectionLike"
    optional: ClassVar[Mapping[str, str]] = {
        "SupportsCheck": "",
        "SupportsClose": "what it holds is not freed when an agent closes",
        "SupportsContext": "",
        "SupportsLearning": "",
        "SupportsNotices": "",
        "SupportsPluginContext": "",
        "SupportsRenewal": "",
        "SupportsResultTrust": "",
        "SupportsSecrets": "",
        "SupportsSetup": "",
    }

    input_files: bool | Literal["always"] = False


@dataclass(frozen=True, kw_only=True)
class SandboxSpec(Spec):
    """A sandbox backend, which runs scripts in isolation.

    Example::

        @hookimpl
        def delf_sandbox_backends():
            yield SandboxSpec(
                name="firecracker",
                summary="A micro-VM for each task.",
                factory="delf_sandbox_firecracker.backend:FirecrackerBackend",
                isolation="vm",
            )

    Args:
        isolation: The isolation from the host: ``process``, ``interpreter``, ``container`` or
            ``vm``, from the weakest to the strongest.
        subset: Whether the backend supports only a subset of Python. The setting ``auto`` then
            prefers other backends that satisfy ``min_isolation``.
        unsupported: The features that scripts cannot use, in words for the model; may be empty.
    """

    kind: ClassVar[str] = "sandbox"
    special_values: ClassVar[tuple[str, ...]] = ("auto",)
    hook: ClassVar[str] = "delf_sandbox_backends"
    protocol: ClassVar[str | None] = "delf.protocols.sandbox:SandboxBackend"
    optional: ClassVar[Mapping[str, str]] = {
        "SupportsLanguage": "models do not know which Python it runs",
        "SupportsPreparation": "",
        "SupportsWarmUp": "the first script of an agent waits for it to start",
        "SupportsMeasures": "",
        "SupportsLibraryCheck": "",
        "SupportsAbandoning": "",
    }

    isolation: Isolation
    subset: bool = False
    unsupported: str = ""


@dataclass(frozen=True, kw_only=True)
class MemorySpec(Spec):
    """A memory store, which keeps facts across tasks.

    Example::

        @hookimpl
        def delf_memory_stores():
            yield MemorySpec(
                name="notes",
                summary="Facts in a plain text file.",
                factory="delf_memory_notes.store:NotesStore",
            )
    """

    kind: ClassVar[str] = "memory"
    hook: ClassVar[str] = "delf_memory_stores"
    protocol: ClassVar[str | None] = "delf.protocols.memory:MemoryStore"
    optional: ClassVar[Mapping[str, str]] = {
        "delf.protocols.readiness:SupportsEarlyStart": "",
    }


@dataclass(frozen=True, kw_only=True)
class PrefilterSpec(Spec):
    """A prefilter, which selects the actions that a task needs.

    Example::

        @hookimpl
        def delf_prefilters():
            yield PrefilterSpec(
                name="keywords",
                summary="Actions that share words with the task.",
                factory="delf_prefilter_keywords.prefilter:KeywordPrefilter",
                asks=False,
            )

    Args:
        asks: Whether the prefilter asks a model. The setting ``auto`` prefers prefilters without a
            model.
    """

    kind: ClassVar[str] = "prefilter"
    special_values: ClassVar[tuple[str, ...]] = ("auto", "off")
    hook: ClassVar[str] = "delf_prefilters"
    protocol: ClassVar[str | None] = "delf.protocols.prefilter:Prefilter"

    asks: bool = True


@dataclass(frozen=True, kw_only=True)
class EmbedderSpec(Spec):
    """Embedding models, shared by memory stores and prefilters.

    A factory with a parameter ``model`` receives the name of the model that the user requests. If
    the user requests the spec's own ``name``, such as ``inhouse``, ``model`` is not passed.

    Example::

        @hookimpl
        def delf_embedders():
            yield EmbedderSpec(
                name="inhouse",
                summary="The company's own embeddings.",
                factory="delf_embed_inhouse.embedder:InhouseEmbedder",
                serves=("inhouse/*",),
            )

    Args:
        serves: Patterns of model names (``fnmatch``); the longest match wins. The spec's own name
            always matches, as does ``NAME:*``.
        by_name: Whether the embedder is used only if the user names it, because it sends texts to
            another machine.
    """

    kind: ClassVar[str] = "embedder"
    hook: ClassVar[str] = "delf_embedders"
    protocol: ClassVar[str | None] = "delf.protocols.embedder:Embedder"
    optional: ClassVar[Mapping[str, str]] = {
        "delf.protocols.readiness:SupportsSelfCheck": "nothing tells whether it works before "
        "it is used",
        "SupportsLoading": "",
    }

    serves: tuple[str, ...] = ()
    by_name: bool = False

    @property
    def patterns(self) -> tuple[str, ...]:
        """The patterns of the names of models."""
        return (*self.serves, f"{self.name}:*")

    def arguments(self, value: str) -> Mapping[str, Any]:
        """Return the factory's argument ``model``; no argument if the user named only the spec."""
        return {} if value == self.name else {"model": value}


@dataclass(frozen=True, kw_only=True)
class FormatSpec(Spec):
    """A file format that ``files.read`` parses into rows, or that is written from rows.

    The factory is called without arguments.

    Example::

        @hookimpl
        def delf_file_formats():
            yield FormatSpec(
                name="parquet",
                summary="Parquet files as rows.",
                factory="delf_files_parquet.format:ParquetFormat",
                endings=(".parquet",),
            )

    Args:
        endings: Suffixes of the files that the format reads, such as ``(".rows", ".table")``.
        writes: Suffixes of output files that the format writes from rows. If there are any, the
            factory must return a :class:`delf.protocols.formats.SupportsWrite`.
    """

    kind: ClassVar[str] = "format"
    hook: ClassVar[str] = "delf_file_formats"
    protocol: ClassVar[str | None] = "delf.protocols.formats:FileFormat"
    optional: ClassVar[Mapping[str, str]] = {
        "SupportsWrite": "scripts cannot make such files",
        "SupportsPeek": "the prompt reads whole tables to describe them, and no header=",
    }

    endings: tuple[str, ...]
    writes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ApprovalSpec(Spec):
    """An approval channel, which asks a person before a call is made.

    Example::

        @hookimpl
        def delf_approval_channels():
            yield ApprovalSpec(
                name="pager",
                summary="Asks whoever is on call.",
                factory="delf_approval_pager.channel:PagerChannel",
            )

    Args:
        needs_presence: Whether the channel is skipped for tasks that nobody waits for.
    """

    kind: ClassVar[str] = "approval"
    hook: ClassVar[str] = "delf_approval_channels"
    protocol: ClassVar[str | None] = "delf.protocols.approval:ApprovalChannel"
    optional: ClassVar[Mapping[str, str]] = {
        "SupportsPresence": "it is asked although nobody is there: `can_ask` would tell",
        "SupportsDiscussion": "it shows no later comments and assignments (`show_discussion`)",
        "SupportsQuestions": "",
        "delf.protocols.journal:SupportsJournal": "",
    }

    needs_presence: bool = True


@dataclass(frozen=True, kw_only=True)
class Provider:
    """A provider whose models a plugin serves.

    Args:
        name: The name, used as prefix of model names, in ``LLMConfig(provider=…)`` and in
            ``providers``.
        aliases: Alternative names.
        models: Patterns (``fnmatch``, lower case) of model names that imply this provider.
        keys: Environment variables with the API key; messages name the first.
        login: ``key`` if every call needs an API key; ``other`` if another login is possible, such
            as a cloud role; ``none`` if no login is needed.
        addresses: Environment variables with the base URL.
        compatible: Whether other servers imitate this provider's protocol. If True, this provider
            is the default for a model that has a ``base_url`` and no provider.
        own_protocol: Whether ``NAME/MODEL`` with a ``base_url`` selects this provider. If False,
            the provider with ``compatible=True`` serves the model, and its server receives the
            name ``NAME/MODEL``.
        suggested: The model to suggest to a user who has a key and names no model.
        url: The provider's base URL; None if the code for its protocol contains the URL.
        dialect: The provider whose protocol this provider uses; None for a protocol of its own.
    """

    name: str
    aliases: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    login: Literal["key", "other", "none"] = "key"
    addresses: tuple[str, ...] = ()
    compatible: bool = False
    own_protocol: bool = False
    suggested: str | None = None
    url: str | None = None
    dialect: str | None = None

    @property
    def words(self) -> tuple[str, ...]:
        """The name and the aliases."""
        return (self.name, *self.aliases)

    def patterns(self, *, at_address: bool = False) -> Iterator[str]:
        """Yield the patterns of the model names that select the provider, such as ``acme/*``.

        Args:
            at_address: Whether the user gives a ``base_url``.
        """
        # The server at a ``base_url`` may have models of any name, even ``acme/mini``. There,
        # ``acme/*`` selects the provider only if the provider has a protocol of its own.
        if not at_address or self.own_protocol:
            yield from (f"{name_or_alias}/*" for name_or_alias in self.words)
        if not at_address:
            yield from self.models


@dataclass(frozen=True, kw_only=True)
class ModelSpec(Spec):
    """A language model client, with the model names that it serves.

    A parameter ``config`` of the factory receives the :class:`delf.llm.LLMConfig` of the model,
    instead of options.

    Example::

        @hookimpl
        def delf_models():
            yield ModelSpec(
                name="inhouse",
                summary="The company's own models.",
                factory="delf_model_inhouse.model:InhouseModel",
                providers=(Provider(name="inhouse", keys=("INHOUSE_KEY",)),),
            )

    Args:
        serves: Patterns (``fnmatch``) of model names that the plugin serves in addition to the
            names of its ``providers``. If patterns of several plugins match, the plugin with the
            longest matching pattern is used.
        providers: The providers of the models.
        fallback: Whether the plugin serves any model name for which no other plugin is found.
    """

    kind: ClassVar[str] = "model"
    hook: ClassVar[str] = "delf_models"
    protocol: ClassVar[str | None] = "delf.protocols.model:Model"
    optional: ClassVar[Mapping[str, str]] = {
        "SupportsTools": "strategies that give a model tools cannot use it",
        "SupportsPrice": "a budget counts only what its replies say they cost",
        "delf.protocols.readiness:SupportsSelfCheck": "nothing tells whether its key is "
        "there before it is asked",
        "SupportsSessions": "",
        "delf.protocols.readiness:SupportsEarlyStart": "",
    }

    serves: tuple[str, ...] = ()
    providers: tuple[Provider, ...] = ()
    fallback: bool = False


@dataclass(frozen=True, kw_only=True)
class JournalSpec(Spec):
    """A journal, which stores events.

    Example::

        @hookimpl
        def delf_journals():
            yield JournalSpec(
                name="kafka",
                summary="Events in a Kafka topic.",
                factory="delf_journal_kafka.journal:KafkaJournal",
            )

    Args:
        durable: Whether the journal keeps events after the process ends. Commands use an installed
            durable journal.
        shared: Whether other processes see the journal's tasks and can answer requests through it.
    """

    kind: ClassVar[str] = "journal"
    special_values: ClassVar[tuple[str, ...]] = (IN_PROCESS,)
    hook: ClassVar[str] = "delf_journals"
    protocol: ClassVar[str | None] = "delf.protocols.journal:Journal"
    optional: ClassVar[Mapping[str, str]] = {
        "SupportsRemembered": "a yes that lasts until it is revoked ends with the process",
        "delf.protocols.shared_journal:SharedJournal": (
            "other processes cannot see its tasks, answer requests or resume"
        ),
    }

    durable: bool = False
    shared: bool = False


@dataclass(frozen=True, kw_only=True)
class StrategySpec(Spec):
    """A strategy, which turns a task into tool calls.

    The strategy's object is made once for each agent, and works on concurrent tasks.

    Example::

        @hookimpl
        def delf_strategies():
            yield StrategySpec(
                name="debate",
                summary="Two models argue, a third decides.",
                factory="delf_strategy_debate.strategy:Debate",
            )

    Args:
        llm: The default of the agent's ``llm`` setting. Only a strategy that works without a model
            sets this default.
        settings: Fields of the agent's configuration that the strategy overrides.
    """

    kind: ClassVar[str] = "strategy"
    hook: ClassVar[str] = "delf_strategies"
    protocol: ClassVar[str | None] = "delf.protocols.strategy:Strategy"
    optional: ClassVar[Mapping[str, str]] = {
        "SupportsCallsOnly": "",
        "SupportsChanges": "",
        "SupportsOwnTools": "",
    }

    llm: str | None = None
    settings: tuple[tuple[str, object], ...] = ()


@dataclass(frozen=True, kw_only=True)
class ObserverSpec(Spec):
    """An observer, which receives every event.

    Example::

        @hookimpl
        def delf_observers():
            yield ObserverSpec(
                name="call-log",
                summary="Writes every call to the log.",
                factory="delf_call_log.observer:CallLog",
            )

    Args:
        opt_in: Whether the observer is used only if the setting ``observers`` names it.
        setup: ``"module:attribute"`` of a function without arguments, which is called in the
            context of the code that submits a task. The function returns plain data, which is
            stored in ``setup`` of the task's events, and so is known wherever the task is resumed.
    """

    kind: ClassVar[str] = "observer"
    hook: ClassVar[str] = "delf_observers"
    protocol: ClassVar[str | None] = "delf.protocols.observer:Observer"
    optional: ClassVar[Mapping[str, str]] = {
        "SupportsPeopleChanges": "",
    }

    opt_in: bool = False
    setup: str | None = None


@dataclass(frozen=True, kw_only=True)
class CommandSpec(Spec):
    """A command of the ``delf`` program.

    The factory is a ``click.Command``, imported when the command is typed.

    A name of two words is a command of a group: ``plugins new``.

    Example::

        @hookimpl
        def delf_commands():
            yield CommandSpec(
                name="hello",
                summary="Says hello.",
                factory="delf_hello.command:hello",
            )
    """

    kind: ClassVar[str] = "command"
    hook: ClassVar[str] = "delf_commands"
