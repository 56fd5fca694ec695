"""Which prefilter chooses, and when."""

from pathlib import Path

import pytest

from delf.engine.prefilters import Prefilters
from delf.errors import PluginError
from delf.protocols.context import PluginContext
from delf.protocols.prefilter import Selection
from delf.specs import PrefilterSpec
from delf_devkit.testing.hosts import TestHost


@pytest.fixture
def host():
    return TestHost([])


def prefilters(host, mode):
    return Prefilters(host, {}, PluginContext(data_dir=Path()), mode)


class NamedPrefilter:
    def __init__(self, name):
        self.name = name

    async def select(self, task, catalog, ask):
        return Selection(names=(self.name,))


@pytest.mark.parametrize(
    ("mode", "actions", "served"),
    [
        ("auto", 9, None),
        ("auto", 10, "filter"),
        ("auto", 49, "filter"),
        ("auto", 50, "search"),
        ("off", 500, None),
        ("filter", 1, "filter"),
        ("search", 1, "search"),
    ],
)
def test_when_tools_are_filtered(host, mode, actions, served):
    for name in ("filter", "search"):
        spec = PrefilterSpec(name=name, summary="s", factory="x:y", modes=(name,))
        host.provide(spec, lambda name=name: NamedPrefilter(name))
    chosen = prefilters(host, mode)
    choice = chosen.choose(actions)
    assert (None if choice is None else choice.made().name) == served


def test_auto_prefers_a_prefilter_that_asks_no_model(host):
    for name, asks in (("search", True), ("semantic", False)):
        spec = PrefilterSpec(name=name, summary="s", factory="x:y", modes=(name,), asks=asks)
        host.provide(spec, lambda name=name: name)
    chosen = prefilters(host, "auto")
    assert chosen.choose(9) is None
    assert chosen.choose(500).mode == "semantic"


def test_without_a_plugin_auto_filters_nothing_and_a_wish_is_an_error(host):
    assert prefilters(host, "auto").choose(100) is None
    with pytest.raises(PluginError, match="no plugin serves prefilter_mode 'semantic'"):
        prefilters(host, "semantic")
