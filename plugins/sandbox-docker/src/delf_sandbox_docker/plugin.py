"""The capabilities of this plugin."""

from __future__ import annotations

from collections.abc import Iterable

from delf.hookspecs import hookimpl
from delf.specs import SandboxSpec


@hookimpl
def delf_sandbox_backends() -> Iterable[SandboxSpec]:
    """Yield the backend ``docker``."""
    yield SandboxSpec(
        name="docker",
        summary="A disposable Docker container without network for each task.",
        factory="delf_sandbox_docker.backend:DockerBackend",
        isolation="container",
    )
