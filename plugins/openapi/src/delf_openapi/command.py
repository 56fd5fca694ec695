"""``delf openapi``: look at the REST APIs that a project uses."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import click

from delf.errors import ConfigurationError
from delf.plugins.commands import Program
from delf.terminal import visible

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from delf_openapi.connection import APITool


@click.group("openapi")
def openapi() -> None:
    """Look at the REST APIs that the project uses."""


@openapi.command()
@click.argument("connection")
@click.option(
    "--accept",
    is_flag=True,
    help="Trust the operations as they are now: `effects` in delf.toml applies to them.",
)
@click.option("--json", "as_json", is_flag=True, help="Write it as JSON.")
@click.pass_context
def effects(ctx: click.Context, connection: str, accept: bool, as_json: bool) -> None:
    """Print a line for delf.toml with the actions of CONNECTION that probably only read.

    delf takes each POST for a write, which needs approval. But some APIs read with POST, for
    example because a search has its filter in the body. The line declares such actions as reading.
    They are chosen by their names alone: keep only actions that you are sure only read.

    A specification from a URL may change. An operation that is new or changed since you wrote the
    line needs approval, until you accept it with --accept.

    \b
    delf openapi effects prefect
    delf openapi effects prefect --accept
    """  # noqa: D301 - click's mark for lines that stay as they are
    program: Program = ctx.find_root().obj
    project = program.load_project()
    tool = project.connector(program.discover(project.environ))(connection)
    action_names, count, notices = asyncio.run(_propose_reads(tool, accept=accept))
    for notice in notices:
        click.echo(f"# {visible(notice)}", err=True)
    if as_json:
        reading = dict.fromkeys(action_names, "read")
        click.echo(json.dumps({"effects": reading, "actions": count}, indent=2))
    else:
        _print_line(action_names, count)


def _print_line(action_names: Sequence[str], count: int) -> None:
    """Print the line for delf.toml that declares actions as reading.

    Args:
        action_names: The names of the actions.
        count: The number of all actions of the API.
    """
    click.echo(
        f"# By their names, {len(action_names)} of {count} operations only read. "
        "Remove those that may write.",
        err=True,
    )
    entries = [f'{json.dumps(name, ensure_ascii=False)} = "read"' for name in action_names]
    click.echo(f"effects = {{ {', '.join(entries)} }}" if entries else "effects = {}")


async def _propose_reads(tool: Any, *, accept: bool) -> tuple[list[str], int, Sequence[str]]:
    """Return the names of actions that probably only read, the number of all actions, and notices.

    Args:
        tool: The connection.
        accept: Whether to record the operations as trusted, so that ``effects`` applies to them.
    """
    from delf_openapi.connection import APITool

    if not isinstance(tool, APITool):
        raise ConfigurationError(
            f"{tool.name} is not a REST API", hint='in delf.toml it has type = "openapi"'
        )
    try:
        if accept:
            await asyncio.to_thread(tool.accept_operations)
        action_names, count = await asyncio.to_thread(_likely_reads, tool)
        return action_names, count, tool.notices()
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
