"""The plugin's hooks."""

from __future__ import annotations

from collections.abc import Iterable

from delf.hookspecs import hookimpl
from delf.specs import EmbedderSpec


@hookimpl
def delf_embedders() -> Iterable[EmbedderSpec]:
    yield EmbedderSpec(
        name="static",
        summary="Static embeddings (model2vec): small, quick, without torch.",
        factory="delf_embed_static.embedder:StaticEmbedder",
        serves=("minishlab/*", "*potion*", "*model2vec*"),
    )
