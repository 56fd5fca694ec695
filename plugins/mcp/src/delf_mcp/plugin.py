"""The plugin's hooks."""

from __future__ import annotations

from collections.abc import Iterable

from delf.hookspecs import hookimpl
from delf.specs import CommandSpec, ConnectionSpec


@hookimpl
def delf_connections() -> Iterable[ConnectionSpec]:
    yield ConnectionSpec(
        name="mcp",
        summary="The tools of an MCP server.",
        factory="delf_mcp.connection:MCP",
    )


@hookimpl
def delf_commands() -> Iterable[CommandSpec]:
    yield CommandSpec(
        name="mcp",
        summary="Serve the project to MCP clients; check servers.",
        factory="delf_mcp.command:mcp",
    )
