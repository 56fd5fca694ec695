"""``Draft``: an unfinished answer whose calls are made before it is whole."""

from __future__ import annotations

import asyncio

from delf.events import ModelWrote
from delf.messages import ModelDelta, ModelReply, Purpose, ToolCall
from delf_engine.journal.log import TaskLog


class Draft:
    """The visible part of an unfinished answer, journalled as soon as a call depends on it.

    Args:
        log: Where it is kept.
        purpose: The use of the answer.
    """

    def __init__(self, log: TaskLog, purpose: Purpose) -> None:
        self._log = log
        self._purpose = purpose
        self._lock = asyncio.Lock()
        self._text: list[str] = []
        self._calls: list[ToolCall] = []
        self.is_empty = True
        self.kept: list[str] = []
        self.kept_calls: list[ToolCall] = []

    def add(self, delta: ModelDelta) -> None:
        """Take a piece."""
        self.is_empty = False
        if delta.call is None:
            self._text.append(delta.text)
        elif delta.whole is not None:
            self._calls.append(delta.whole)

    def close(self) -> None:
        """Discard the draft, because the whole answer is about to be journalled."""
        self._text.clear()
        self._calls.clear()

    async def keep(self) -> None:
        """Have all pieces so far in the journal when this returns."""
        async with self._lock:
            text, calls = "".join(self._text), tuple(self._calls)
            self._text.clear()
            self._calls.clear()
            if text or calls:
                await self._log.record(ModelWrote, purpose=self._purpose, text=text, calls=calls)
                self.kept.append(text)
                self.kept_calls += calls

    @property
    def reply(self) -> ModelReply:
        """Return the answer as far as it was kept."""
        text = "".join(self.kept)
        calls = tuple(self.kept_calls)
        return ModelReply(text=text, calls=calls, model="", finish_reason="cut")
