"""The plugin's hooks."""

from __future__ import annotations

from collections.abc import Iterable

from delf.hookspecs import hookimpl
from delf.specs import PrefilterSpec


@hookimpl
def delf_prefilters() -> Iterable[PrefilterSpec]:
    yield PrefilterSpec(
        name="filter",
        summary="One question to the light model, with every action in it.",
        factory="delf_prefilter_llm.filter:FilterPrefilter",
    )
    yield PrefilterSpec(
        name="search",
        summary="The light model searches the actions, in up to five rounds.",
        factory="delf_prefilter_llm.search:SearchPrefilter",
    )
