"""Records a model that echoes; importable, so that other processes can run it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path

from delf.messages import ModelDelta, ModelReply, ModelRequest
from delf_model_recorded import RecordingModel
from support.model_fixtures import ask


class Echo:
    """Answers with what it was asked."""

    closed = 0
    warm = False

    async def complete(self, request: ModelRequest) -> ModelReply:
        """The last message."""
        await asyncio.sleep(0)
        return ModelReply(text=request.messages[-1].text, model="echo")

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelDelta | ModelReply]:
        """The last message, whole."""
        yield await self.complete(request)

    async def aclose(self) -> None:
        """Nothing is held."""


def record_many(path: Path, name: str, count: int) -> None:
    """Record so many exchanges whose answers begin with a name and a number."""

    async def run() -> None:
        recorder = RecordingModel(Echo(), path)
        for i in range(count):
            await recorder.complete(ask(f"{name}-{i} " + "y" * 20_000))

    asyncio.run(run())
