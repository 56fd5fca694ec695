"""Replays a recording as a model."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Final

from delf.errors import DelfError, ModelConfigurationError
from delf.llm import LLMConfig
from delf.messages import ModelDelta, ModelReply, ModelRequest
from delf.protocols.context import PluginContext
from delf.protocols.model import Model
from delf.settings import beside, folder_of
from delf_model_recorded import difference, recording
from delf_model_recorded.project_files import PREFIX
from delf_model_recorded.recorder import RecordingModel

_DELTAS: Final = 4


class RecordingMismatch(DelfError):  # noqa: N818 - a finding, not a fault
    """A recorded model got a request that its recording does not contain."""

    code = "ERR-LLM-005"
    default_hint = "record again with --record FILE, or use a real model, such as --llm gpt-4o-mini"


class RecordedModel:
    """Replies with recorded answers from a file; each answer is given once, to its request.

    Requests may come in another order than they were recorded, as concurrent tasks do: each
    gets the first unused answer whose request matches.

    Args:
        config: The model is ``recorded:PATH``.
        context: Not needed: a recording has no key.

    Raises:
        ModelConfigurationError: If the file is missing or malformed, naming the line.
    """

    def __init__(self, context: PluginContext, config: LLMConfig) -> None:
        name = config.model.removeprefix(PREFIX)
        if not name:
            raise ModelConfigurationError(
                "recorded: needs the path of a recording",
                hint="recorded:PATH, as in recorded:a.jsonl",
            )
        # a path in delf.toml is relative to that file
        self._path = Path(beside(folder_of(config.model) or Path(), name))
        self._model = config.model
        entries = recording.read(self._path)
        self._count = len(entries)
        self._unused = dict(enumerate(entries))

    @staticmethod
    def record(model: Model, path: str, clean: Callable[[str], str] = str) -> RecordingModel:
        """Return a model that records another one's answers; ``clean`` redacts recorded texts."""
        return RecordingModel(model, path, clean)

    def __repr__(self) -> str:
        return f"RecordedModel({str(self._path)!r}, {len(self._unused)} of {self._count} unused)"

    @property
    def takes_tools(self) -> bool:
        """True, because a recording may hold tool calls."""
        return True

    async def complete(self, request: ModelRequest) -> ModelReply:
        """Return the recorded answer.

        Raises:
            RecordingMismatch: If no unused entry matches; the error says what differs.
        """
        return self._take(request)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelDelta | ModelReply]:
        """Yield the recorded answer in a few pieces, then as a whole.

        Raises:
            RecordingMismatch: If no unused entry matches; the error says what differs.
        """
        reply = self._take(request)
        size = max(1, -(-len(reply.text) // _DELTAS))
        for start in range(0, len(reply.text), size):
            # Other tasks run between the pieces, as they do while a real model writes.
            await asyncio.sleep(0)
            yield ModelDelta(reply.text[start : start + size])
        for number, call in enumerate(reply.calls):
            yield ModelDelta(call.arguments, call=number)
        yield reply

    async def aclose(self) -> None:
        """Do nothing."""

    def _take(self, request: ModelRequest) -> ModelReply:
        description = recording.describe_request(request)
        text = recording.text_of(description)
        # In the file's order, so that a repeated request gets its answers in the recorded order.
        for number, entry in self._unused.items():
            if entry.matches(description, text):
                del self._unused[number]
                return entry.model_reply(self._model)
        raise self._mismatch(description)

    def _mismatch(self, description: dict[str, object]) -> RecordingMismatch:
        if not self._unused:
            return RecordingMismatch(
                f"{self._path}: all {self._count} entries are used, and the model was asked again"
            )
        entries = list(self._unused.values())
        same = [e for e in entries if e.request.get("purpose") in (None, description["purpose"])]
        entry = (same or entries)[0]
        return RecordingMismatch(
            f"{self._path}: none of the {len(entries)} unused entries (of {self._count}) matches "
            f"this request; the next, line {entry.line}, differs:\n"
            f"{difference.explain(entry, description)}"
        )
