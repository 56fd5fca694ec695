"""``delf config``: what applies, where from; changes that leave the rest of a file as it is."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from delf_cli.main import cli

FILE = """\
# the shop
[agent]
llm = "gpt-4o-mini"  # cheap
timeout = 30

[connections.shop]
type = "sql"
url = "${SHOP_URL}"
allow = ["query"]

[plugins.sandbox-local]
pool_size = 2
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "delf.toml").write_text(FILE)
    return tmp_path


def config(*arguments: str, status: int = 0, env: dict[str, str] | None = None) -> str:
    done = CliRunner().invoke(cli, ["config", *arguments], env=env)
    assert done.exit_code == status, done.output
    return done.stdout if status == 0 else done.stderr


def test_config_show_lists_each_value_with_its_source(here):
    env = {"DELF_TIMEOUT": "5", "DELF_SHOP_TIMEOUT": "7"}
    rows = {row["key"]: row for row in json.loads(config("show", "--json", env=env))}
    file = here / "delf.toml"
    assert {key: (row["value"], row["origin"]) for key, row in rows.items()} == {
        "agent.llm.model": ("gpt-4o-mini", f"{file} [agent] llm.model"),
        "agent.timeout": ("5", "DELF_TIMEOUT"),
        "connections.shop.type": ("sql", f"{file} [connections.shop] type"),
        "connections.shop.allow": (["query"], f"{file} [connections.shop] allow"),
        "connections.shop.url": ("${SHOP_URL}", f"{file} [connections.shop] url"),
        "connections.shop.timeout": ("7", "DELF_SHOP_TIMEOUT"),
        "plugins.sandbox-local.pool_size": (2, f"{file} [plugins.sandbox-local] pool_size"),
    }
    assert "connections.shop.url" in config("show")


def test_config_show_takes_a_variable_for_the_longest_name(here):
    (here / "delf.toml").write_text(f'{FILE}[connections.shop_eu]\ntype = "sql"\n')
    env = {"DELF_SHOP_TIMEOUT": "7", "DELF_SHOP_EU_TIMEOUT": "8"}
    rows = json.loads(config("show", "--json", env=env))
    found = {row["key"]: row["value"] for row in rows if row["key"].endswith("timeout")}
    assert found == {
        "agent.timeout": 30,
        "connections.shop.timeout": "7",
        "connections.shop_eu.timeout": "8",
    }


def test_config_commands_hide_secrets(here):
    (here / "delf.toml").write_text(
        '[agent.providers]\nopenai = "sk-planted-s3cret"\n[connections.shop]\ntype = "sql"\n'
        'url = "postgresql://me:planted-pw@host/shop"\n'
    )
    env = {"DELF_SHOP_PASSWORD": "other-planted-pw"}
    text = config("show", env=env) + config("show", "--json", env=env)
    text += config("get", "connections.shop.url") + config("get", "agent.providers")
    assert "planted" not in text
    assert "connections.shop.password" in text


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("agent.timeout", "30.0"),
        ("timeout", "30.0"),
        ("agent.retry_count", "1"),
        ("agent.llm", '{"model": "gpt-4o-mini"}'),
        ("agent.llm.model", "gpt-4o-mini"),
        ("connections.shop.url", "${SHOP_URL}"),
        ("plugins.sandbox-local.pool_size", "2"),
    ],
)
def test_config_get_returns_the_effective_value(here, key, value):
    assert config("get", key) == f"{value}\n"


def test_config_get_of_an_unknown_key_fails(here):
    assert config("get", "connections.shop.port", status=1) == "connections.shop.port is not set\n"
    assert "did you mean 'timeout'" in config("get", "agent.timout", status=2)


def test_config_set_keeps_other_lines_and_comments(here):
    config("set", "agent.timeout", "45")
    config("set", "agent.llm.base_url", "http://localhost:1/v1")
    config("set", "connections.shop.confirm", "true")
    config("set", "connections.mail.type", "gmail")
    config("set", "plugins.sandbox-local.pool_size", "3")
    assert (
        (here / "delf.toml").read_text()
        == """\
# the shop
[agent]
llm = {model = "gpt-4o-mini", base_url = "http://localhost:1/v1"}  # cheap
timeout = 45

[connections.shop]
type = "sql"
url = "${SHOP_URL}"
allow = ["query"]
confirm = true

[connections.mail]
type = "gmail"

[plugins.sandbox-local]
pool_size = 3
"""
    )
    assert config("get", "agent.timeout") == "45.0\n"


def test_config_set_of_a_model_table_changes_only_its_name(here):
    config("set", "agent.llm.base_url", "http://localhost:1/v1")
    config("set", "agent.llm", "gpt-4o")
    assert config("get", "agent.llm") == (
        '{"model": "gpt-4o", "base_url": "http://localhost:1/v1"}\n'
    )


def test_config_set_replaces_a_table_outside_of_the_agent(here):
    config("set", "plugins.search.roots.notes", "./notes")
    config("set", "plugins.search.roots", "./papers")
    assert config("get", "plugins.search") == '{"roots": "./papers"}\n'


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("agent.timout", "3", "unknown key 'timout'; did you mean 'timeout'?"),
        ("agent.timeout", "soon", "timeout: Input should be a valid number"),
        ("agent.retry_count", "99", "less than or equal to 20"),
        ("connections.mail.type", "gmial", "did you mean 'gmail'?"),
        ("connections.shop", "x", "a section cannot be set as a whole"),
        ("connections.shop.url.port", "1", "connections.shop.url is a single value"),
    ],
)
def test_config_set_refuses_an_invalid_value(here, key, value, message):
    assert message in config("set", key, value, status=2)
    assert (here / "delf.toml").read_text() == FILE


@pytest.mark.parametrize("key", ["agent.timeout", "connections.desk.allow.x"])
def test_config_set_names_the_key_as_the_user_wrote_it(here, key):
    error = config("set", key, "soon", status=2)
    assert error.startswith(f"error: {'.'.join(key.split('.')[:2])}")
    assert "--set" not in error


def test_config_set_creates_a_file_and_warns_of_an_override(here):
    (here / "delf.toml").unlink()
    done = CliRunner().invoke(cli, ["config", "set", "timeout", "3"], env={"DELF_TIMEOUT": "4"})
    assert (here / "delf.toml").read_text() == "[agent]\ntimeout = 3\n"
    assert "but in this folder, DELF_TIMEOUT overrides it" in done.stderr


KEY = {"OPENAI_API_KEY": "sk-none"}


def test_config_check_reports_findings(here):
    (here / "shop.db").touch()
    found = json.loads(config("check", "--json", env={"SHOP_URL": "sqlite:///shop.db", **KEY}))
    assert found["ok"]
    assert "variable SHOP_URL is not set" in CliRunner().invoke(cli, ["config", "check"]).stdout
    assert CliRunner().invoke(cli, ["config", "check"]).exit_code == 2


def test_config_check_reports_invalid_plugin_options(here):
    done = CliRunner().invoke(
        cli, ["config", "check"], env={"DELF_SANDBOX_LOCAL_POOL_SIZE": "many", "SHOP_URL": "x"}
    )
    assert done.exit_code == 2
    message = " ".join(done.stdout.split())
    assert (
        "✗ plugins the sandbox 'local': [plugins.sandbox-local] pool_size: Input should" in message
    )
