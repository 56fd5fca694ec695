"""The engine of searches."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from delf.settings import PluginSettings, SecretStr


class WebSearchSettings(PluginSettings):
    """A model that searches, or a SearXNG server."""

    llm: str | None = Field(
        default=None,
        description='The model whose search is used: "gemini-…", "gpt-…", "claude-…".',
    )
    api_key: SecretStr | None = Field(
        default=None, description="Its key; GOOGLE_API_KEY, OPENAI_API_KEY or ANTHROPIC_API_KEY."
    )
    base_url: str | None = Field(default=None, description="The provider's address, if another.")
    provider: Literal["auto", "google", "openai", "anthropic"] = Field(
        default="auto", description="Whose protocol is spoken; the model's name says it."
    )
    searxng: str | None = Field(
        default=None, description="The address of a SearXNG server, instead of a model."
    )
    language: str | None = Field(default=None, description='For SearXNG: "en", "de-CH".')
    domains: tuple[str, ...] = Field(
        default=(), description="Only results of these and of what is below them."
    )
    results: int = Field(default=10, ge=1, le=50, description="How many results at most.")
    timeout: float = Field(default=60.0, gt=0, description="Seconds for one search.")
