"""The plugin's hooks."""

from __future__ import annotations

from collections.abc import Iterable

from delf.hookspecs import hookimpl
from delf.specs import CommandSpec, ConnectionSpec, MemorySpec


@hookimpl
def delf_memory_stores() -> Iterable[MemorySpec]:
    yield MemorySpec(
        name="semantic",
        summary="Facts in SQLite or PostgreSQL, found by words and by meaning.",
        factory="delf_memory_semantic:SemanticStore",
    )


@hookimpl
def delf_connections() -> Iterable[ConnectionSpec]:
    yield ConnectionSpec(
        name="recall",
        summary="Looks through past conversations, by meaning and by words.",
        factory="delf_memory_semantic.recall:Recall",
    )


@hookimpl
def delf_commands() -> Iterable[CommandSpec]:
    yield CommandSpec(
        name="memory",
        summary="Show, add, search and forget remembered facts.",
        factory="delf_memory_semantic.command:memory",
    )
