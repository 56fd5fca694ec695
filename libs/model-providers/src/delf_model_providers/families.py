"""The providers whose protocols delf implements itself, for both model plugins."""

from __future__ import annotations

from typing import Final

from delf.providers import Providers
from delf.specs import Provider

OPENAI_URL: Final = "https://api.openai.com/v1"

RESPONSES: Final = "openai-responses"
"""The protocol of OpenAI's responses API, which differs from chat completions."""

FAMILIES: Final = (
    Provider(
        name="openai",
        aliases=("openai-chat",),
        models=("gpt*", "chatgpt*", "o[1-9]", "o[1-9]-*", "ft:gpt*"),
        keys=("OPENAI_API_KEY",),
        addresses=("OPENAI_BASE_URL",),
        compatible=True,
        suggested="gpt-4o-mini",
        url=OPENAI_URL,
    ),
    Provider(
        name=RESPONSES,
        aliases=("openai",),  # keys and prices of openai apply
        keys=("OPENAI_API_KEY",),
        addresses=("OPENAI_BASE_URL",),
    ),
    Provider(
        name="anthropic",
        models=("claude*",),
        keys=("ANTHROPIC_API_KEY",),
        suggested="claude-haiku-4-5",
    ),
    Provider(
        name="google",
        aliases=("gemini", "google-gla", "google_genai", "google-genai"),
        models=("gemini*", "gemma-*"),
        keys=("GOOGLE_API_KEY", "GEMINI_API_KEY"),
        suggested="gemini-2.5-flash",
    ),
)

SUPPORTED_PROVIDERS: Final = Providers(FAMILIES)
NO_OTHERS: Final = Providers()
