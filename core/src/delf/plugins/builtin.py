"""The core's own capabilities, offered through the same hooks as anybody's plugin."""

from __future__ import annotations

from collections.abc import Iterable

from delf.hookspecs import hookimpl
from delf.specs import JournalSpec, StrategySpec


@hookimpl
def delf_journals() -> Iterable[JournalSpec]:
    """The journal that lives as long as the process."""
    yield JournalSpec(
        name="memory",
        summary="Events in memory, gone with the process.",
        factory="delf.engine.journal.memory:MemoryJournal",
    )


@hookimpl
def delf_strategies() -> Iterable[StrategySpec]:
    """The strategy that delf is about."""
    yield StrategySpec(
        name="codegen",
        summary="The model writes a script that calls the tools.",
        factory="delf.engine.codegen.strategy:CodegenStrategy",
    )
