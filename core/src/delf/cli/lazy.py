"""A click group whose commands are imported when they are typed."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import click

from delf.cli.state import take_everywhere


class LazyGroup(click.Group):
    """Knows its commands by name and summary; ``--help`` imports none of them.

    Each takes the program's flags, too.

    Args:
        lazy: For each name the command as ``module:attribute``, and its line in ``--help``.
    """

    def __init__(
        self, *args: Any, lazy: Mapping[str, tuple[str, str]] | None = None, **options: Any
    ) -> None:
        super().__init__(*args, **options)
        self._lazy = dict(lazy or {})

    def summaries(self, ctx: click.Context) -> dict[str, str]:
        """Every command's line in ``--help``, by name."""
        own = {name: item.get_short_help_str() for name, item in self.commands.items()}
        return {**{name: summary for name, (_, summary) in self._lazy.items()}, **own}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of all commands."""
        return sorted(self.summaries(ctx))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of a name, imported now."""
        found = self.commands.get(cmd_name)
        if found is None and cmd_name in self._lazy:
            module, _, attribute = self._lazy[cmd_name][0].partition(":")
            found = take_everywhere(getattr(importlib.import_module(module), attribute))
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands' lines."""
        rows = sorted(self.summaries(ctx).items())
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)
