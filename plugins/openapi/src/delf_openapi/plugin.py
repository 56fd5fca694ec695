"""The plugin's hooks."""

from __future__ import annotations

from collections.abc import Iterable

from delf.hookspecs import hookimpl
from delf.specs import CommandSpec, ConnectionSpec


@hookimpl
def delf_connections() -> Iterable[ConnectionSpec]:
    yield ConnectionSpec(
        name="openapi",
        summary="Any REST API, from its OpenAPI or Swagger specification.",
        factory="delf_openapi.connection:APITool",
    )


@hookimpl
def delf_commands() -> Iterable[CommandSpec]:
    yield CommandSpec(
        name="openapi",
        summary="Look at REST APIs: operations that only read.",
        factory="delf_openapi.command:openapi",
    )
