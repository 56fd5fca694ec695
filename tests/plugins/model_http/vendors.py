"""The providers' own SDKs, which take seconds to import: only inside the tests that need them."""

from __future__ import annotations

from anthropic.types.message_create_params import (
    MessageCreateParamsNonStreaming,
    MessageCreateParamsStreaming,
)
from google.genai import types as gemini
from openai.types.responses.response_create_params import (
    ResponseCreateParamsNonStreaming,
    ResponseCreateParamsStreaming,
)
from pydantic import BaseModel, ConfigDict


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", arbitrary_types_allowed=True)


class Claude(_Strict):
    """A request to Anthropic."""

    body: MessageCreateParamsNonStreaming


class ClaudeStreams(_Strict):
    """A request to Anthropic whose answer is streamed."""

    body: MessageCreateParamsStreaming


class Responses(_Strict):
    """A request to OpenAI's responses."""

    body: ResponseCreateParamsNonStreaming


class ResponsesStream(_Strict):
    """A request to OpenAI's responses whose answer is streamed."""

    body: ResponseCreateParamsStreaming


class Gemini(_Strict):
    """A request to Google."""

    contents: list[gemini.Content]
    systemInstruction: gemini.Content | None = None
    generationConfig: gemini.GenerationConfig | None = None
    tools: list[gemini.Tool] | None = None
    toolConfig: gemini.ToolConfig | None = None
