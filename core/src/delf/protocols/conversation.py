"""Conversations: kept by a journal beside the events, and continued by tasks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

from delf.llm import LLMConfig
from delf.messages import Message, Role
from delf.records import dataclass
from delf.types import Trust


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatMessage:
    """One message of a conversation.

    Args:
        role: Who said it.
        content: What was said.
        at: Unix time in seconds.
        task_id: The task that it belongs to.
        position: Its number in the conversation, from 1; 0 until it is kept.
        trust: Of an answer: ``own`` if its task had read nothing that others wrote. What the user
            said is always the user's own.
    """

    role: Role
    content: str
    at: float = 0.0
    task_id: str | None = None
    position: int = 0
    trust: Trust = "outside"

    @property
    def is_own(self) -> bool:
        """True if nobody but the user can have influenced the message."""
        return self.role == "user" or self.trust == "own"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationState:
    """A conversation as it is now.

    Args:
        messages: The newest of those that the summary does not cover, the oldest first.
        summary: What was said before.
        summarized: The position of the last message that the summary covers.
        summary_trust: ``own`` if every message that the summary covers is the user's own.
        last: The position of the newest message. Positions have no gap after ``summarized``.
    """

    messages: tuple[ChatMessage, ...] = ()
    summary: str | None = None
    summarized: int = 0
    summary_trust: Trust = "outside"
    last: int = 0

    @property
    def uncovered(self) -> int:
        """The number of messages that the summary does not cover, loaded or not."""
        return self.last - self.summarized


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationRecord:
    """One conversation in a list.

    Args:
        conversation: Its id.
        messages: How many messages it has, those that a summary covers included.
        updated_at: Unix time in seconds of the newest one.
        title: How its first message begins.
    """

    conversation: str
    messages: int
    updated_at: float
    title: str = ""


class ConversationStore(Protocol):
    """The conversations of one namespace, by their ids.

    It may be used from several event loops, and other processes may write at the same time:
    no message is lost, and what is appended together stays together.
    """

    async def append(self, conversation: str, messages: Sequence[ChatMessage]) -> int:
        """Keep messages, next to each other; the position of the last one."""
        ...

    async def load(self, conversation: str, limit: int | None = None) -> ConversationState:
        """A conversation; an empty one when there is none.

        Args:
            conversation: Its id.
            limit: How many messages at the most; what this costs depends on it alone.
        """
        ...

    async def read(self, conversation: str, after: int, limit: int) -> Sequence[ChatMessage]:
        """The first messages after a position, in order, that are still kept."""
        ...

    async def summarize(
        self,
        conversation: str,
        summary: str,
        upto: int,
        *,
        instead_of: int,
        trust: Trust = "outside",
    ) -> bool:
        """Set the summary; False, and nothing changes, if somebody else was quicker.

        Args:
            conversation: Its id.
            summary: The text.
            upto: The position of the last message that it covers.
            instead_of: That of the summary which it replaces.
            trust: ``own`` if every message that it covers is the user's own.
        """
        ...

    async def clear(self, conversation: str) -> None:
        """Forget messages and summary. Positions go on after the last one."""
        ...

    async def find(self, limit: int = 100) -> Sequence[ConversationRecord]:
        """The conversations that have messages, the newest first."""
        ...

    async def prune(
        self, before: float | None, keep: int = 0, *, dry_run: bool = False
    ) -> Sequence[ConversationRecord]:
        """Forget conversations as ``clear`` does; those that were, the oldest first.

        One in which somebody says something meanwhile stays. What is left of conversations
        that were forgotten a day ago is removed; then their positions begin again.

        Args:
            before: Only those in which nothing was said since this Unix time; all when None.
            keep: How many of the newest stay in any case.
            dry_run: Only say which.
        """
        ...


Summarise = Callable[["LLMConfig | None", str], Awaitable[str]]
"""Asks a model, the agent's quick one when None, with its cost counted as the task's."""

Warn = Callable[[str], Awaitable[None]]
"""Records a warning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """The part of a conversation that a task is shown.

    Args:
        messages: The newest messages.
        summary: What was said before these.
        summary_trust: ``own`` if every message that the summary covers is the user's own.
    """

    messages: tuple[Message, ...] = ()
    summary: str | None = None
    summary_trust: Trust = "outside"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptVariables:
    """The variables that a task left for the next one.

    Args:
        values: Plain data, by name.
        trust: ``own`` if that task had read nothing that others wrote.
    """

    values: Mapping[str, Any]
    trust: Trust = "outside"


class TaskConversation(Protocol):
    """A conversation that tasks continue, several at once if need be."""

    @property
    def conversation_id(self) -> str:
        """The conversation's name."""
        ...

    async def begin(self, summarise: Summarise, warn: Warn) -> History:
        """Load what a task is shown; older messages may be summarised first.

        Raises:
            DelfError: When it cannot be read: the task would not know what was said.
        """
        ...

    async def keep(
        self, task: str, answer: str, task_id: str, *, trust: Trust, again: bool
    ) -> None:
        """Add what was asked and its result, next to each other.

        Args:
            task: What was asked.
            answer: The result.
            task_id: The task.
            trust: ``own`` if the task had read nothing that others wrote, earlier turns included.
            again: Whether the task was resumed, so that it may have been added already.
        """
        ...

    @property
    def keeps_variables(self) -> bool:
        """True if the variables of scripts are kept for the next task."""
        ...

    def variables(self) -> KeptVariables:
        """Return the variables that the last task left."""
        ...

    def keep_variables(self, variables: KeptVariables) -> None:
        """Keep variables in place of those of the task before."""
        ...
