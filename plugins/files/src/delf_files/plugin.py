"""What this plugin brings."""

from __future__ import annotations

from collections.abc import Iterable

from delf.hookspecs import hookimpl
from delf.specs import ConnectionSpec


@hookimpl
def delf_connections() -> Iterable[ConnectionSpec]:
    """``files``, in each task that has input files."""
    yield ConnectionSpec(
        name="files",
        summary="The input files of a task: which there are, and what is in them.",
        factory="delf_files.connection:Files",
        input_files=True,
    )
