"""The plugin: models whose names begin with ``recorded:``."""

from __future__ import annotations

from collections.abc import Iterable

from delf.hookspecs import hookimpl
from delf.specs import ModelSpec


@hookimpl
def delf_models() -> Iterable[ModelSpec]:
    """Yield the model ``recorded:PATH``, which replays a recording."""
    yield ModelSpec(
        name="recorded",
        summary="Replays the answers in a file: recorded:PATH.",
        factory="delf_model_recorded.model:RecordedModel",
        project_files="delf_model_recorded.project_files:project_files",
        serves=("recorded:*",),
    )
