"""Static embeddings over small weights that are made here."""

from pathlib import Path

import numpy as np
import pytest
from model2vec import StaticModel
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.normalizers import Lowercase
from tokenizers.pre_tokenizers import Whitespace

from delf.errors import ConfigurationError
from delf.testing import EmbedderContract, PluginContract
from delf_embed_static.embedder import StaticEmbedder

WORDS = [
    "office",
    "city",
    "closes",
    "turin",
    "zoë",
    "tea",
    "six",
    "prefers",
    "the",
    "is",
    "in",
    "at",
    "of",
    "which",
]


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    """Weights with a vector of its own for each meaningful word, and a short one for the others."""
    vocabulary = {"[UNK]": 0, "[PAD]": 1} | {word: n + 2 for n, word in enumerate(WORDS)}
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = Lowercase()
    tokenizer.pre_tokenizer = Whitespace()
    vectors = np.eye(len(vocabulary), 32, dtype="float32")
    vectors[2 + WORDS.index("the") :] *= 0.1
    vectors[0] *= 0.01
    StaticModel(vectors, tokenizer, normalize=True).save_pretrained(tmp_path / "weights")
    return tmp_path / "weights"


class TestStatic(EmbedderContract):
    @pytest.fixture
    def embedder(self, weights: Path) -> StaticEmbedder:
        return StaticEmbedder(f"static:{weights}")

    @pytest.fixture
    def failing_embedder(self, tmp_path: Path) -> StaticEmbedder:
        return StaticEmbedder(str(tmp_path))  # a folder without weights


class TestPackage(PluginContract):
    name = "embed-static"


async def test_missing_model_error_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ConfigurationError, match="neither a folder nor in the cache") as error:
        await StaticEmbedder("nobody/nothing").embed(["a"])
    assert "hf download nobody/nothing" in str(error.value.hint)


async def test_model_availability_is_checked_without_loading(
    weights: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    there = StaticEmbedder(str(weights))
    await there.check()
    assert there.dimension is None
    await StaticEmbedder("nobody/nothing", download=True).check()
    with pytest.raises(ConfigurationError, match="neither a folder nor in the cache"):
        await StaticEmbedder("nobody/nothing").check()


async def test_folder_without_a_model_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="is not a model2vec model"):
        await StaticEmbedder(str(tmp_path)).embed(["a"])
