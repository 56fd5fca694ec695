"""``pricing.json``: the user's own prices of models."""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, cast

from delf.errors import ConfigurationError, did_you_mean
from delf.messages import Price
from delf.providers import Providers

PRICES_FILE: Final = "pricing.json"
KEYS: Final = ("input", "cached_input", "output")
"""The keys of a model's prices in :data:`PRICES_FILE`."""
_PER_MILLION: Final = "_per_million"
# The maximum price in USD per million tokens, far above any real one.
_MAX_AMOUNT: Final = 1e9
_HINT: Final = 'write {"gpt-*": {"input": 2.5, "output": 10}}, in USD per million tokens'


class Prices:
    """The prices of models that the user has configured.

    Args:
        prices: Prices by model name or pattern (``gpt-*``), with or without a provider
            (``openai:gpt-*``); the most specific pattern wins.
        providers: The model providers, which know other spellings of model names.
    """

    def __init__(self, prices: Mapping[str, Price], providers: Providers | None = None) -> None:
        self._prices = dict(prices)
        self._providers = providers or Providers()

    def find(self, model: str) -> Price | None:
        """Return the prices of a model, found by any spelling of its name; None if unknown.

        An entry with the name as given is preferred, then an entry with another spelling, then the
        entry whose pattern is the most specific.
        """
        if model in self._prices:
            return self._prices[model]
        names = {model, model.rpartition("/")[2]}
        # Providers write their names in lower case. A name with capitals may be another model, such
        # as a model of the user's own server, so its other spellings are not looked up.
        if model == model.lower():
            names |= self._providers.spellings(model)
        for name in self._prices:
            if name in names:
                return self._prices[name]

        def matches_a_name(pattern: str) -> bool:
            return any(fnmatch.fnmatchcase(name, pattern) for name in names)

        matching_patterns = [*filter(matches_a_name, self._prices)]
        if not matching_patterns:
            return None
        return self._prices[max(matching_patterns, key=_specificity)]


def _specificity(pattern: str) -> tuple[int, str]:
    """Return a key that sorts patterns by the number of their literal characters."""
    return len(pattern.replace("*", "").replace("?", "")), pattern


def read_prices(path: Path) -> dict[str, Price]:
    """Read a price file; return the prices by model name or pattern.

    The file is JSON: ``{"gpt-*": {"input": 2.5, "cached_input": 1.25, "output": 10}}``, in
    USD per million tokens. ``cached_input`` is optional. The names of prices may end in
    ``_per_million``. The models may be under a key ``models``. Keys that begin with ``_`` are
    comments.

    Args:
        path: The file.

    Raises:
        ConfigurationError: If the file is invalid; the error names the entry.
    """
    try:
        content: Any = json.loads(path.read_text("utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigurationError(f"{path}: cannot be read: {error}", hint=_HINT) from None
    models = _entries(content)
    if models is not None and "models" in models and len(models) == 1:
        models = _entries(models["models"])
    if models is None:
        raise ConfigurationError(f"{path}: must be an object of models", hint=_HINT)
    prices: dict[str, Price] = {}
    for name, entry in models.items():
        try:
            prices[name] = _parse_price(entry)
        except ValueError as error:
            raise ConfigurationError(f"{path}: {name}: {error}", hint=_HINT) from None
    return prices


def _entries(content: Any) -> dict[str, Any] | None:
    """Return a JSON object without its keys that begin with ``_``; None for another JSON value."""
    if not isinstance(content, dict):
        return None
    entries = cast("dict[str, Any]", content)
    return {name: value for name, value in entries.items() if not name.startswith("_")}


def _parse_price(entry: Any) -> Price:
    """Parse a model's price: an object such as ``{"input": 2.5, "output": 10}``.

    Raises:
        ValueError: If the entry is no such object.
    """
    fields = _entries(entry)
    if fields is None:
        raise ValueError(f"{entry!r} is not an object with prices")
    unknown = [name for name in fields if name.removesuffix(_PER_MILLION) not in KEYS]
    if unknown:
        first = min(unknown)
        raise ValueError(f"unknown key {first!r}{did_you_mean(first, KEYS)}")
    amounts = {name.removesuffix(_PER_MILLION): value for name, value in fields.items()}
    missing = {"input", "output"} - amounts.keys()
    if missing:
        raise ValueError(f"{min(missing)!r} is missing")
    return Price(
        input=_parse_amount(amounts["input"]),
        output=_parse_amount(amounts["output"]),
        cached_input=_parse_amount(amounts.get("cached_input", amounts["input"])),
    )


def _parse_amount(value: Any) -> float:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    # NaN, which JSON may contain, is in no range.
    if not is_number or not 0 <= value <= _MAX_AMOUNT:
        raise ValueError(f"{value!r} is not a price")
    return float(value)
