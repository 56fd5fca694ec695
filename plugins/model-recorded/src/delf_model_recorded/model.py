"""Replays a recording as a model."""

from __future__ import annotations

import asyncio
import math
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

_MAX_DELTAS: Final = 4


class RecordingMismatch(DelfError):  # noqa: N818 - a finding, not a fault
    """The recording of a model has no unused answer for a request."""

    code = "ERR-LLM-005"
    default_hint = "record again with --record FILE, or use a real model, such as --llm gpt-4o-mini"


class RecordedModel:
    """A model that replays the answers in a recording.

    Each request gets the first unused answer whose recorded request matches. The order of requests
    may therefore differ from the recording, as it does for concurrent tasks.

    Args:
        config: The configuration with the model's name ``recorded:PATH``.
        context: Not used, because a recording needs no key.

    Raises:
        ModelConfigurationError: If the file is missing or malformed; the error names the line.
    """

    def __init__(self, context: PluginContext, config: LLMConfig) -> None:
        name = config.model.removeprefix(PREFIX)
        if not name:
            raise ModelConfigurationError(
                "recorded: needs the path of a recording",
                hint="recorded:PATH, as in recorded:a.jsonl",
            )
        # A path in delf.toml is relative to the folder of delf.toml. A string from delf.toml is a
        # FileText, which keeps this folder.
        base_folder = folder_of(config.model) or Path()
        self._path = Path(beside(base_folder, name))
        self._model = config.model
        entries = recording.read(self._path)
        self._count = len(entries)
        self._unused = dict(enumerate(entries))

    @staticmethod
    def record(model: Model, path: str, clean: Callable[[str], str] = str) -> RecordingModel:
        """Return a model that records the answers of another model.

        Args:
            model: The model that answers.
            path: The path of the recording.
            clean: Redacts recorded texts.
        """
        return RecordingModel(model, path, clean)

    def __repr__(self) -> str:
        return f"RecordedModel({str(self._path)!r}, {len(self._unused)} of {self._count} unused)"

    @property
    def takes_tools(self) -> bool:
        """True, because a recording may contain tool calls."""
        return True

    async def complete(self, request: ModelRequest) -> ModelReply:
        """Return the recorded answer to a request.

        Raises:
            RecordingMismatch: If no unused entry matches; the error says what differs.
        """
        return self._take_answer(request)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelDelta | ModelReply]:
        """Yield the recorded answer to a request in pieces, then the complete reply.

        Raises:
            RecordingMismatch: If no unused entry matches; the error says what differs.
        """
        reply = self._take_answer(request)
        size = max(1, math.ceil(len(reply.text) / _MAX_DELTAS))
        for start in range(0, len(reply.text), size):
            # Other tasks run between the pieces, as they do while a real model writes.
            await asyncio.sleep(0)
            yield ModelDelta(reply.text[start : start + size])
        for index, call in enumerate(reply.calls):
            yield ModelDelta(call.arguments, call=index)
        yield reply

    async def aclose(self) -> None:
        """No-op, because a recording holds no connection."""

    def _take_answer(self, request: ModelRequest) -> ModelReply:
        description = recording.describe_request(request)
        text = recording.text_of(description)
        # In the file's order, so that a repeated request gets its answers in the recorded order.
        for number, entry in self._unused.items():
            if entry.matches(description, text):
                del self._unused[number]
                return entry.model_reply(self._model)
        raise self._mismatch(description)

    def _mismatch(self, description: dict[str, object]) -> RecordingMismatch:
        """Return the error for a request that no unused entry matches.

        The message shows the differences between the request and the next unused entry with the
        same purpose, or if there is none, the next unused entry.
        """
        if not self._unused:
            return RecordingMismatch(
                f"the recording {self._path} has no answer left: all {self._count} entries are used"
            )
        entries = list(self._unused.values())
        same_purpose = [
            e for e in entries if e.request.get("purpose") in (None, description["purpose"])
        ]
        entry = same_purpose[0] if same_purpose else entries[0]
        return RecordingMismatch(
            f"the recording {self._path} has no answer to this request; it has {len(entries)} "
            f"unused entries (of {self._count}), and the next, line {entry.line}, differs:\n"
            f"{difference.explain(entry, description)}"
        )
