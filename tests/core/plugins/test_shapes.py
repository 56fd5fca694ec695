"""Tests that plain methods in place of async ones, and texts in place of messages, are reported."""

from __future__ import annotations

from importlib import import_module
from inspect import iscoroutinefunction
from pkgutil import iter_modules

import pytest

from delf import Agent, Connection, action, protocols
from delf.errors import ConfigurationError, DelfError, PluginError
from delf.hookspecs import HOOKS
from delf.members import ProtocolMeta, members
from delf.messages import Message, ModelReply, user
from delf.plugins.shapes import faults, optional_protocols, protocol_of
from delf.protocols.approval import Approved
from delf.specs import ApprovalSpec, ModelSpec, PrefilterSpec
from delf.tools.function import tool

PROTOCOLS = {spec.kind: protocol for spec in HOOKS.values() if (protocol := protocol_of(spec.kind))}


def plain(self, *given):
    return None


async def never(self, *given):
    return None


async def items(self, *given):
    yield None


def made(kind: str, **methods: object) -> object:
    """Make a complete object with some of its methods replaced."""
    whole: dict[str, object] = {}
    for name in members(PROTOCOLS[kind]):
        declared = getattr(PROTOCOLS[kind], name, None)
        whole[name] = never if iscoroutinefunction(declared) else plain
    return type("Made", (), {**whole, **methods})()


AWAITED = sorted(
    {
        (kind, name)
        for kind, main in PROTOCOLS.items()
        for protocol in (main, *optional_protocols(kind))
        for name in members(protocol)
        if iscoroutinefunction(getattr(protocol, name, None))
    }
)

OPTIONAL = {
    name: value
    for module in iter_modules(protocols.__path__, f"{protocols.__name__}.")
    for name, value in vars(import_module(module.name)).items()
    if name.startswith("Supports")
}

OF_OTHER_OBJECTS = {"SupportsRecording", "SupportsStore", "SupportsUsage"}
"""The optional protocols of objects that no hook brings, such as a sandbox's session."""


def test_each_optional_protocol_is_declared_by_a_kind():
    declared = {protocol for kind in PROTOCOLS for protocol in optional_protocols(kind)}
    assert {name for name, value in OPTIONAL.items() if value not in declared} == OF_OTHER_OBJECTS


class Wrapper:
    """Forwards everything to another object."""

    def __init__(self, inner: object) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)


@pytest.mark.parametrize("protocol", OPTIONAL.values())
def test_wrapper_implements_the_optional_protocols_of_its_object(protocol):
    assert type(protocol) is ProtocolMeta, "the check of typing differs between versions of Python"
    whole = dict.fromkeys(members(protocol), plain)
    assert isinstance(Wrapper(type("Made", (), whole)()), protocol)
    for name in whole:
        incomplete = {other: plain for other in whole if other != name}
        assert not isinstance(Wrapper(type("Made", (), incomplete)()), protocol)


@pytest.mark.parametrize(("kind", "name"), AWAITED)
def test_plain_method_in_place_of_an_async_method_is_reported(kind, name):
    assert list(faults(kind, made(kind))) == []
    shown = f"has a plain method {name}, which is awaited: write `async def {name}`"
    assert list(faults(kind, made(kind, **{name: plain}))) == [shown]
    assert list(faults(kind, type(made(kind, **{name: plain})))) == [shown]


def test_plain_method_that_returns_an_awaitable_is_accepted():
    def later(self, request) -> "Awaitable[None]":  # noqa: F821, UP037
        return never(self, request)

    assert list(faults("approval", made("approval", decide=later))) == []


@pytest.mark.parametrize(
    ("kind", "name", "shown"),
    [
        ("model", "stream", "an async method stream without `yield`"),
        ("journal", "subscribe", "an async method subscribe without `yield`"),
        ("approval", "can_ask", "an async method can_ask, which is not awaited: write `def can_"),
        ("sandbox", "visible_path", "an async method visible_path, which is not awaited"),
        ("connection", "is_stale", "an async method is_stale, which is not awaited"),
    ],
)
def test_async_method_in_place_of_a_plain_method_is_reported(kind, name, shown):
    (found,) = faults(kind, made(kind, **{name: never}))
    assert shown in found


def test_stream_method_that_yields_is_accepted():
    assert list(faults("model", made("model", stream=items))) == []


class Talks:
    """A strategy that passes the model whatever the test gives it."""

    asks: object = ()

    async def solve(self, host):
        await host.ask(self.asks)
        return "done"


@pytest.mark.parametrize(
    ("asks", "shown"),
    [
        ("Add.", "a list of messages, not str 'Add.'"),
        (["Add."], "needs messages, not the str 'Add.'"),
        (user("Add."), "a list of messages, not Message"),
        ([{"role": "user", "content": "Add."}], "not the dict {'role'"),
    ],
)
def test_texts_in_place_of_messages_are_reported(asks, shown, scripted_model, delf_host):
    class Mine(Talks):
        pass

    Mine.asks = asks
    with (
        Agent(llm="scripted", host=delf_host, strategy=Mine()) as agent,
        pytest.raises(PluginError) as caught,
    ):
        agent.run("x")
    assert shown in caught.value.message
    assert "user(text)" in str(caught.value.hint)


def test_message_with_text_in_place_of_parts_is_reported():
    with pytest.raises(DelfError, match="'hello' is a text"):
        Message("user", "hello")  # pyright: ignore[reportArgumentType]


class Model:
    """A model that answers what the test gives it."""

    gives: object = "hello"

    def __init__(self, context, config):
        pass

    async def complete(self, request):
        return self.gives

    async def stream(self, request):
        yield self.gives

    async def aclose(self): ...


class PlainModel(Model):
    def complete(self, request):
        return ModelReply(text="x", model="m", cost_usd=0.0)


class Desk(Connection):
    """A desk."""

    @action(effect="read")
    def find(self) -> str:
        """Find."""
        return "x"

    def context(self, task):
        return "facts"


def test_object_of_wrong_kind_is_reported(delf_host):
    delf_host.provide(ModelSpec(name="m", summary="M.", factory="x:y", serves=("mine",)), Model)
    for stream in (False, True):
        with (
            Agent(llm="mine", host=delf_host, stream=stream) as agent,
            pytest.raises(PluginError, match="str in place of ModelReply"),
        ):
            agent.run("x")


def test_plain_method_is_reported_at_agent_start(scripted_model, delf_host):
    spec = ModelSpec(name="m", summary="M.", factory="x:y", serves=("mine",))
    delf_host.provide(spec, PlainModel)
    with pytest.raises(ConfigurationError, match="the model 'm', a PlainModel, has a plain method"):
        Agent(llm="mine", host=delf_host).start()
    with pytest.raises(ConfigurationError, match="the connection 'desk', a Desk, has a plain"):
        Agent(llm="scripted", tools=[Desk()], host=delf_host).start()
    with pytest.raises(ConfigurationError, match="has a plain method solve"):
        Agent(llm="scripted", host=delf_host, strategy=made("strategy", solve=plain)).start()
    asks = ApprovalSpec(name="pager", summary="P.", factory="x:y", needs_presence=False)
    delf_host.provide(asks, lambda: made("approval", decide=lambda self, request: Approved()))
    with pytest.raises(ConfigurationError, match="the approval 'pager', a Made, has a plain"):
        Agent(llm="scripted", host=delf_host, approvals=["pager"]).start()


def test_wrong_return_types_of_prefilter_and_memory_are_reported(scripted_model, delf_host):
    @tool(effect="read")
    def find() -> str:
        """Find."""
        return "x"

    async def select(self, task, catalog, ask):
        return ["find"]

    async def search(self, *given):
        return ["a fact"]

    spec = PrefilterSpec(name="words", summary="W.", factory="x:y")
    delf_host.provide(spec, lambda: made("prefilter", select=select))
    options = {"llm": "scripted", "host": delf_host, "tools": [find]}
    scripted_model.writes("print(1)", "print(1)")
    with Agent(prefilter_mode="words", **options) as agent:
        assert "list in place of Selection" in str(agent.run("x").error)
    with Agent(memory=made("memory", search=search), **options) as agent:
        response = agent.run("x")
    assert any("str in place of Fact" in warning for warning in response.trace.warnings)
