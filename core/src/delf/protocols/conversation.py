"""Conversations: kept by a journal beside the events, and continued by tasks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, Protocol

from delf.llm import LLMConfig
from delf.messages import Message, Role
from delf.records import dataclass
from delf.types import Trust

USER_SEPARATOR: Final = "|"
"""The separator of user and name in the stored name of a conversation; no name contains it."""


def conversation_of(user: str | None, name: str) -> str:
    """Return the name under which a conversation is stored: ``USER|NAME``, or only ``NAME``.

    Args:
        user: The user to whom the conversation belongs; None for the local user.
        name: The name that the user sees.
    """
    return name if user is None else f"{user}{USER_SEPARATOR}{name}"


def user_of(conversation: str) -> str | None:
    """Return the user in the stored name of a conversation; None for the local user."""
    user, separator, _ = conversation.partition(USER_SEPARATOR)
    return user if separator else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatMessage:
    """A message of a conversation.

    Args:
        role: The author.
        content: The text.
        at: Unix time in seconds.
        task_id: The task that the message belongs to.
        position: The number in the conversation, from 1; 0 for a message that is not stored yet.
        trust: For an answer, ``own`` if its task had read no untrusted data, else ``outside``. Not
            used for messages of the user.
    """

    role: Role
    content: str
    at: float = 0.0
    task_id: str | None = None
    position: int = 0
    trust: Trust = "outside"

    @property
    def is_own(self) -> bool:
        """True if only the user can have influenced the message."""
        return self.role == "user" or self.trust == "own"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationState:
    """The current state of a conversation.

    Args:
        messages: The newest messages that the summary does not cover, the oldest first.
        summary: A summary of the earlier messages.
        summarized_upto: The position of the last message that the summary covers.
        summary_trust: ``own`` if every message that the summary covers is trusted as the user's
            own, else ``outside``.
        last: The position of the newest message. No position between ``summarized_upto`` and
            ``last`` is missing.
    """

    messages: tuple[ChatMessage, ...] = ()
    summary: str | None = None
    summarized_upto: int = 0
    summary_trust: Trust = "outside"
    last: int = 0

    @property
    def unsummarized_count(self) -> int:
        """The number of messages that the summary does not cover, loaded or not."""
        return self.last - self.summarized_upto


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationRecord:
    """The summary of a conversation, for lists.

    Args:
        conversation: The id.
        messages: The number of messages, including summarised ones.
        updated_at: Unix time in seconds of the newest message.
        title: The beginning of the first message.
        folder: The folder of the task of the newest message, as in
            :attr:`delf.protocols.journal.TaskRecord.folder`; None if it is unknown.
    """

    conversation: str
    messages: int
    updated_at: float
    title: str = ""
    folder: str | None = None


class ConversationStore(Protocol):
    """A store of the conversations of one namespace, by conversation id.

    Other processes may write at the same time: no message is lost, and messages of one ``append``
    stay together.
    """

    async def append(self, conversation: str, messages: Sequence[ChatMessage]) -> int:
        """Append messages in one transaction; return the position of the last message."""
        ...

    async def load(self, conversation: str, limit: int | None = None) -> ConversationState:
        """Load a conversation; a missing conversation is empty.

        Args:
            conversation: The id.
            limit: The maximum number of messages to load, the newest ones; all when None.
        """
        ...

    async def read(self, conversation: str, after: int, limit: int) -> Sequence[ChatMessage]:
        """Return the first ``limit`` messages after the position ``after``, in order."""
        ...

    async def summarize(
        self,
        conversation: str,
        summary: str,
        upto: int,
        *,
        expected_upto: int,
        trust: Trust = "outside",
    ) -> bool:
        """Replace the summary, unless another caller has replaced it meanwhile.

        Args:
            conversation: The id.
            summary: The text.
            upto: The position of the last message that the summary covers.
            expected_upto: :attr:`ConversationState.summarized_upto` of the summary to replace; 0 if
                there is no summary yet.
            trust: ``own`` if every covered message is the user's own, else ``outside``.

        Returns:
            False, without a change, if the stored summary ends at another position.
        """
        ...

    async def clear(self, conversation: str) -> None:
        """Remove messages and summary. Positions continue after the last message."""
        ...

    async def find(self, limit: int = 100) -> Sequence[ConversationRecord]:
        """Return the conversations that have messages, the newest first."""
        ...

    async def prune(
        self, before: float | None, keep: int = 0, *, dry_run: bool = False
    ) -> Sequence[ConversationRecord]:
        """Remove conversations as :meth:`clear` does; return the removed ones, oldest first.

        A conversation that gets a message meanwhile is not removed. A new conversation may have the
        id of a removed one. Within a day of the removal, the positions of its messages continue
        after the removed messages; later, they begin at 1 again.

        Args:
            before: Only conversations without a message since this Unix time; all when None.
            keep: The number of newest conversations to keep in any case.
            dry_run: Return the conversations without removing them.
        """
        ...


Summarise = Callable[["LLMConfig | None", str], Awaitable[str]]
"""A function that asks a model to answer a prompt; None means the agent's light model.

The cost is part of the task's cost.
"""

Warn = Callable[[str], Awaitable[None]]
"""A function that records a warning of the task."""


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """The part of a conversation that a task is shown.

    Args:
        messages: The newest messages.
        summary: A summary of the earlier messages.
        summary_trust: ``own`` if the user wrote all messages that the summary covers, else
            ``outside``.
    """

    messages: tuple[Message, ...] = ()
    summary: str | None = None
    summary_trust: Trust = "outside"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptVariables:
    """Variables of a finished task, kept for the next task of the conversation.

    Args:
        values: Plain data, by name.
        trust: ``own`` if the finished task had read no untrusted data, else ``outside``.
    """

    values: Mapping[str, Any]
    trust: Trust = "outside"


class TaskConversation(Protocol):
    """A conversation that tasks continue; several tasks may do so at the same time.

    This is a protocol because the engine cannot import the plugin with the implementation, which
    imports the engine.
    """

    @property
    def conversation_id(self) -> str:
        """The conversation's name."""
        ...

    async def begin(self, summarise: Summarise, warn: Warn) -> History:
        """Load the history for a task; older messages may be summarised first.

        Raises:
            DelfError: If the history cannot be read.
        """
        ...

    async def keep(
        self, task: str, answer: str, task_id: str, *, trust: Trust, is_resumed: bool
    ) -> None:
        """Append a task and its result as two messages.

        Args:
            task: The user's task.
            answer: The result.
            task_id: The task.
            trust: ``own`` if neither the task nor earlier tasks of the conversation had read
                untrusted data.
            is_resumed: Whether the task was resumed, so that its messages may already be stored.
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
        """Store variables, replacing those of the previous task."""
        ...
