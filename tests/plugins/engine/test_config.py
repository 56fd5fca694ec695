import pytest

from delf.errors import (
    AgentConfirmationError,
    ConfigurationError,
    FixedAttributeError,
    ModelConfigurationError,
)
from delf.llm import LLMConfig
from delf_engine.config import LLM_FIELDS, AgentConfig, llm_config, make_config


def test_config_fields_have_descriptions():
    for name, field in AgentConfig.model_fields.items():
        assert field.description, name
    assert set(LLM_FIELDS) <= set(AgentConfig.model_fields)


def test_model_setting_accepts_a_name_table_or_object():
    config = make_config(
        {"light_llm": "small", "heavy_llm": {"model": "big"}, "vision_llm": LLMConfig("eye")}
    )
    assert (config.quick_llm, config.main_llm) == (LLMConfig("small"), LLMConfig("big"))
    assert config.vision_llm == LLMConfig("eye")
    assert llm_config(None) is None


def test_single_model_is_used_for_every_purpose():
    config = make_config({"llm": "m"})
    assert config.main_llm == config.quick_llm == LLMConfig("m")


def test_single_text_becomes_a_list():
    config = make_config({"allowed_libs": "numpy", "files": "a.csv", "approvals": "web"})
    assert (config.allowed_libs, config.files, config.approvals) == (
        ("numpy",),
        ("a.csv",),
        ("web",),
    )


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        ({"tool": None}, "tools"),
        ({"on_confirmed": None}, "on_confirm"),
        ({"temperature": 0}, "llm.settings.temperature"),
        ({"memory_config": {"treshold": 0}}, "threshold"),
        ({"memory_config": {"top_p": 0}}, "top_k"),
        ({"llm": {"model": "m", "temprature": 0}}, "settings.temperature"),
        ({"llm": {"model": "m", "modle": 0}}, "model"),
        ({"llm": {"model": "m", "temperature": 0}}, "settings.temperature"),
    ],
)
def test_misspelt_keyword_gets_a_suggestion(wrong, meant):
    with pytest.raises(ConfigurationError, match=f"did you mean '{meant}'"):
        make_config(wrong)


def test_configuration_error_names_place_value_and_allowed_values():
    with pytest.raises(
        ConfigurationError, match=r"^Agent: unknown key 'timeot'; did you mean 'timeout'\?"
    ):
        make_config({"timeot": 1})
    with pytest.raises(ConfigurationError, match=r"^here: timeout: Input should be greater than 0"):
        make_config({"timeout": -1}, where="here")
    with pytest.raises(
        AgentConfirmationError, match="approval_mode: Input should be 'interactive', 'approve_all'"
    ):
        make_config({"approval_mode": "maybe"})
    with pytest.raises(ModelConfigurationError, match=r"^Agent: llm: unknown key 'modle'"):
        make_config({"llm": {"modle": "m"}})
    with pytest.raises(ModelConfigurationError, match=r"^Agent: llm: unknown key 5"):
        make_config({"llm": {5: "m"}})
    with pytest.raises(ConfigurationError, match="llm: Input should be"):
        make_config({"llm": 3})


def test_configuration_repr_hides_keys():
    config = make_config(
        {"providers": {"openai": "sk-1"}, "llm": {"model": "m", "api_key": "sk-2"}}
    )
    for shown in (repr(config), repr(config.model_dump()), config.model_dump_json()):
        assert "sk-" not in shown
    assert config.model_dump()["providers"] == {"openai": "**********"}
    assert (config.providers, config.main_llm.api_key) == ({"openai": "sk-1"}, "sk-2")
    with pytest.raises(ConfigurationError) as caught:
        make_config({"providers": {"openai": ["sk-1"]}})
    assert "sk-" not in caught.value.describe()


def test_config_is_frozen():
    with pytest.raises(FixedAttributeError, match=r"AgentConfig\.timeout cannot be set"):
        make_config({}).timeout = 3


def test_channel_object_is_refused_with_a_hint() -> None:
    with pytest.raises(AgentConfirmationError) as caught:
        make_config({"approvals": [object()]})
    hint = str(caught.value.hint)
    assert "names of approval channels" in hint
    assert "Give a function as on_confirm, and options in plugins.approval-NAME" in hint


@pytest.mark.parametrize(
    ("given", "seconds"),
    [("5m", 300), ("90s", 90), ("1.5h", 5400), ("1 d", 86_400), ("12", 12), (7, 7)],
)
@pytest.mark.parametrize("name", ["timeout", "approval_timeout", "lease"])
def test_durations_may_have_a_unit(name, given, seconds):
    assert getattr(AgentConfig.model_validate({name: given}), name) == seconds


@pytest.mark.parametrize("given", ["5x", "m", "-5m", "0m", "five"])
def test_invalid_duration_is_refused_with_its_key(given):
    with pytest.raises(ConfigurationError, match="timeout"):
        make_config({"timeout": given})
