"""The embedders of an agent: one shared object for each name."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any, Final

from delf.environment import using_environ
from delf.errors import PluginError
from delf.packages.official import how_to_install, package_of, packages, recommended_plugin
from delf.plugins.factories import make
from delf.plugins.host import PluginHost
from delf.protocols.context import PluginContext
from delf.protocols.embedder import Embedder, EmbeddingKind, SupportsLoading, Vectors
from delf.protocols.readiness import SupportsSelfCheck
from delf.specs import EmbedderSpec
from delf_engine.closing import close_all

_RECOMMENDED_PLUGIN: Final = recommended_plugin("embedder")
_RECOMMENDED_PACKAGE: Final = packages("embedder")[_RECOMMENDED_PLUGIN]


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
        self._embedders: dict[tuple[str, str], _Batched] = {}

    def get(self, name: str | None = None) -> Embedder:
        """Return the embedder of a name.

        Args:
            name: The name of a model that an embedder plugin serves, or the name of the plugin.
                None for the agent's configured embedder.

        Raises:
            PluginError: If no plugin serves the name, or no name is given and there are several
                embedders.
        """
        embedder_name = name or self._default or self._only_embedder()
        spec = self.spec(embedder_name)
        with self._lock:
            if (spec.name, embedder_name) not in self._embedders:
                # The name of a plugin stands for the plugin's default model.
                option = {} if embedder_name == spec.name else {"model": embedder_name}
                with using_environ(self.context.environ):
                    embedder = make(self._host, spec, self._options, self.context, option)
                    self._embedders[spec.name, embedder_name] = _Batched(embedder)
            return self._embedders[spec.name, embedder_name]

    def spec(self, name: str) -> EmbedderSpec:
        """Return the spec that serves a name.

        The longest matching pattern decides. A name without a match, such as ``plugin:model``, may
        begin with the name of its plugin.

        Args:
            name: The name of a model that a plugin serves, or the name of a plugin.

        Raises:
            PluginError: If no plugin serves the name, or two match equally well.
        """
        matching_specs = self._specs_with_longest_match(name)
        if matching_specs:
            return self._host.preferred_spec(matching_specs, f"embedder {name!r}")
        plugin_name = name.split(":", 1)[0]
        if package_of("embedder", plugin_name) is not None:
            # If the plugin cannot be used, the host raises an error with the reason.
            return self._host.spec(EmbedderSpec, plugin_name)
        raise self._host.with_load_failures(self._not_served_error(name))

    def _specs_with_longest_match(self, name: str) -> list[EmbedderSpec]:
        """Return the specs whose name or pattern matches, all with the longest matching pattern."""
        specs_by_length: dict[int, list[EmbedderSpec]] = {}
        for spec in self._host.specs(EmbedderSpec):
            patterns = [*spec.serves, spec.name]
            lengths = [len(pattern) for pattern in patterns if fnmatchcase(name, pattern)]
            if lengths:
                specs_by_length.setdefault(max(lengths), []).append(spec)
        return specs_by_length[max(specs_by_length)] if specs_by_length else []

    def _not_served_error(self, name: str) -> PluginError:
        for record in self._host.records():
            # While the recommended plugin is unusable, its patterns are unknown, so that it may be
            # the plugin that serves the name.
            if record.distribution == _RECOMMENDED_PACKAGE and not record.usable:
                reason = f"plugin {record.name!r} is {record.state}: {record.reason}"
                return PluginError(f"no plugin serves the embedder {name!r}: {reason}")
        names = sorted(spec.name for spec in self._host.specs(EmbedderSpec))
        if names:
            hint = f"installed: {', '.join(names)}"
        else:
            hint = f"{how_to_install(_RECOMMENDED_PACKAGE)}; its name is {_RECOMMENDED_PLUGIN!r}"
        return PluginError(f"no installed plugin serves the embedder {name!r}", hint=hint)

    def _only_embedder(self) -> str:
        """Return the name of the only embedder that can be used without being named."""
        # An embedder ``by_name`` is used only if the configuration names it.
        names = [spec.name for spec in self._host.specs(EmbedderSpec) if not spec.by_name]
        if len(names) == 1:
            return names[0]
        if not names:
            error = PluginError(
                "no embedder is installed", hint=how_to_install(_RECOMMENDED_PACKAGE)
            )
            raise self._host.with_load_failures(error)
        raise PluginError(
            f"several embedders are installed: {', '.join(names)}",
            hint='name one: [agent] embedder = "…" in delf.toml, or DELF_EMBEDDER',
        )

    async def aclose(self) -> None:
        """Close all embedders."""
        with self._lock:
            embedders, self._embedders = self._embedders, {}
        await close_all(
            {f"the embedder {name!r}": each.inner for (_, name), each in embedders.items()}
        )


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
        texts = [text.encode("utf-8", "replace").decode() for text in texts]
        size = max(1, self.inner.batch_size)
        if 0 < len(texts) <= size:
            return await self.inner.embed(texts, kind)
        rows: list[Iterable[float]] = []
        for start in range(0, len(texts), size):
            rows += await self.inner.embed(texts[start : start + size], kind)
        return rows
