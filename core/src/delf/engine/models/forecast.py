"""What a model call will cost, said before it is made."""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from delf.llm import LLMConfig
from delf.messages import (
    FilePart,
    ImagePart,
    ModelReply,
    ModelRequest,
    Price,
    Purpose,
    ToolCall,
    Usage,
)

_TOKENS_PER_BYTE: Final = 1 / 3
"""Before a model was asked; text in English has about a quarter of a token a byte."""

_IMAGE_TOKENS: Final = 1600
"""The most that the known providers count for one image of the size that they accept."""

_FILE_BYTES_PER_TOKEN: Final = 25
"""Of a PDF and the like: a page has about 50 kB and 2,000 tokens."""


@dataclass(slots=True)
class _Experience:
    """What is known of one model.

    Args:
        tokens_per_byte: Input tokens for one byte of text, as last counted.
        output_tokens: The longest answer, by purpose.
        cost_usd: The dearest answer, by purpose.
    """

    tokens_per_byte: float = _TOKENS_PER_BYTE
    output_tokens: dict[Purpose, int] = field(default_factory=dict[Purpose, int])
    cost_usd: dict[Purpose, float] = field(default_factory=dict[Purpose, float])


class Estimate(NamedTuple):
    """What a call will cost, in USD.

    Args:
        expected: As far as it can be known.
        most: What it can cost at most; infinite for the first call of a model.
    """

    expected: float
    most: float


class Forecast:
    """Learns from each reply what the next one will cost; safe between threads.

    The input is what the request holds. The output that is expected is ``max_tokens`` where that
    is set, else the longest answer that the model has given for the same purpose so far. The most
    is what the model can return by its provider's list, and never less than that answer.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._models: dict[str, _Experience] = {}

    def usage(self, config: LLMConfig, request: ModelRequest) -> Usage:
        """The tokens that a request will use.

        Args:
            config: The model.
            request: What it will be asked.
        """
        known = self._of(config.model)
        text, attached = _sizes(request)
        longest = known.output_tokens.get(request.purpose, 0)
        return Usage(
            input_tokens=round(text * known.tokens_per_byte) + attached,
            output_tokens=_limit(request.settings) or _limit(config.settings) or longest,
        )

    def cost(self, config: LLMConfig, request: ModelRequest, price: Price | None) -> Estimate:
        """What a request will cost, in USD.

        Args:
            config: The model.
            request: What it will be asked.
            price: Its price; when it has none, the dearest reply so far is taken.
        """
        known = self._of(config.model)
        longest = known.output_tokens.get(request.purpose)
        if price is None:
            expected = known.cost_usd.get(request.purpose, 0.0)
            return Estimate(expected, math.inf if longest is None else expected)
        usage = self.usage(config, request)
        expected = price.cost(usage)
        if longest is None:
            return Estimate(expected, math.inf)
        limit = _limit(request.settings) or _limit(config.settings) or price.max_output_tokens
        most = replace(usage, output_tokens=max(limit or 0, longest))
        return Estimate(expected, price.cost(most))

    def learn(
        self, config: LLMConfig, request: ModelRequest, reply: ModelReply, cost_usd: float | None
    ) -> None:
        """Take a reply into account.

        Args:
            config: The model.
            request: What it was asked.
            reply: What it answered.
            cost_usd: What that cost; None where no price is known.
        """
        known, purpose, used = self._of(config.model), request.purpose, reply.usage
        text, attached = _sizes(request)
        with self._lock:
            longest = known.output_tokens.get(purpose, 0)
            known.output_tokens[purpose] = max(used.output_tokens, longest)
            known.cost_usd[purpose] = max(cost_usd or 0.0, known.cost_usd.get(purpose, 0.0))
            if used.input_tokens and text and not attached:
                known.tokens_per_byte = used.input_tokens / text

    def _of(self, model: str) -> _Experience:
        with self._lock:
            return self._models.setdefault(model, _Experience())


def _sizes(request: ModelRequest) -> tuple[int, int]:
    """Bytes of text, and tokens of what is attached."""
    text = sum(len(f"{tool}") for tool in request.tools)
    attached = 0
    for message in request.messages:
        for part in message.parts:
            if isinstance(part, ImagePart):
                attached += _IMAGE_TOKENS
            elif not isinstance(part, FilePart):
                said = part.arguments if isinstance(part, ToolCall) else part.text
                text += len(said.encode("utf-8", "replace"))
            elif part.media_type.startswith("text/"):
                text += len(part.data)
            else:
                attached += max(_IMAGE_TOKENS, len(part.data) // _FILE_BYTES_PER_TOKEN)
    return text, attached


def _limit(settings: Mapping[str, Any]) -> int | None:
    value = settings.get("max_tokens")
    return int(value) if isinstance(value, (int, float)) and value > 0 else None
