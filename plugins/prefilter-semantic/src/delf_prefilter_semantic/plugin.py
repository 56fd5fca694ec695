"""The plugin's hooks."""

from __future__ import annotations

from collections.abc import Iterable

from delf.hookspecs import hookimpl
from delf.specs import PrefilterSpec


@hookimpl
def delf_prefilters() -> Iterable[PrefilterSpec]:
    yield PrefilterSpec(
        name="semantic",
        summary="Chooses tools by words and meaning, without a model.",
        factory="delf_prefilter_semantic.prefilter:SemanticPrefilter",
        asks=False,  # asks no model
    )
