"""The capabilities of this plugin."""

from __future__ import annotations

from collections.abc import Iterable

from delf.hookspecs import hookimpl
from delf.specs import ConnectionSpec


@hookimpl
def delf_connections() -> Iterable[ConnectionSpec]:
    """Yield the connection ``llm``, which every task has."""
    yield ConnectionSpec(
        name="llm",
        summary="A language model that scripts ask, about texts, images and documents.",
        factory="delf_llm.connection:LLM",
        input_files="always",
    )
