"""The capabilities of this plugin."""

from __future__ import annotations

from collections.abc import Iterable

from delf.hookspecs import hookimpl
from delf.specs import SandboxSpec


@hookimpl
def delf_sandbox_backends() -> Iterable[SandboxSpec]:
    """Yield the backend ``local``."""
    yield SandboxSpec(
        name="local",
        summary="A confined process of this machine's Python for each task.",
        factory="delf_sandbox_local.backend:LocalBackend",
        isolation="process",
    )
