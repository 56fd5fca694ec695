"""The plugin's hooks."""

from __future__ import annotations

from collections.abc import Iterable

from delf.hookspecs import hookimpl
from delf.specs import CommandSpec, ConnectionSpec, StrategySpec


@hookimpl
def delf_connections() -> Iterable[ConnectionSpec]:
    """Yield the connection ``workers``, with which scripts call workers."""
    yield ConnectionSpec(
        name="workers",
        summary="Agents that are written down in files.",
        factory="delf_workers.connection:Workers",
        project_files="delf_workers.project_files:project_files",
    )


@hookimpl
def delf_strategies() -> Iterable[StrategySpec]:
    """Yield the strategy ``worker``, which passes a task to a worker unchanged."""
    yield StrategySpec(
        name="worker",
        summary="Gives the task to a worker; the task begins with the worker's name and a colon.",
        factory="delf_workers.running:WorkerStrategy",
    )


@hookimpl
def delf_commands() -> Iterable[CommandSpec]:
    """Yield the commands ``workers`` and ``init``."""
    yield CommandSpec(
        name="workers",
        summary="List, show, check and run workers.",
        factory="delf_workers.commands:workers",
    )
    yield CommandSpec(
        name="init",
        summary="Start a small project.",
        factory="delf_workers.init:init",
    )
