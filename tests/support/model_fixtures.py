"""Fixtures around models: a scripted provider, and models that ask it without real pauses.

A test package imports what it needs into its ``conftest.py``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager
from typing import Any

import pytest

from delf.llm import LLMConfig
from delf.messages import ModelDelta, ModelReply, ModelRequest, system, user
from delf.protocols.context import PluginContext
from support.openai_server import OpenAIServer, Script

__all__ = ["ask", "http_model", "litellm_model", "openai_server", "pauses", "read_stream"]

LITELLM_WARNING = "ignore:.*`ReadOnly` qualifier|Pydantic serializer warnings:UserWarning"
"""litellm silences these itself, where pytest does not reset the filters."""

ServerFactory = Callable[..., OpenAIServer]


@pytest.fixture
def openai_server() -> Iterator[ServerFactory]:
    """Starts scripted servers: ``openai_server(["an answer"])``."""
    with ExitStack() as stack:

        def start(script: Script = (), **options: Any) -> OpenAIServer:
            return stack.enter_context(OpenAIServer(script, **options))

        yield start


class Pauses:
    """A sleep that takes no time and remembers what was asked of it."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)


@pytest.fixture
def pauses() -> Pauses:
    """A sleep that takes no time."""
    return Pauses()


ModelFactory = Callable[..., Any]


@asynccontextmanager
async def _models(kind: Callable[..., Any], pauses: Pauses) -> AsyncIterator[ModelFactory]:
    from delf_model_providers.retry import RetryPolicy

    made: list[Any] = []

    def make(
        model: str = "test-model",
        *,
        environ: Mapping[str, str] | None = None,
        providers: Mapping[str, str] | None = None,
        retry: RetryPolicy | None = None,
        sleep: Any = pauses,
        **config: Any,
    ) -> Any:
        context = PluginContext(environ=environ or {}, providers=providers or {})
        retry = retry or RetryPolicy(jitter=lambda: 0.5)
        made.append(kind(context, LLMConfig(model, **config), retry=retry, sleep=sleep))
        return made[-1]

    yield make
    for model in made:
        await model.aclose()


@pytest.fixture
async def litellm_model(pauses: Pauses) -> AsyncIterator[ModelFactory]:
    """Makes models of plugin model-litellm: ``litellm_model(model="m", base_url=…)``."""
    from delf_model_litellm.model import LiteLLMModel

    async with _models(LiteLLMModel, pauses) as make:
        yield make


@pytest.fixture
async def http_model(pauses: Pauses) -> AsyncIterator[ModelFactory]:
    """Makes models of plugin model-http: ``http_model(model="m", base_url=…)``."""
    from delf_model_http.model import HttpModel

    async with _models(HttpModel, pauses) as make:
        yield make


def ask(text: str = "hi", **options: Any) -> ModelRequest:
    """A small request."""
    return ModelRequest(messages=(system("Be good."), user(text)), **options)


async def read_stream(model: Any, request: ModelRequest) -> tuple[list[str], ModelReply]:
    """All pieces of a streamed answer, and the whole."""
    *deltas, reply = [piece async for piece in model.stream(request)]
    assert isinstance(reply, ModelReply)
    assert all(isinstance(delta, ModelDelta) for delta in deltas)
    return [delta.text for delta in deltas], reply
