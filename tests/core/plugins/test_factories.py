"""Tests of a factory's options, and of objects that do not fit their kind of plugin."""

import inspect
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest
from pydantic import BaseModel

from delf import Agent, load_project
from delf.errors import ConfigurationError, PluginError
from delf.plugins.factories import check_options, make
from delf.protocols.context import PluginContext
from delf.settings import LocalPath
from delf.specs import ModelSpec, PrefilterSpec, Provider
from delf.testing import TestHost

if TYPE_CHECKING:
    from decimal import Decimal

SPEC = PrefilterSpec(name="words", summary="By words.", factory="a:b")
PLUGIN = "test-prefilter-words"


class Limits(BaseModel):
    most: int


class Words:
    def __init__(
        self,
        mode: str,
        most: int = 20,
        rules: dict[str, list[str]] | None = None,
        order: Literal["best", "first"] = "best",
        wait: timedelta = timedelta(0),
        path: LocalPath = "",
    ) -> None:
        self.given = (most, rules, order, wait, path)

    async def select(self, task, catalog, ask): ...


def made(options, factory=Words):
    host = TestHost.discover(environ={}, no_plugins=True)
    host.provide(SPEC, factory)
    return make(host, SPEC, {PLUGIN: options}, PluginContext(), {"mode": "words"})


def test_factory_options_are_converted_to_declared_types():
    options = {"most": "3", "rules": {"pay": ["book_*"]}, "order": "first", "wait": "PT2S"}
    assert made(options).given == (3, {"pay": ["book_*"]}, "first", timedelta(seconds=2), "")
    assert made({"path": 7}).given[-1] == "7"


def test_factory_options_of_a_model_are_converted():
    def words(limits: Limits) -> Words:
        return Words("words", most=limits.most)

    assert made({"limits": {"most": "3"}}, words).given[0] == 3
    with pytest.raises(ConfigurationError, match="limits: most: Field required"):
        made({"limits": {}}, words)


def test_relative_path_option_is_resolved_beside_delf_toml(tmp_path):
    (tmp_path / "delf.toml").write_text(f'[plugins.{PLUGIN}]\npath = "words.txt"\n')
    options = load_project(tmp_path, environ={}).plugin_options[PLUGIN]
    assert made(options).given[-1] == str(tmp_path / "words.txt")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"most": "many"}, "most: Input should be a valid integer"),
        ({"rules": "a"}, "rules: Input should be a valid dictionary"),
        ({"order": "worst"}, "order: Input should be 'best' or 'first'"),
        ({"moost": 3}, "there is no setting 'moost'; did you mean 'most'?"),
    ],
)
def test_invalid_option_error_names_plugin_and_option(options, says):
    with pytest.raises(ConfigurationError) as caught:
        made(options)
    assert caught.value.message.startswith(f"the prefilter 'words': [plugins.{PLUGIN}]")
    assert says in caught.value.message
    assert ("moost" in options) == (
        caught.value.hint == "its settings: mode, most, rules, order, wait, path"
    )


def test_factory_gets_its_context_and_options_as_keywords():
    taken = []

    def shape(context, **options):
        taken.append((context, options))
        return Words("words", **options)

    assert made({"most": 3}, shape).given[0] == 3
    assert isinstance(taken[0][0], PluginContext)
    assert taken[0][1] == {"most": 3}


def test_factory_context_has_the_providers_of_installed_plugins():
    acme = Provider(name="acme", models=("acme-*",))
    host = TestHost.discover(environ={}, no_plugins=True)
    host.provide(ModelSpec(name="acme", summary="Acme.", factory="a:b", providers=(acme,)), Words)
    contexts = []

    def shape(context):
        contexts.append(context)
        return Words("words")

    host.provide(SPEC, shape)
    make(host, SPEC, {}, PluginContext())
    assert contexts[0].installed_providers.for_model("acme-3") == acme


def test_missing_factory_argument_is_reported():
    with pytest.raises(ConfigurationError, match="missing a required argument: 'url'"):
        made({}, lambda url: Words("words"))


def test_type_imported_only_for_checkers_is_skipped():
    def late(most: "Decimal") -> object:
        return Words("words", most=most)  # pyright: ignore[reportArgumentType]

    assert made({"most": "3"}, late).given[0] == "3"


class Half:
    """A memory without the required method ``search``."""

    async def save(self, facts): ...

    async def aclose(self): ...


class Silent:
    async def solve(self, host):
        """Give nothing."""


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"strategy": Silent}, "strategy is the class Silent: give an object of it"),
        ({"strategy": Half()}, "strategy, a Half, has no solve"),
        ({"memory": Half}, "memory is the class Half: give an object of it"),
        ({"memory": Half()}, "memory, a Half, has no search, all, delete, clear"),
    ],
)
def test_object_of_the_wrong_kind_is_refused_at_start(given, says, scripted_model, delf_host):
    with pytest.raises(ConfigurationError) as caught:
        Agent(llm="scripted", host=delf_host, **given).start()
    assert caught.value.message == says


def test_plugin_object_without_required_members_is_refused():
    with pytest.raises(
        ConfigurationError, match="the prefilter 'words', a PosixPath, has no select"
    ):
        made({}, lambda: Path())


@pytest.mark.parametrize(
    ("factory", "says"),
    [(lambda: None, "returned None"), (Words("words"), "not a callable"), (dict, "no signature")],
)
def test_factory_that_makes_nothing_is_refused(factory, says):
    with pytest.raises(PluginError, match=r"the prefilter 'words' of .* cannot be made") as caught:
        made({}, factory)
    assert says in caught.value.message


def test_strategy_that_answers_without_text_is_reported(scripted_model, delf_host):
    with (
        Agent(llm="scripted", host=delf_host, strategy=Silent()) as agent,
        pytest.raises(PluginError, match="strategy Silent answered with NoneType in place of text"),
    ):
        agent.run("Say something.")


class TestOptionsOfAPlugin:
    """Tests of the keys that ``[plugins.NAME]`` may have, wherever the plugin declares them."""

    @pytest.mark.parametrize(
        ("plugin", "given", "says"),
        [
            ("serve", {"prt": 1}, "[plugins.serve]: there is no setting 'prt'"),
            ("serve", {"stream": 1}, "did you mean 'streams'?"),
            ("serve", {"streams": "many"}, "[plugins.serve] streams: "),
            ("journal-sql", {"ulr": "x"}, "did you mean 'url'?"),
            (
                "runner-dbos",
                {"queues": {"a": {"x": 1}}},
                "[plugins.runner-dbos] queues.a: there is no setting 'x'",
            ),
            ("approval-slack", {"chanel": "x"}, "there is no setting 'chanel'"),
            ("strategy-stream", {"x": 1}, "there is no setting 'x'"),
            ("otel", {"foo": 1}, "there is no setting 'foo'"),
            ("sandbox-local", {"pool_siz": 1}, "did you mean 'pool_size'?"),
            ("chat", {"keep": 1}, "[plugins.chat]: the plugin takes no options"),
            ("gmail", {"token": 1}, "[plugins.gmail]: the plugin takes no options"),
        ],
    )
    def test_unknown_option_is_refused(self, plugin, given, says):
        with pytest.raises(ConfigurationError) as caught:
            check_options(TestHost.discover(), plugin, given)
        assert says in caught.value.message

    @pytest.mark.parametrize(
        ("plugin", "given"),
        [
            ("serve", {"streams": 5}),
            ("approval-slack", {"channel": "C1"}),  # its tokens are in the server's environment
            ("runner-dbos", {"queues": {"a": {"per_second": 2}}}),
            ("otel", {"content": True}),
            ("chat", {}),
        ],
    )
    def test_declared_option_is_accepted(self, plugin, given):
        host = TestHost.discover()
        check_options(host, plugin, given)
        with pytest.raises(ConfigurationError, match="nonsense"):
            check_options(host, plugin, {**given, "nonsense": 1})

    def test_each_plugin_with_open_keywords_declares_its_settings(self):
        host = TestHost.discover()
        open_ended = {
            name
            for name in host.names
            for spec in host.specs_of(name)
            if spec.kind not in ("command", "connection", "format", "model")
            for parameter in inspect.signature(host.resolve(spec)).parameters.values()
            if parameter.kind is parameter.VAR_KEYWORD
        }
        assert {"serve", "journal-sql"} <= open_ended
        assert [name for name in open_ended if not host.settings_of(name)] == []
