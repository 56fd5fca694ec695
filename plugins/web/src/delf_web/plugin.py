"""The plugin's hooks."""

from __future__ import annotations

from collections.abc import Iterable

from delf.hookspecs import hookimpl
from delf.specs import ConnectionSpec


@hookimpl
def delf_connections() -> Iterable[ConnectionSpec]:
    yield ConnectionSpec(
        name="web",
        summary="Pages of the web as readable text.",
        factory="delf_web.connection:Web",
    )
    yield ConnectionSpec(
        name="websearch",
        summary="Searches of the web.",
        factory="delf_web.search.connection:WebSearch",
    )
