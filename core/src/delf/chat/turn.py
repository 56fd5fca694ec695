"""How a task continues a chat."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from delf.chat.history import for_model, make_message, transformed
from delf.errors import DelfError
from delf.protocols.conversation import ConversationState, History, Summarise, Warn

if TYPE_CHECKING:
    from delf.chat.chat import Chat

_LOOKED_AT: Final = 200
"""Messages among which a resumed task looks for its own."""


class ChatTurns:
    """Implements :class:`delf.protocols.conversation.Conversation`.

    Args:
        chat: How much of it is shown, and what is summarised.
        conversation: Which of its conversations.
    """

    def __init__(self, chat: Chat, conversation: str) -> None:
        self._chat = chat
        self._conversation = conversation

    @property
    def conversation_id(self) -> str:
        """Which conversation it is."""
        return self._conversation

    async def begin(self, summarise: Summarise, warn: Warn) -> History:
        """Load what a task is shown; what is over ``keep`` is summarised first.

        Raises:
            DelfError: When it cannot be read, or the user's transform fails.
        """
        chat = self._chat
        state = await self._load()
        if (
            chat.summarize
            and state.uncovered > chat.kept
            and await self._summarise(summarise, warn)
        ):
            state = await self._load()
        shown = await transformed(state.messages, chat.history_transform)
        return History(messages=for_model(shown), summary=state.summary)

    async def keep(self, task: str, answer: str, task_id: str, *, again: bool) -> None:
        """Add what was asked and what came of it, next to each other.

        Args:
            task: What was asked.
            answer: What came of it.
            task_id: The task.
            again: Whether the task was resumed: added already, it is not added once more.
        """
        if again and await self._has(task_id):
            return
        now = time.time()
        pair = [
            make_message("user", task, at=now, task_id=task_id),
            make_message("assistant", answer, at=now, task_id=task_id),
        ]
        await self._chat.store().append(self._conversation, pair)
        self._chat.changed()

    async def _has(self, task_id: str) -> bool:
        store = self._chat.store()
        last = (await store.load(self._conversation, 0)).last
        # Not only what is loaded: others may have summarised it since.
        newest = await store.read(self._conversation, max(0, last - _LOOKED_AT), _LOOKED_AT)
        return any(message.task_id == task_id for message in newest)

    async def _load(self) -> ConversationState:
        chat = self._chat
        return await chat.store().load(self._conversation, chat.history_window)

    async def _summarise(self, summarise: Summarise, warn: Warn) -> bool:
        """Whether anything became a part of the summary. A failure is a warning."""
        chat, conversation = self._chat, self._conversation
        if not chat.begin_summary(conversation):
            return False  # another task of this process is at it

        async def ask(question: str) -> str:
            return await summarise(chat.summarizer_llm, question)

        try:
            return await chat.fold(conversation, ask)
        except Exception as error:
            why = error.message if isinstance(error, DelfError) else repr(error)
            await warn(f"the conversation was not summarised, and nothing of it is lost: {why}")
            return True  # a part of it may have been
        finally:
            chat.end_summary(conversation)
