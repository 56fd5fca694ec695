"""A small model for each provider's key that may be in the environment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

BY_KEY: Final[Mapping[str, str]] = {
    "OPENAI_API_KEY": "gpt-4o-mini",
    "ANTHROPIC_API_KEY": "claude-haiku-4-5",
    "GEMINI_API_KEY": "gemini-2.5-flash",
    "GOOGLE_API_KEY": "gemini-2.5-flash",
}


def usual_models(environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield each model that a key of the environment is for, once, with the key's name."""
    models: dict[str, str] = {}
    for key, model in BY_KEY.items():
        if environ.get(key):
            models.setdefault(model, key)
    yield from models.items()
