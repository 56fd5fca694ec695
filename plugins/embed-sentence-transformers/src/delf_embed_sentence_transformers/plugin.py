"""The plugin's hooks."""

from __future__ import annotations

from collections.abc import Iterable

from delf.hookspecs import hookimpl
from delf.specs import EmbedderSpec


@hookimpl
def delf_embedders() -> Iterable[EmbedderSpec]:
    yield EmbedderSpec(
        name="sentence-transformers",
        summary="Any model of sentence-transformers, on this machine.",
        factory="delf_embed_sentence_transformers.embedder:SentenceTransformersEmbedder",
        serves=("*",),
    )
