"""Conversion between delf's messages and litellm's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from delf.llm import EXTRA, SERVER_SIDE_TOOLS
from delf.messages import Message, ModelRequest, ModelTool, Price, Usage
from delf_model_providers import chat, searches
from delf_model_providers.endpoint import Endpoint
from delf_model_providers.families import RESPONSES
from delf_model_providers.searches import Tool
from delf_model_providers.signatures import may_think

THINKING: Final = "thinking_blocks"
"""The field of a message with its blocks of thinking."""
_SEARCHES: Final = {"anthropic": searches.of_anthropic, RESPONSES: searches.of_responses}
_SAMPLING: Final = ("temperature", "top_p", "top_k")
"""The settings that Claude refuses while it thinks."""
_CACHE_FROM: Final = 4000
"""Characters from which a system message is worth Anthropic's prompt cache (1,024 tokens)."""


def messages(
    given: Sequence[Message], endpoint: Endpoint, *, system_role: Any = None
) -> list[dict[str, Any]]:
    """Return messages as litellm takes them."""
    result = chat.messages(given, endpoint, system_role=system_role)
    if endpoint.dialect == "anthropic":
        _mark_cached(result)
    return result


def tools(
    given: Sequence[ModelTool], endpoint: Endpoint, search: Tool | None, *, must_call: bool
) -> dict[str, Any]:
    """Describe the tools for a model, as litellm takes them."""
    result = chat.tools(given, must_call=must_call)
    of_dialect = _SEARCHES.get(endpoint.dialect or "")
    if search is not None and of_dialect is not None:
        result["tools"] = [*result.get("tools", ()), of_dialect(search)]
    elif search is not None:
        result |= searches.of_openai()
    # Else litellm imports its proxy, which needs packages that it does not install.
    return {**result, "_skip_mcp_handler": True} if result else {}


def _mark_cached(wire_messages: list[dict[str, Any]]) -> None:
    """Mark the stable prefix for caching, as Anthropic requires."""
    system = [message for message in wire_messages if message["role"] == "system"]
    if system and isinstance(text := system[0]["content"], str) and len(text) >= _CACHE_FROM:
        part = {"type": "text", "text": text, "cache_control": {"type": "ephemeral"}}
        system[0]["content"] = [part]


def settings(config: Mapping[str, Any], request: ModelRequest, endpoint: Endpoint) -> Any:
    """Return generation settings under litellm's names; the request's settings take precedence."""
    options = {**config, **request.settings}
    merged: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    if endpoint.dialect == "anthropic" and not may_think(request):
        merged.pop("thinking", None)
        merged.pop("reasoning_effort", None)
    merged.pop("timeout", None)
    merged.pop("live_model", None)
    merged.pop(chat.SYSTEM_ROLE, None)
    merged.pop(SERVER_SIDE_TOOLS, None)
    extra: Mapping[str, Any] = merged.pop(EXTRA, None) or {}
    if extra:
        merged |= dict(extra) if endpoint.dialect == "anthropic" else {"extra_body": dict(extra)}
    thinks = merged.get("thinking") or merged.get("reasoning_effort") not in (None, "none")
    if endpoint.dialect == "anthropic" and thinks:
        merged = {name: value for name, value in merged.items() if name not in _SAMPLING}
    if endpoint.provider == "openai" and not endpoint.custom:
        merged.pop("top_k", None)  # only compatible servers accept it
    return merged


def returned_fields(message: Any) -> dict[str, Any]:
    """Return the fields of a message, or of a piece, that must be sent back with its calls."""
    fields = {name: getattr(message, name, None) for name in ("reasoning_content", THINKING)}
    return {name: value for name, value in fields.items() if value is not None}


def id_of(given: str) -> str:
    """Return the id of a call without Gemini's signature, which must not reach another model."""
    return given.partition("__thought__")[0]


def returned_fields_of_call(call: Any) -> dict[str, Any]:
    """Return the fields that must be sent back with a call, such as Gemini's signature."""
    fields: Any = getattr(call, "provider_specific_fields", None)
    return {"provider_specific_fields": dict(fields)} if fields else {}


def add_returned_fields(known: dict[str, Any], piece: Mapping[str, Any]) -> None:
    """Add the fields of a piece to those of its message; pieces of a block become one block."""
    for name, value in piece.items():
        if name != THINKING:
            known[name] = f"{known.get(name, '')}{value}"
            continue
        blocks: list[dict[str, Any]] = known.setdefault(THINKING, [])
        for block in map(dict[str, Any], value):
            goes_on = blocks and not blocks[-1].get("signature") and block["type"] == "thinking"
            if goes_on and blocks[-1]["type"] == "thinking":
                text = f"{blocks[-1].get('thinking') or ''}{block.get('thinking') or ''}"
                blocks[-1] = {**blocks[-1], **block, "thinking": text}
            else:
                blocks.append(block)


def usage(given: Any) -> Usage:
    """Return tokens as the provider counted them."""
    if given is None:
        return Usage()
    details = getattr(given, "prompt_tokens_details", None)
    thought = getattr(given, "completion_tokens_details", None)
    return Usage(
        input_tokens=int(getattr(given, "prompt_tokens", 0) or 0),
        cached_tokens=int(getattr(details, "cached_tokens", 0) or 0),
        output_tokens=int(getattr(given, "completion_tokens", 0) or 0),
        reasoning_tokens=int(getattr(thought, "reasoning_tokens", 0) or 0),
    )


def searched(given: Any) -> int:
    """Return the number of searches by the provider; 0 if unknown."""
    requests = getattr(getattr(given, "server_tool_use", None), "web_search_requests", None)
    details = getattr(given, "prompt_tokens_details", None)
    return int(requests or getattr(details, "web_search_requests", None) or 0)


def price(known: Mapping[str, Any]) -> Price | None:
    """Return USD per million tokens from litellm's entry; None without a price."""
    prices = known.get("input_cost_per_token"), known.get("output_cost_per_token")
    if prices[0] is None or prices[1] is None:
        return None
    cached = known.get("cache_read_input_token_cost")
    return Price(
        input=float(prices[0]) * 1e6,
        output=float(prices[1]) * 1e6,
        cached_input=float(prices[0] if cached is None else cached) * 1e6,
        max_output_tokens=known.get("max_output_tokens"),
    )
