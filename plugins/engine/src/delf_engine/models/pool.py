"""The models of an agent, made when they are first asked."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from delf.errors import DelfError, ModelConfigurationError, PluginError
from delf.llm import LLMConfig
from delf.messages import Price
from delf.plugins.factories import make
from delf.plugins.host import PluginHost
from delf.protocols.context import PluginContext
from delf.protocols.model import (
    Model,
    ModelSession,
    SupportsPrice,
    SupportsRecording,
    SupportsSessions,
)
from delf.protocols.readiness import SupportsEarlyStart, SupportsSelfCheck
from delf.providers import Providers
from delf.specs import ModelSpec
from delf_engine.closing import close_all
from delf_engine.project.prices import Prices, read_prices
from delf_engine.redact import Redactor

FindPrice = Callable[[str], Price | None]
"""Takes a model's name; returns the user's own price for the model, or None if there is none.

The user's own price overrides the provider's price.
"""


class _Client(NamedTuple):
    """A model's client, as it was made for a configuration."""

    model: Model
    """The client, in a recorder if recording is enabled."""
    name: str
    """The name of the model and its plugin, for error messages."""
    price_source: SupportsPrice | None
    """The client itself if it knows its price before a call, which a recorder would hide."""


class ModelPool:
    """The model clients of an agent, created on first use.

    Args:
        host: The plugins.
        context: Keys and environment.
        record_path: The file in which answers are recorded; None to record none.
        redactor: Redacts recorded answers.
        pricing: The user's own prices.
    """

    def __init__(
        self,
        host: PluginHost,
        context: PluginContext,
        record_path: str | None = None,
        redactor: Redactor | None = None,
        pricing: FindPrice | None = None,
    ) -> None:
        self.find_own_price: FindPrice = pricing or (lambda _: None)
        self._host = host
        self._redactor = Redactor() if redactor is None else redactor
        self._context = context
        self._record_path = record_path
        self._clients: dict[str, _Client] = {}

    def resolve_provider(self, config: LLMConfig) -> LLMConfig:
        """Resolve the provider in a model name: ``acme:mini`` becomes ``acme/mini``.

        :meth:`Providers.resolve_provider` describes the details.
        """
        return self._host.providers.resolve_provider(config)

    def get(self, config: LLMConfig) -> Model:
        """Return the client for a configuration.

        Raises:
            PluginError: If no plugin serves the model.
            ModelConfigurationError: If the plugin refuses the configuration.
        """
        return self._client(config).model

    def price_source(self, config: LLMConfig) -> SupportsPrice | None:
        """Return the model's client if the client can tell the model's price before a call.

        None for other clients.
        """
        return self._client(config).price_source

    def _client(self, config: LLMConfig) -> _Client:
        config = self.resolve_provider(config)
        key = _key(config)
        client = self._clients.get(key)
        if client is None:
            model = self._make(self._host.model_spec(config), config)
            client = self._clients[key] = _Client(
                model=self._with_recorder(model),
                name=self.name_of(config),
                price_source=model if isinstance(model, SupportsPrice) else None,
            )
        return client

    def name_of(self, config: LLMConfig) -> str:
        """Return the name of a model and its plugin, for error messages."""
        spec = self._host.model_spec(config)
        return f"the model {spec.name!r} of {self._host.origin(spec)}"

    def add_load_failures_to(self, error: DelfError) -> None:
        """Add the plugins that failed to load to the hint of an error about an unknown model.

        The model may belong to a plugin that failed to load. A fallback plugin then handles the
        model's name, and the service of the fallback plugin rejects the name as unknown.
        """
        if isinstance(error, ModelConfigurationError):
            self._host.with_load_failures(error)

    def _make(self, spec: ModelSpec, config: LLMConfig) -> Model:
        try:
            return make(self._host, spec, {}, self._context, {"config": config})
        except DelfError as error:
            self.add_load_failures_to(error)
            raise

    def _with_recorder(self, model: Model) -> Model:
        """Return the client, wrapped in a recorder if recording is enabled."""
        if self._record_path is None:
            return model
        spec = self._host.model_spec(f"recorded:{self._record_path}")
        recorder = self._host.resolve(spec)
        if not isinstance(recorder, SupportsRecording):
            raise PluginError(f"{self._host.origin(spec)} cannot record")
        return recorder.record(model, self._record_path, self._redactor.redact_text)

    async def warm_up(self, config: LLMConfig) -> None:
        """Prepare a model for its first call, if the model supports this."""
        model = self.get(config)
        if isinstance(model, SupportsEarlyStart):
            await model.warm_up()

    async def check(self, config: LLMConfig) -> None:
        """Check that a model or one of its fallbacks is usable, without sending a request.

        Raises:
            DelfError: If neither the model nor a fallback is usable.
        """
        failure: DelfError | None = None
        for candidate in (config, *config.fallbacks):
            try:
                model = self.get(candidate)
                if isinstance(model, SupportsSelfCheck):
                    await model.check()
            except DelfError as error:
                self.add_load_failures_to(error)
                failure = failure or error  # the first error: that of the model itself
            else:
                return
        if failure is not None:
            raise failure

    async def connect(self, config: LLMConfig) -> ModelSession | None:
        """Open a session of a model; None if the model does not support sessions."""
        model = self.get(config)
        if isinstance(model, SupportsSessions):
            return await model.connect()
        return None

    async def aclose(self) -> None:
        """Close every model."""
        # Numbered, because one name may stand for several keys or addresses.
        models = {
            f"{client.name}, number {number}": client.model
            for number, client in enumerate(self._clients.values(), 1)
        }
        self._clients.clear()
        await close_all(models)


def _key(config: LLMConfig) -> str:
    """Return a text that is equal only for configurations that can share a model's client."""
    folder = getattr(config.model, "folder", None)  # the folder of its delf.toml: see FileText
    headers = sorted((config.headers or {}).items())
    # Add what the repr of a configuration leaves out: the key, the headers and a login in the
    # address.
    return repr((config, folder, config.base_url, config.api_key, headers))


def load_pricing(paths: tuple[Path, ...], providers: Providers | None = None) -> FindPrice:
    """Load the user's own prices from the first file that exists.

    Args:
        paths: The files.
        providers: The providers, which know other spellings of model names.

    Returns:
        A function that returns the price of a model, or None if the file has no price for it.

    Raises:
        ConfigurationError: If the file is invalid; the message names the file and the entry.
    """
    path = next((path for path in paths if path.is_file()), None)
    if path is None:
        return lambda _: None
    return Prices(read_prices(path), providers).find
