"""The plugin ``testing``, which :class:`delf.testing.DelfProject` installs into its folder."""

from __future__ import annotations

from collections.abc import Iterable

from delf.hookspecs import hookimpl
from delf.specs import ModelSpec


@hookimpl
def delf_models() -> Iterable[ModelSpec]:
    """Yield the model that answers from a file."""
    yield ModelSpec(
        name="scripted-file",
        summary="Answers from a JSON file of a test.",
        factory="delf_devkit.testing.models:FileModel",
        serves=("scripted-file:*",),
    )
