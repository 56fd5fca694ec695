"""Tests of which prefilter is used, and when."""

from pathlib import Path

import pytest

from delf.errors import PluginError
from delf.protocols.context import PluginContext
from delf.protocols.prefilter import Selection
from delf.specs import PrefilterSpec
from delf.tools.function import tool
from delf_devkit.testing.hosts import TestHost
from delf_engine.prefilters import Prefilters
from delf_engine.toolset import load_toolset


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


@pytest.mark.parametrize("mode", ["filter", "search"])
def test_requested_prefilter_mode_is_forced(host, mode):
    for name in ("filter", "search"):
        spec = PrefilterSpec(name=name, summary="s", factory="x:y", modes=(name,))
        host.provide(spec, lambda name=name: NamedPrefilter(name))
    choice = prefilters(host, mode).choose()
    assert (choice.load().name, choice.forced) == (mode, True)


def test_auto_mode_uses_only_a_free_prefilter(host):
    for name, asks in (("search", True), ("semantic", False)):
        chosen = prefilters(host, "auto").choose()
        assert chosen is None
        spec = PrefilterSpec(name=name, summary="s", factory="x:y", modes=(name,), asks=asks)
        host.provide(spec, lambda name=name: name)
    chosen = prefilters(host, "auto").choose()
    assert (chosen.mode, chosen.forced) == ("semantic", False)


def test_prefilter_mode_without_a_plugin_is_an_error(host):
    with pytest.raises(PluginError, match="no plugin serves prefilter_mode 'semantic'"):
        prefilters(host, "semantic")


async def test_copies_of_tools_share_a_catalog_that_is_made_later():
    @tool
    def search(words: str) -> list[str]:
        """Search."""
        return [words]

    tools = await load_toolset([search])
    first_task, second_task = tools.showing_questions(), tools.showing_questions()
    assert first_task.catalog() is second_task.catalog() is tools.catalog()
