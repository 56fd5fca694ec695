"""What this plugin brings."""

from __future__ import annotations

from collections.abc import Iterable

from delf.hookspecs import hookimpl
from delf.specs import CommandSpec


@hookimpl
def delf_commands() -> Iterable[CommandSpec]:
    """Tasks, looking after delf on a machine, and packages of plugins."""
    yield CommandSpec(
        name="run",
        summary="Do a task.",
        factory="delf_plugin_cli.run:run",
        exports=("summary_of", "tell_of_event"),
    )
    yield CommandSpec(
        name="resume",
        summary="Go on with a task whose process was killed.",
        factory="delf_plugin_cli.resume:resume",
    )
    yield CommandSpec(
        name="runs",
        summary="Look at the tasks in the journal.",
        factory="delf_plugin_cli.runs:runs",
    )
    yield CommandSpec(
        name="journal",
        summary="Look after the journal: its size, old tasks, copies.",
        factory="delf_plugin_cli.journal:journal",
    )
    yield CommandSpec(
        name="quickstart",
        summary="Ask three questions and write delf.toml.",
        factory="delf_plugin_cli.quickstart:quickstart",
    )
    yield CommandSpec(
        name="config",
        summary="Look at the configuration, and change it.",
        factory="delf_plugin_cli.config:config",
    )
    yield CommandSpec(
        name="doctor",
        summary="Check whether tasks can run on this machine.",
        factory="delf_plugin_cli.doctor:doctor",
    )
    yield CommandSpec(
        name="inspect",
        summary="Show what a connection can do.",
        factory="delf_plugin_cli.inspect:inspect",
    )
    yield CommandSpec(
        name="plugins available",
        summary="List delf's own plugins by purpose.",
        factory="delf_plugin_cli.available:available",
    )
    yield CommandSpec(
        name="plugins check",
        summary="Check that plugins are sound.",
        factory="delf_plugin_cli.packages:check",
    )
    yield CommandSpec(
        name="plugins install",
        summary="Install plugins.",
        factory="delf_plugin_cli.packages:install",
    )
    yield CommandSpec(
        name="plugins uninstall",
        summary="Uninstall plugins.",
        factory="delf_plugin_cli.packages:uninstall",
    )
    yield CommandSpec(
        name="runs stop",
        summary="Stop a task, wherever it runs.",
        factory="delf_plugin_cli.stop:stop",
    )
