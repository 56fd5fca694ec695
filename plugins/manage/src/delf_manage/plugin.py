"""What this plugin brings."""

from __future__ import annotations

from collections.abc import Iterable

from delf.hookspecs import hookimpl
from delf.specs import CommandSpec


@hookimpl
def delf_commands() -> Iterable[CommandSpec]:
    """``config``, ``doctor``, ``inspect``, ``runs stop``, and what there is beneath ``plugins``."""
    yield CommandSpec(
        name="config",
        summary="Look at the configuration, and change it.",
        factory="delf_manage.config:config",
    )
    yield CommandSpec(
        name="doctor",
        summary="Check whether tasks can run on this machine.",
        factory="delf_manage.doctor:doctor",
    )
    yield CommandSpec(
        name="inspect",
        summary="Show what a connection can do.",
        factory="delf_manage.inspect:inspect",
    )
    yield CommandSpec(
        name="plugins available",
        summary="List delf's own plugins by purpose.",
        factory="delf_manage.available:available",
    )
    yield CommandSpec(
        name="plugins check",
        summary="Check that plugins are sound.",
        factory="delf_manage.packages:check",
    )
    yield CommandSpec(
        name="plugins install",
        summary="Install plugins.",
        factory="delf_manage.packages:install",
    )
    yield CommandSpec(
        name="plugins uninstall",
        summary="Uninstall plugins.",
        factory="delf_manage.packages:uninstall",
    )
    yield CommandSpec(
        name="runs stop",
        summary="Stop a task, wherever it runs.",
        factory="delf_manage.stop:stop",
    )
