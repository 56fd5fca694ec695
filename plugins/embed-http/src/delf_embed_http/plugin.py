"""The plugin's hooks."""

from __future__ import annotations

from collections.abc import Iterable

from delf.hookspecs import hookimpl
from delf.specs import EmbedderSpec


@hookimpl
def delf_embedders() -> Iterable[EmbedderSpec]:
    yield EmbedderSpec(
        name="http",
        summary="Embeddings of OpenAI, Gemini and any OpenAI-compatible server.",
        factory="delf_embed_http.embedder:HttpEmbedder",
        serves=("text-embedding-*", "gemini-embedding-*", "openai/*embed*", "google/*embed*"),
    )
