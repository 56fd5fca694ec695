"""Tokens and money: prices, what an agent has spent, and its budget."""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

from delf.errors import BudgetExceededError, ConfigurationError
from delf.messages import ModelReply, Usage

_PER_MILLION: Final = 1_000_000
_KEYS: Final = ("input", "cached_input", "output")


@dataclass(frozen=True, slots=True)
class Price:
    """USD per million tokens."""

    input: float
    output: float
    cached_input: float

    def cost(self, usage: Usage) -> float:
        """The price of some tokens, in USD."""
        fresh = usage.input_tokens - usage.cached_tokens
        total = (
            fresh * self.input
            + usage.cached_tokens * self.cached_input
            + usage.output_tokens * self.output
        )
        return total / _PER_MILLION


class Pricing:
    """The user's own prices, which win over a provider's list.

    Args:
        prices: By model name or pattern (``gpt-*``); the most specific pattern wins.
    """

    def __init__(self, prices: Mapping[str, Price] | None = None) -> None:
        self._prices = dict(prices or {})

    def cost(self, reply: ModelReply) -> float | None:
        """What a reply cost, in USD; None when no price is known."""
        price = self.find(reply.model)
        return price.cost(reply.usage) if price is not None else reply.cost_usd

    def find(self, model: str) -> Price | None:
        """The user's price for a model."""
        if model in self._prices:
            return self._prices[model]
        matching = [name for name in self._prices if fnmatch.fnmatchcase(model, name)]
        return self._prices[max(matching, key=_specificity)] if matching else None


def _specificity(pattern: str) -> tuple[int, str]:
    return len(pattern.replace("*", "").replace("?", "")), pattern


def load_pricing(paths: tuple[Path, ...]) -> Pricing:
    """Prices from the first of some files that exists.

    The file is JSON: ``{"gpt-*": {"input": 2.5, "cached_input": 1.25, "output": 10}}``, in
    USD per million tokens; ``cached_input`` may be left out.

    Raises:
        ConfigurationError: Naming the file and the entry that is wrong.
    """
    for path in paths:
        if path.is_file():
            return Pricing(_read_prices(path))
    return Pricing()


def _read_prices(path: Path) -> dict[str, Price]:
    try:
        content: Any = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{path}: cannot be read: {error}") from None
    if not isinstance(content, dict):
        raise ConfigurationError(f"{path}: must be an object of models")
    prices: dict[str, Price] = {}
    for name, entry in cast("dict[str, Any]", content).items():
        try:
            prices[name] = _price(entry)
        except ValueError as error:
            raise ConfigurationError(
                f"{path}: {name}: {error}",
                hint='write {"input": 2.5, "output": 10}, in USD per million tokens',
            ) from None
    return prices


def _price(entry: Any) -> Price:
    if not isinstance(entry, dict):
        raise ValueError(f"{entry!r} is no object with prices")  # noqa: TRY004 - the file's fault
    amounts = cast("dict[str, Any]", entry)
    unknown = amounts.keys() - set(_KEYS)
    if unknown:
        raise ValueError(f"unknown key {min(unknown)!r}")
    missing = {"input", "output"} - amounts.keys()
    if missing:
        raise ValueError(f"{min(missing)!r} is missing")
    return Price(
        input=_amount(amounts["input"]),
        output=_amount(amounts["output"]),
        cached_input=_amount(amounts.get("cached_input", amounts["input"])),
    )


def _amount(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= 0:
        raise ValueError(f"{value!r} is no price")
    return float(value)


class Ledger:
    """What an agent has used, over all its tasks.

    Args:
        budget_usd: The most to spend; None for no limit.
        allow_unpriced: Let models without a known price run under a budget.
    """

    def __init__(self, budget_usd: float | None = None, *, allow_unpriced: bool = False) -> None:
        self.budget_usd = budget_usd
        self.usage = Usage()
        self.cost_usd = 0.0
        self.unpriced_calls = 0
        self._allow_unpriced = allow_unpriced

    def check(self) -> None:
        """Whether another model call may be made.

        Raises:
            BudgetExceededError: When the budget is used up, or cannot be kept because a
                model has no known price.
        """
        if self.budget_usd is None:
            return
        if self.cost_usd >= self.budget_usd:
            raise BudgetExceededError(
                f"the budget of ${self.budget_usd:g} is used up (${self.cost_usd:.6f} spent)"
            )
        if self.unpriced_calls and not self._allow_unpriced:
            raise BudgetExceededError(
                "a model without a known price was used, so the budget cannot be kept",
                hint="give its price in pricing.json, or set allow_unpriced=True",
            )

    def add(self, usage: Usage, cost_usd: float | None) -> None:
        """Count a model call."""
        self.usage = self.usage + usage
        if cost_usd is None:
            self.unpriced_calls += 1
        else:
            self.cost_usd += cost_usd

    def reset(self, limit_usd: float | None = None) -> None:
        """Start counting money again, with a new limit if one is given."""
        self.cost_usd = 0.0
        self.unpriced_calls = 0
        if limit_usd is not None:
            self.budget_usd = limit_usd
