"""A model that answers with given scripts, for benchmarks."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Sequence
from types import SimpleNamespace
from typing import Any

from delf import Agent, LLMConfig, Response
from delf.hookspecs import hookimpl
from delf.messages import ModelDelta, ModelReply, ModelRequest, Usage
from delf.plugins.host import PluginHost
from delf.protocols.context import PluginContext
from delf.specs import ModelSpec

SCRIPTS: list[str] = []
REQUESTS: list[ModelRequest] = []


class InstantModel:
    """Answers at once with the next script."""

    def __init__(self, context: PluginContext, config: LLMConfig) -> None:
        self._name = config.model

    async def complete(self, request: ModelRequest) -> ModelReply:
        """Return the next script."""
        REQUESTS.append(request)
        text = f"```python\n{SCRIPTS.pop(0)}\n```"
        return ModelReply(text=text, model=self._name, usage=Usage(), cost_usd=0.0)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelDelta | ModelReply]:
        """Yield the next script as a single piece."""
        yield await self.complete(request)

    async def aclose(self) -> None:
        """Do nothing: the model has no resources."""


@hookimpl
def delf_models() -> Iterable[ModelSpec]:
    """Yield the model ``instant``."""
    yield ModelSpec(
        name="instant", summary="Instant.", factory="support:InstantModel", serves=("instant",)
    )


Run = Callable[[Agent, str], Awaitable[Response]]


@contextlib.asynccontextmanager
async def script_agent(
    tools: Sequence[Any] = (), **options: Any
) -> AsyncIterator[tuple[Agent, Run]]:
    """Yield an agent with the instant model, and a function that runs a script."""
    host = PluginHost.discover(extra=[("instant", SimpleNamespace(delf_models=delf_models))])
    options.setdefault("sandbox", "local")
    agent = Agent(tools=tools, llm="instant", host=host, timeout=600, **options)

    async def run(agent: Agent, code: str) -> Response:
        SCRIPTS.append(code)
        response = await agent.arun("benchmark")
        return response.raise_for_status()

    async with agent:
        yield agent, run
