"""``SentenceTransformersEmbedder``: a model of sentence-transformers, loaded once per process."""

from __future__ import annotations

import asyncio
import atexit
import gc
import sys
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Lock, Thread
from typing import Any, Final
from weakref import WeakValueDictionary

from delf.errors import ConfigurationError, describe_exception
from delf.machine.forks import reset_in_forks
from delf.protocols.embedder import EmbeddingKind, Vectors
from delf_embed_sentence_transformers.prefixes import prefix_of

_DEFAULT: Final = "all-MiniLM-L6-v2"
_MAX_REASON_LENGTH: Final = 300


class _LoadedModel:
    """A model in memory, and the only thread that uses the model.

    Several threads would be slower, because torch uses all processors for one batch.
    """

    def __init__(self, name: str, device: str | None, download: bool) -> None:
        self.reset_after_fork()  # makes the first thread
        reset_in_forks(self)
        self.model: Any = self.thread.submit(_load_model, name, device, download).result()

    def reset_after_fork(self) -> None:
        """Use a new thread, because a forked process has no threads of its parent."""
        self.thread = ThreadPoolExecutor(1, thread_name_prefix="delf-embed")

    def __del__(self) -> None:
        if (thread := getattr(self, "thread", None)) is not None:
            thread.shutdown(wait=False)


def _load_model(name: str, device: str | None, download: bool) -> Any:
    imports_torch = "torch" not in sys.modules
    from sentence_transformers import SentenceTransformer
    from transformers.utils.logging import disable_progress_bar

    if imports_torch:
        # Without this, Python's last garbage collection walks through all of torch, for 1 s.
        atexit.register(gc.freeze)
    disable_progress_bar()  # a library must not write to the terminal
    try:
        model: Any = SentenceTransformer(name, device=device, local_files_only=not download)
    except Exception as error:  # many libraries may raise here
        reason = describe_exception(error).partition("\n")[0][:_MAX_REASON_LENGTH]
        raise ConfigurationError(
            f"the embedding model {name!r} cannot be loaded: {reason}",
            hint=f"check the setting device, and that {_hub_name(name)} is a model of "
            "sentence-transformers",
        ) from error
    return model


# Weights of hundreds of megabytes are shared by all agents of a process while one of them exists.
_shared_models: WeakValueDictionary[tuple[str, str | None], _LoadedModel] = WeakValueDictionary()
_shared_models_lock = Lock()


def _load_shared(name: str, device: str | None, download: bool) -> _LoadedModel:
    """Return a model that all embedders with this name and device share; load it if needed."""
    with _shared_models_lock:
        loaded = _shared_models.get((name, device))
        if loaded is None:
            loaded = _shared_models[name, device] = _LoadedModel(name, device, download)
        return loaded


def _load_into(future: Future[_LoadedModel], name: str, device: str | None, download: bool) -> None:
    try:
        future.set_result(_load_shared(name, device, download))
    except BaseException as error:
        future.set_exception(error)


def _has_failed(future: Future[_LoadedModel]) -> bool:
    return future.done() and future.exception() is not None


def _missing_error(name: str) -> ConfigurationError:
    return ConfigurationError(
        f"the embedding model {name!r} is neither a folder nor in the cache",
        hint=f"hf download {_hub_name(name)}, give the path "
        "of a folder, or set download = true for this embedder",
    )


def _hub_name(name: str) -> str:
    """Add the owner ``sentence-transformers`` to the name of a model without an owner."""
    return name if "/" in name else f"sentence-transformers/{name}"


def _check_cached(name: str) -> None:
    """Raise ConfigurationError if a model is neither a folder nor in the cache."""
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    if Path(name).is_dir():
        return
    try:
        cached_path = try_to_load_from_cache(_hub_name(name), "config.json")
    except HFValidationError as error:
        raise _missing_error(name) from error
    if not isinstance(cached_path, str):
        raise _missing_error(name)


class SentenceTransformersEmbedder:
    """A model of sentence-transformers. Implements :class:`delf.protocols.embedder.Embedder`.

    The model is loaded in a thread on first use. Nothing is downloaded unless ``download`` is true.

    Args:
        model: A name on the Hugging Face hub, or the path of a folder.
        device: The device, such as ``"cpu"`` or ``"cuda"``; None lets sentence-transformers choose.
        batch_size: The maximum number of texts in a batch.
        download: Whether a model that is not in the cache is downloaded.
    """

    def __init__(
        self,
        model: str = _DEFAULT,
        device: str | None = None,
        batch_size: int = 64,
        download: bool = False,
    ) -> None:
        self._name = model
        self._device = device
        self._batch_size = batch_size
        self._download = download
        self._model: _LoadedModel | None = None
        self._load_future: Future[_LoadedModel] | None = None
        self._lock = Lock()

    @property
    def model(self) -> str:
        """The model's name."""
        return self._name

    @property
    def dimension(self) -> int | None:
        """The length of a vector; None before the model is loaded."""
        if self._model is None:
            return None
        return int(self._model.model.get_embedding_dimension())

    @property
    def batch_size(self) -> int:
        """The maximum number of texts in a batch."""
        return self._batch_size

    async def embed(self, texts: Sequence[str], kind: EmbeddingKind = "passage") -> Vectors:
        """Return one vector of norm 1 per text, after adding the prefix that the model requires.

        Raises:
            ConfigurationError: If the model is missing or invalid.
        """
        await self._load()
        loaded = self._model
        if loaded is None:
            raise ConfigurationError("the embedder was closed while it loaded its model")
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(
            loaded.thread, _encode, loaded.model, self._name, list(texts), kind
        )

    @property
    def is_loaded(self) -> bool:
        """Implements :class:`delf.protocols.embedder.SupportsLoading`."""
        return self._model is not None

    async def _load(self) -> None:
        """Load the model in a thread. Concurrent callers share the load.

        Raises:
            ConfigurationError: If the model is missing or invalid.
        """
        if self._model is not None:
            return
        await self.check()  # report a missing model before importing torch
        with self._lock:
            load_future = self._load_future
            if load_future is None or _has_failed(load_future):
                # Not with asyncio.to_thread(): asyncio.run() would wait for such a thread at its
                # end.
                load_future = Future[_LoadedModel]()
                self._load_future = load_future
                arguments = (load_future, self._name, self._device, self._download)
                Thread(target=_load_into, args=arguments, daemon=True, name="delf-load").start()
        self._model = await asyncio.shield(asyncio.wrap_future(load_future))

    async def check(self) -> None:
        """Raise if the model is not available, without loading the model.

        Raises:
            ConfigurationError: If the model is missing and may not be downloaded.
        """
        if not self._download:
            await asyncio.to_thread(_check_cached, self._name)

    async def aclose(self) -> None:
        """Release the model; its memory is freed when no embedder of this process uses it."""
        self._model = self._load_future = None


def _encode(model: Any, name: str, texts: list[str], kind: EmbeddingKind) -> Any:
    import numpy as np

    prefix = prefix_of(name, kind, model.prompts or {})
    vectors = model.encode(
        [prefix + text for text in texts],
        prompt="",  # ``prefix`` takes its place
        batch_size=len(texts) or 1,
        show_progress_bar=False,
    ).astype(np.float32)
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.maximum(norms, 1e-12)  # a zero vector stays a zero vector
