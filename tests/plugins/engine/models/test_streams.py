"""Tests that every stream of a model ends, whatever its plugin and server do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pytest

from delf import Agent
from delf.llm import LLMConfig
from delf.messages import ModelDelta, ModelReply, ModelRequest, ToolCall
from delf.protocols.context import PluginContext
from delf.specs import ModelSpec
from delf.testing import TestHost

SPEC = ModelSpec(name="endless", summary="No end.", factory="x:y", serves=("endless",))


class Endless:
    """A third-party model whose stream never ends.

    Args:
        pieces: The pieces, of which one comes each time.
        pause: Seconds between two pieces.
        whole: The answer without a stream.
    """

    takes_tools = True

    def __init__(self, *pieces: ModelDelta, pause: float = 0.0, whole: str = "") -> None:
        self._pieces = pieces
        self._pause = pause
        self._whole = whole
        self.closed = False

    def factory(self, context: PluginContext, config: LLMConfig) -> Endless:
        return self

    async def complete(self, request: ModelRequest) -> ModelReply:
        calls = (ToolCall(id="1", name="x", arguments=self._whole),)
        return ModelReply(text="", model="endless", cost_usd=0.0, calls=calls)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelDelta | ModelReply]:
        try:
            while True:
                for piece in self._pieces:
                    yield piece
                    if self._pause:
                        await asyncio.sleep(self._pause)
        finally:
            self.closed = True

    async def aclose(self) -> None:
        pass


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (Endless(ModelDelta("words " * 1000)), "longer than 8,000,000 letters"),
        (Endless(ModelDelta("x" * 100_000, call=0)), "longer than 8,000,000 letters"),
        (Endless(ModelDelta("drip "), pause=0.01), "no end after 0.5 s"),
    ],
    ids=["letters", "a call", "drips"],
)
@pytest.mark.slow
async def test_endless_stream_is_aborted(model: Endless, message: str) -> None:
    host = TestHost.discover(environ={})
    host.provide(SPEC, model.factory)
    llm = LLMConfig("endless", settings={"timeout": 0.5 if "0.5" in message else 60})
    async with Agent(llm=llm, host=host, stream=True, timeout=60) as agent:
        response = await agent.arun("Say something.")
    assert message in str(response.error)
    assert model.closed


async def test_oversized_answer_is_refused() -> None:
    model = Endless(whole="x" * 8_000_001)
    host = TestHost.discover(environ={})
    host.provide(SPEC, model.factory)
    async with Agent(llm="endless", host=host) as agent:
        response = await agent.arun("Say something.")
    assert "longer than 8,000,000 letters" in str(response.error)
