"""Tests that the error for an unknown name lists the plugins that failed to load."""

import sys
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from delf import Agent
from delf.errors import DelfError, ModelConfigurationError, PluginError
from delf.hookspecs import hookimpl
from delf.llm import LLMConfig
from delf.protocols.context import PluginContext
from delf.specs import ConnectionSpec, FormatSpec, ModelSpec, StrategySpec
from delf.testing import DelfProject, ScriptedModel, TestHost
from delf_cli.session import Options, restore_options
from delf_cli.state import State
from delf_engine.config import AgentConfig
from delf_engine.embedders import Embedders
from delf_engine.formats import Formats
from delf_engine.journal.factory import make_journal, need_durable_journal
from delf_engine.models.pool import ModelPool
from delf_engine.sandboxes.starting import choose_sandbox

REASON = "plugin 'mine' is failed: delf_models raised NameError: no such name"


@hookimpl
def delf_models() -> None:
    raise NameError("no such name")


class Unsure(ScriptedModel):
    """A model plugin that serves every name, and finds out later that a name is unknown."""

    def __init__(self, config: LLMConfig) -> None:
        super().__init__()
        if config.model == "fake":
            raise ModelConfigurationError("no provider is known")

    async def check(self) -> None:
        raise ModelConfigurationError("no provider is known")


@pytest.fixture
def host() -> TestHost:
    faulty = ModuleType("mine")
    faulty.__dict__["delf_models"] = delf_models
    host = TestHost.discover(environ={}, no_plugins=True, extra=[("mine", faulty)])
    host.provide(ModelSpec(name="any", summary="s", factory="x:y", serves=("*",)), Unsure)
    return host


async def _check(host: TestHost, model: str) -> None:
    await ModelPool(host, PluginContext()).check(LLMConfig(model))


async def _sandbox(host: TestHost, name: str) -> None:
    await choose_sandbox(host, AgentConfig(sandbox=name), {})


async def _embedder(host: TestHost, name: str | None = None) -> None:
    Embedders(host, {}, PluginContext()).get(name)


async def _journal(host: TestHost) -> None:
    make_journal(host, "fake", {}, {})


async def _durable(host: TestHost) -> None:
    need_durable_journal(host, "a test")


async def _format(host: TestHost) -> None:
    Formats(host).writer(".fake")


@pytest.mark.parametrize(
    "ask",
    [
        pytest.param(partial(_check, model="fake"), id="model refused when made"),
        pytest.param(partial(_check, model="fake/large"), id="model refused later"),
        pytest.param(partial(_sandbox, name="fake"), id="sandbox"),
        pytest.param(partial(_sandbox, name="auto"), id="no sandbox"),
        pytest.param(partial(_embedder, name="fake"), id="embedder"),
        pytest.param(_embedder, id="no embedder"),
        pytest.param(_journal, id="journal"),
        pytest.param(_durable, id="no journal"),
        pytest.param(_format, id="format"),
    ],
)
async def test_error_for_an_unresolved_name_names_faulty_plugins(
    ask: Callable[[TestHost], Awaitable[None]], host: TestHost
) -> None:
    with pytest.raises(DelfError) as caught:
        await ask(host)
    assert (caught.value.hint or "").startswith(REASON)
    assert str(caught.value.hint).count(REASON) == 1


@pytest.mark.parametrize(
    ("option", "kind"),
    [
        ({"memory": "unheard-of"}, "memory"),
        ({"strategy": "unheard-of"}, "strategy"),
        ({"observers": ("unheard-of",)}, "observer"),
        ({"prefilter_mode": "unheard-of"}, "prefilter"),
        ({"memory": "auto"}, "memory"),
    ],
)
async def test_agent_with_an_unknown_plugin_does_not_start(
    option: dict[str, Any], kind: str, scripted_model: ScriptedModel
) -> None:
    host = TestHost.discover(environ={})
    host.provide(scripted_model.spec, scripted_model.factory)
    agent = Agent(config=AgentConfig(llm="scripted", **option), host=host)
    with pytest.raises(PluginError, match=f"unknown {kind} '(unheard-of|auto)'"):
        await agent.astart()


async def test_plugin_that_only_some_tasks_use_is_looked_up_at_the_start(
    scripted_model: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AgentConfig, "plugins", lambda _: iter([(FormatSpec, "unheard-of")]))
    host = TestHost.discover(environ={})
    host.provide(scripted_model.spec, scripted_model.factory)
    with pytest.raises(PluginError, match="unknown format 'unheard-of'"):
        await Agent(tools=[], llm="scripted", host=host).astart()


async def test_strategy_given_as_an_object_needs_no_installed_strategy(
    scripted_model: ScriptedModel,
) -> None:
    host = TestHost.discover(environ={})
    host.provide(scripted_model.spec, scripted_model.factory)
    config = AgentConfig(llm="scripted", strategy="unheard-of")
    strategy = host.resolve(host.spec(StrategySpec, "codegen"))()
    async with Agent(config=config, host=host, strategy=strategy) as agent:
        assert agent.started


FAULTY = "from delf.hookspecs import hookimpl\n@hookimpl\ndef delf_models(): return [ModelSpec()]"


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "Look it up.", "--llm", "fake"),
        ("run", "Look it up.", "--llm", "gpt-4o", "--strategy", "fake"),
        ("run", "Look it up.", "--llm", "gpt-4o", "-c", "fake"),
        ("fake",),
        ("ruk",),
    ],
)
def test_command_names_the_faulty_hook_of_a_plugin_file(
    arguments: tuple[str, ...], delf_project: DelfProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    delf_project.write("faulty_hooks.py", FAULTY)
    monkeypatch.setitem(sys.modules, "faulty_hooks", ModuleType("faulty_hooks"))
    del sys.modules["faulty_hooks"]  # the test ends without the module, as it begins
    outcome = delf_project.run("--plugin", "faulty_hooks.py", *arguments)
    assert outcome.exit_code == 2
    assert "plugin 'faulty_hooks' is failed: delf_models raised NameError" in outcome.stderr


def test_resumed_task_names_the_plugin_files_that_it_began_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("begun_desk", "begun_lamp"):
        (tmp_path / f"{name}.py").write_text("")
    begun = State(plugin=("begun_desk.py", "begun_lamp.py"), no_plugins=True)
    record = Options(flags={}).to_record(begun)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    resumed = State(plugin=("../begun_desk.py",), no_plugins=True)
    restore_options(resumed, Options(flags={}), record)
    with pytest.raises(DelfError) as caught:
        resumed.discover().spec(ConnectionSpec, "lamp")
    lost = tmp_path / "begun_lamp.py"
    assert str(caught.value.hint).startswith(
        f"plugin 'begun_lamp' is failed: the task began with --plugin {lost}: give this file again"
    )
    assert "begun_desk" not in str(caught.value.hint)
