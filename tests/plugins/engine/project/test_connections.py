from functools import partial

import pytest
from pydantic import Field

from delf.errors import (
    AgentConfirmationError,
    ConfigurationError,
    ConnectionConfigurationError,
    ConnectionUnavailableError,
    EnvironmentKeyError,
    PluginError,
)
from delf.hookspecs import hookimpl
from delf.packages.official import packages
from delf.plugins.host import PluginHost
from delf.settings import PluginSettings, SecretStr
from delf.specs import ConnectionSpec
from delf.tools.action import action
from delf.tools.connection import Connection


class TicketSettings(PluginSettings):
    url: SecretStr = Field(description="Where it is.")
    limit: int = Field(default=50, description="How many.")
    tags: list[str] = Field(default=[], description="Which.")


class Tickets(Connection[TicketSettings]):
    """The support desk."""

    @action(effect="read")
    async def find(self, status: str) -> list[str]:
        """Tickets in a state."""
        return [status]


class Custom:
    """A connection with a constructor of its own."""

    def __init__(self, spec, *, name, allow=None, confirm=None, depth=1, llm=None):
        self.made = (spec, name, allow, confirm, depth)
        self.llm = llm


class Dead:
    def __init__(self, **settings):
        raise ConnectionUnavailableError("no answer")


class Nameless(Connection):
    """A connection whose constructor forgets the name."""

    def __init__(self, depth: int = 1) -> None: ...


PARTIAL = partial(Nameless, depth=2)


class Buggy:
    def __init__(self, **settings):
        raise KeyError("oops")


NOT_CALLABLE = 3


class Plugin:
    @hookimpl
    def delf_connections(self):
        for name, attribute in {
            "tickets": "Tickets",
            "help-desk": "Tickets",
            "custom": "Custom",
            "dead": "Dead",
            "buggy": "Buggy",
            "three": "NOT_CALLABLE",
            "nameless": "Nameless",
            "partial": "PARTIAL",
        }.items():
            yield ConnectionSpec(name=name, summary="", factory=f"{__name__}:{attribute}")
        yield ConnectionSpec(
            name="files", summary="", factory=f"{__name__}:Nameless", input_files=True
        )


@pytest.fixture
def host():
    return PluginHost.discover(no_plugins=True, environ={}, extra=[("desk", Plugin())])


def test_named_connection_gets_its_settings(host, project):
    found = project(
        """
        [connections.shop]
        type = "tickets"
        url = "${URL}"
        limit = 3
        allow = "find"
        confirm = true
        """,
        env={"URL": "https://x"},
    )
    made = found.connector(host)("shop")
    assert isinstance(made, Tickets)
    assert (made.name, made.allow, made.confirm) == ("shop", ("find",), True)
    assert made.settings.url.get_secret_value() == "https://x"
    assert made.settings.limit == 3


def test_type_name_as_connection_reads_the_environment(host, project):
    made = project(env={"DELF_TICKETS_URL": "u"}).connector(host)("tickets")
    assert (made.name, made.settings.url.get_secret_value()) == ("tickets", "u")
    made = project(env={"DELF_HELP_DESK_URL": "u"}).connector(host)("help-desk")
    assert made.name == "help_desk"


def test_dotenv_of_the_project_applies_in_subfolders(host, tmp_path, monkeypatch):
    from delf_engine.project.project import load_project

    below = tmp_path / "below"
    below.mkdir()
    (tmp_path / "delf.toml").write_text("")
    (tmp_path / ".env").write_text("DELF_TICKETS_URL=from-dotenv\nOPENAI_API_KEY=other\n")
    (below / ".env").write_text("DELF_TICKETS_URL=not-this-one\n")
    monkeypatch.chdir(below)
    made = load_project(environ={}).connector(host)("tickets")
    assert made.settings.url.get_secret_value() == "from-dotenv"


def test_set_flag_overrides_environment_and_file(host, project):
    toml = "[connections.shop]\ntype = 'tickets'\nurl = '${NOT_NEEDED}'\nlimit = 1\n"
    env = {"DELF_SHOP_URL": "env", "DELF_SHOP_LIMIT": "2"}
    made = project(toml, env=env).connector(host)("shop")
    assert (made.settings.url.get_secret_value(), made.settings.limit) == ("env", 2)
    made = project(toml, "connections.shop.limit=3", env=env).connector(host)("shop")
    assert made.settings.limit == 3


def test_project_ignores_the_process_environment_if_variables_are_given(host, project, monkeypatch):
    monkeypatch.setenv("DELF_TICKETS_URL", "outside")
    with pytest.raises(ConnectionConfigurationError, match="setting 'url' is missing"):
        project().connector(host)("tickets")


@pytest.mark.parametrize(
    ("toml", "message"),
    [
        ("", r"\[connections\.shop\]: setting 'url' is missing \(or set DELF_SHOP_URL\)"),
        (
            "url = 'u'\nlimt = 3",
            r"\[connections\.shop\]: unknown setting 'limt'; did you mean 'limit'\?",
        ),
        (
            "url = 'u'\nlimit = 'x'",
            r"\[connections\.shop\]: limit: Input should be a valid integer",
        ),
        ("url = 'u'\nallow = 'fnd'", r"allow of 'shop' names 'fnd', .*; did you mean 'find'\?"),
        ("url = 'u'\nallow = 3", r"\[connections\.shop\]: allow of 'shop' is 3"),
    ],
)
def test_invalid_connection_settings_are_refused(host, project, toml, message):
    found = project(f"[connections.shop]\ntype = 'tickets'\n{toml}\n")
    with pytest.raises(ConnectionConfigurationError, match=message) as caught:
        found.connector(host)("shop")
    assert "delf.toml" in caught.value.message
    assert caught.value.hint


def test_invalid_confirm_raises_confirmation_error(host, project):
    found = project("[connections.shop]\ntype = 'tickets'\nurl = 'u'\nconfirm = ['x']\n")
    with pytest.raises(AgentConfirmationError, match=r"\[connections\.shop\]: confirm of 'shop'"):
        found.connector(host)("shop")


def test_invalid_variable_is_named_without_its_value(host, project):
    env = {"DELF_TICKETS_URL": "u", "DELF_TICKETS_LIMIT": "secret"}
    with pytest.raises(ConnectionConfigurationError, match="DELF_TICKETS_LIMIT: Input") as caught:
        project(env=env).connector(host)("tickets")
    assert "secret" not in caught.value.describe()
    env = {"DELF_TICKETS_URL": "u", "DELF_TICKETS_TAGS": "[secret,"}
    with pytest.raises(ConnectionConfigurationError, match="DELF_TICKETS_TAGS is not valid JSON"):
        project(env=env).connector(host)("tickets")


def test_missing_variable_is_named(host, project):
    found = project("[connections.shop]\ntype = 'tickets'\nurl = '${NOPE}'\n")
    with pytest.raises(EnvironmentKeyError, match=r"\[connections\.shop\] url: the variable NOPE"):
        found.connector(host)("shop")


def test_unknown_connection_name_is_refused(host, project, monkeypatch):
    found = project("[connections.shop]\ntype = 'tickets'\n")
    with pytest.raises(
        ConfigurationError, match=r"unknown connection 'shp'; did you mean 'shop'\?"
    ) as caught:
        found.connector(host)("shp")
    assert "configured: shop" in (caught.value.hint or "")
    with pytest.raises(PluginError, match=r"unknown connection 'tickts'; did you mean 'tickets'\?"):
        found.connector(host)("tickts")
    monkeypatch.setitem(packages("connection"), "notion", "delf-plugin-notion")
    with pytest.raises(PluginError, match="no connection 'notion' is installed") as caught:
        found.connector(host)("notion")
    assert caught.value.hint == "delf plugins install notion"


def test_unknown_type_error_names_its_section(host, project):
    found = project("[connections.shop]\ntype = 'tickts'\n")
    with pytest.raises(
        PluginError, match=r"\[connections\.shop\]: unknown connection 'tickts'; did you mean"
    ):
        found.connector(host)("shop")


def test_connection_section_without_a_type_suggests_one(host, project):
    found = project("[connections.store]\nurl = 'sqlite:///x.db'\n")
    with pytest.raises(PluginError, match=r"\[connections\.store\]") as caught:
        found.connector(host)("store")
    assert caught.value.hint.startswith(
        'give the connection a type, as in type = "sql"; installed: '
    )


def test_connection_with_a_custom_constructor_is_created(host, project):
    found = project(
        "[connections.api]\ntype = 'custom'\nspec = 'x.json'\ndepth = 2\nallow = false\n"
    )
    made = found.connector(host)("api")
    assert made.made == ("x.json", "api", False, None, 2)
    found = project("[connections.api]\ntype = 'custom'\nspec = 'x'\ndeepth = 2\n")
    with pytest.raises(
        ConnectionConfigurationError, match=r"unknown setting 'deepth'; did you mean 'depth'"
    ):
        found.connector(host)("api")
    with pytest.raises(ConnectionConfigurationError, match="setting 'spec' is missing"):
        project("").connector(host)("custom")


@pytest.mark.parametrize(
    ("kind", "constructor"), [("nameless", "Nameless"), ("partial", "its constructor")]
)
def test_constructor_without_the_common_parameters_is_an_error_of_its_plugin(
    host, project, kind, constructor
):
    with pytest.raises(PluginError, match=f"{constructor} does not take 'name'") as caught:
        project().connector(host)(kind)
    assert "super().__init__(**settings)" in caught.value.hint


def test_connection_of_tasks_with_files_cannot_be_chosen(host, project):
    with pytest.raises(ConnectionConfigurationError, match="with input files already has it"):
        project().connector(host)("files")


def test_model_of_a_connection_is_passed_as_it_is_written(host, project):
    found = project("[connections.api]\ntype = 'custom'\nspec = 'x'\nllm = 'small'\n")
    assert found.connector(host)("api").llm == "small"


def test_plugin_setting_error_names_the_plugin(host, project):
    with pytest.raises(ConnectionUnavailableError, match=r"^no answer$"):
        project().connector(host)("dead")
    with pytest.raises(
        PluginError, match="connection 'buggy': plugin 'desk' given in code failed"
    ) as caught:
        project().connector(host)("buggy")
    assert isinstance(caught.value.__cause__, KeyError)
    with pytest.raises(PluginError, match="is not a connection, but 3"):
        project().connector(host)("three")
