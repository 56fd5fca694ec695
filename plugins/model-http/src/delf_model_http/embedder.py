"""``HttpEmbedder``: vectors from a server, with the retries and errors of delf's models."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from delf.errors import ModelConfigurationError
from delf.llm import LLMConfig
from delf.protocols.context import PluginContext
from delf.protocols.embedder import EmbeddingKind, Vectors
from delf.providers import Providers
from delf.settings import SecretStr
from delf.specs import Provider
from delf_model_http.providers import SUPPORTED_PROVIDERS
from delf_model_providers.endpoint import Endpoint, resolve
from delf_model_providers.failures import UnreadableError
from delf_model_providers.http import explain, parsed, read
from delf_model_providers.pool import Pool
from delf_model_providers.retry import Attempts, RetryPolicy

_DEFAULT_MODEL: Final = "text-embedding-3-small"
_GOOGLE: Final = "https://generativelanguage.googleapis.com/v1beta"
# The providers whose protocols for embeddings are implemented here.
_DIALECTS: Final = ("openai", "google")
_TASKS: Final = {"query": "RETRIEVAL_QUERY", "passage": "RETRIEVAL_DOCUMENT"}
# The maximum number of texts in a request: Gemini's limit; OpenAI's limit is 2,048.
_BATCH_SIZE: Final = 100
_MAX_BYTES: Final = 64_000_000
_TIMEOUT_SECONDS: Final = 60.0


class HttpEmbedder:
    """An embedding model on a server. Implements :class:`delf.protocols.embedder.Embedder`.

    Args:
        context: The configured keys and the environment variables.
        model: The model that an agent asks for; None for ``embedding_model``.
        embedding_model: The default model. Its name decides which provider gets the texts. A name
            such as ``acme/embed`` stands for a provider of another plugin, if the provider's
            ``dialect`` is ``openai`` or ``google``. A name that contains ``gemini`` or begins with
            ``google/`` stands for Google, and any other name for OpenAI.
        embedding_base_url: The address of an OpenAI-compatible server up to ``/v1`` (for Gemini up
            to ``/v1beta``); by default the provider's address.
        embedding_api_key: The key; by default the key in ``providers`` or the environment. With a
            base URL, the key for this address.
        embedding_dimensions: The length of vectors, for models with a choice; by default the
            model's.
        retry: The retry policy.

    Raises:
        ModelConfigurationError: If the prefix of the model's name is a provider, but the texts
            would go to another provider.
    """

    def __init__(
        self,
        context: PluginContext,
        model: str | None = None,
        *,
        embedding_model: str = _DEFAULT_MODEL,
        embedding_base_url: str | None = None,
        embedding_api_key: SecretStr | str | None = None,
        embedding_dimensions: int | None = None,
        retry: RetryPolicy | None = None,
    ) -> None:
        model = model or embedding_model
        api_key = embedding_api_key
        if isinstance(api_key, SecretStr):
            api_key = api_key.get_secret_value()
        config = LLMConfig(
            model=model,
            base_url=embedding_base_url,
            api_key=api_key,
            provider=_provider_name(model, embedding_base_url, context),
        )
        self._endpoint: Endpoint = resolve(config, context)
        _check_named_provider(model, self._endpoint, context)
        self._is_google = self._endpoint.dialect == "google"
        self._requested_dimension = embedding_dimensions
        self._received_dimension: int | None = None  # None before the first reply
        self._attempts = Attempts(
            explain=lambda error: explain(error, self._endpoint, _TIMEOUT_SECONDS),
            policy=retry or RetryPolicy(),
        )
        # Only the endpoint of Google itself has no base URL.
        self._base = (self._endpoint.base_url or _GOOGLE).rstrip("/")
        self._pool = Pool(is_encrypted=urlsplit(self._base).scheme == "https")

    @property
    def model(self) -> str:
        """The model's name, followed by the number of dimensions if it is configured."""
        name = self._endpoint.name
        if self._requested_dimension is None:
            return name
        return f"{name}:{self._requested_dimension}"

    @property
    def dimension(self) -> int | None:
        """The length of a vector; None before the first request."""
        return self._received_dimension

    @property
    def batch_size(self) -> int:
        """The maximum number of texts in a request."""
        return _BATCH_SIZE

    async def embed(self, texts: Sequence[str], kind: EmbeddingKind = "passage") -> Vectors:
        """Return a unit vector for each text.

        Raises:
            EnvironmentKeyError: If the key is missing.
            LLMExecutionError: If the request failed after retries.
        """
        self._endpoint.require_key()
        if not texts:
            return []
        # Servers refuse empty texts.
        inputs = [text if text.strip() else " " for text in texts]
        rows = await self._attempts.complete(lambda: self._ask(inputs, kind))
        self._received_dimension = len(rows[0])
        return rows

    async def _ask(self, texts: list[str], kind: EmbeddingKind) -> list[list[float]]:
        path, body, headers = self._request(texts, kind)
        headers = {"Content-Type": "application/json", **headers, **self._endpoint.headers}
        async with (
            asyncio.timeout(_TIMEOUT_SECONDS),
            self._pool.posted(f"{self._base}/{path}", headers, body) as response,
        ):
            content = await read(response, _MAX_BYTES)
        return [_unit_vector(row) for row in self._parse_vectors(content, len(texts))]

    def _request(
        self, texts: list[str], kind: EmbeddingKind
    ) -> tuple[str, dict[str, Any], dict[str, str]]:
        """Return the path, body and headers of a request for the texts' vectors."""
        name = self._endpoint.name
        key = self._endpoint.api_key or ""
        if not self._is_google:
            body: dict[str, Any] = {"model": name, "input": texts, "encoding_format": "float"}
            if self._requested_dimension is not None:
                body["dimensions"] = self._requested_dimension
            return "embeddings", body, {"Authorization": f"Bearer {key}"}
        common_fields: dict[str, Any] = {"model": f"models/{name}", "taskType": _TASKS[kind]}
        if self._requested_dimension is not None:
            common_fields["outputDimensionality"] = self._requested_dimension
        requests = [{**common_fields, "content": {"parts": [{"text": text}]}} for text in texts]
        path = f"models/{name}:batchEmbedContents"
        return path, {"requests": requests}, {"x-goog-api-key": key}

    def _parse_vectors(self, content: bytes, count: int) -> list[list[float]]:
        """Parse the vectors in a response, in the order of the texts."""
        try:
            data = parsed(content)
            if self._is_google:
                rows = [entry["values"] for entry in data["embeddings"]]
            else:
                # A server may list the vectors in another order than the texts.
                entries = sorted(data["data"], key=lambda entry: int(entry["index"]))
                rows = [entry["embedding"] for entry in entries]
            vectors = [[float(value) for value in row] for row in rows]
        except (ValueError, KeyError, TypeError) as error:
            raise UnreadableError("no list of vectors") from error
        except UnreadableError as error:
            raise UnreadableError(f"no list of vectors: {error}") from None
        lengths = {len(vector) for vector in vectors}
        if len(vectors) != count or len(lengths) != 1 or 0 in lengths:
            raise UnreadableError(f"{len(vectors)} vectors for {count} texts")
        return vectors

    async def aclose(self) -> None:
        """Close the running loop's connections; a later request opens new connections."""
        await self._pool.aclose()


def _provider_name(model: str, base_url: str | None, context: PluginContext) -> str:
    """Return the name of the provider that embeds texts with a model.

    This is OpenAI, Google, or an installed provider that uses the protocol of one of these.
    """
    provider = None if base_url else context.installed_providers.for_model(model)
    if provider is not None and provider.dialect in _DIALECTS:
        return provider.name
    is_google = "gemini" in model or model.startswith("google/")
    return "google" if is_google else "openai"


def _check_named_provider(model: str, endpoint: Endpoint, context: PluginContext) -> None:
    """Check that texts are sent to the provider that the model's name begins with, if any.

    The name ``mistral/embed`` begins with a provider, Mistral. If the user has configured an
    address, every name is accepted, because only the server there knows its models.

    Raises:
        ModelConfigurationError: If another provider would get the texts.
    """
    prefix_and_name = re.split("[:/]", model, maxsplit=1)
    if endpoint.custom or len(prefix_and_name) == 1:
        return
    prefix, name = prefix_and_name
    providers = Providers((*SUPPORTED_PROVIDERS.all, *context.installed_providers.all))
    named = providers.by_name(prefix)
    if named is not None and named.name != endpoint.provider:
        raise ModelConfigurationError(
            f"the embedding model {model!r} is of {named.name}, but the texts would go to "
            f"{endpoint.provider}",
            hint=_hint_to_use(named, name),
        )


def _hint_to_use(provider: Provider, name: str) -> str:
    """Return a hint on how to configure the embedding model ``name`` of a provider."""
    can_use_provider = (provider.dialect or provider.name) in _DIALECTS
    if can_use_provider:
        right_model = f"{provider.name}/{name}"
        return f"write {right_model!r} in embedder or embedding_model"
    return (
        "name a model of OpenAI or Google, or set embedding_base_url to an OpenAI-compatible "
        "server that has this model"
    )


def _unit_vector(row: list[float]) -> list[float]:
    length = math.sqrt(sum(value * value for value in row))
    if length == 0:
        return row
    return [value / length for value in row]
