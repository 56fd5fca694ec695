"""The plugin's hooks."""

from __future__ import annotations

from collections.abc import Iterable

from delf.hookspecs import hookimpl
from delf.specs import CommandSpec


@hookimpl
def delf_commands() -> Iterable[CommandSpec]:
    """Yield the command ``evals``."""
    yield CommandSpec(
        name="evals",
        summary="Check tasks against recorded results, over models and prompts.",
        factory="delf_evals.commands:evals",
    )
