import pickle
from pathlib import Path
from typing import Annotated

import pytest
from pydantic import Field, field_validator

from delf.environment import (
    EnvFile,
    FileText,
    SourcedText,
    current_environ,
    source_of,
    using_environ,
)
from delf.errors import ConfigurationError, ConnectionConfigurationError, KeyAddressError
from delf.settings import LocalPath, OneOrMore, PluginSettings, SecretStr


class Shop(PluginSettings):
    url: SecretStr = Field(description="Where it is.")
    limit: int = Field(default=10, description="How many.")
    tags: list[str] = Field(default=[], description="Which.")

    @field_validator("limit")
    @classmethod
    def _positive(cls, value):
        if value < 0:
            raise ValueError("it cannot be negative")
        return value


@pytest.fixture(autouse=True)
def somewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def url(settings):
    return settings.url.get_secret_value()


@pytest.mark.parametrize("given", ["lamps", ["lamps"], ("lamps",)])
def test_setting_of_several_values_accepts_one_value(given):
    class Shelf(PluginSettings):
        labels: Annotated[tuple[str, ...], OneOrMore] = Field(default=(), description="Which.")

    assert Shelf.for_instance("shelf", {"labels": given}).labels == ("lamps",)
    assert Shelf.for_instance("shelf", {}).labels == ()


def test_settings_prefer_code_then_environment_then_dotenv(somewhere, monkeypatch):
    assert Shop.for_instance("shop", {"url": "code"}).limit == 10
    (somewhere / ".env").write_text("DELF_SHOP_URL=dotenv\nDELF_SHOP_LIMIT=1\n")
    assert url(Shop.for_instance("shop", {})) == "dotenv"
    monkeypatch.setenv("DELF_SHOP_URL", "env")
    assert url(Shop.for_instance("shop", {})) == "env"
    made = Shop.for_instance("shop", {"url": "code"})
    assert (url(made), made.limit) == ("code", 1)


def test_each_instance_reads_its_own_variables(monkeypatch):
    monkeypatch.setenv("DELF_SHOP_URL", "one")
    monkeypatch.setenv("DELF_STORE_URL", "two")
    assert url(Shop.for_instance("shop", {})) == "one"
    assert url(Shop.for_instance("store", {})) == "two"
    monkeypatch.setenv("URL", "neither")
    with pytest.raises(ConnectionConfigurationError):
        Shop.for_instance("other", {})


def test_settings_treat_none_and_empty_as_not_given(monkeypatch):
    monkeypatch.setenv("DELF_SHOP_LIMIT", "")
    assert Shop.for_instance("shop", {"url": "u", "limit": None}).limit == 10


def test_settings_read_a_given_environment(somewhere, monkeypatch):
    (somewhere / ".env").write_text("DELF_SHOP_LIMIT=1\n")
    monkeypatch.setenv("DELF_SHOP_LIMIT", "2")
    with using_environ({"DELF_SHOP_URL": "given"}):
        made = Shop.for_instance("shop", {})
        assert dict(current_environ()) == {"DELF_SHOP_URL": "given"}
    assert (url(made), made.limit) == ("given", 10)
    assert Shop.for_instance("shop", {"url": "u"}).limit == 2


@pytest.mark.parametrize(
    ("values", "environ", "message"),
    [
        ({}, {}, r"shop: setting 'url' is missing \(or set DELF_SHOP_URL\)"),
        ({"url": "u", "limt": 1}, {}, r"shop: unknown setting 'limt'; did you mean 'limit'\?"),
        ({"url": "u", "limit": "secret"}, {}, r"shop: limit: Input should be a valid integer"),
        ({"url": "u", "limit": -1}, {}, r"shop: limit: it cannot be negative"),
        ({"url": "u"}, {"DELF_SHOP_LIMIT": "secret"}, r"shop: DELF_SHOP_LIMIT: Input should be"),
        ({"url": "u"}, {"DELF_SHOP_TAGS": "[secret"}, r"shop: DELF_SHOP_TAGS is not valid JSON"),
        ({"url": 3}, {}, r"shop: url: Input should be a valid string"),
    ],
)
def test_invalid_setting_is_named_without_its_value(values, environ, message):
    with (
        using_environ(environ),
        pytest.raises(ConnectionConfigurationError, match=message) as caught,
    ):
        Shop.for_instance("shop", values)
    assert "secret" not in caught.value.describe()
    assert caught.value.__cause__ is None
    assert caught.value.hint


def test_settings_are_frozen_and_hide_their_secrets():
    made = Shop.for_instance("shop", {"url": "hunter2"})
    assert "hunter2" not in repr(made) + str(made) + made.model_dump_json()
    with pytest.raises(ValueError, match="frozen"):
        made.limit = 3


# paths


class Papers(PluginSettings):
    """Settings with paths."""

    folder: LocalPath | None = Field(default=None, description="Where.")
    others: tuple[LocalPath, ...] = Field(default=(), description="Where else.")


@pytest.mark.parametrize(
    ("written", "path"),
    [
        ("papers", "/p/papers"),
        ("../papers", "/p/../papers"),
        ("/papers", "/papers"),
        ("https://host/papers", "https://host/papers"),
        ("file:papers", "file:papers"),
        ("", ""),
    ],
)
def test_path_in_a_settings_file_is_relative_to_its_folder(written, path):
    of_file = FileText(written, Path("/p"))
    made = Papers.for_instance("x", {"folder": of_file, "others": [of_file, "here"]})
    assert (made.folder, made.others) == (path, (path, "here"))
    assert Papers.for_instance("x", {"folder": written}).folder == written


def test_tilde_in_a_settings_file_is_expanded(monkeypatch):
    monkeypatch.setenv("HOME", "/home/ada")
    made = Papers.for_instance("x", {"folder": FileText("~/papers", Path("/p"))})
    assert made.folder == "/home/ada/papers"


def test_file_text_behaves_as_str():
    text = FileText("a", Path("/p"))
    assert (text, repr(text), pickle.loads(pickle.dumps(text)).folder) == ("a", "'a'", Path("/p"))


# .env files


def read(path, text, **environ):
    path.write_text(text)
    file = EnvFile.read(path)
    return file.variables(environ), [*file.warnings]


def test_dotenv_file_supports_quotes_export_and_references(somewhere):
    values, warnings = read(
        somewhere / ".env",
        "# comment\nA=1\nexport B='two words'\nC=\"${A}-${OUTSIDE}-${NOPE:-no}\"\nEMPTY=\nD\nE=a#b\n",
        OUTSIDE="out",
    )
    assert values == {"A": "1", "B": "two words", "C": "1-out-no", "EMPTY": "", "E": "a#b"}
    assert warnings == []


def test_dotenv_line_without_assignment_causes_a_warning(somewhere):
    path = somewhere / ".env"
    values, warnings = read(path, "A=1\nsome secret words\nB=2\n")
    assert values == {"A": "1", "B": "2"}
    assert warnings == [f"{path}:2: this line is not NAME=VALUE"]


def test_missing_dotenv_is_empty_and_binary_dotenv_raises(somewhere):
    assert EnvFile.read(somewhere / "none").variables({}) == {}
    (somewhere / ".env").write_bytes(b"A=\xff")
    with pytest.raises(ConfigurationError, match=r"\.env is not UTF-8 text"):
        EnvFile.read(somewhere / ".env")


# who gave what


class Service(PluginSettings):
    """A service behind an address, with a key."""

    base_url: str | None = Field(default=None, description="Where.")
    server: str | None = Field(default=None, description="Where, too.")
    token: SecretStr | None = Field(default=None, description="The key.")
    headers: dict[str, SecretStr] = Field(default={}, description="More of them.")
    limit: int = Field(default=1, description="How many.")


FILE = Path("/p")


@pytest.mark.parametrize(
    ("variables", "given"),
    [
        ({"DELF_S_TOKEN": "hunter2"}, {"base_url": FileText("evil.test", FILE)}),
        ({"DELF_S_TOKEN": "hunter2"}, {"server": FileText("http://evil.test", FILE)}),
        ({"delf_s_token": "hunter2"}, {"base_url": FileText("evil.test", FILE)}),
        (
            {"DELF_S_HEADERS": '{"X-Key": "hunter2"}'},
            {"base_url": FileText("http://evil.test", FILE)},
        ),
        (
            {"DELF_S_TOKEN": "hunter2", "DELF_S_BASE_URL": SourcedText("evil.test", "project")},
            {},
        ),
    ],
)
def test_environment_secret_is_refused_for_an_address_from_a_file(variables, given):
    with using_environ(variables), pytest.raises(KeyAddressError) as caught:
        Service.for_instance("s", given)
    assert "in the environment (DELF_S_" in caught.value.message
    assert "${DELF_S_" in (caught.value.hint or "")
    assert "hunter2" not in caught.value.describe()


@pytest.mark.parametrize(
    ("variables", "given"),
    [
        ({"DELF_S_TOKEN": "k", "DELF_S_BASE_URL": "http://mine"}, {}),
        ({"DELF_S_TOKEN": "k"}, {"base_url": "http://of-the-program"}),
        ({"DELF_S_TOKEN": "k"}, {"base_url": SourcedText("http://typed", "command line")}),
        ({"DELF_S_TOKEN": SourcedText("k", "project")}, {"base_url": FileText("http://f", FILE)}),
        ({}, {"base_url": FileText("http://f", FILE), "token": FileText("k", FILE)}),
        ({"DELF_S_TOKEN": "k"}, {"base_url": FileText("http://f", FILE), "token": "k"}),
        ({"DELF_S_LIMIT": "3"}, {"base_url": FileText("http://f", FILE)}),
        ({"DELF_S_TOKEN": "k"}, {"limit": FileText("3", FILE)}),
    ],
)
def test_address_and_secret_of_one_source_are_accepted(variables, given):
    with using_environ(variables):
        made = Service.for_instance("s", given)
    got = {name: getattr(made, name) for name in given}
    plain = {
        n: v.get_secret_value() if isinstance(v, SecretStr) else str(v) for n, v in got.items()
    }
    assert plain == {name: str(value) for name, value in given.items()}


def test_settings_report_the_source_of_each_value():
    with using_environ({"DELF_S_LIMIT": "3", "DELF_S_SERVER": SourcedText("x", "project")}):
        made = Service.for_instance("s", {"base_url": FileText("u", FILE), "token": "k"})
    fields = ("limit", "server", "base_url", "token", "headers")
    assert [made.source(name) for name in fields] == [
        "environment",
        "project",
        "project",
        "program",
        "program",
    ]


def test_dotenv_variables_record_their_source(somewhere, monkeypatch):
    monkeypatch.setenv("MINE", "mine")
    values, _ = read(somewhere / ".env", "A=${MINE}\nMINE=theirs\n", MINE="mine")
    assert {name: source_of(value) for name, value in values.items()} == {
        "A": "project",
        "MINE": "project",
    }
    assert source_of(current_environ()["MINE"], "environment") == "environment"
