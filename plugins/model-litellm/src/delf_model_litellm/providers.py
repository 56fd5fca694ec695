"""The providers that only this plugin serves, through litellm."""

from __future__ import annotations

from typing import Final

from delf.providers import Providers
from delf.specs import Provider
from delf_model_providers.families import FAMILIES


def _keyed(name: str, key: str, *aliases: str) -> Provider:
    """Return a provider that refuses every call without a key."""
    return Provider(name=name, aliases=aliases, keys=(key,))


_OTHERS: Final = (
    Provider(name="litellm", login="other", own_protocol=True),
    Provider(
        name="azure",
        aliases=("azure_openai",),
        keys=("AZURE_API_KEY",),
        login="other",
        own_protocol=True,
    ),
    Provider(name="azure_ai", keys=("AZURE_AI_API_KEY",), login="other", own_protocol=True),
    Provider(name="bedrock", aliases=("bedrock_converse",), login="other"),
    _keyed("cerebras", "CEREBRAS_API_KEY"),
    _keyed("cohere", "COHERE_API_KEY"),
    _keyed("deepseek", "DEEPSEEK_API_KEY"),
    _keyed("fireworks_ai", "FIREWORKS_AI_API_KEY", "fireworks"),
    _keyed("groq", "GROQ_API_KEY"),
    Provider(name="huggingface", keys=("HUGGINGFACE_API_KEY",), login="other"),
    _keyed("mistral", "MISTRAL_API_KEY", "mistralai"),
    Provider(name="ollama", keys=("OLLAMA_API_KEY",), login="none", own_protocol=True),
    Provider(name="ollama_chat", keys=("OLLAMA_CHAT_API_KEY",), login="none", own_protocol=True),
    _keyed("openrouter", "OPENROUTER_API_KEY"),
    _keyed("perplexity", "PERPLEXITYAI_API_KEY"),
    _keyed("together_ai", "TOGETHERAI_API_KEY", "together"),
    Provider(name="vertex_ai", aliases=("google-vertex", "google_vertexai"), login="other"),
    _keyed("xai", "XAI_API_KEY", "grok"),
)
"""Providers without a dialect: litellm speaks with them under these names."""

OTHERS: Final = Providers(_OTHERS)
PROVIDERS: Final = (*FAMILIES, *_OTHERS)
"""All that the plugin serves."""
