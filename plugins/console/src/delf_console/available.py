"""``delf plugins available``: delf's own and third-party plugins, installed or not."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final, TypedDict

import click

from delf.packages.official import PLUGIN_PREFIX
from delf_cli.as_json import as_json_option
from delf_cli.json_encoding import encode_json
from delf_cli.streams import wrap_text
from delf_console.sources import is_installed

OTHERS_HEADING: Final = "By others"
"""The heading under which plugins of other authors are listed."""
DIRECTORY: Final = Path(__file__).with_name("directory.json")
"""The file that lists plugins of other authors, like the page docs/plugins/directory.md."""


class _AvailableRow(TypedDict):
    """The JSON of a plugin in ``delf plugins available``.

    Args:
        name: The name for ``delf plugins install``.
        purpose: The purpose; ``By others`` for plugins of other people.
        summary: A short description of the plugin.
        installed: True if the plugin is installed.
    """

    name: str
    purpose: str
    summary: str
    installed: bool


@click.command("available")
@as_json_option(_AvailableRow)
def available(as_json: bool) -> None:
    """List plugins: delf's own by purpose, then those of other people; installed ones are marked.

    `delf plugins install NAME` installs any of them. Plugins of other people need their full name,
    delf-plugin-NAME; delf's authors have not reviewed them.
    """
    summaries_by_purpose = dict(purposes())  # each summary by the name of its plugin
    if other_plugins := plugins_of_others():
        summaries_by_purpose[OTHERS_HEADING] = {
            name: plugin["summary"] for name, plugin in other_plugins.items()
        }
    installed: dict[str, bool] = {}
    for purpose, summaries in summaries_by_purpose.items():
        prefix = "" if purpose == OTHERS_HEADING else PLUGIN_PREFIX
        for name in summaries:
            installed[name] = is_installed(prefix + name)
    if as_json:
        rows = [
            _AvailableRow(name=name, purpose=purpose, summary=summary, installed=installed[name])
            for purpose, summaries in summaries_by_purpose.items()
            for name, summary in summaries.items()
        ]
        click.echo(encode_json(rows, indent=2))
        return
    width = max(map(len, installed))
    for number, (purpose, summaries) in enumerate(summaries_by_purpose.items()):
        if number > 0:
            click.echo("")
        click.echo(click.style(purpose, bold=True))
        for name, summary in summaries.items():
            mark = click.style("✓", fg="green") if installed[name] else " "
            click.echo(f"{mark} {name:<{width}}  {wrap_text(summary, indent=width + 4)}")
    count = f"{sum(installed.values())} of {len(installed)}"
    click.echo(f"\n✓ installed: {count}. More: delf plugins install NAME")


def plugins_of_others() -> Mapping[str, Mapping[str, str]]:
    """Return plugins of other authors: a mapping from distribution name to the plugin's fields.

    A field is, for example, ``summary``.
    """
    return json.loads(DIRECTORY.read_text(encoding="utf-8"))


def purposes() -> Mapping[str, Mapping[str, str]]:
    """Return delf's own plugins: a mapping from purpose to plugin names with their summaries."""
    file = Path(__file__).with_name("available.json")
    return json.loads(file.read_text(encoding="utf-8"))
