"""``HttpEmbedder``: vectors from a server, with the retries and errors of delf's models."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from delf.llm import LLMConfig
from delf.protocols.context import PluginContext
from delf.protocols.embedder import EmbeddingKind, Vectors
from delf.protocols.model import ModelContext
from delf.tls import trusted
from delf_model_providers.endpoint import Endpoint, resolve
from delf_model_providers.failures import (
    Failure,
    UnreadableError,
    by_status,
    chain,
    kinds_of,
    message_in,
    retry_after,
    shortened,
    unanswered,
    unreadable,
)
from delf_model_providers.retry import Attempts, RetryPolicy

if TYPE_CHECKING:
    import httpx

_DEFAULT: Final = "text-embedding-3-small"
_GOOGLE: Final = "https://generativelanguage.googleapis.com/v1beta"
_TASKS: Final = {"query": "RETRIEVAL_QUERY", "passage": "RETRIEVAL_DOCUMENT"}
_BATCH: Final = 100
"""What Gemini takes at once; OpenAI takes 2,048."""


class _RefusedError(Exception):
    def __init__(self, response: httpx.Response) -> None:
        super().__init__(response.status_code)
        self.response = response


class HttpEmbedder:
    """An embedding model behind an address. Implements :class:`delf.protocols.embedder.Embedder`.

    Args:
        context: Keys and the environment.
        model: The model's name.
        base_url: The address of an OpenAI-compatible server; the provider's own when None.
        api_key: The key; from ``providers`` or the environment when None.
        dimensions: Shorter vectors, of models that offer them.
        timeout: Seconds for a request.
        retry: How often failed requests are made again.
    """

    def __init__(
        self,
        context: PluginContext,
        model: str = _DEFAULT,
        base_url: str | None = None,
        api_key: str | None = None,
        dimensions: int | None = None,
        timeout: float = 60.0,
        retry: RetryPolicy | None = None,
    ) -> None:
        google = "gemini" in model or model.startswith("google/")
        config = LLMConfig(
            model=model,
            base_url=base_url,
            api_key=api_key,
            provider="google" if google else "openai",
        )
        keys = ModelContext(environ=context.environ, providers=context.providers)
        self._endpoint: Endpoint = resolve(config, keys)
        self._google = google
        self._dimensions = dimensions
        self._dimension: int | None = None
        self._timeout = timeout
        self._attempts = Attempts(explain=self._explain, policy=retry or RetryPolicy())
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, httpx.AsyncClient] = (
            WeakKeyDictionary()
        )

    @property
    def model(self) -> str:
        """The model's name, with its dimensions where they were chosen."""
        name = self._endpoint.name
        return name if self._dimensions is None else f"{name}:{self._dimensions}"

    @property
    def dimension(self) -> int | None:
        """How long a vector is; None before the first text."""
        return self._dimension

    @property
    def batch_size(self) -> int:
        """The most texts at once."""
        return _BATCH

    async def embed(self, texts: Sequence[str], kind: EmbeddingKind = "passage") -> Vectors:
        """A vector of length 1 for each text.

        Raises:
            EnvironmentKeyError: When the key is missing.
            LLMExecutionError: When the server failed for good.
        """
        self._endpoint.require_key()
        if not texts:
            return []
        # No server takes an empty text; a space says as little.
        given = [text if text.strip() else " " for text in texts]
        rows = await self._attempts.whole(lambda: self._ask(given, kind))
        self._dimension = len(rows[0])
        return rows

    async def _ask(self, texts: list[str], kind: EmbeddingKind) -> list[list[float]]:
        path, body, headers = self._request(texts, kind)
        base = self._endpoint.base_url or _GOOGLE
        async with asyncio.timeout(self._timeout):
            response = await self._client().post(
                f"{base.rstrip('/')}/{path}",
                content=json.dumps(body).encode(),
                headers={"Content-Type": "application/json", **headers, **self._endpoint.headers},
            )
        if response.status_code != 200:
            raise _RefusedError(response)
        return [_of_length_one(row) for row in self._rows(response.content, len(texts))]

    def _request(
        self, texts: list[str], kind: EmbeddingKind
    ) -> tuple[str, dict[str, Any], dict[str, str]]:
        name, key = self._endpoint.name, self._endpoint.api_key or ""
        if not self._google:
            body: dict[str, Any] = {"model": name, "input": texts, "encoding_format": "float"}
            if self._dimensions is not None:
                body["dimensions"] = self._dimensions
            return "embeddings", body, {"Authorization": f"Bearer {key}"}
        one: dict[str, Any] = {"model": f"models/{name}", "taskType": _TASKS[kind]}
        if self._dimensions is not None:
            one["outputDimensionality"] = self._dimensions
        requests = [{**one, "content": {"parts": [{"text": text}]}} for text in texts]
        path = f"models/{name}:batchEmbedContents"
        return path, {"requests": requests}, {"x-goog-api-key": key}

    def _rows(self, content: bytes, count: int) -> list[list[float]]:
        """The vectors of an answer, in the order of the texts."""
        try:
            data: Any = json.loads(content)
            if self._google:
                rows = [entry["values"] for entry in data["embeddings"]]
            else:
                entries = sorted(data["data"], key=lambda entry: int(entry["index"]))
                rows = [entry["embedding"] for entry in entries]
            found = [[float(value) for value in row] for row in rows]
        except (ValueError, KeyError, TypeError) as error:
            raise UnreadableError("no list of vectors") from error
        if len(found) != count or len({len(row) for row in found}) != 1 or not found[0]:
            raise UnreadableError(f"{len(found)} vectors for {count} texts")
        return found

    def _explain(self, error: Exception) -> Failure:
        endpoint = self._endpoint
        if isinstance(error, _RefusedError):
            response = error.response
            said = _said(response.text[:10_000])
            wait = retry_after(response.headers, said)
            return by_status(
                response.status_code, shortened(said, endpoint.secrets), endpoint, wait
            )
        if isinstance(error, UnreadableError):
            return unreadable(endpoint, str(error))
        said = shortened(str(error) or type(error).__name__, endpoint.secrets)
        return unanswered(kinds_of(chain(error)), said, endpoint, self._timeout)

    def _client(self) -> httpx.AsyncClient:
        import httpx

        loop = asyncio.get_running_loop()
        if loop not in self._clients:
            self._clients[loop] = httpx.AsyncClient(
                verify=trusted(), follow_redirects=False, timeout=self._timeout
            )
        return self._clients[loop]

    async def aclose(self) -> None:
        """Close this loop's connections; used again, new ones are opened."""
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.aclose()


def _said(text: str) -> str:
    """The server's own words."""
    try:
        return message_in(json.loads(text)) or text
    except ValueError:
        return text


def _of_length_one(row: list[float]) -> list[float]:
    length = math.sqrt(sum(value * value for value in row))
    return row if length == 0 else [value / length for value in row]
