"""The plugin's hooks."""

from __future__ import annotations

from collections.abc import Iterable

from delf.hookspecs import hookimpl
from delf.specs import ConnectionSpec


@hookimpl
def delf_connections() -> Iterable[ConnectionSpec]:
    yield ConnectionSpec(
        name="shell",
        summary="Commands of this machine, by rules.",
        factory="delf_shell.connection:Shell",
    )
