"""Tests of a strategy's own defaults for its agents."""

import pytest

from delf import Agent
from delf.errors import ModelConfigurationError
from delf.specs import StrategySpec

SPEC = StrategySpec(
    name="clockwork",
    summary="x",
    factory="x:y",
    llm="none:nobody",
    settings=(("prefilter_mode", "off"), ("retry_count", 0)),
)


@pytest.fixture
def host(delf_host):
    delf_host.provide(SPEC, object)
    return delf_host


def test_strategy_may_supply_its_own_model(host):
    assert Agent(host=host, strategy="clockwork").config.main_llm.model == "none:nobody"
    with pytest.raises(ModelConfigurationError):
        Agent(host=host)


def test_given_model_overrides_the_model_of_the_strategy(host):
    given = {"host": host, "strategy": "clockwork"}
    assert Agent(llm="scripted", **given).config.main_llm.model == "scripted"
    two = Agent(heavy_llm="scripted", light_llm="scripted", **given)
    assert two.config.main_llm.model == "scripted"


def test_strategy_settings_replace_defaults_of_the_agent(host):
    config = Agent(host=host, strategy="clockwork", prefilter_mode="filter", timeout=7).config
    assert (config.prefilter_mode, config.retry_count, config.timeout) == ("off", 0, 7)
    assert Agent(host=host, llm="scripted").config.retry_count > 0


def test_missing_strategy_is_reported_at_start(host):
    assert Agent(host=host, llm="scripted", strategy="nothing").config.strategy == "nothing"
