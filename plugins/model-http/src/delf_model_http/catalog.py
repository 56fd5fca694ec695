"""Facts about the three providers' models: prices, limits, and refused settings.

``models.json`` is made by ``scripts/model_catalog.py`` and says when and from what.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any, Final

from delf.messages import Price
from delf.records import dataclass
from delf_model_http.answer import Tokens

_MILLION: Final = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """USD per million tokens.

    Args:
        input: The price of input.
        cached: The price of input read from the cache.
        written: The price of input written to the cache.
        output: The price of output.
    """

    input: float
    cached: float
    written: float
    output: float

    def cost(self, tokens: Tokens) -> float:
        """Return the cost of an answer in USD."""
        cached = min(tokens.cached, tokens.input)
        written = min(tokens.written, tokens.input - cached)
        fresh = tokens.input - cached - written
        total = fresh * self.input + cached * self.cached + written * self.written
        return (total + tokens.output * self.output) / _MILLION


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The facts about one model; empty outside of the catalogue.

    Args:
        rates: The prices.
        long_from: Input tokens above which the whole call has other prices.
        long_rates: The prices of such calls.
        longest: The maximum number of output tokens of an answer.
        reasons: Whether the model thinks before it answers.
        fixed: Whether the model refuses a temperature and similar settings.
    """

    rates: Rates | None = None
    long_from: int = 0
    long_rates: Rates | None = None
    longest: int = 0
    reasons: bool = False
    fixed: bool = False

    @property
    def price(self) -> Price | None:
        """The price in delf's form."""
        if self.rates is None:
            return None
        rates = self.rates
        return Price(input=rates.input, output=rates.output, cached_input=rates.cached)

    def cost(self, tokens: Tokens | None) -> float | None:
        """Return the cost of an answer in USD; None if unknown."""
        if self.rates is None or tokens is None or tokens == Tokens():
            return None
        is_long = self.long_rates is not None and tokens.input > self.long_from
        return (self.long_rates if is_long and self.long_rates else self.rates).cost(tokens)


def facts(provider: str, model: str) -> Facts:
    """Return the facts about a model.

    Args:
        provider: The provider.
        model: The name, without a provider in front.
    """
    of_provider = _models().get(provider.removesuffix("-responses"), {})
    facts = of_provider.get(model.removeprefix("models/"))
    if facts is None:
        return Facts()
    long: list[float] = facts.get("long") or []
    return Facts(
        rates=Rates(**_rates(facts["usd"])),
        long_from=int(long[0]) if long else 0,
        long_rates=Rates(**_rates(long[1:])) if long else None,
        longest=facts.get("longest", 0),
        reasons=facts.get("reasons", False),
        fixed=facts.get("fixed", False),
    )


def _rates(rates: list[float]) -> dict[str, float]:
    return dict(zip(("input", "cached", "written", "output"), rates, strict=True))


@cache
def _models() -> Mapping[str, Mapping[str, Any]]:
    file = resources.files(__package__ or "").joinpath("models.json")
    return json.loads(file.read_text("utf-8"))["models"]
