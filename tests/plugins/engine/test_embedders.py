"""Tests of embedders: their names, one object for each, and any number of texts."""

import numpy as np
import pytest

from delf.errors import ConfigurationError, PluginError
from delf.protocols.context import PluginContext
from delf.specs import EmbedderSpec
from delf.testing import TestHost
from delf_engine.embedders import Embedders


class Counting:
    """An embedder that returns a text's length as its vector, and records the texts."""

    batch_size = 2
    dimension = 1

    def __init__(self, model="counting", factor=1.0, context=None):
        self.model = model
        self.factor = factor
        self.context = context
        self.given = []
        self.closed = 0

    async def embed(self, texts, kind="passage"):
        self.given.append((list(texts), kind))
        return [[self.factor * len(text)] for text in texts]

    async def aclose(self):
        self.closed += 1


def embedders_of(host, tmp_path, default=None, options=None, **fields):
    context = PluginContext(data_dir=tmp_path, **fields)
    return Embedders(host, options or {}, context, default)


@pytest.fixture
def host():
    return TestHost.discover(environ={}, no_plugins=True)


def add(host, name, *serves, factory=Counting, by_name=False):
    made = []

    def remember(*args, **kwargs):
        made.append(factory(*args, **kwargs))
        return made[-1]

    remember.__signature__ = __import__("inspect").signature(factory)
    host.provide(
        EmbedderSpec(name=name, summary="Made up.", factory="a:b", serves=serves, by_name=by_name),
        remember,
    )
    return made


def test_embedder_is_created_once_per_name(host, tmp_path):
    made = add(host, "mini", "mini-*")
    embedders = embedders_of(host, tmp_path)
    assert embedders.get("mini-1") is embedders.get("mini-1")
    assert embedders.get("mini-2") is not embedders.get("mini-1")
    assert [item.model for item in made] == ["mini-1", "mini-2"]


def test_single_embedder_is_the_default(host, tmp_path):
    made = add(host, "mini", "mini-*")
    assert embedders_of(host, tmp_path).get().model == "counting"
    assert [item.model for item in made] == ["counting"], "its own default, not the spec's name"


def test_agent_embedder_is_the_default(host, tmp_path):
    add(host, "mini")
    add(host, "maxi", "maxi-*")
    assert embedders_of(host, tmp_path, default="maxi-3").get().model == "maxi-3"


def test_several_embedders_require_a_name(host, tmp_path):
    add(host, "mini")
    add(host, "maxi")
    with pytest.raises(PluginError, match="several embedders are installed: maxi, mini") as caught:
        embedders_of(host, tmp_path).get()
    assert 'embedder = "…"' in (caught.value.hint or "")


def test_remote_embedder_is_used_only_if_named(host, tmp_path):
    add(host, "far", "far-*", by_name=True)
    with pytest.raises(PluginError, match="no embedder is installed"):
        embedders_of(host, tmp_path).get()
    add(host, "near")
    assert embedders_of(host, tmp_path).get().model == "counting"
    assert embedders_of(host, tmp_path).get("far-1").model == "far-1"


def test_missing_embedder_raises(host, tmp_path):
    with pytest.raises(PluginError, match="no embedder is installed"):
        embedders_of(host, tmp_path).get()
    # The recommended plugin may be the one that serves the name.
    with pytest.raises(PluginError, match=r"no embedder 'mini': plugin 'embed-static' .* disabled"):
        embedders_of(host, tmp_path).get("mini")


def test_longest_embedder_pattern_wins(host):
    add(host, "general", "*")
    add(host, "mini", "mini-*")
    assert host.spec(EmbedderSpec, "mini-3").name == "mini"
    assert host.spec(EmbedderSpec, "other").name == "general"


def test_equally_fitting_embedders_need_a_preference(host, tmp_path):
    add(host, "one", "m-*")
    add(host, "two", "m-*")
    with pytest.raises(PluginError, match="embedder 'm-1' is given by") as caught:
        embedders_of(host, tmp_path).get("m-1")
    assert "[plugins] prefer" in (caught.value.hint or "")


def test_disabled_embedder_plugin_is_named(host, tmp_path):
    with pytest.raises(PluginError, match=r"plugin 'model-http' .* is disabled: disabled by --no"):
        embedders_of(host, tmp_path).get("http:bge-small")


def test_embedder_options_come_from_its_plugin(host, tmp_path):
    made = add(host, "mini")
    embedders_of(host, tmp_path, options={"test-embedder-mini": {"factor": 3.0}}).get()
    assert made[0].factor == 3.0
    with pytest.raises(ConfigurationError, match="there is no setting 'size'"):
        embedders_of(host, tmp_path, options={"test-embedder-mini": {"size": 3}}).get()


def test_embedder_factory_may_take_a_context(host, tmp_path):
    made = add(host, "mini")
    embedders_of(host, tmp_path, environ={"KEY": "value"}, providers={"openai": "sk-1"}).get()
    assert made[0].context.environ == {"KEY": "value"}
    assert made[0].context.data_dir == tmp_path
    assert "sk-1" not in repr(made[0].context)


async def test_long_input_lists_are_embedded_in_batches(host, tmp_path):
    made = add(host, "mini")
    embedder = embedders_of(host, tmp_path).get()
    vectors = await embedder.embed(["a", "bb", "ccc", "dddd", "eee\ud83de"], "query")
    assert [list(row) for row in vectors] == [[1.0], [2.0], [3.0], [4.0], [5.0]]
    assert [(len(texts), kind) for texts, kind in made[0].given] == [(2, "query")] * 2 + [
        (1, "query")
    ]
    assert made[0].given[-1][0] == ["eee?e"], "half of a character is replaced"
    assert len(await embedder.embed([])) == 0
    assert len(made[0].given) == 3, "nothing was asked for nothing"


@pytest.mark.parametrize("count", [1, 3])
async def test_embedder_may_return_arrays(host, tmp_path, count):
    class Arrays(Counting):
        async def embed(self, texts, kind="passage"):
            return np.array(await super().embed(texts, kind))

    add(host, "mini", factory=Arrays)
    embedder = embedders_of(host, tmp_path).get()
    vectors = await embedder.embed(["bb"] * count)
    assert [list(row) for row in vectors] == [[2.0]] * count


async def test_embedder_is_closed_once(host, tmp_path):
    made = add(host, "mini")
    embedders = embedders_of(host, tmp_path)
    embedders.get()
    await embedders.aclose()
    await embedders.aclose()
    assert [item.closed for item in made] == [1]


def test_unknown_embedder_without_a_plugin_hints_at_the_recommended_plugin(tmp_path):
    with pytest.raises(PluginError) as caught:
        embedders_of(TestHost([]), tmp_path).get("minishlab/potion-base-8M")
    assert caught.value.hint == "delf plugins install embed-static"
