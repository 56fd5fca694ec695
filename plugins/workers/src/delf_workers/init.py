"""``delf init``: a small project to begin with."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypedDict

import click

from delf.machine.kept_keys import own_variables
from delf.machine.own_files import write_private
from delf_cli import errors
from delf_cli.as_json import as_json_option, write_result
from delf_cli.state import state_of

if TYPE_CHECKING:
    from delf.plugins.host import PluginHost

_FILES: Final = (
    "delf.toml", "tools.py", "notes.md", "workers/summarise.worker", "workers/tools.py",
)  # fmt: skip
# Sections of the new delf.toml, by the name of the plugin that each section needs.
_PLUGIN_SECTIONS: Final = {
    "filesystem": """
# The folder that tasks may read; writing is asked about.
[connections.disk]
type = "filesystem"

[connections.disk.roots]
here = { root = ".", mode = "rw", suffixes = [".md", ".txt", ".csv"] }
"""
}
_INSTRUCTION_TO_ASK_A_MODEL: Final = "read the file, and let `llm.call` sum it up"
# A sentence of the new worker's instructions if the plugin ``llm`` is not installed.
_INSTRUCTION_TO_READ: Final = "show the file with `rerun`, and print your summary in the next one"


class _InitRow(TypedDict):
    """The JSON of ``delf init``.

    Args:
        made: The paths of the new files.
        kept: The paths of the files that were there, and stay as they are.
        next: The commands to type next.
    """

    made: list[str]
    kept: list[str]
    next: list[str]


@click.command("init")
@click.argument("folder", default=".", type=click.Path(file_okay=False))
@click.option(
    "--llm",
    metavar="MODEL",
    help="The model.  [default: by the key that is set]",
)
@as_json_option(_InitRow)
@click.pass_context
def init(ctx: click.Context, folder: str, llm: str | None, as_json: bool) -> None:
    """Start a small project in FOLDER: delf.toml, a worker, a file with tools, and a text to read.

    Existing files stay unchanged. The new files are recorded as trusted, so that delf loads them
    without asking. The files refer only to installed plugins.

    \b
    delf init papers
    cd papers
    delf workers run summarise --attach notes.md
    """  # noqa: D301 - click's mark for lines that stay as they are
    from delf.specs import ConnectionSpec

    host = state_of(ctx).discover()
    provider_without_key = None
    if llm:
        model = llm
    else:
        model, provider_without_key = _choose_model(host)
    installed = {spec.name for spec in host.specs(ConnectionSpec)}
    sections = "".join(text for name, text in _PLUGIN_SECTIONS.items() if name in installed)
    instructions = _INSTRUCTION_TO_ASK_A_MODEL if "llm" in installed else _INSTRUCTION_TO_READ
    root = Path(folder)
    try:
        created, existing = _create_files(
            root, {"{llm}": model, "{sections}": sections, "{how}": instructions}
        )
    except OSError as error:
        errors.say("error", f"{error.filename}: {error.strerror}")
        ctx.exit(errors.USAGE)
    next_steps: list[str] = []
    if provider_without_key is not None:
        next_steps.append(f"delf keys set {provider_without_key}")
    if root.resolve() != Path.cwd():
        next_steps.append(f"cd {shlex.quote(folder)}")
    next_steps.append("delf workers run summarise --attach notes.md")
    if as_json:
        row = _InitRow(made=created, kept=existing, next=next_steps)
        write_result("", row, as_json=True)
        return
    for path in created:
        click.echo(path)
    for path in existing:
        click.echo(f"{path}: left as it is")
    click.echo("\nNext:", err=True)
    for step in next_steps:
        click.echo(f"  {step}", err=True)


def _choose_model(host: PluginHost) -> tuple[str, str | None]:
    """Return a model for the new project, and the provider whose key the user still has to set.

    The provider is None if no key is missing. Without any suggestion, the model is ``MODEL``.
    """
    usable_models = dict(host.providers.usable_suggestions(own_variables()))
    if usable_models:
        model, *_ = usable_models
        return model, None
    for provider in host.providers.all:
        if provider.suggested:
            return provider.suggested, provider.name
    return "MODEL", None


def _create_files(root: Path, values: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """Create the project's files from templates; return the paths of new and of existing files.

    Args:
        root: The project's folder.
        values: The values of the templates' placeholders.
    """
    from delf.trust.decisions import Trust, items_of

    templates = files("delf_workers").joinpath("project")
    created: list[str] = []
    existing: list[str] = []
    for name in _FILES:
        path = root / name
        if path.exists():
            existing.append(str(path))
            continue
        text = templates.joinpath(f"{name}.txt").read_text(encoding="utf-8")
        for placeholder, value in values.items():
            text = text.replace(placeholder, value)
        write_private(path, text.encode())
        created.append(str(path))
        if name != "notes.md":  # delf does not load notes, so they need no trust
            Trust.here().keep(root, {name: items_of(name, text)})
    return created, existing
