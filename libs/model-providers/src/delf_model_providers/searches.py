"""A provider's own web search, requested by the setting ``server_side_tools``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from delf.errors import ModelConfigurationError
from delf.llm import SERVER_SIDE_TOOLS
from delf_model_providers.endpoint import Endpoint

# Matches the names of OpenAI's models that search the web in chat completions.
_SEARCH_MODEL_NAME: Final = re.compile(r"search")
# The price of one search in USD by dialect, from the providers' price lists of November 2026.
_FEES: Final = {"anthropic": 0.01, "google": 0.014, "openai": 0.01, "openai-responses": 0.01}
# The domain filters that each provider's web search supports, by dialect.
_DOMAIN_FILTERS: Final = {
    "anthropic": ("allowed_domains", "blocked_domains"),
    "openai-responses": ("allowed_domains",),
}
_HINT: Final = "the connection websearch, with llm or searxng, works with every model"

Tool = Mapping[str, Any]


def tool_of(settings: Mapping[str, Any], endpoint: Endpoint) -> Tool | None:
    """Return the web search tool in the model's settings; None if the settings have none.

    Raises:
        ModelConfigurationError: If the model or its provider cannot search with these settings.
    """
    tools: Sequence[Tool] = settings.get(SERVER_SIDE_TOOLS) or ()
    if not tools:
        return None
    (tool,) = tools  # a valid setting names each type of tool once, and there is only one type
    is_openai = endpoint.dialect == "openai" and endpoint.is_official
    if is_openai and not _SEARCH_MODEL_NAME.search(endpoint.name):
        reason = (
            f"use openai-responses/{endpoint.name}, or one of OpenAI's search models, such as "
            "gpt-5-search-api"
        )
        raise unsupported_search(endpoint, reason)
    supported_filters = _DOMAIN_FILTERS.get(endpoint.dialect or "", ())
    for name in ("allowed_domains", "blocked_domains"):
        if tool.get(name) and name not in supported_filters:
            dialects = " and ".join(
                dialect for dialect, filters in _DOMAIN_FILTERS.items() if name in filters
            )
            raise unsupported_search(endpoint, f"only {dialects} know {name}")
    return tool


def unsupported_search(endpoint: Endpoint, reason: str) -> ModelConfigurationError:
    """Return an error that the model cannot search the web as requested."""
    return ModelConfigurationError(
        f"{endpoint.model!r} with {SERVER_SIDE_TOOLS}: it cannot search the web in this way: "
        f"{reason}",
        hint=_HINT,
    )


def of_anthropic(tool: Tool) -> dict[str, Any]:
    """Return the tool definition for a web search by Anthropic's messages API."""
    limits = {name: value for name, value in tool.items() if name != "tool_type"}
    return {"type": "web_search_20250305", "name": "web_search", **limits}


def of_google() -> dict[str, Any]:
    """Return the tool definition for a web search by Gemini's ``generateContent``."""
    return {"googleSearch": {}}


def of_responses(tool: Tool) -> dict[str, Any]:
    """Return the tool definition for a web search by OpenAI's responses API."""
    definition: dict[str, Any] = {"type": "web_search"}
    allowed_domains = tool.get("allowed_domains")
    if allowed_domains:
        definition["filters"] = {"allowed_domains": allowed_domains}
    return definition


def of_openai() -> dict[str, Any]:
    """Return the field of a chat completions request for a web search by OpenAI."""
    return {"web_search_options": {}}


def fees(endpoint: Endpoint, searches: int) -> float | None:
    """Return the price in USD of a request with the search tool, without its tokens.

    Args:
        endpoint: The endpoint.
        searches: The number of searches, or 0 if the server does not report the number.

    Returns:
        The price; None if the price is unknown, as for searches at a custom address.
    """
    # OpenAI's search models search once in each request, and do not report it.
    billed_searches = 1 if endpoint.dialect == "openai" else searches
    fee = _FEES.get(endpoint.dialect or "")
    has_unknown_price = billed_searches > 0 and not endpoint.is_official
    if fee is None or has_unknown_price:
        return None
    return billed_searches * fee
