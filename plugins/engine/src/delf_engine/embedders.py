"""The embedders of an agent: one shared object for each name."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from delf.environment import using_environ
from delf.errors import PluginError
from delf.packages.official import how_to_install, packages, recommended_plugin
from delf.plugins.factories import make
from delf.plugins.host import PluginHost
from delf.protocols.context import PluginContext
from delf.protocols.embedder import Embedder, EmbeddingKind, SupportsLoading, Vectors
from delf.protocols.readiness import SupportsSelfCheck
from delf.specs import EmbedderSpec
from delf_engine.closing import close_all


class Embedders:
    """Creates embedders on first use; thread-safe.

    Args:
        host: The plugins.
        options: Options by plugin name.
        context: The context for factories.
        default: The embedder to use when none is named.
    """

    def __init__(
        self,
        host: PluginHost,
        options: Mapping[str, Mapping[str, Any]],
        context: PluginContext,
        default: str | None = None,
    ) -> None:
        self._host = host
        self._options = options
        self.context = replace(context, embedder=self.get, installed_providers=host.providers)
        """The context for factories and connections, whose ``embedder`` is :meth:`get`."""
        self._default = default
        # A factory may ask for another embedder, so the lock is reentrant.
        self._lock = threading.RLock()
        self._embedders: dict[str, _Batched] = {}

    def get(self, name: str | None = None) -> Embedder:
        """Return an embedder, by its name or by the name of its model.

        Args:
            name: The name of a model that an embedder plugin serves, or the name of the plugin.
                None for the agent's configured embedder.

        Raises:
            PluginError: If no plugin serves the name, or if no name is given or configured and not
                exactly one embedder is installed.
        """
        embedder_name = name or self._default or self._only_embedder()
        with self._lock:
            if embedder_name not in self._embedders:
                spec = self._host.spec(EmbedderSpec, embedder_name)
                arguments = spec.arguments(embedder_name)
                with using_environ(self.context.environ):
                    embedder = make(self._host, spec, self._options, self.context, arguments)
                self._embedders[embedder_name] = _Batched(embedder)
            return self._embedders[embedder_name]

    def _only_embedder(self) -> str:
        """Return the name of the only embedder that can be used without being named.

        Raises:
            PluginError: If there is no such embedder, or more than one.
        """
        # An embedder ``by_name`` is used only if the configuration names it.
        names = [spec.name for spec in self._host.specs(EmbedderSpec) if not spec.by_name]
        if len(names) == 1:
            return names[0]
        if not names:
            package = packages("embedder")[recommended_plugin("embedder")]
            error = PluginError("no embedder is installed", hint=how_to_install(package))
            raise self._host.with_load_failures(error)
        raise PluginError(
            f"several embedders are installed: {', '.join(names)}",
            hint='name one: [agent] embedder = "…" in delf.toml, or DELF_EMBEDDER',
        )

    async def aclose(self) -> None:
        """Close all embedders."""
        with self._lock:
            embedders, self._embedders = self._embedders, {}
        await close_all({f"the embedder {name!r}": each.inner for name, each in embedders.items()})


class _Batched:
    """An embedder that splits any number of texts into batches, and replaces lone surrogates.

    Tokenizers refuse lone surrogates.

    Args:
        inner: The plugin's embedder.
    """

    def __init__(self, inner: Embedder) -> None:
        self.inner = inner

    @property
    def model(self) -> str:
        return self.inner.model

    @property
    def dimension(self) -> int | None:
        return self.inner.dimension

    @property
    def batch_size(self) -> int:
        return self.inner.batch_size

    @property
    def is_loaded(self) -> bool:
        return not isinstance(self.inner, SupportsLoading) or self.inner.is_loaded

    async def check(self) -> None:
        if isinstance(self.inner, SupportsSelfCheck):
            await self.inner.check()

    async def embed(self, texts: Sequence[str], kind: EmbeddingKind = "passage") -> Vectors:
        # Half of a surrogate pair, which a cut text may have, is not valid in UTF-8.
        texts = [text.encode("utf-8", "replace").decode() for text in texts]
        size = max(1, self.inner.batch_size)
        rows: list[Iterable[float]] = []
        for start in range(0, len(texts), size):
            # Do not use +=, by which a numpy array would add its numbers to those of the list.
            rows.extend(await self.inner.embed(texts[start : start + size], kind))
        return rows
