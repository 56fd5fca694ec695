"""The plugin's hooks."""

from __future__ import annotations

from collections.abc import Iterable

from delf.hookspecs import hookimpl
from delf.specs import CommandSpec


@hookimpl
def delf_commands() -> Iterable[CommandSpec]:
    yield CommandSpec(
        name="runner",
        summary="Do the tasks of a queue.",
        factory="delf_runner_dbos.command:runner",
        plugin_settings="delf_runner_dbos.settings:RunnerSettings",
    )
    yield CommandSpec(
        name="schedule",
        summary="Let runners do a task at set times, or for each new item that a call returns.",
        factory="delf_runner_dbos.schedule_command:schedule",
    )
