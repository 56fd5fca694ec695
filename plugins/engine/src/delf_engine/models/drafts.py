"""``Draft``: the pieces of an incomplete answer whose calls are already being made."""

from __future__ import annotations

import asyncio

from delf.events import ModelWrote
from delf.messages import ModelDelta, ModelReply, Purpose, ToolCall
from delf_engine.journal.log import TaskLog


class Draft:
    """The pieces of an answer that is still incomplete.

    A script may run while the model still writes the answer. When the script makes a call, the
    pieces received so far are journalled, so that the journal has the cause of the call.

    Args:
        log: The task's log.
        purpose: The purpose of the model call.
    """

    def __init__(self, log: TaskLog, purpose: Purpose) -> None:
        self._log = log
        self._purpose = purpose
        # Two calls of a script may need the draft at once: both wait until it is stored.
        self._lock = asyncio.Lock()
        # The pieces that the journal does not have yet, and those that record() has stored.
        self._text: list[str] = []
        self._calls: list[ToolCall] = []
        self.is_empty = True
        self._stored_texts: list[str] = []
        self._stored_calls: list[ToolCall] = []

    def add(self, delta: ModelDelta) -> None:
        """Add a piece of text, or a whole call.

        The last piece of a call holds the whole call; the earlier pieces are ignored.
        """
        self.is_empty = False
        if delta.call is None:
            self._text.append(delta.text)
        elif (complete_call := delta.whole) is not None:
            self._calls.append(complete_call)

    def discard(self) -> None:
        """Discard the draft, because the complete answer is about to be journalled."""
        self._text.clear()
        self._calls.clear()

    async def record(self) -> None:
        """Journal all pieces received so far; return when the journal has stored them."""
        async with self._lock:
            # Clear the lists before the write, because add() may add further pieces during the
            # write.
            text = "".join(self._text)
            calls = tuple(self._calls)
            self._text.clear()
            self._calls.clear()
            if text or calls:
                await self._log.record(ModelWrote, purpose=self._purpose, text=text, calls=calls)
                self._stored_texts.append(text)
                self._stored_calls += calls

    @property
    def reply(self) -> ModelReply:
        """The pieces of the model's answer that the journal has stored, as one reply."""
        text = "".join(self._stored_texts)
        calls = tuple(self._stored_calls)
        return ModelReply(text=text, calls=calls, model="", finish_reason="cut")
