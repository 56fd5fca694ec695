"""The capabilities of this plugin."""

from __future__ import annotations

from collections.abc import Iterable

from delf.hookspecs import hookimpl
from delf.specs import CommandSpec, SandboxSpec


@hookimpl
def delf_sandbox_backends() -> Iterable[SandboxSpec]:
    """The backend ``docker``."""
    yield SandboxSpec(
        name="docker",
        summary="A disposable Docker container without network for each task.",
        factory="delf_sandbox_docker.backend:DockerBackend",
        isolation="container",
    )


@hookimpl
def delf_commands() -> Iterable[CommandSpec]:
    """The command ``sandbox``."""
    yield CommandSpec(
        name="sandbox",
        summary="Build, show and remove the images of the Docker sandbox.",
        factory="delf_sandbox_docker.command:sandbox",
    )
