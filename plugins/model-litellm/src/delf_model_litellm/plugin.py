"""The plugin: one kind of model, for every name that no other plugin serves better."""

from __future__ import annotations

from collections.abc import Iterable

from delf.hookspecs import hookimpl
from delf.specs import ModelSpec
from delf_model_litellm.providers import PROVIDERS


@hookimpl
def delf_models() -> Iterable[ModelSpec]:
    """Yield the models that litellm can call."""
    yield ModelSpec(
        name="litellm",
        summary="Gemini, OpenAI, Anthropic and any OpenAI-compatible endpoint.",
        factory="delf_model_litellm.model:LiteLLMModel",
        serves=("litellm/*",),
        providers=PROVIDERS,
        fallback=True,
    )
