"""Click groups that import commands, including those of plugins, only on use."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from delf.errors import DelfError, PluginError, did_you_mean
from delf_cli.state import add_global_flags, state_of

if TYPE_CHECKING:
    from delf.specs import CommandSpec


class BareGroup(click.Group):
    """A group with a default command: ``delf runs --json`` means ``delf runs list --json``.

    Args:
        bare_command: The name of the default command.
    """

    def __init__(self, *args: Any, bare_command: str | None = None, **options: Any) -> None:
        super().__init__(*args, **options)
        self._default_command = bare_command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Insert the name of the default command if the arguments name no command."""
        asks_for_help = not {"-h", "--help"}.isdisjoint(args)
        is_completion = ctx.resilient_parsing  # the shell completes the command line
        begins_with_command = bool(args) and not args[0].startswith("-")
        needs_no_default = asks_for_help or is_completion or begins_with_command
        # The cheap conditions come first, because list_commands discovers all plugins.
        if self._default_command is not None and not needs_no_default:
            # Look at all arguments, because flags and their values may precede the command's name.
            names_command = not set(self.list_commands(ctx)).isdisjoint(args)
            if not names_command:
                args = [self._default_command, *args]
        return super().parse_args(ctx, args)


class LazyGroup(BareGroup):
    """A group whose commands are imported on use; ``--help`` shows names and summaries only.

    All commands accept the program's flags, too. The program itself is such a group, and so are
    groups to which plugins add commands, such as ``plugins``.

    Args:
        lazy: A mapping from command name to a pair: the ``module:attribute`` to import, and the
            summary for ``--help``.
        group: The prefix of plugin commands that belong to this group, such as ``"plugins "``;
            empty for the program itself.
    """

    def __init__(
        self,
        *args: Any,
        lazy: Mapping[str, tuple[str, str]] | None = None,
        group: str = "",
        **options: Any,
    ) -> None:
        super().__init__(*args, **options)
        # The place to import and the summary for ``--help``, by command name.
        self._lazy_commands = dict(lazy or {})
        # The beginning of the names of plugin commands that belong to this group.
        self._prefix = group

    def summaries(self, ctx: click.Context) -> dict[str, str]:
        """Return a mapping from command name to summary, without commands of broken plugins."""
        from delf.specs import CommandSpec

        specs = state_of(ctx).discover().specs(CommandSpec)
        plugin_summaries = {self._own_name(spec): spec.summary for spec in specs}
        own_summaries = {name: item.get_short_help_str(200) for name, item in self.commands.items()}
        lazy_summaries = {name: summary for name, (_, summary) in self._lazy_commands.items()}
        summaries = {**plugin_summaries, **lazy_summaries, **own_summaries}
        summaries.pop("", None)  # _own_name() is empty for a command of another group
        return summaries

    def _own_name(self, spec: CommandSpec) -> str:
        """Return a plugin command's name within this group; empty for another group's command."""
        if not spec.name.startswith(self._prefix):
            return ""
        name = spec.name.removeprefix(self._prefix)
        is_of_subgroup = " " in name
        return "" if is_of_subgroup else name

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        return sorted(self.summaries(ctx))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command.

        Raises:
            PluginError: If the command's plugin is missing or cannot be used.
        """
        command = self.commands.get(cmd_name)
        if command is None and cmd_name in self._lazy_commands:
            location, _ = self._lazy_commands[cmd_name]
            module, _, attribute = location.partition(":")
            command = getattr(importlib.import_module(module), attribute)
        try:
            return add_global_flags(command or self._from_plugin(ctx, cmd_name))
        except DelfError:
            if ctx.resilient_parsing:  # completion of a command line with a mistyped name
                return None
            raise

    def _from_plugin(self, ctx: click.Context, name: str) -> click.Command:
        """Import a plugin's command; for an unknown name, the error suggests similar names."""
        from delf.specs import CommandSpec

        host = state_of(ctx).discover()
        try:
            spec = host.spec(CommandSpec, f"{self._prefix}{name}")
        except PluginError as error:
            is_unknown = error.message.startswith("unknown command")
            if not is_unknown:
                raise
            suggestion = did_you_mean(name, self.list_commands(ctx))
            is_top_level = not self._prefix
            if is_top_level and not suggestion:
                raise  # the command may be of a missing plugin: the hint says what to install
            trouble = f"; {host.trouble}" if host.trouble else ""
            raise click.UsageError(f"unknown command {name!r}{trouble}{suggestion}", ctx) from None
        command = host.resolve(spec)
        if not isinstance(command, click.Command):
            raise PluginError(f"{host.origin(spec)}: {spec.factory} is not a click command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands with their summaries."""
        rows = sorted(self.summaries(ctx).items())
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)
