"""The providers that only this plugin serves, through litellm."""

from __future__ import annotations

from typing import Final

from delf.providers import Providers
from delf.specs import Provider
from delf_model_providers.families import FAMILIES


def _provider_with_key(name: str, key: str, *aliases: str) -> Provider:
    """Return a provider that requires a key, in the environment variable ``key``."""
    return Provider(name=name, aliases=aliases, keys=(key,))


# The providers that only litellm can call, with litellm's names.
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
    _provider_with_key("cerebras", "CEREBRAS_API_KEY"),
    _provider_with_key("cohere", "COHERE_API_KEY"),
    _provider_with_key("deepseek", "DEEPSEEK_API_KEY"),
    _provider_with_key("fireworks_ai", "FIREWORKS_AI_API_KEY", "fireworks"),
    _provider_with_key("groq", "GROQ_API_KEY"),
    Provider(name="huggingface", keys=("HUGGINGFACE_API_KEY",), login="other"),
    _provider_with_key("mistral", "MISTRAL_API_KEY", "mistralai"),
    Provider(name="ollama", keys=("OLLAMA_API_KEY",), login="none", own_protocol=True),
    Provider(name="ollama_chat", keys=("OLLAMA_CHAT_API_KEY",), login="none", own_protocol=True),
    _provider_with_key("openrouter", "OPENROUTER_API_KEY"),
    _provider_with_key("perplexity", "PERPLEXITYAI_API_KEY"),
    _provider_with_key("together_ai", "TOGETHERAI_API_KEY", "together"),
    Provider(name="vertex_ai", aliases=("google-vertex", "google_vertexai"), login="other"),
    _provider_with_key("xai", "XAI_API_KEY", "grok"),
)

OTHERS: Final = Providers(_OTHERS)
PROVIDERS: Final = (*FAMILIES, *_OTHERS)
"""The providers of this plugin: those whose protocols delf implements, and litellm's."""
