"""``StaticEmbedder``: a vector for each word of a vocabulary, averaged over a text."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, cast

from delf.errors import ConfigurationError
from delf.protocols.embedder import EmbeddingKind, Vectors

_DEFAULT: Final = "minishlab/potion-retrieval-32M"


class StaticEmbedder:
    """A model2vec model. Implements :class:`delf.protocols.embedder.Embedder`.

    The model is loaded in a thread on first use. Nothing is downloaded unless ``download`` is true.

    Args:
        model: A name on the Hugging Face hub, or the path of a folder; with or without the prefix
            ``static:``.
        download: Whether a model that is not in the cache is downloaded.
    """

    def __init__(self, model: str = _DEFAULT, download: bool = False) -> None:
        self._name = model.removeprefix("static:")
        self._download = download
        self._model: Any = None
        self._load_lock = asyncio.Lock()

    @property
    def model(self) -> str:
        """The model's name."""
        return self._name

    @property
    def dimension(self) -> int | None:
        """The length of a vector; None before the model is loaded."""
        return None if self._model is None else int(self._model.dim)

    @property
    def batch_size(self) -> int:
        """The maximum number of texts in a batch."""
        return 1024

    async def embed(self, texts: Sequence[str], kind: EmbeddingKind = "passage") -> Vectors:
        """Return a vector of norm 1 for each text; the kind of text makes no difference.

        Raises:
            ConfigurationError: If the model is missing or invalid.
        """
        async with self._load_lock:
            if self._model is None:
                self._model = await asyncio.to_thread(self._load)
        return await asyncio.to_thread(self._model.encode, list(texts))

    async def check(self) -> None:
        """Check, without loading the model, that its files are present or may be downloaded.

        Raises:
            ConfigurationError: If the model is missing and may not be downloaded.
        """
        if not self._download:
            await asyncio.to_thread(self._find_folder)  # raises if the model is missing

    def _find_folder(self) -> str:
        """Return the folder of the model, downloading the model if that is allowed."""
        from huggingface_hub import (
            snapshot_download,  # pyright: ignore[reportUnknownVariableType]
        )
        from huggingface_hub.errors import (
            HfHubHTTPError,
            HFValidationError,
            LocalEntryNotFoundError,
        )

        if Path(self._name).exists():
            return self._name
        fetch = cast("Callable[..., str]", snapshot_download)
        try:
            return fetch(self._name, local_files_only=not self._download)
        except (LocalEntryNotFoundError, HFValidationError, HfHubHTTPError) as error:
            raise ConfigurationError(
                f"the embedding model {self._name!r} is neither a folder nor in the cache",
                hint=f"hf download {self._name}, or set download = true for this embedder",
            ) from error

    def _load(self) -> Any:
        from model2vec import StaticModel

        folder = self._find_folder()
        try:
            return StaticModel.from_pretrained(folder, normalize=True, force_download=False)
        except (ValueError, KeyError, OSError) as error:
            raise ConfigurationError(f"{self._name!r} is not a model2vec model: {error}") from error
