"""Conversations: what a task continues."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol, runtime_checkable

from delf.llm import LLMConfig
from delf.messages import Message
from delf.records import dataclass


@runtime_checkable
class SupportsConversations(Protocol):
    """A journal that keeps conversations, too; ``delf_journals.conversations`` says how."""

    def conversations(self, namespace: str) -> Any:
        """The ``ConversationStore`` of a namespace. It is closed with the journal."""
        ...

    async def aclose(self) -> None:
        """Free what is held. Safe to call twice; it can be used again."""
        ...


Summarise = Callable[["LLMConfig | None", str], Awaitable[str]]
"""Asks a model, the agent's quick one when None, with its cost counted as the task's."""

Warn = Callable[[str], Awaitable[None]]
"""Records a warning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """What a task is shown of the conversation before it.

    Args:
        messages: The newest messages.
        summary: What was said before these.
    """

    messages: tuple[Message, ...] = ()
    summary: str | None = None


class Conversation(Protocol):
    """A conversation that tasks continue, several at once if need be."""

    @property
    def conversation_id(self) -> str:
        """Which one it is."""
        ...

    async def begin(self, summarise: Summarise, warn: Warn) -> History:
        """Load what a task is shown; older messages may be summarised first.

        Raises:
            DelfError: When it cannot be read: the task would not know what was said.
        """
        ...

    async def keep(self, task: str, answer: str, task_id: str, *, again: bool) -> None:
        """Add what was asked and what came of it, next to each other.

        Args:
            task: What was asked.
            answer: What came of it.
            task_id: The task.
            again: Whether the task was resumed, so that it may have been added already.
        """
        ...
