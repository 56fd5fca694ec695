"""The plugin's hooks."""

from __future__ import annotations

from collections.abc import Iterable

from delf.hookspecs import hookimpl
from delf.specs import CommandSpec, ConnectionSpec, ModelSpec, StrategySpec


@hookimpl
def delf_connections() -> Iterable[ConnectionSpec]:
    """Yield the connection ``routines``, whose actions are the project's routines."""
    yield ConnectionSpec(
        name="routines",
        summary="The project's routines: each is an action.",
        factory="delf_routines.connection:RoutineTools",
        project_files="delf_routines.project_files:project_files",
    )


@hookimpl
def delf_strategies() -> Iterable[StrategySpec]:
    """Yield the strategy ``routine``, which runs a routine's script without a model."""
    yield StrategySpec(
        name="routine",
        summary='Runs a routine: the task is a call of it, as report(month="2026-10").',
        factory="delf_routines.running:RoutineStrategy",
        llm="none:no model",  # the placeholder that delf_models() yields
        # The script decides which tools are called, so that no tools are selected for a model.
        settings=(("prefilter_mode", "off"), ("learn", False)),
    )


@hookimpl
def delf_models() -> Iterable[ModelSpec]:
    """Yield a placeholder model for routines in a project without a model."""
    yield ModelSpec(
        name="no-model",
        summary="No model: for routines in a project that has none.",
        factory="delf_routines.running:NoModel",
        serves=("none:*",),
    )


@hookimpl
def delf_commands() -> Iterable[CommandSpec]:
    """Yield the command ``routines``."""
    yield CommandSpec(
        name="routines",
        summary="Save a task that worked as a routine; list, run and test routines.",
        factory="delf_routines.commands:routines",
    )
