"""The plugin: models and embedders of three providers, and of any address."""

from __future__ import annotations

from collections.abc import Iterable

from delf.hookspecs import hookimpl
from delf.specs import EmbedderSpec, ModelSpec
from delf_model_http.providers import PROVIDERS


@hookimpl
def delf_models() -> Iterable[ModelSpec]:
    """Yield models of OpenAI, Anthropic and Google, and of servers with compatible protocols."""
    yield ModelSpec(
        name="http",
        summary="OpenAI, Anthropic, Gemini and any OpenAI-compatible server.",
        factory="delf_model_http.model:HttpModel",
        providers=PROVIDERS,
    )


@hookimpl
def delf_embedders() -> Iterable[EmbedderSpec]:
    """Yield an embedder for OpenAI, Gemini and compatible servers.

    The embedder is used only if the settings name it, never by default.
    """
    yield EmbedderSpec(
        name="http",
        summary="Embeddings of OpenAI, Gemini and any OpenAI-compatible server.",
        factory="delf_model_http.embedder:HttpEmbedder",
        serves=("text-embedding-*", "gemini-embedding-*", "openai/*embed*", "google/*embed*"),
        by_name=True,
    )
