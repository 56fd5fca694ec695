"""The providers' own SDKs, which take seconds to import: only inside the tests that need them."""

from __future__ import annotations

from anthropic import APIStatusError as AnthropicError
from anthropic import AsyncAnthropic
from anthropic.types.message_create_params import (
    MessageCreateParamsNonStreaming,
    MessageCreateParamsStreaming,
)
from google import genai
from google.genai import types as gemini
from google.genai.errors import APIError as GoogleError
from openai import APIStatusError as OpenAIError
from openai import AsyncOpenAI
from pydantic import BaseModel, ConfigDict

__all__ = ["AsyncAnthropic", "AsyncOpenAI", "gemini", "genai"]

ERRORS = (OpenAIError, AnthropicError, GoogleError)


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", arbitrary_types_allowed=True)


class Claude(_Strict):
    """A request to Anthropic."""

    body: MessageCreateParamsNonStreaming


class ClaudeStreams(_Strict):
    """One whose answer is streamed."""

    body: MessageCreateParamsStreaming


class Gemini(_Strict):
    """A request to Google."""

    contents: list[gemini.Content]
    systemInstruction: gemini.Content | None = None
    generationConfig: gemini.GenerationConfig | None = None
    tools: list[gemini.Tool] | None = None
    toolConfig: gemini.ToolConfig | None = None
