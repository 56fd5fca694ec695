"""``delf openapi``: look at the REST APIs that a project uses."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import click

from delf.errors import ConfigurationError
from delf.plugins.commands import Program

if TYPE_CHECKING:
    from collections.abc import Mapping

    from delf_openapi.connection import APITool


@click.group("openapi")
def openapi() -> None:
    """Look at the REST APIs that the project uses."""


@openapi.command()
@click.argument("connection")
@click.option("--json", "as_json", is_flag=True, help="Write it as JSON.")
@click.pass_context
def effects(ctx: click.Context, connection: str, as_json: bool) -> None:
    """Print a line for delf.toml with the actions of CONNECTION that probably only read.

    An API that takes a filter in a body reads with POST, which counts as a write and needs
    approval. Actions are chosen by their names alone: keep only actions that you
    are sure only read.

    \b
    delf openapi effects prefect
    """  # noqa: D301 - click's mark for lines that stay as they are
    program: Program = ctx.find_root().obj
    project = program.load_project()
    tool = project.connector(program.discover(project.environ))(connection)
    action_names, count = asyncio.run(_propose_reads(tool))
    if as_json:
        effects = dict.fromkeys(action_names, "read")
        click.echo(json.dumps({"effects": effects, "actions": count}, indent=2))
        return
    click.echo(
        f"# By their names, {len(action_names)} of {count} operations only read. "
        "Remove those that may write.",
        err=True,
    )
    entries = [f'{json.dumps(name, ensure_ascii=False)} = "read"' for name in action_names]
    click.echo(f"effects = {{ {', '.join(entries)} }}" if entries else "effects = {}")


async def _propose_reads(tool: Any) -> tuple[list[str], int]:
    """Return the names of actions that probably only read, and the number of all actions."""
    from delf_openapi.connection import APITool

    if not isinstance(tool, APITool):
        raise ConfigurationError(
            f"{tool.name} is not a REST API", hint='in delf.toml it has type = "openapi"'
        )
    try:
        return await asyncio.to_thread(_likely_reads, tool)
    finally:
        await tool.aclose()


def _likely_reads(tool: APITool) -> tuple[list[str], int]:
    """Return the actions with effect ``write`` whose names and paths suggest that they only read.

    Returns:
        The names of these actions, and the number of all actions of the tool.
    """
    from delf_openapi.selection import only_reads

    methods: list[Mapping[str, Any]] = tool.inspected(verbose=True)["methods"]
    action_names: list[str] = []
    for method in methods:
        name = str(method["name"])
        if method["effect"] == "write" and only_reads(name, str(method["path"])):
            action_names.append(name)
    return action_names, len(methods)
