"""The plugin's hooks."""

from __future__ import annotations

from collections.abc import Iterable

from delf.hookspecs import hookimpl
from delf.specs import ConnectionSpec


@hookimpl
def delf_connections() -> Iterable[ConnectionSpec]:
    """Yield folders of this machine."""
    yield ConnectionSpec(
        name="filesystem",
        summary="Files under named folders of this machine.",
        factory="delf_filesystem.connection:Filesystem",
    )
