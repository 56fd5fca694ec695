import os

import pytest

from delf.errors import ConfigurationError, EnvironmentKeyError, ModelConfigurationError
from delf.llm import LLMConfig
from delf_engine.secrets import redactable

# Precedence


def test_settings_precedence_is_flags_set_environment_dotenv_file(project):
    toml = "[agent]\ntimeout = 1\n"
    assert project().agent.timeout == 60
    assert project(toml).agent.timeout == 1
    assert project(toml, dotenv="DELF_TIMEOUT=2").agent.timeout == 2
    assert project(toml, env={"DELF_TIMEOUT": "3"}).agent.timeout == 3
    assert project(toml, "timeout=4", env={"DELF_TIMEOUT": "3"}).agent.timeout == 4
    assert project(toml, "agent.timeout=5").agent.timeout == 5
    assert project(toml, "timeout=4", env={"DELF_TIMEOUT": "3"}, timeout=6).agent.timeout == 6
    nothing = {"env": {"DELF_TIMEOUT": ""}, "timeout": None}
    assert project(toml, **nothing).agent.timeout == 1


def test_model_fields_are_merged_from_all_sources(project):
    found = project(
        """
        [agent.llm]
        model = "flag"
        base_url = "http://file/v1"
        settings = { temperature = 0.5, top_p = 0.9 }
        """,
        "llm.settings.temperature=0",
        env={"DELF_LLM__API_KEY": "12345", "DELF_LLM__SETTINGS__SEED": "7"},
        llm="flag",
    ).agent.main_llm
    assert found == LLMConfig(
        "flag",
        base_url="http://file/v1",
        api_key="12345",
        settings={"temperature": 0, "top_p": 0.9, "seed": 7},
    )


ELSEWHERE = """
[agent.llm]
model = "of-the-file"
base_url = "http://file/v1"
api_key = "its-key"
provider = "openai"
headers = { X-Tenant = "acme" }
settings = { temperature = 0.5 }
"""


@pytest.mark.parametrize(
    "given",
    [
        {"llm": "gpt-4o-mini"},
        {"llm": {"model": "gpt-4o-mini"}},
        {"env": {"DELF_LLM": "gpt-4o-mini"}},
        {"env": {"DELF_LLM__MODEL": "gpt-4o-mini"}},
    ],
)
def test_another_model_drops_the_endpoint_of_the_file(project, given):
    found = project(ELSEWHERE, **given).agent.main_llm
    assert found == LLMConfig("gpt-4o-mini", settings={"temperature": 0.5})
    found = project(ELSEWHERE, "llm.model=gpt-4o-mini").agent.main_llm
    assert found.base_url is None
    own = {"model": "m", "base_url": "http://own/v1"}
    assert project(ELSEWHERE, llm=own).agent.main_llm.base_url == "http://own/v1"
    assert project(ELSEWHERE, llm="of-the-file").agent.main_llm.base_url == "http://file/v1"


def test_model_given_without_an_endpoint_keeps_the_configured_endpoint(project):
    found = project(env={"DELF_LLM": "a", "DELF_LLM__BASE_URL": "http://gateway/v1"}, llm="b")
    assert found.agent.main_llm == LLMConfig("b", base_url="http://gateway/v1")


def test_project_model_is_a_name_a_table_or_an_object(project):
    assert project("[agent]\nllm = 'm'\n").agent.main_llm == LLMConfig("m")
    found = project("", """llm={"model": "m", "headers": {"X-A": "b"}}""").agent.main_llm
    assert found.headers == {"X-A": "b"}
    assert project("", llm=LLMConfig("o", base_url="u")).agent.main_llm.base_url == "u"
    assert project("", llm={"model": "m", "base_url": "u"}).agent.main_llm.base_url == "u"


def test_llm_setting_replaces_light_and_heavy_models(project):
    toml = "[agent]\nlight_llm = 'small'\nheavy_llm = 'big'\n"
    assert project(toml).agent.main_llm.model == "big"
    found = project(toml, llm="flag").agent
    assert (found.main_llm.model, found.quick_llm.model) == ("flag", "flag")
    found = project(toml, env={"DELF_LLM": "env"}).agent
    assert (found.main_llm.model, found.quick_llm.model) == ("env", "env")
    found = project("[agent]\nllm='m'\n", light_llm="small", heavy_llm="big").agent
    assert (found.main_llm.model, found.quick_llm.model) == ("big", "small")
    both = {"DELF_LLM": "m", "DELF_LIGHT_LLM": "small", "DELF_HEAVY_LLM": "big"}
    assert project("", env=both).agent.quick_llm.model == "small"


@pytest.mark.parametrize(
    ("text", "field", "value"),
    [
        ("system_prompt=5", "system_prompt", "5"),
        ("system_prompt=[be brief]", "system_prompt", "[be brief]"),
        ("system_prompt=a=b", "system_prompt", "a=b"),
        ("system_prompt=", "system_prompt", ""),
        ("verbose=true", "verbose", True),
        ("retry_count=3", "retry_count", 3),
        ("budget_usd=0.5", "budget_usd", 0.5),
        ("allowed_libs=numpy", "allowed_libs", ("numpy",)),
        ("allowed_libs=numpy, pandas", "allowed_libs", ("numpy", "pandas")),
        ('allowed_libs=["numpy", "a,b"]', "allowed_libs", ("numpy", "a,b")),
        ("sandbox_config.memory_bytes=1000", "sandbox_config", {"memory_bytes": 1000}),
        ("sandbox_config.image=py:3", "sandbox_config", {"image": "py:3"}),
        ('sandbox_config={"a": [1]}', "sandbox_config", {"a": [1]}),
        ("sandbox_config.pins=NaN", "sandbox_config", {"pins": "NaN"}),
        ('chat={"turns": 3}', "chat", {"turns": 3}),
        ("chat=true", "chat", True),
        ("providers.openai=123", "providers", {"openai": "123"}),
    ],
)
def test_text_values_are_converted_to_field_types(project, text, field, value):
    assert getattr(project("", text).agent, field) == value
    key, _, rest = text.partition("=")
    variable = f"DELF_{key.upper().replace('.', '__')}"
    if rest:
        assert getattr(project("", env={variable: rest}).agent, field) == value


# Errors say where


@pytest.mark.parametrize(
    ("toml", "message"),
    [
        ("timeout = 'soon'", r"delf\.toml \[agent\] timeout: Input should be a valid number"),
        ("timeout = 0", r"timeout: Input should be greater than 0"),
        ("learn = 'x'", r"learn"),
        ("min_isolation = 'strong'", r"'process', 'interpreter', 'container' or 'vm'"),
        ("retry_count = 99", r"retry_count: Input should be less than or equal to 20"),
        ("llm = ''", r"\[agent\] llm\.model: model must be a name|llm.*: model must be a name"),
        ("llm = { base_url = 'x' }", r"\[agent\] llm.*: model is missing"),
        ("llm = { modle = 'x' }", r"unknown key 'modle'; did you mean 'model'\?"),
        ("llm = { model = 'x', temperature = 1 }", r"did you mean 'settings\.temperature'\?"),
        ("llm = { model = 'x', settings = { temp = 1 } }", r"unknown model setting 'temp'"),
        ("llm = { model = 3 }", r"model must be text, got int"),
        ("llm = { model = 'x', headers = 'y' }", r"headers must be a table, got str"),
        ("llm = { model = 'x', provider = '' }", r"provider must be a name, got ''"),
        ("light_llm = 'x'", r"light_llm and heavy_llm go together, but heavy_llm is not set"),
    ],
)
def test_invalid_value_error_names_file_and_key(project, toml, message):
    found = project(f"[agent]\n{toml}\n")
    with pytest.raises(ConfigurationError, match=message):
        _ = found.agent


def test_each_invalid_value_is_reported_with_its_source(project):
    found = project(
        "[agent]\nretry_count = 99\n",
        "rerun_count=many",
        env={"DELF_TIMEOUT": "soon"},
        dotenv="DELF_BUDGET_USD=-1\n",
        verbose="perhaps",
    )
    with pytest.raises(ConfigurationError) as caught:
        _ = found.agent
    message = caught.value.message
    assert "delf.toml [agent] retry_count: Input should be less" in message
    assert "--set agent.rerun_count: Input should be a valid integer" in message
    assert "DELF_TIMEOUT: Input should be a valid number" in message
    assert ".env: DELF_BUDGET_USD: Input should be greater than 0" in message
    assert "verbose on the command line: Input should be a valid boolean" in message


def test_invalid_value_error_hides_the_value(project):
    found = project("[agent]\nproviders = ['sk-secret']\n", env={"DELF_TIMEOUT": "sk-other"})
    with pytest.raises(ConfigurationError) as caught:
        _ = found.agent
    assert "sk-" not in caught.value.describe()
    shown = project("[agent.llm]\nmodel='m'\napi_key='sk-secret'\n", env={"K": "sk-other"})
    assert "sk-" not in repr(shown) + repr(shown.agent)


def test_unknown_model_key_in_the_environment_is_refused(project):
    with pytest.raises(
        ConfigurationError,
        match=r"DELF_LLM__BASEURL: unknown key 'baseurl'; did you mean 'base_url'",
    ):
        project("", env={"DELF_LLM__BASEURL": "x"})


# Variables


def test_references_prefer_the_environment_to_dotenv(project):
    toml = "[agent.llm]\nmodel = 'm'\napi_key = '${KEY}'\n"
    assert project(toml, dotenv="KEY=file").agent.main_llm.api_key == "file"
    found = project(toml, dotenv="KEY=file", env={"KEY": "process"})
    assert found.agent.main_llm.api_key == "process"
    assert found.environ["KEY"] == "process"


def test_missing_variable_is_reported_only_when_the_agent_is_configured(project):
    found = project("[agent.llm]\nmodel = 'm'\napi_key = '${NO_KEY}'\n")
    with pytest.raises(
        EnvironmentKeyError, match=r"delf\.toml \[agent\] llm\.api_key: the variable NO_KEY"
    ):
        _ = found.agent


def test_overridden_reference_is_not_looked_up(project):
    toml = "[agent.llm]\nmodel = 'm'\napi_key = '${NO_KEY}'\n"
    assert project(toml, "llm.api_key=given").agent.main_llm.api_key == "given"


def test_flags_and_variables_are_not_substituted(project):
    found = project("", "system_prompt=${HOME}", env={"DELF_OUTPUT_DIR": "${HOME}"}).agent
    assert (found.system_prompt, found.output_dir) == ("${HOME}", "${HOME}")


def test_process_environment_is_never_written(project):
    before = dict(os.environ)
    project("", dotenv="ONLY_IN_DOTENV=1\nDELF_TIMEOUT=9\n")
    assert dict(os.environ) == before


def test_dotenv_beside_the_project_file_is_preferred(tmp_path):
    from delf_engine.project.project import load_project

    below = tmp_path / "below"
    below.mkdir()
    (tmp_path / "delf.toml").write_text("")
    (below / ".env").write_text("DELF_TIMEOUT=2\n")
    assert load_project(below, environ={}).agent.timeout == 2
    (tmp_path / ".env").write_text("DELF_TIMEOUT=1\n")
    assert load_project(below, environ={}).agent.timeout == 1


@pytest.mark.parametrize(
    ("variable", "suggestion"),
    [
        ("DELF_TIMOUT", "DELF_TIMEOUT"),
        ("DELF_LLM_BASE_URL", "DELF_LLM__BASE_URL"),
        ("DELF_LLM_API_KEY", "DELF_LLM__API_KEY"),
        ("DELF_AGENT__TIMEOUT", "DELF_TIMEOUT"),
        ("DELF_SANBOX", "DELF_SANDBOX"),
    ],
)
def test_misspelt_variable_causes_a_warning(project, variable, suggestion):
    found = project("", env={variable: "secret"})
    assert found.warnings == (f"{variable} is not a setting; did you mean {suggestion}?",)


def test_unrelated_variables_are_ignored(project):
    found = project(
        "[connections.timout]\n",
        env={
            "DELF_SHOP_URL": "x",
            "DELF_SQL_TIMEOUT": "3",
            "DELF_API_KEY": "x",
            "DELF_DISABLE_PLUGINS": "x",
            "DELF_TIMOUT_X": "x",
            "TIMEOUT": "x",
        },
    )
    assert found.warnings == ()


# --set


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("timeout", r"--set 'timeout' is not KEY=VALUE"),
        ("=5", r"--set '' is not KEY=VALUE"),
        ("a..b=5", r"is not KEY=VALUE"),
        ("timeot=5", r"--set timeot: unknown key 'timeot'; did you mean 'timeout'\?"),
        ("agent.timeot=5", r"did you mean 'timeout'\?"),
        ("llm.modell=5", r"--set llm\.modell: unknown key 'modell'; did you mean 'model'\?"),
        ("agent=5", r"--set agent: a section cannot be set as a whole"),
        ("connections.shop=5", r"--set connections\.shop: a section cannot be set as a whole"),
        ("connections.my-shop.url=5", r"'my-shop' cannot be called from a script"),
        ("connections.shop.name=5", r"'name' cannot be set here"),
        ("connections.shp.url=5", r"there is no such connection; did you mean 'shop'\?"),
    ],
)
def test_invalid_override_raises(project, text, message):
    with pytest.raises(ConfigurationError, match=message) as caught:
        project("[connections.shop]\ntype = 'sql'\n", text)
    assert caught.value.hint or "as a whole" in caught.value.message


# Sections


def test_project_reads_connections(project):
    found = project(
        """
        [connections.shop]
        type = "sql"
        url = "${SHOP_URL}"
        allow = ["schema", "query"]
        confirm = false
        pool = { size = 3 }

        [connections.tickets]
        """,
        "connections.shop.pool.size=4",
        "connections.tickets.allow=find,list",
        "connections.tickets.confirm=true",
        "connections.fresh.type=sql",
        env={"SHOP_URL": "sqlite://"},
    )
    assert list(found.connections) == ["shop", "tickets", "fresh"]
    shop = found.connections["shop"]
    assert (shop.name, shop.type, shop.allow, shop.confirm) == (
        "shop",
        "sql",
        ["schema", "query"],
        False,
    )
    assert shop.settings_not_overridden(()) == {"url": "sqlite://", "pool": {"size": "4"}}
    tickets = found.connections["tickets"]
    assert (tickets.type, tickets.allow, tickets.confirm) == ("tickets", ["find", "list"], True)
    assert tickets.settings_not_overridden(()) == {}
    assert found.connections["fresh"].type == "sql"


def test_unused_connection_may_have_a_missing_variable(project):
    found = project("[connections.shop]\nurl = '${NO_URL}'\n[agent]\ntimeout = 5\n")
    assert found.agent.timeout == 5
    with pytest.raises(
        EnvironmentKeyError, match=r"delf\.toml \[connections\.shop\] url: the variable NO_URL"
    ):
        found.connections["shop"].settings_not_overridden(())


def test_numeric_password_stays_text(project):
    found = project("[connections.shop]\n", "connections.shop.password=007")
    assert found.connections["shop"].settings_not_overridden(()) == {"password": "007"}


def test_project_reads_plugin_options(project):
    found = project(
        "[plugins.sandbox-local]\npool_size = 2\nimage = '${IMAGE}'\n[plugins.other]\nx = '${NO}'\n",
        "plugins.sandbox-local.pool_size=3",
        env={"IMAGE": "py"},
    )
    assert found.plugin_options["sandbox-local"] == {"pool_size": 3, "image": "py"}
    assert found.plugin_options.get("nope", {}) == {}
    assert list(found.plugin_options) == ["sandbox-local", "other"]
    with pytest.raises(EnvironmentKeyError, match=r"\[plugins\.other\] x"):
        _ = found.plugin_options["other"]


def test_environment_overrides_plugin_options_of_the_file(project):
    text = "[plugins.journal-sql]\nurl = '${NO}'\nlock_timeout = 30\nblob_bytes = 4096\n"
    env = {
        "DELF_JOURNAL_SQL_URL": "123.db",
        "DELF_JOURNAL_SQL_LOCK_TIMEOUT": "5",
        "DELF_JOURNAL_SQL_BLOB_BYTES": "",
    }
    found = project(text, "plugins.journal-sql.durability=power", env=env)
    assert found.plugin_options["journal-sql"] == {
        "url": "123.db",
        "lock_timeout": 5,
        "blob_bytes": 4096,
        "durability": "power",
    }
    more_direct = project(text, "plugins.journal-sql.lock_timeout=7", env=env)
    assert more_direct.plugin_options["journal-sql"]["lock_timeout"] == 7


def test_missing_model_is_reported_when_needed(project):
    agent = project("").agent
    with pytest.raises(ModelConfigurationError, match="no language model is configured"):
        _ = agent.main_llm


def test_preferred_plugin_wins_a_contested_name(project):
    found = project('[plugins]\nprefer = ["one", "two"]\n[plugins.sql]\nx = 1\n')
    assert found.environ["DELF_PREFER_PLUGINS"] == "one,two"
    assert list(found.plugin_options) == ["sql"]
    given = {"DELF_PREFER_PLUGINS": "three"}
    found = project('[plugins]\nprefer = ["one"]\n', env=given)
    assert found.environ["DELF_PREFER_PLUGINS"] == "three"
    with pytest.raises(ConfigurationError, match="prefer: it is not a list of names"):
        project('[plugins]\nprefer = "one"\n')
    with pytest.raises(ConfigurationError, match=r"'plugins\.prefr' .*; did you mean 'prefer'\?"):
        project('[plugins]\nprefr = ["one"]\n')


# Secrets


def test_project_secrets_include_every_section(project):
    found = project(
        """
        [agent]
        providers = { openai = "sk-of-the-agent" }
        [agent.llm]
        model = "m"
        headers = { "X-Team-Token" = "of-a-header" }
        [connections.shop]
        url = "postgresql://me:of-a-login@host/db"
        [plugins.memory-shelf]
        token = "${SHELF_TOKEN}"
        """,
        env={"SHELF_TOKEN": "of-a-plugin"},
    )
    wanted = {"sk-of-the-agent", "of-a-header", "of-a-login", "of-a-plugin"}
    assert wanted <= redactable(found.secrets())


def test_missing_variable_hides_no_other_secret(project):
    toml = "[plugins.a]\ntoken = '${NO_SUCH}'\n[plugins.b]\ntoken = 'hunter2'\n"
    assert "hunter2" in redactable(project(toml).secrets())
