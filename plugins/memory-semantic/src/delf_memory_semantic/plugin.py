"""The plugin's hooks."""

from __future__ import annotations

from collections.abc import Iterable

from delf.hookspecs import hookimpl
from delf.specs import CommandSpec, MemorySpec


@hookimpl
def delf_memory_stores() -> Iterable[MemorySpec]:
    yield MemorySpec(
        name="semantic",
        summary="Facts in SQLite or PostgreSQL, found by words and by meaning.",
        factory="delf_memory_semantic:SemanticStore",
        exports=("Memory",),
    )


@hookimpl
def delf_commands() -> Iterable[CommandSpec]:
    yield CommandSpec(
        name="memory",
        summary="Look at what is remembered; add, search, forget.",
        factory="delf_memory_semantic.command:memory",
    )
