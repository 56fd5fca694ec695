"""``delf plugins``: the installed plugins and their states."""

from __future__ import annotations

from typing import Any, Final

import click

from delf.plugins.report import PLUGIN_FIELDS, PluginRecord
from delf_cli.as_json import as_json_option
from delf_cli.json_encoding import encode_json
from delf_cli.lazy import LazyGroup
from delf_cli.state import State, state_of

_COLOURS: Final = {
    "loaded": "green",
    "disabled": "bright_black",
    "skipped": "yellow",
    "conflict": "yellow",
    "failed": "red",
}


@click.group("plugins", cls=LazyGroup, group="plugins ", bare_command="list")
def plugins() -> None:
    """List, install and check plugins."""


@plugins.command("list")
@as_json_option(PluginRecord, PLUGIN_FIELDS)
@click.pass_context
def list_command(ctx: click.Context, as_json: bool) -> None:
    """List the plugins with what they add, their packages and their state."""
    state = state_of(ctx)
    host = state.discover()
    records = host.records()
    if as_json:
        report: Any = host.report()
        if any(record.reason or record.warnings for record in records):
            report = state.redact_data(report)  # a plugin's error message may hold a secret
        click.echo(encode_json(report, indent=2))
    else:
        from delf_cli.tables import table

        head = ("plugin", "state", "version", "brings")
        for line in table(list(map(_row, records)), head, whole=True):
            click.echo(line)
        for record in records:
            _explain(record, state)


def _row(record: PluginRecord) -> tuple[str, ...]:
    kinds = [f"{kind} {', '.join(names)}" for kind, names in record.kinds.items()]
    took = f" ({record.load_ms:.1f} ms)" if record.load_ms else ""
    state = click.style(record.state, fg=_COLOURS.get(record.state)) + took
    return record.name, state, record.version or "-", "; ".join(kinds) or "-"


def _explain(record: PluginRecord, state: State) -> None:
    """Print the reason for a plugin's state, if any, and the plugin's warnings."""
    from delf.terminal import visible

    texts = list(record.warnings)
    if record.reason:
        texts.insert(0, record.reason)
    for text in texts:
        origin = f" ({record.plugin.origin})" if record.distribution else ""
        click.echo(f"\n{record.name}{origin}: {visible(state.redact(text))}")
