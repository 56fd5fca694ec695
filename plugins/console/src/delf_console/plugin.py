"""The capabilities of this plugin."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from delf.hookspecs import hookimpl
from delf.specs import CommandSpec

# The name, the summary, and the ``module:attribute`` of each command.
_COMMANDS: Final = (
    ("resume", "Resume a task whose process died.", "resume:resume"),
    ("runs", "Look at the tasks in the journal.", "runs:runs"),
    ("journal", "Manage the journal: its size, old tasks, copies.", "journal:journal"),
    ("quickstart", "Ask three questions and write delf.toml.", "quickstart:quickstart"),
    ("keys", "Keep keys of model providers for yourself.", "keys:keys"),
    ("config", "Show the configuration, and change it.", "config:config"),
    ("doctor", "Check whether tasks can run on this machine.", "doctor:doctor"),
    ("inspect", "Show what a connection can do.", "inspect:inspect"),
    ("plugins available", "List delf's own plugins by purpose.", "available:available"),
    ("plugins check", "Check that plugins are sound.", "packages:check"),
    ("plugins install", "Install plugins.", "packages:install"),
    ("plugins uninstall", "Uninstall plugins.", "packages:uninstall"),
    ("runs diff", "Compare two tasks.", "diff:diff"),
    ("runs figures", "Add up tasks, calls, tokens and cost.", "search:figures"),
    ("runs fork", "Do a task again from one of its events.", "fork:fork"),
    ("runs search", "Find tasks by what happened in them.", "search:search"),
    ("runs stop", "Stop a task, wherever it runs.", "stop:stop"),
)


@hookimpl
def delf_commands() -> Iterable[CommandSpec]:
    """Yield the commands for tasks, for administration, and for packages of plugins."""
    yield CommandSpec(
        name="run",
        summary="Do a task.",
        factory="delf_console.run:run",
    )
    for name, summary, attribute in _COMMANDS:
        yield CommandSpec(name=name, summary=summary, factory=f"delf_console.{attribute}")
