"""Estimates of tokens and cost before a server has counted them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

from delf.llm import LLMConfig
from delf.messages import FilePart, ImagePart, ModelReply, ModelRequest, Price, ToolCall, Usage

# An estimate of the tokens per byte of English text.
_TOKENS_PER_BYTE: Final = 1 / 3

# The maximum number of tokens that known providers count for one image.
_IMAGE_TOKENS: Final = 1600

# An estimate for documents: a PDF page has about 50 kB and 2,000 tokens.
_FILE_BYTES_PER_TOKEN: Final = 25


class Estimate(NamedTuple):
    """The estimated cost of a model call, in USD.

    Args:
        expected: The cost of the input and of ``max_tokens`` output tokens, but at least the cost
            of the most expensive reply so far.
        maximum: The cost of the longest possible answer; infinite for the first call of a model
            for a purpose, even if the price is known.
    """

    expected: float
    maximum: float


def estimate_by_price(config: LLMConfig, request: ModelRequest, price: Price) -> Estimate:
    """Estimate the cost of a model call from the model's price.

    If the settings do not limit the answer, the expected cost is the price of the prompt alone.
    """
    prompt_tokens = input_tokens(request)
    limit = output_limit(request.settings) or output_limit(config.settings) or 0
    longest_answer = limit or price.max_output_tokens or 0
    return Estimate(
        expected=price.cost(Usage(input_tokens=prompt_tokens, output_tokens=limit)),
        maximum=price.cost(Usage(input_tokens=prompt_tokens, output_tokens=longest_answer)),
    )


def complete_usage(request: ModelRequest, reply: ModelReply) -> Usage:
    """Return the token counts of a reply; counts that the server omits are estimated."""
    usage = reply.usage
    if not usage.input_tokens:
        usage = replace(usage, input_tokens=input_tokens(request))
    if not usage.output_tokens:
        content = "".join((reply.text, *(call.arguments for call in reply.calls)))
        tokens = math.ceil(_utf8_length(content) * _TOKENS_PER_BYTE)
        usage = replace(usage, output_tokens=tokens)
    return usage


def input_tokens(request: ModelRequest) -> int:
    """Estimate the number of input tokens of a request."""
    text_bytes = sum(_utf8_length(str(tool)) for tool in request.tools)
    attachment_tokens = 0
    for message in request.messages:
        for part in message.parts:
            match part:
                case ImagePart():
                    attachment_tokens += _IMAGE_TOKENS
                case FilePart() if part.media_type.startswith("text/"):
                    text_bytes += len(part.data)
                case FilePart():
                    # A provider also sees each page as an image, and there is at least one page.
                    file_tokens = len(part.data) // _FILE_BYTES_PER_TOKEN
                    attachment_tokens += max(_IMAGE_TOKENS, file_tokens)
                case ToolCall():
                    text_bytes += _utf8_length(part.arguments)
                case _:
                    text_bytes += _utf8_length(part.text)
    return round(text_bytes * _TOKENS_PER_BYTE) + attachment_tokens


def _utf8_length(text: str) -> int:
    """Return the number of bytes of a text in UTF-8."""
    return len(text.encode("utf-8", "replace"))


def output_limit(settings: Mapping[str, Any]) -> int | None:
    """Return the maximum number of output tokens in model settings, if any."""
    value = settings.get("max_tokens")
    if isinstance(value, (int, float)) and value > 0:
        return int(value)
    return None
