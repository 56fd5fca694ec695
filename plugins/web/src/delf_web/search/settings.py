"""The engine of searches."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from delf.settings import HttpUrl, PluginSettings, SecretStr


class WebSearchSettings(PluginSettings):
    """The settings of ``WebSearch``: a model that searches, or a SearXNG server."""

    llm: str | None = Field(
        default=None,
        description='The model whose search is used: "gemini-…", "gpt-…", "claude-…".',
    )
    api_key: SecretStr | None = Field(
        default=None,
        description=(
            "The model's key; GOOGLE_API_KEY, OPENAI_API_KEY or ANTHROPIC_API_KEY when omitted."
        ),
    )
    base_url: HttpUrl | None = Field(
        default=None,
        description=(
            "The provider's address, if not the usual one. Only a key for this address "
            "is sent to it."
        ),
    )
    provider: Literal["auto", "google", "openai", "anthropic"] = Field(
        default="auto",
        description=(
            "The provider whose protocol is used; follows from the model's name when omitted."
        ),
    )
    searxng: str | None = Field(
        default=None, description="The address of a SearXNG server, instead of a model."
    )
    language: str | None = Field(
        default=None,
        description=(
            'The language of results, for SearXNG: "en", "de-CH"; the server\'s when omitted.'
        ),
    )
    domains: tuple[str, ...] = Field(
        default=(),
        description=("Only results of these domains and their subdomains; not with Gemini."),
    )
    results: int = Field(default=10, ge=1, le=50, description="The maximum number of results.")
    timeout: float = Field(default=60.0, gt=0, description="Seconds for one search.")
