import copy
import dataclasses
import json
import pickle
import pprint

import pytest

from delf.errors import ModelConfigurationError
from delf.llm import LLMConfig, as_llm_config, normalise_settings


def test_llm_config_needs_only_a_model_name():
    config = LLMConfig("gpt-4o-mini")
    assert (config.base_url, config.api_key, config.headers, config.settings) == (
        None,
        None,
        None,
        {},
    )
    assert config.provider == "auto"
    assert as_llm_config("gpt-4o-mini") == config
    assert as_llm_config(config) is config


def test_llm_config_repr_hides_secrets():
    shown = repr(LLMConfig("m", api_key="sk-1", headers={"Authorization": "sk-2"}))
    assert "sk-" not in shown


@pytest.mark.parametrize(
    "dump",
    [dataclasses.asdict, dataclasses.astuple, vars, pprint.pformat],
    ids=lambda dump: dump.__name__,
)
def test_llm_config_dump_shows_no_secret(dump):
    config = LLMConfig("m", "http://host/v1", "sk-1", {"Authorization": "sk-2"})
    shown = repr(dump(config))
    assert "sk-" not in shown
    assert "http://host/v1" in shown


@pytest.mark.parametrize(
    "copied",
    [copy.copy, copy.deepcopy, dataclasses.replace, lambda c: pickle.loads(pickle.dumps(c))],
    ids=["copy", "deepcopy", "replace", "pickle"],
)
def test_copied_llm_config_keeps_its_secrets(copied):
    config = LLMConfig("m", api_key="sk-1", headers={"Authorization": "sk-2"})
    made = copied(config)
    assert made == config
    assert (made.api_key, made.headers) == ("sk-1", {"Authorization": "sk-2"})
    assert dataclasses.replace(made, api_key="sk-3") != config


def test_llm_config_round_trips_through_a_dict_without_secrets():
    config = LLMConfig("m", api_key="key-1", settings={"seed": 1})
    assert LLMConfig(**dataclasses.asdict(config)) == LLMConfig("m", settings={"seed": 1}) != config
    assert json.loads(json.dumps(dataclasses.asdict(config)))["model"] == "m"
    assert len({config, LLMConfig("m", api_key="key-1", settings={"seed": 1})}) == 1


def test_setting_names_are_normalised():
    config = LLMConfig("m", settings={"max-tokens": 5, "Top-K": 3, "temperature": 0})
    assert config.settings == {"max_tokens": 5, "top_k": 3, "temperature": 0}
    assert normalise_settings({}) == {}


def test_with_settings_returns_a_copy():
    config = LLMConfig("m", settings={"seed": 1, "top_p": 1})
    changed = config.with_settings(seed=2)
    assert changed.settings == {"seed": 2, "top_p": 1}
    assert config.settings == {"seed": 1, "top_p": 1}


@pytest.mark.parametrize("model", ["", "  ", None, 3])
def test_llm_config_without_a_model_is_refused(model):
    with pytest.raises(ModelConfigurationError, match="model must be a name") as caught:
        LLMConfig(model)
    assert "--llm" in (caught.value.hint or "")


def test_llm_config_accepts_any_provider():
    assert LLMConfig("m", provider="acme").provider == "acme"
    with pytest.raises(ModelConfigurationError, match="provider must be a name, got ' '"):
        LLMConfig("m", provider=" ")


def test_unknown_setting_is_refused_with_a_suggestion():
    with pytest.raises(
        ModelConfigurationError, match="'temprature'; did you mean 'temperature'"
    ) as caught:
        LLMConfig("m", settings={"temprature": 1})
    assert "top_p" in (caught.value.hint or "")


@pytest.mark.parametrize(
    "given", ["web_search", ["web_search"], [{"tool_type": "web_search", "max_uses": None}]]
)
def test_provider_search_is_selected_by_name_or_table(given):
    config = LLMConfig("m", settings={"server-side-tools": given})
    assert config.settings == {"server_side_tools": [{"tool_type": "web_search"}]}
    assert config.server_side_tools_for("generate") == ("web_search",)
    assert config.server_side_tools_for("prefilter") == ()
    assert LLMConfig("m", settings={"server_side_tools": []}).server_side_tools_for("call") == ()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([{"tool_type": "code_execution"}], "tool_type 'code_execution' is not supported"),
        ([7], "a list of names or tables"),
        ([{"tool_type": "web_search", "max_use": 3}], "unknown field 'max_use'.*max_uses"),
        ([{"tool_type": "web_search", "max_uses": 0}], "a whole number from 1"),
        ([{"tool_type": "web_search", "max_uses": True}], "a whole number from 1"),
        ([{"tool_type": "web_search", "allowed_domains": [1]}], "host names"),
        (
            [{"tool_type": "web_search", "allowed_domains": ["a"], "blocked_domains": ["b"]}],
            "cannot be used together",
        ),
    ],
)
def test_unknown_provider_tool_is_refused(given, message):
    with pytest.raises(ModelConfigurationError, match=message):
        LLMConfig("m", settings={"server_side_tools": given})


def test_unsupported_provider_tool_names_replacement():
    with pytest.raises(ModelConfigurationError) as caught:
        LLMConfig("m", settings={"server_side_tools": ["url_context"]})
    assert caught.value.hint == "a connection can read pages"
