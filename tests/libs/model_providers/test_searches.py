"""Tests of the cost of a provider's own search, beside that of tokens."""

import pytest

from delf.llm import LLMConfig
from delf.protocols.context import PluginContext
from delf_model_providers.endpoint import resolve
from delf_model_providers.searches import fees


@pytest.mark.parametrize(
    ("model", "searches", "price"),
    [
        ("claude-opus-4-8", 0, 0.0),
        ("claude-opus-4-8", 3, 0.03),
        ("gemini-3.5-flash", 2, 0.028),
        ("gpt-5-search-api", 0, 0.01),  # its server does not say how often
        ("xai/grok-4", 0, None),
    ],
)
def test_provider_searches_are_priced_per_search(model, searches, price):
    endpoint = resolve(LLMConfig(model), PluginContext())
    assert fees(endpoint, searches) == (price if price is None else pytest.approx(price))


def test_searches_at_another_server_have_unknown_price():
    config = LLMConfig("claude-opus-4-8", base_url="http://localhost:1", provider="anthropic")
    endpoint = resolve(config, PluginContext())
    assert fees(endpoint, 0) == 0
    assert fees(endpoint, 1) is None
