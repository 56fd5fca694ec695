"""``Chat``: a conversation that an agent's tasks continue."""

from __future__ import annotations

import asyncio
import inspect
import os
import threading
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Self, TypeVar, cast, get_args, overload

from delf.attributes import FixedAttributes
from delf.errors import (
    AgentStateError,
    ConfigurationError,
    DelfError,
    check_one_of,
    did_you_mean,
)
from delf.llm import LLMConfig, as_llm_config
from delf.messages import Role
from delf.protocols.conversation import (
    ChatMessage,
    ConversationRecord,
    ConversationState,
    ConversationStore,
    History,
    KeptVariables,
    Summarise,
    Warn,
)
from delf.types import Trust
from delf_chat.checks import check_count, check_name
from delf_chat.history import Transform, apply_transform, for_model, make_message
from delf_chat.memory import MemoryConversations
from delf_chat.on_loop import StoreOnLoop
from delf_chat.summary import Ask, ConversationCompressionError, fold
from delf_engine.agent_context import AgentContext
from delf_engine.journal.factory import need_durable_journal
from delf_engine.sync import LoopThread, call, call_async

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from delf import Agent
    from delf.protocols.shared_journal import SharedJournal

T = TypeVar("T")

_DEFAULT: Final = "default"
_KEPT: Final = 10


class Chat(FixedAttributes):
    """A conversation that an agent's tasks continue.

    ``len(chat)``, ``chat[0]``, ``chat[-5:]`` and ``for message in chat`` see the messages that the
    summary does not cover, the newest ``history_window`` of them. Each of these reads the messages
    again, because other processes may have added some.

    Every method has an asynchronous twin whose name begins with ``a``. With ``persist`` the plain
    methods block on the database; in memory they never block.

    Args:
        keep: The number of recent messages to keep unsummarised; older ones are summarised before
            the next task. 0 summarises everything. ``"variables"`` keeps ten messages, and in this
            process the last task's variables that are plain data.
        summarize: Whether older messages become a summary. Without it they stay.
        persist: Store the conversation with all messages in the journal's database (the plugin
            ``journal-sql``). Otherwise it is kept in memory, and summarised messages are dropped.
        path: With ``persist``: a SQLite file or a PostgreSQL URL instead of the journal's own.
        namespace: Keeps the conversations of programs that share a database apart.
        summarizer_llm: The model that summarises; else the agent's ``light_llm``, else its
            main model.
        history_window: The maximum number of messages that a task is shown, and that are loaded. A
            value below ``keep`` replaces ``keep``.
        history_transform: Gets the list of ``ChatMessage`` for a task and returns the messages that
            the task is shown. Plain functions are called in a thread.
        conversation_id: The id of the conversation within the namespace.

    Raises:
        ConfigurationError: For an invalid value.
    """

    def __init__(
        self,
        keep: int | Literal["variables"] = _KEPT,
        summarize: bool = True,
        persist: bool = False,
        path: str | Path | None = None,
        namespace: str = _DEFAULT,
        summarizer_llm: str | LLMConfig | None = None,
        *,
        history_window: int | None = None,
        history_transform: Transform | None = None,
        conversation_id: str = _DEFAULT,
    ) -> None:
        self.keeps_variables = keep == "variables"
        self.keep = _KEPT if keep == "variables" else check_count("keep", keep, 0)
        self.history_window = (
            None if history_window is None else check_count("history_window", history_window, 1)
        )
        if path is not None and not persist:
            raise ConfigurationError(
                "a chat has a path only if it persists", hint="Chat(persist=True, path=…)"
            )
        for name, switch in (("summarize", summarize), ("persist", persist)):
            if not isinstance(switch, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise ConfigurationError(f"Chat: {name} is {switch!r}", hint="True or False")
        if history_transform is not None and not callable(history_transform):
            raise ConfigurationError("history_transform must be a function")
        self.summarize = summarize
        self.persist = persist
        self.path = None if path is None else str(path)
        self.namespace = check_name("namespace", namespace)
        self.summarizer_llm = None if summarizer_llm is None else as_llm_config(summarizer_llm)
        self.history_transform = history_transform
        self._conversation = check_name("conversation_id", conversation_id)
        self._lock = threading.Lock()
        self._context: AgentContext | None = None
        self._journal: SharedJournal | None = None
        self._store: ConversationStore | None = None if persist else MemoryConversations()
        self._pid = os.getpid()
        self._thread: LoopThread | None = None
        self._end: weakref.finalize[..., Chat] | None = None
        self.variables: dict[str, KeptVariables] = {}
        """The variables of the last task of each conversation, if kept."""
        self.summarising: set[str] = set()
        """Conversations that are being summarised by a task of this process."""

    @classmethod
    def of(cls, value: Any) -> Self:
        """Make a chat from the options of ``Agent(chat=…)`` or ``delf.toml``.

        Args:
            value: A chat itself, True for one in memory, or its options.

        Raises:
            ConfigurationError: For any other value, and for an unknown option.
        """
        if isinstance(value, cls):
            return value
        if value is not True and not isinstance(value, Mapping):
            raise ConfigurationError(f"chat is a {type(value).__name__}", hint="give a Chat")
        options: dict[str, Any] = {} if value is True else dict(cast("Mapping[str, Any]", value))
        names = list(inspect.signature(cls).parameters)
        for name in options:
            if name not in names:
                raise ConfigurationError(
                    f"chat: unknown option {name!r}{did_you_mean(name, names)}",
                    hint=f"its options: {', '.join(names)}",
                )
        return cls(**options)

    def in_memory(self) -> Chat:
        """Return the conversation in memory; the object itself if it is not stored."""
        return Chat(conversation_id=self._conversation) if self.persist else self

    # -- conversations ------------------------------------------------------------------

    @property
    def conversation_id(self) -> str:
        """The name of this conversation."""
        return self._conversation

    def switch(self, conversation_id: str) -> None:
        """Switch to another conversation, which is created by its first message.

        Tasks that were submitted before stay with theirs.
        """
        self._conversation = check_name("conversation_id", conversation_id)

    def conversations(self, limit: int = 100) -> Sequence[ConversationRecord]:
        """Return the conversations of the namespace that have messages, the newest first."""
        return self._wait(self.aconversations(limit))

    async def aconversations(self, limit: int = 100) -> Sequence[ConversationRecord]:
        """Async version of :meth:`conversations`."""
        return await self.store().find(limit)

    # -- messages -----------------------------------------------------------------------

    def append(self, role: str, content: str) -> None:
        """Add a message.

        Args:
            role: ``user``, ``assistant`` or ``system``.
            content: The text.

        Raises:
            ConfigurationError: For another role, or a content that is not text.
        """
        self._wait(self.aappend(role, content))

    async def aappend(self, role: str, content: str) -> None:
        """Async version of :meth:`append`."""
        message = make_message(role, content, at=time.time())
        await self.store().append(self._conversation, [message])

    def clear(self, conversation_id: str | None = None) -> None:
        """Remove all messages and the summary of this or another conversation."""
        self._wait(self.aclear(conversation_id))

    async def aclear(self, conversation_id: str | None = None) -> None:
        """Async version of :meth:`clear`."""
        conversation = self.here(conversation_id).conversation_id
        self.variables.pop(conversation, None)
        await self.store().clear(conversation)

    def prune(
        self, older_than: float | None = None, keep: int = 0, *, dry_run: bool = False
    ) -> Sequence[ConversationRecord]:
        """Forget old conversations of the namespace.

        Args:
            older_than: Only conversations without a message for so many seconds.
            keep: The number of newest conversations to keep in any case.
            dry_run: Return the conversations without removing them.

        Returns:
            The removed conversations, oldest first.
        """
        return self._wait(self.aprune(older_than, keep, dry_run=dry_run))

    async def aprune(
        self, older_than: float | None = None, keep: int = 0, *, dry_run: bool = False
    ) -> Sequence[ConversationRecord]:
        """Async version of :meth:`prune`."""
        before = None if older_than is None else time.time() - older_than
        return await self.store().prune(before, check_count("keep", keep, 0), dry_run=dry_run)

    def by_role(self, role: str) -> list[ChatMessage]:
        """Return the messages of a role.

        Raises:
            ConfigurationError: For a role that does not exist.
        """
        check_one_of("role", role, get_args(Role))
        return [message for message in self if message.role == role]

    @property
    def messages(self) -> list[dict[str, str]]:
        """The messages as ``{"role": …, "content": …}``."""
        return [{"role": message.role, "content": message.content} for message in self]

    @property
    def summary(self) -> str | None:
        """The summary of earlier messages, if any."""
        return self._state().summary

    def __len__(self) -> int:
        return len(self._state().messages)

    def __bool__(self) -> bool:
        return True  # even without messages

    @overload
    def __getitem__(self, index: int) -> ChatMessage: ...

    @overload
    def __getitem__(self, index: slice) -> list[ChatMessage]: ...

    def __getitem__(self, index: int | slice) -> ChatMessage | list[ChatMessage]:
        messages = self._state().messages
        return list(messages[index]) if isinstance(index, slice) else messages[index]

    def __iter__(self) -> Iterator[ChatMessage]:
        return iter(self._state().messages)

    def __repr__(self) -> str:
        kind = "kept" if self.persist else "in memory"
        return f"<Chat {self.namespace}/{self._conversation}, {kind}>"

    # -- the summary --------------------------------------------------------------------

    def needs_compression(self) -> bool:
        """Return True if more than ``keep`` messages are not yet summarised."""
        return self._state().unsummarized_count > self.kept

    @property
    def kept(self) -> int:
        """The number of messages that are not summarised."""
        return self.keep if self.history_window is None else min(self.keep, self.history_window)

    def compress(self) -> bool:
        """Summarise all but the newest ``keep`` messages now, whatever ``summarize`` says.

        Returns:
            True if messages were summarised.

        Raises:
            ConversationCompressionError: If summarising fails; no message is dropped.
        """
        return call(self.acompress(), self._loop())

    async def acompress(self) -> bool:
        """Async version of :meth:`compress`."""

        async def ask(question: str) -> str:
            return await self._agent_context().ask(self.summarizer_llm, question)

        try:
            return await self.fold(self._conversation, ask)
        except ConversationCompressionError:
            raise
        except DelfError as error:
            raise ConversationCompressionError(
                f"the conversation was not summarised: {error.message}",
                hint=error.hint or "no message was dropped; try again",
            ) from error

    async def fold(self, conversation: str, ask: Ask) -> bool:
        """Summarise messages beyond ``keep`` with a given model."""
        return await fold(self.store(), conversation, self.kept, ask)

    # -- for the agent ------------------------------------------------------------------

    def attach(self, context: AgentContext) -> None:
        """Use an agent's plugins, options, environment, models and budget."""
        with self._lock:
            self._context = context

    def _agent_context(self) -> AgentContext:
        if self._context is None:
            self._context = AgentContext.of()
        return self._context

    def here(self, conversation_id: str | None = None) -> ChatTurns:
        """Return a conversation for a task; the current one when no id is given."""
        if conversation_id is None:
            return ChatTurns(self, self._conversation)
        return ChatTurns(self, check_name("conversation_id", conversation_id))

    def store(self) -> ConversationStore:
        """Return the store of conversations, for callers on any event loop.

        Its methods raise ``OptionalDependencyError`` if a plugin is missing that is needed to keep
        conversations, and ``PluginError`` if the journal keeps none.
        """
        if self._store is not None and not self.persist:
            return self._store
        return StoreOnLoop(self._opened_store, self._loop())

    def _opened_store(self) -> ConversationStore:
        """Return the journal's store, opened on the loop that uses it."""
        with self._lock:
            if self._store is None:
                context = self._agent_context()
                need_durable_journal(context.host, "a chat that persists")
                self._journal = context.open_conversations(self.path)
                self._store = self._journal.conversations(self.namespace)
            return self._store

    # -- closing ------------------------------------------------------------------------

    def close(self) -> None:
        """Close the database. Idempotent; the chat can be used again."""
        self._wait(self.aclose())
        with self._lock:
            thread, self._thread = self._thread, None
        if thread is not None and self._end is not None:
            self._end()

    async def aclose(self) -> None:
        """Close the database. Idempotent; the chat can be used again."""
        with self._lock:
            journal, self._journal = self._journal, None
            if journal is not None:
                self._store = None
        if journal is not None:
            await call_async(journal.aclose(), self._loop())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    # -- waiting ------------------------------------------------------------------------

    def _state(self) -> ConversationState:
        return self._wait(self.astate())

    async def astate(self) -> ConversationState:
        """Return the stored state of the conversation."""
        return await self.store().load(self._conversation, self.history_window)

    def _loop(self) -> asyncio.AbstractEventLoop:
        if self._pid != os.getpid():  # a forked process, which does not have the parent's thread
            self._pid, self._lock = os.getpid(), threading.Lock()
            self._thread = self._journal = None
            self._store = None if self.persist else self._store
        with self._lock:
            if self._thread is None:
                self._thread = LoopThread("delf-chat")
                self._end = weakref.finalize(self, self._thread.stop)
            return self._thread.loop

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Run async work to its end from sync code."""
        return call(work, self._loop()) if self.persist else _finish(work)


def _finish(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never actually waits, without an event loop.

    Raises:
        AgentStateError: If the coroutine waits.
    """
    try:
        coroutine.send(None)
    except StopIteration as done:
        return done.value
    coroutine.close()
    raise AgentStateError("a coroutine that was to end at once waits")


def chat_of(agent: Agent) -> Chat | None:
    """Return an agent's chat if it is a :class:`Chat`, else None."""
    return agent.chat if isinstance(agent.chat, Chat) else None


_MAX_SEARCHED: Final = 200
"""The number of newest messages that a resumed task searches for its own."""


class ChatTurns:
    """A conversation of a chat. Implements :class:`delf.protocols.conversation.TaskConversation`.

    Args:
        chat: The chat with its settings.
        conversation: The id of the conversation.
    """

    def __init__(self, chat: Chat, conversation: str) -> None:
        self._chat = chat
        self._conversation = conversation

    @property
    def conversation_id(self) -> str:
        """The conversation's name."""
        return self._conversation

    @property
    def keeps_variables(self) -> bool:
        """True if scripts find the variables of the last task."""
        return self._chat.keeps_variables

    def variables(self) -> KeptVariables:
        """Return the variables of the last task."""
        return self._chat.variables.get(self._conversation, KeptVariables(values={}))

    def keep_variables(self, variables: KeptVariables) -> None:
        """Keep the variables of a task that ended."""
        self._chat.variables[self._conversation] = variables

    async def begin(self, summarise: Summarise, warn: Warn) -> History:
        """Load the history for a task; messages beyond ``keep`` are summarised first.

        Raises:
            DelfError: If the history cannot be read or the user's transform fails.
        """
        chat = self._chat
        state = await self._load()
        if (
            chat.summarize
            and state.unsummarized_count > chat.kept
            and await self._summarise(summarise, warn)
        ):
            state = await self._load()
        messages = await apply_transform(state.messages, chat.history_transform)
        return History(
            messages=for_model(messages), summary=state.summary, summary_trust=state.summary_trust
        )

    async def keep(
        self, task: str, answer: str, task_id: str, *, trust: Trust, again: bool
    ) -> None:
        """Append a task and its result together.

        Args:
            task: The text of the task.
            answer: The result.
            task_id: The task.
            trust: ``own`` if the task had read nothing that others wrote, earlier turns included.
            again: Whether the task was resumed; a task that was added before is not added again.
        """
        if again and await self._is_recorded(task_id):
            return
        now = time.time()
        pair = [
            make_message("user", task, at=now, task_id=task_id, trust="own"),
            make_message("assistant", answer, at=now, task_id=task_id, trust=trust),
        ]
        await self._chat.store().append(self._conversation, pair)

    async def _is_recorded(self, task_id: str) -> bool:
        store = self._chat.store()
        last = (await store.load(self._conversation, 0)).last
        # Loaded messages do not suffice: the task's may have been summarised since.
        newest = await store.read(self._conversation, max(0, last - _MAX_SEARCHED), _MAX_SEARCHED)
        return any(message.task_id == task_id for message in newest)

    async def _load(self) -> ConversationState:
        chat = self._chat
        return await chat.store().load(self._conversation, chat.history_window)

    async def _summarise(self, summarise: Summarise, warn: Warn) -> bool:
        """Summarise older messages; return True if any were. A failure becomes a warning."""
        chat, conversation = self._chat, self._conversation
        if conversation in chat.summarising:
            return False  # a concurrent task already pays for this summary

        async def ask(question: str) -> str:
            return await summarise(chat.summarizer_llm, question)

        chat.summarising.add(conversation)
        try:
            return await chat.fold(conversation, ask)
        except Exception as error:
            why = error.message if isinstance(error, DelfError) else repr(error)
            await warn(f"the conversation was not summarised, and nothing of it is lost: {why}")
            return True  # some messages may have been summarised
        finally:
            chat.summarising.discard(conversation)
