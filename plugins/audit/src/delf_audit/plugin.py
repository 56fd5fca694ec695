"""The plugin's hooks."""

from __future__ import annotations

from collections.abc import Iterable

from delf.hookspecs import hookimpl
from delf.specs import CommandSpec, ObserverSpec


@hookimpl
def delf_observers() -> Iterable[ObserverSpec]:
    yield ObserverSpec(
        name="audit",
        summary="Records in a tamper-evident file who asked, who approved and what was done.",
        factory="delf_audit.observer:AuditObserver",
        opt_in=True,
    )


@hookimpl
def delf_commands() -> Iterable[CommandSpec]:
    yield CommandSpec(
        name="audit",
        summary="Read the audit file, and check that nobody changed it.",
        factory="delf_audit.command:audit",
    )
