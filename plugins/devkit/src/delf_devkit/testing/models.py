"""A model with scripted answers."""

from __future__ import annotations

import inspect
import json
import textwrap
from collections import deque
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from textwrap import shorten
from typing import Any, Final

from delf.errors import LLMExecutionError
from delf.llm import LLMConfig
from delf.messages import ModelDelta, ModelReply, ModelRequest, Usage
from delf.protocols.context import PluginContext
from delf.specs import ModelSpec

Reply = str | ModelReply | BaseException
"""The reply of a scripted model: a text, a whole reply, or an error to raise."""

Answer = Reply | Callable[[ModelRequest], Any]
"""A reply, or a plain or async function from the request to a reply."""

USAGE: Final = Usage(input_tokens=100, output_tokens=20)
_SHOWN: Final = 500
FILE_PREFIX: Final = "scripted-file:"
PROMPTS_SUFFIX: Final = ".prompts"


def script(code: str) -> str:
    """Format a script as a model's answer, in a Python code block.

    Args:
        code: The script, which is dedented.
    """
    return f"```python\n{textwrap.dedent(code).strip()}\n```"


@dataclass
class ScriptedModel:
    """Returns its replies in order and records the requests.

    Implements :class:`delf.protocols.model.Model`.

    Args:
        replies: The replies in order; further requests raise ``LLMExecutionError``.
        default: The reply to further requests, instead of raising.
        requests: Records the requests.
        configs: Records the configurations for which agents asked :meth:`factory` for the model.
        closed: Counts the calls of :meth:`aclose`.
        takes_tools: Whether the model supports tool calls.
        outline: The reply to the separate request for the outline of a task: the calls that the
            user's words ask for. This request takes none of ``replies``.
    """

    replies: deque[Answer] = field(default_factory=deque[Answer])
    default: Answer | None = None
    requests: list[ModelRequest] = field(default_factory=list[ModelRequest])
    configs: list[LLMConfig] = field(default_factory=list[LLMConfig])
    closed: int = 0
    takes_tools: bool = True
    outline: Answer = ""

    @property
    def spec(self) -> ModelSpec:
        """The spec, as a plugin's hook would return it."""
        return ModelSpec(
            name="scripted",
            summary="Answers written by a test.",
            factory="delf_devkit.testing.models:ScriptedModel",
            serves=("scripted", "scripted:*"),
        )

    def factory(self, context: PluginContext, config: LLMConfig) -> ScriptedModel:
        """Return the model itself for any configuration."""
        self.configs.append(config)
        return self

    def says(self, *replies: Answer) -> ScriptedModel:
        """Queue replies: texts, whole replies, errors, or functions of the request."""
        self.replies.extend(replies)
        return self

    def writes(self, *scripts: str) -> ScriptedModel:
        """Queue scripts as replies, each in a Python code block."""
        return self.says(*(script(code) for code in scripts))

    @property
    def prompts(self) -> list[str]:
        """The text of each request: its messages, joined."""
        return ["\n\n".join(m.text for m in request.messages) for request in self.requests]

    async def complete(self, request: ModelRequest) -> ModelReply:
        """Return the next reply."""
        self.requests.append(request)
        answer: Any = self.outline if request.purpose == "outline" else self._next()
        if answer is None:
            last = request.messages[-1].text if request.messages else ""
            raise LLMExecutionError(
                f"the scripted model has no reply number {len(self.requests)}; "
                f"it was asked last: {shorten(last, _SHOWN, placeholder=' …')}",
                hint="queue it with scripted_model.says(…) or .writes(…)",
            )
        if callable(answer):
            answer = answer(request)
            if inspect.isawaitable(answer):
                answer = await answer
        if isinstance(answer, BaseException):
            raise answer
        if isinstance(answer, ModelReply):
            return answer
        return ModelReply(text=str(answer), model="scripted", usage=USAGE, cost_usd=0.0)

    def _next(self) -> Answer | None:
        return self.replies.popleft() if self.replies else self.default

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelDelta | ModelReply]:
        """Yield the next reply in two pieces, then as a whole."""
        reply = await self.complete(request)
        # Two pieces, to test that readers join them.
        half = len(reply.text) // 2
        for piece in (reply.text[:half], reply.text[half:]):
            if piece:
                yield ModelDelta(piece)
        for number, call in enumerate(reply.calls):
            yield ModelDelta(call.arguments, call=number, whole=call)
        yield reply

    async def aclose(self) -> None:
        """Count the calls of this method."""
        self.closed += 1


class FileModel(ScriptedModel):
    """A model that replies with texts from a JSON file, for tests that start ``delf`` as a process.

    The model writes the texts of all requests to a file next to the JSON file, with the ending
    ``PROMPTS_SUFFIX``.

    Args:
        config: The configuration with the model ``scripted-file:PATH``; the file has a JSON list of
            texts, used in order.
        context: Ignored.
    """

    def __init__(self, context: PluginContext, config: LLMConfig) -> None:
        path = Path(config.model.removeprefix(FILE_PREFIX))
        super().__init__(replies=deque(map(str, json.loads(path.read_text(encoding="utf-8")))))
        self._prompts_path = path.with_suffix(PROMPTS_SUFFIX)

    async def complete(self, request: ModelRequest) -> ModelReply:
        """Return the next reply, and log the request's text in a file."""
        text = "\n\n".join(message.text for message in request.messages)
        with self._prompts_path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(text) + "\n")
        return replace(await super().complete(request), model="scripted-file")
