"""What this plugin brings."""

from __future__ import annotations

from collections.abc import Iterable

from delf.hookspecs import hookimpl
from delf.specs import CommandSpec


@hookimpl
def delf_commands() -> Iterable[CommandSpec]:
    """``run``, ``resume`` and ``runs``."""
    yield CommandSpec(
        name="run",
        summary="Do a task.",
        factory="delf_run.run:run",
        exports=("summary_of", "tell_of_event"),
    )
    yield CommandSpec(
        name="resume",
        summary="Go on with a task whose process was killed.",
        factory="delf_run.resume:resume",
    )
    yield CommandSpec(
        name="runs",
        summary="Look at the tasks in the journal.",
        factory="delf_run.runs:runs",
    )
