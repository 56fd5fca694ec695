"""Tests that public attributes either take effect when set, or cannot be set."""

from __future__ import annotations

import inspect
import pickle
from collections.abc import MutableMapping, MutableSequence, MutableSet

import pytest

from delf import Agent, AgentConfig, Chat, ConfigurationError, LLMConfig, Memory, tool
from delf.attributes import FixedAttributes
from delf.errors import FixedAttributeError
from delf_engine.options import AgentOptions

EFFECTIVE = {(Agent, "chat")}
"""Attributes that can be set; tests of their own show the effect."""


@tool(confirm=False, effect="read")
def look() -> str:
    """Look."""
    return "seen"


@pytest.fixture
def objects(delf_host, tmp_path):
    settings = {"temperature": 0.5}
    config = AgentConfig(llm=LLMConfig("scripted", settings=settings), providers={"openai": "k"})
    agent = Agent(config, tools=[look], chat=True, host=delf_host, sandbox="local")
    yield [agent, Chat(), Memory(path=tmp_path / "memory.db"), config, config.llm]
    agent.stop()


def public_attributes(thing):
    """Return the names of an object's public attributes, properties and constructor parameters."""
    kind = type(thing)
    names = {name for name in vars(thing) if not name.startswith("_")}
    names |= {n for n, v in inspect.getmembers_static(kind) if isinstance(v, property)}
    names |= set(inspect.signature(kind).parameters) - {"options"}
    if kind is Agent:
        names |= set(AgentOptions.__annotations__) - {"config"}
    if isinstance(thing, AgentConfig):
        names |= set(AgentConfig.model_fields)
    return sorted(name for name in names if not name.startswith(("_", "model_")))


def test_attributes_without_effect_cannot_be_set(objects):
    taken = []
    for thing in objects:
        for name in public_attributes(thing):
            if (type(thing), name) in EFFECTIVE or name in ("config", "host", "project"):
                continue
            try:
                setattr(thing, name, None)
            except (AttributeError, ConfigurationError):
                continue
            taken.append(f"{type(thing).__name__}.{name}")
    assert taken == []


def test_public_attribute_values_are_immutable(objects):
    changeable = []
    for thing in objects:
        if not isinstance(thing, (Agent, AgentConfig, LLMConfig)):
            continue
        for name in public_attributes(thing):
            value = inspect.getattr_static(thing, name, None)
            if isinstance(value, property):
                continue
            if isinstance(value, (MutableSequence, MutableSet)):
                changeable.append(name)
            if isinstance(value, MutableMapping):
                for change in (lambda v: v.update(a=1), lambda v: v.pop("a", None), dict.clear):
                    with pytest.raises(FixedAttributeError):
                        change(value) if change is not dict.clear else value.clear()
    assert changeable == []


def test_fixed_attribute_error_suggests_a_new_agent(objects):
    agent, chat, *_ = objects
    with pytest.raises(FixedAttributeError) as refused:
        agent.on_confirm = print
    assert refused.value.describe() == (
        "ERR-CONFIG-003: Agent.on_confirm cannot be set once it was made (hint: make another agent "
        "with on_confirm=…, as Agent(agent.config, on_confirm=…) does)"
    )
    with pytest.raises(FixedAttributeError, match=r"Chat\.keep cannot be set"):
        chat.keep = 3


def test_subclass_may_have_its_own_attributes(delf_host):
    class Named(Agent):
        def __init__(self):
            super().__init__(llm="scripted", host=delf_host)
            self.team = "sales"

        def move(self, team):
            self.floor = team

    agent = Named()
    agent.move("second")
    assert (agent.team, agent.floor) == ("sales", "second")
    assert issubclass(Agent, FixedAttributes)


@pytest.mark.parametrize(
    ("place", "name", "meant"),
    [
        (0, "tmeout", "; did you mean 'timeout'?"),
        (0, "on_confrim", "; did you mean 'on_confirm'?"),
        (0, "memry", "; did you mean 'memory'?"),
        (0, "colour_of_the_sky", ""),
        (1, "keeep", "; did you mean 'keep'?"),
        (1, "history_windw", "; did you mean 'history_window'?"),
    ],
)
def test_misspelt_attribute_is_refused(objects, place, name, meant):
    thing = objects[place]
    with pytest.raises(FixedAttributeError) as refused:
        setattr(thing, name, 5)
    assert refused.value.message == f"{type(thing).__name__} has no attribute {name!r}{meant}"
    assert not hasattr(thing, name)


def test_frozen_mapping_can_be_copied_to_a_dict():
    config = AgentConfig(llm="scripted", sandbox_config={"cpu_seconds": 3})
    assert pickle.loads(pickle.dumps(config)).sandbox_config == {"cpu_seconds": 3}
    assert config.model_copy(deep=True) == config


class TestRights:
    def test_allow_and_confirm_assigned_later_apply_to_the_next_task(
        self, delf_host, scripted_model
    ):
        @tool(effect="write", confirm=False)
        def change() -> str:
            """Change something."""
            return "changed"

        scripted_model.writes(*["print(await change())"] * 3)
        asked = []
        agent = Agent(
            llm="scripted", tools=[change], host=delf_host, sandbox="local", retry_count=0,
            on_confirm=lambda request: asked.append(request.action) or True,
        )  # fmt: skip
        with agent:
            assert agent.run("one").text == "changed"
            assert asked == []
            change.confirm = True
            assert agent.run("two").text == "changed"
            assert asked == ["change"]
            change.allow = False
            assert not agent.run("three").status

    def test_setting_allow_to_an_unknown_name_is_refused(self, delf_host, scripted_model):
        @tool(effect="write")
        def change() -> str:
            """Change something."""
            return "changed"

        scripted_model.writes("print(1)", "print(1)")
        with Agent(llm="scripted", tools=[change], host=delf_host, sandbox="local") as agent:
            agent.run("one")
            change.allow = ["chnage"]
            with pytest.raises(ConfigurationError, match="did you mean 'change'"):
                agent.run("two")
