"""Conversion between delf's messages and litellm's."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from delf.errors import ModelConfigurationError
from delf.llm import EXTRA, SERVER_SIDE_TOOLS
from delf.messages import Message, ModelRequest, ModelTool, Price, Usage
from delf_model_providers import chat, searches
from delf_model_providers.endpoint import Endpoint
from delf_model_providers.families import RESPONSES
from delf_model_providers.searches import Tool
from delf_model_providers.signatures import may_think

THINKING: Final = "thinking_blocks"
"""The name of a message's field with blocks of thinking."""
_SEARCHES: Final = {"anthropic": searches.of_anthropic, RESPONSES: searches.of_responses}
# The names of settings that Claude refuses while thinking is enabled.
_SAMPLING: Final = ("temperature", "top_p", "top_k")
# The minimum length of a cached system message in characters: about 1,024 tokens.
_MIN_CACHED_CHARS: Final = 4000


def messages(
    history: Sequence[Message], endpoint: Endpoint, *, system_role: Any = None
) -> list[dict[str, Any]]:
    """Convert messages to litellm's format."""
    result = chat.messages(history, endpoint, system_role=system_role)
    if endpoint.dialect == "anthropic":
        _mark_cached(result)
    return _encodable(result)


def _encodable(value: Any) -> Any:
    """Replace lone surrogates in the texts of JSON data, because litellm cannot send them."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {key: _encodable(item) for key, item in cast("Mapping[str, Any]", value).items()}
    if isinstance(value, list):
        return [_encodable(item) for item in cast("list[Any]", value)]
    return value


def tools(
    model_tools: Sequence[ModelTool], endpoint: Endpoint, search: Tool | None, *, must_call: bool
) -> dict[str, Any]:
    """Return the arguments of a litellm call that describe the tools and the provider's web search.

    Args:
        model_tools: The tools that the model may call.
        endpoint: The endpoint.
        search: The provider's web search; None if the model may not search.
        must_call: Whether the model must call a tool.
    """
    result = chat.tools(model_tools, must_call=must_call)
    search_definition = _SEARCHES.get(endpoint.dialect or "")
    if search is not None and search_definition is not None:
        result["tools"] = [*result.get("tools", ()), search_definition(search)]
    elif search is not None:
        result |= searches.of_openai()  # litellm converts OpenAI's option for other providers
    # Without this key, litellm imports its proxy, whose requirements litellm does not install.
    return {**result, "_skip_mcp_handler": True} if result else {}


def _mark_cached(litellm_messages: list[dict[str, Any]]) -> None:
    """Mark the first system message for Anthropic's prompt cache, if it is long enough."""
    system_messages = [message for message in litellm_messages if message["role"] == "system"]
    if not system_messages:
        return
    first = system_messages[0]
    text = first["content"]
    if isinstance(text, str) and len(text) >= _MIN_CACHED_CHARS:
        part = {"type": "text", "text": text, "cache_control": {"type": "ephemeral"}}
        first["content"] = [part]


def settings(config: Mapping[str, Any], request: ModelRequest, endpoint: Endpoint) -> Any:
    """Merge the settings of the model and of the request; convert them to litellm's arguments."""
    options = {**config, **request.settings}
    merged: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    # If Claude began a turn of tool calls without thinking, it refuses to think later in the turn.
    if endpoint.dialect == "anthropic" and not may_think(request):
        merged.pop("thinking", None)
        merged.pop("reasoning_effort", None)
    for delf_setting in ("timeout", "live_model", chat.SYSTEM_ROLE, SERVER_SIDE_TOOLS):
        merged.pop(delf_setting, None)
    extra: Mapping[str, Any] = merged.pop(EXTRA, None) or {}
    if extra and endpoint.dialect == "anthropic":
        _check_fields(extra, endpoint)
        # litellm has no extra_body for Claude: it sends unknown arguments as fields of the request.
        merged |= dict(extra)
    elif extra:
        merged["extra_body"] = dict(extra)
    if endpoint.dialect == "anthropic" and _asks_for_thinking(merged):
        # Anthropic's API refuses sampling settings together with thinking.
        merged = {name: value for name, value in merged.items() if name not in _SAMPLING}
    if endpoint.provider == "openai" and not endpoint.custom:
        merged.pop("top_k", None)  # only compatible servers accept it
    return merged


def _asks_for_thinking(merged: Mapping[str, Any]) -> bool:
    thinking: Mapping[str, Any] = merged.get("thinking") or {}
    if thinking.get("type") == "disabled":
        return False
    return bool(thinking) or merged.get("reasoning_effort") not in (None, "none")


def _check_fields(extra: Mapping[str, Any], endpoint: Endpoint) -> None:
    """Check that litellm sends additional fields, instead of taking them for its own options.

    An option such as ``api_base`` would send the key to another server.

    Raises:
        ModelConfigurationError: If a field has the name of an option of litellm.
    """
    litellm: Any = importlib.import_module("litellm")
    own_options: Any = importlib.import_module("litellm.types.utils")
    options = {*own_options.all_litellm_params, *inspect.signature(litellm.completion).parameters}
    options |= {*inspect.signature(litellm.acompletion).parameters}
    for name in extra:
        if name in options:
            raise ModelConfigurationError(
                f"the model {endpoint.model!r}: litellm takes the field {name!r} of {EXTRA!r} for "
                "an option of its own, and does not send it",
                hint=f"if delf has a setting for {name!r}, use that; or use the plugin model-http, "
                "which sends every field",
            )


def returned_fields(message: Any) -> dict[str, Any]:
    """Return the fields that later requests must send back together with the message's calls.

    Args:
        message: A model's message, or a streamed piece of the message.
    """
    fields = {name: getattr(message, name, None) for name in ("reasoning_content", THINKING)}
    return {name: value for name, value in fields.items() if value is not None}


def id_of(given: str) -> str:
    """Return the id of a call without Gemini's signature, which other models must not get."""
    return given.partition("__thought__")[0]


def returned_fields_of_call(call: Any) -> dict[str, Any]:
    """Return the fields to send back to the model with a call, such as Gemini's signature."""
    fields: Any = getattr(call, "provider_specific_fields", None)
    return {"provider_specific_fields": dict(fields)} if fields else {}


def add_returned_fields(collected: dict[str, Any], piece: Mapping[str, Any]) -> None:
    """Add the fields of a streamed piece to the fields of its message.

    Texts are appended. Pieces of one block of thinking become one block.
    """
    for name, value in piece.items():
        if name != THINKING:
            collected[name] = f"{collected.get(name, '')}{value}"
            continue
        blocks: list[dict[str, Any]] = collected.setdefault(THINKING, [])
        for received_block in value:
            block: dict[str, Any] = dict(received_block)
            last = blocks[-1] if blocks else {}
            # The signature is the last piece of a block.
            is_open = last.get("type") == "thinking" and not last.get("signature")
            if is_open and block["type"] == "thinking":
                text = f"{last.get('thinking') or ''}{block.get('thinking') or ''}"
                blocks[-1] = {**last, **block, "thinking": text}
            else:
                blocks.append(block)


def usage(counts: Any) -> Usage:
    """Convert litellm's token counts."""
    if counts is None:
        return Usage()
    input_details = getattr(counts, "prompt_tokens_details", None)
    output_details = getattr(counts, "completion_tokens_details", None)
    return Usage(
        input_tokens=_count(counts, "prompt_tokens"),
        cached_tokens=_count(input_details, "cached_tokens"),
        output_tokens=_count(counts, "completion_tokens"),
        reasoning_tokens=_count(output_details, "reasoning_tokens"),
    )


def _count(counts: Any, name: str) -> int:
    """Return one of litellm's counts; 0 if it is missing or None."""
    return int(getattr(counts, name, 0) or 0)


def search_count(counts: Any) -> int:
    """Return the number of web searches by the provider; 0 if unknown."""
    # litellm puts the number for Claude and for other providers into different places.
    of_claude = _count(getattr(counts, "server_tool_use", None), "web_search_requests")
    of_others = _count(getattr(counts, "prompt_tokens_details", None), "web_search_requests")
    return of_claude or of_others


def price(model_info: Mapping[str, Any]) -> Price | None:
    """Convert litellm's data about a model to prices; None if litellm has no price."""
    input_price = model_info.get("input_cost_per_token")
    output_price = model_info.get("output_cost_per_token")
    if input_price is None or output_price is None:
        return None
    cached = model_info.get("cache_read_input_token_cost")
    return Price(
        input=float(input_price) * 1e6,
        output=float(output_price) * 1e6,
        cached_input=float(input_price if cached is None else cached) * 1e6,
        max_output_tokens=model_info.get("max_output_tokens"),
    )
