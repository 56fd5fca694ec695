"""The hooks that a plugin may implement: the reference for plugin authors.

A plugin is a module named by an entry point of the group ``delf``::

    [project.entry-points.delf]
    tickets = "delf_tickets.plugin"

It implements any of the hooks below. A hook takes no argument and returns an iterable of
specs, which only name things; the code behind them is imported on first use::

    from delf.hookspecs import hookimpl
    from delf.specs import ConnectionSpec

    @hookimpl
    def delf_connections():
        yield ConnectionSpec(
            name="tickets",
            summary="The support desk's tickets.",
            factory="delf_tickets.connection:Tickets",
        )

The plugin's distribution states for its installer what it was written for:
``dependencies = ["delf-core>=0.1,<1"]``. With ``keywords = ["delf-plugin-api-1"]`` delf
leaves the plugin out, with the reason, if :data:`PLUGIN_API` has another number.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import pluggy

from delf.specs import (
    ApprovalSpec,
    CommandSpec,
    ConnectionSpec,
    EmbedderSpec,
    FormatSpec,
    JournalSpec,
    MemorySpec,
    ModelSpec,
    ObserverSpec,
    PrefilterSpec,
    SandboxSpec,
    Spec,
    StrategySpec,
)

PLUGIN_API: Final = 1
"""The version of the plugin interface; raised when existing plugins must be changed."""

ENTRY_POINT_GROUP: Final = "delf"
"""The entry point group of a plugin's module of hooks."""

EXPORTS_GROUP: Final = "delf.exports"
"""The entry point group of names for ``from delf import NAME``."""

CONNECTIONS_GROUP: Final = "delf.connections"
"""The entry point group of classes of connections, for packages that bring nothing else."""

DISTRIBUTION: Final = "delf-core"
"""The distribution that plugins depend on; `delf` on PyPI is another project."""

hookspec = pluggy.HookspecMarker("delf")
hookimpl = pluggy.HookimplMarker("delf")


@hookspec
def delf_connections() -> Iterable[ConnectionSpec]:  # pyright: ignore[reportReturnType]
    """Return types of connections: services whose actions a script can call.

    Example::

        @hookimpl
        def delf_connections():
            yield ConnectionSpec(
                name="tickets",
                summary="The support desk's tickets.",
                factory="delf_tickets.connection:Tickets",
            )

    The factory is a subclass of :class:`delf.tools.connection.Connection`.
    """


@hookspec
def delf_sandbox_backends() -> Iterable[SandboxSpec]:  # pyright: ignore[reportReturnType]
    """Return sandbox backends, which run scripts in isolation.

    Example::

        @hookimpl
        def delf_sandbox_backends():
            yield SandboxSpec(
                name="firecracker",
                summary="A micro-VM for each task.",
                factory="delf_sandbox_firecracker.backend:FirecrackerBackend",
                isolation="vm",
            )

    The factory makes a :class:`delf.protocols.sandbox.SandboxBackend`.
    """


@hookspec
def delf_memory_stores() -> Iterable[MemorySpec]:  # pyright: ignore[reportReturnType]
    """Return memory stores, which keep facts across tasks.

    Example::

        @hookimpl
        def delf_memory_stores():
            yield MemorySpec(
                name="notes",
                summary="Facts in a plain text file.",
                factory="delf_memory_notes.store:NotesStore",
            )

    The factory makes a :class:`delf.protocols.memory.MemoryStore`.
    """


@hookspec
def delf_prefilters() -> Iterable[PrefilterSpec]:  # pyright: ignore[reportReturnType]
    """Return prefilters, which select the actions that a task needs.

    Example::

        @hookimpl
        def delf_prefilters():
            yield PrefilterSpec(
                name="keywords",
                summary="Actions that share words with the task.",
                factory="delf_prefilter_keywords.prefilter:KeywordPrefilter",
                modes=("filter",),
            )

    The factory makes a :class:`delf.protocols.prefilter.Prefilter`.
    """


@hookspec
def delf_embedders() -> Iterable[EmbedderSpec]:  # pyright: ignore[reportReturnType]
    """Return embedding models, shared by memory stores and prefilters.

    Example::

        @hookimpl
        def delf_embedders():
            yield EmbedderSpec(
                name="inhouse",
                summary="The company's own embeddings.",
                factory="delf_embed_inhouse.embedder:InhouseEmbedder",
                serves=("inhouse/*",),
            )

    The factory makes a :class:`delf.protocols.embedder.Embedder`.
    """


@hookspec
def delf_file_formats() -> Iterable[FormatSpec]:  # pyright: ignore[reportReturnType]
    """Return file formats that ``files.read`` parses into rows, or that are written from rows.

    Example::

        @hookimpl
        def delf_file_formats():
            yield FormatSpec(
                name="parquet",
                summary="Parquet files as rows.",
                factory="delf_files_parquet.format:ParquetFormat",
                endings=(".parquet",),
            )

    The factory makes a :class:`delf.protocols.formats.FileFormat`.
    """


@hookspec
def delf_approval_channels() -> Iterable[ApprovalSpec]:  # pyright: ignore[reportReturnType]
    """Return approval channels, which ask a person before a call is made.

    Example::

        @hookimpl
        def delf_approval_channels():
            yield ApprovalSpec(
                name="pager",
                summary="Asks whoever is on call.",
                factory="delf_approval_pager.channel:PagerChannel",
            )

    The factory makes a :class:`delf.protocols.approval.ApprovalChannel`.
    """


@hookspec
def delf_models() -> Iterable[ModelSpec]:  # pyright: ignore[reportReturnType]
    """Return language model clients, with the model names that they serve.

    Example::

        @hookimpl
        def delf_models():
            yield ModelSpec(
                name="inhouse",
                summary="The company's own models.",
                factory="delf_model_inhouse.model:InhouseModel",
                providers=(Provider(name="inhouse", keys=("INHOUSE_KEY",)),),
            )

    The factory makes a :class:`delf.protocols.model.Model`.
    """


@hookspec
def delf_journals() -> Iterable[JournalSpec]:  # pyright: ignore[reportReturnType]
    """Return journals, which store events.

    Example::

        @hookimpl
        def delf_journals():
            yield JournalSpec(
                name="kafka",
                summary="Events in a Kafka topic.",
                factory="delf_journal_kafka.journal:KafkaJournal",
            )

    The factory makes a :class:`delf.protocols.journal.Journal`.
    """


@hookspec
def delf_strategies() -> Iterable[StrategySpec]:  # pyright: ignore[reportReturnType]
    """Return strategies, which turn a task into tool calls.

    Example::

        @hookimpl
        def delf_strategies():
            yield StrategySpec(
                name="debate",
                summary="Two models argue, a third decides.",
                factory="delf_strategy_debate.strategy:Debate",
            )

    The factory makes a :class:`delf.protocols.strategy.Strategy`.
    """


@hookspec
def delf_observers() -> Iterable[ObserverSpec]:  # pyright: ignore[reportReturnType]
    """Return observers, which receive every event.

    Example::

        @hookimpl
        def delf_observers():
            yield ObserverSpec(
                name="call-log",
                summary="Writes every call to the log.",
                factory="delf_call_log.observer:CallLog",
            )

    The factory makes a :class:`delf.protocols.observer.Observer`.
    """


@hookspec
def delf_commands() -> Iterable[CommandSpec]:  # pyright: ignore[reportReturnType]
    """Return commands of the ``delf`` program.

    Example::

        @hookimpl
        def delf_commands():
            yield CommandSpec(
                name="hello",
                summary="Says hello.",
                factory="delf_hello.command:hello",
            )

    The factory is a ``click.Command``, imported when the command is typed.
    """


HOOKS: Final[dict[str, type[Spec]]] = {
    "delf_connections": ConnectionSpec,
    "delf_sandbox_backends": SandboxSpec,
    "delf_memory_stores": MemorySpec,
    "delf_prefilters": PrefilterSpec,
    "delf_embedders": EmbedderSpec,
    "delf_file_formats": FormatSpec,
    "delf_approval_channels": ApprovalSpec,
    "delf_models": ModelSpec,
    "delf_journals": JournalSpec,
    "delf_strategies": StrategySpec,
    "delf_observers": ObserverSpec,
    "delf_commands": CommandSpec,
}
"""Every hook with the spec that it returns."""
