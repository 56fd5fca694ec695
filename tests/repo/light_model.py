"""A plugin that asks an OpenAI-compatible server with Python's own HTTP client.

For tests in which the model's provider is not what is tested: litellm takes seconds of a
processor to import. It serves ``gpt-*``, the server is ``base_url`` or ``OPENAI_BASE_URL``.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import urllib.request
from collections.abc import AsyncGenerator, Iterable
from pathlib import Path
from typing import Any

from delf.errors import LLMExecutionError
from delf.hookspecs import hookimpl
from delf.llm import LLMConfig
from delf.messages import ModelDelta, ModelReply, ModelRequest, Usage
from delf.protocols.model import ModelContext
from delf.specs import ModelSpec

MODULE = "delf_model_light"


def install_light_model(site: Path) -> None:
    """Install the plugin into a folder that will be on ``sys.path``."""
    from delf.testing import install_plugin

    install_plugin(site, "model-light", module=MODULE)
    shutil.copy(__file__, site / f"{MODULE}.py")


class LightModel:
    """Asks one server, without retries."""

    def __init__(self, config: LLMConfig, context: ModelContext) -> None:
        self._model = config.model
        self._url = config.base_url or context.environ["OPENAI_BASE_URL"]
        self._key = config.api_key or context.environ.get("OPENAI_API_KEY", "")

    async def complete(self, request: ModelRequest) -> ModelReply:
        """The whole answer."""
        return await asyncio.to_thread(self._ask, request)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelDelta | ModelReply]:
        """The whole answer, as one piece."""
        reply = await self.complete(request)
        yield ModelDelta(reply.text)
        yield reply

    async def aclose(self) -> None:
        """Nothing is held."""

    def _ask(self, request: ModelRequest) -> ModelReply:
        messages = [{"role": m.role, "content": m.text} for m in request.messages]
        body = {"model": self._model, "messages": messages, **request.settings}
        headers = {"Authorization": f"Bearer {self._key}", "Content-Type": "application/json"}
        url = f"{self._url}/chat/completions"
        sent = urllib.request.Request(url, json.dumps(body).encode(), headers)
        try:
            with urllib.request.urlopen(sent, timeout=60) as answer:
                said: dict[str, Any] = json.load(answer)
        except OSError as error:
            raise LLMExecutionError(f"the model {self._model!r} did not answer: {error}") from error
        choice, usage = said["choices"][0], said["usage"]
        return ModelReply(
            text=choice["message"]["content"],
            model=self._model,
            usage=Usage(
                input_tokens=usage["prompt_tokens"], output_tokens=usage["completion_tokens"]
            ),
            finish_reason=choice["finish_reason"],
        )


@hookimpl
def delf_models() -> Iterable[ModelSpec]:
    """The names of OpenAI's models."""
    yield ModelSpec(
        name="light",
        summary="Any OpenAI-compatible server.",
        factory=f"{MODULE}:LightModel",
        serves=("gpt-*",),
    )
