"""Gemini's ``generateContent``."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final
from urllib.parse import quote

from delf.messages import (
    ImagePart,
    Message,
    ModelDelta,
    ModelTool,
    Part,
    TextPart,
    ToolCall,
    ToolResult,
)
from delf_model_http.address import joined
from delf_model_http.answer import (
    GENERATED_ID_PREFIX,
    Answer,
    ReportedError,
    Tokens,
    arguments_of,
    fields,
    integer_field,
    items,
    listed,
    required,
)
from delf_model_http.catalog import Facts
from delf_model_http.dialect import RequestParts, system_texts
from delf_model_providers import chat, searches
from delf_model_providers.endpoint import Endpoint
from delf_model_providers.failures import UnreadableError

_URL: Final = "https://generativelanguage.googleapis.com"

_SETTINGS: Final = {
    "temperature": "temperature",
    "top_p": "topP",
    "top_k": "topK",
    "max_tokens": "maxOutputTokens",
    "presence_penalty": "presencePenalty",
    "frequency_penalty": "frequencyPenalty",
    "stop": "stopSequences",
    "seed": "seed",
}

# Matches models that take a thinking level; earlier models take a thinking budget in tokens.
_TAKES_THINKING_LEVEL: Final = re.compile(r"gemini-(?:[3-9]|\d\d)")
# The signature that Google's documentation prescribes for calls of other models.
_FOREIGN_SIGNATURE: Final = chat.base64_of(b"skip_thought_signature_validator")
# A mapping from reasoning effort to tokens for thinking.
#
# The numbers are those of https://ai.google.dev/gemini-api/docs/openai.
_THINKING_BUDGETS: Final = {"none": 0, "minimal": 1024, "low": 1024, "medium": 8192, "high": 24576}


class GenerateContent:
    """Gemini's ``generateContent``. Implements :class:`delf_model_http.dialect.Dialect`."""

    finish_reasons: ClassVar[Mapping[str, str]] = {"STOP": "stop", "MAX_TOKENS": "length"}

    def address(self, endpoint: Endpoint, *, stream: bool) -> str:
        """Return the URL for requests."""
        name = endpoint.name if "/" in endpoint.name else f"models/{endpoint.name}"
        method = "streamGenerateContent?alt=sse" if stream else "generateContent"
        path = f"{quote(name)}:{method}"
        return joined(endpoint.base_url or _URL, path, version="v1beta")

    def headers(self, endpoint: Endpoint) -> dict[str, str]:
        """Return the header with the API key of the endpoint."""
        return {"x-goog-api-key": endpoint.api_key or ""}

    def body(self, parts: RequestParts) -> dict[str, Any]:
        """Return the JSON body of a request."""
        request = parts.request
        contents: list[Any] = []
        for message in request.messages:
            if message.role != "system":
                content = _with_signature(parts_of(message.parts), parts.endpoint)
                contents.append({"role": role_of(message), "parts": content})
        result: dict[str, Any] = {"contents": contents}
        instructions = system_texts(request)
        if instructions:
            result["systemInstruction"] = {"parts": [{"text": text} for text in instructions]}
        if config := {**generation_config(parts.settings), **_thinking(parts)}:
            result["generationConfig"] = config
        if tier := parts.settings.get("service_tier"):
            result["serviceTier"] = tier
        if request.tools:
            result["tools"] = tool_declarations(request.tools)
            if request.must_call:
                result["toolConfig"] = {"functionCallingConfig": {"mode": "ANY"}}
        if parts.search is not None:
            result["tools"] = [*result.get("tools", ()), searches.of_google()]
        return result

    def max_tokens(self, facts: Facts) -> int | None:
        """Return None, because the API does not require a maximum."""
        return None

    def parse(self, data: Any) -> Answer:
        """Parse a complete answer that was not streamed."""
        answer = Answer()
        self.event(data, answer)
        if not answer.has_model_finished:
            raise UnreadableError("it has no 'candidates'")
        return answer

    def event(self, data: Any, answer: Answer) -> list[ModelDelta]:
        """Add an event of the stream to an answer, and return the deltas to emit.

        If the provider does not stream, ``data`` is the whole response.
        """
        piece = fields(data)
        if error := piece.get("error"):
            status = integer_field(error, "code")
            raise ReportedError(status if 400 <= status < 600 else 500, data)
        if blocked := fields(piece.get("promptFeedback")).get("blockReason"):
            raise ReportedError(400, {"message": f"the prompt was blocked ({blocked})"})
        answer.tokens = tokens_of(piece.get("usageMetadata")) or answer.tokens
        answer.set_reply_id(piece.get("responseId"))
        pieces: list[ModelDelta] = []
        for candidate in items(piece.get("candidates"))[:1]:
            for part in items(fields(fields(candidate).get("content")).get("parts")):
                pieces += _read_part(fields(part), answer)
            grounds = fields(fields(candidate).get("groundingMetadata"))
            answer.searches = max(answer.searches, len(items(grounds.get("webSearchQueries"))))
            if reason := fields(candidate).get("finishReason"):
                # Gemini ends an answer with calls like any other, by STOP.
                is_call = reason == "STOP" and answer.has_calls
                answer.finish_reason = "tool_calls" if is_call else reason
                answer.has_model_finished = True
        return pieces


def _thinking(parts: RequestParts) -> dict[str, Any]:
    """Return the fields of a request that configure thinking."""
    thinking = parts.settings.get("thinking")
    effort = parts.settings.get("reasoning_effort")
    if thinking is not None:
        return {"thinkingConfig": dict(thinking)}
    if effort is None:
        return {}
    if _TAKES_THINKING_LEVEL.search(parts.endpoint.name):
        level = "minimal" if effort == "none" else effort
        return {"thinkingConfig": {"thinkingLevel": level}}
    budget = _THINKING_BUDGETS.get(effort, _THINKING_BUDGETS["high"])
    return {"thinkingConfig": {"thinkingBudget": budget}}


def generation_config(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Convert generation settings to Gemini's names."""
    config = {_SETTINGS[name]: value for name, value in settings.items() if name in _SETTINGS}
    if "stop" in settings:
        config[_SETTINGS["stop"]] = listed(settings["stop"])
    return config


def tool_declarations(tools: Sequence[ModelTool]) -> list[dict[str, Any]]:
    """Convert tools to function declarations."""
    functions = [
        {
            "name": tool.name,
            "description": tool.description,
            "parametersJsonSchema": dict(tool.parameters),
        }
        for tool in tools
    ]
    return [{"functionDeclarations": functions}]


def role_of(message: Message) -> str:
    """Return Gemini's role for a message of the user or the model."""
    return "model" if message.role == "assistant" else "user"


def parts_of(parts: Sequence[Part]) -> list[dict[str, Any]]:
    """Convert the parts of a message to the JSON objects that Google's API expects."""
    return [_part(part) for part in parts] or [{"text": ""}]


def _with_signature(parts: list[dict[str, Any]], endpoint: Endpoint) -> list[dict[str, Any]]:
    """Add a placeholder ``thoughtSignature`` to the first function call, unless the call has one.

    Newer Gemini models refuse a request whose first function call has no ``thoughtSignature``;
    parts for older models stay unchanged.
    """
    first_call = next((part for part in parts if "functionCall" in part), None)
    is_newer_model = _TAKES_THINKING_LEVEL.search(endpoint.name) is not None
    if first_call is not None and is_newer_model:
        first_call.setdefault("thoughtSignature", _FOREIGN_SIGNATURE)
    return parts


def _part(part: Part) -> dict[str, Any]:
    """Convert a part of a message to Gemini's format."""
    if isinstance(part, TextPart):
        return {"text": part.text}
    if isinstance(part, ToolCall):
        function_call = {"name": part.name, "args": arguments_of(part), **_id(part.id)}
        signature = {"thoughtSignature": part.token} if part.token else {}
        return {"functionCall": function_call, **signature}
    if isinstance(part, ImagePart):
        return _inline(part.data, part.media_type)
    if isinstance(part, ToolResult):
        function_response = {"name": part.name, "response": {"result": part.text}, **_id(part.id)}
        return {"functionResponse": function_response}
    if (text := chat.text_of_file(part)) is not None:
        return {"text": text}
    return _inline(part.data, part.media_type)


def _id(call_id: str) -> dict[str, str]:
    return {} if call_id.startswith(GENERATED_ID_PREFIX) else {"id": call_id}


def _inline(data: bytes, media_type: str) -> dict[str, Any]:
    return {"inlineData": {"mimeType": media_type, "data": chat.base64_of(data)}}


def _read_part(part: Mapping[str, Any], answer: Answer) -> list[ModelDelta]:
    """Add a part of the answer; return the deltas to emit."""
    if function_call := fields(part.get("functionCall")):
        arguments = json.dumps(function_call.get("args") or {}, ensure_ascii=False)
        token = part.get("thoughtSignature")
        return answer.add_call(
            function_call.get("id"), required(function_call, "name"), arguments, token
        )
    return [] if part.get("thought") else answer.add_text(part.get("text"))


def tokens_of(used: Any, output: str = "candidatesTokenCount") -> Tokens | None:
    """Parse Gemini's token counts; None if there are no counts.

    Args:
        used: The counts that Gemini sent, if any.
        output: The name of the field with the number of output tokens.
    """
    if not fields(used):
        return None
    thought = integer_field(used, "thoughtsTokenCount")
    return Tokens(
        input=integer_field(used, "promptTokenCount")
        + integer_field(used, "toolUsePromptTokenCount"),
        cached=integer_field(used, "cachedContentTokenCount"),
        output=integer_field(used, output) + thought,
        reasoning=thought,
    )
