"""``Chat``: a conversation that an agent's tasks continue."""

from __future__ import annotations

import asyncio
import inspect
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
from delf.machine.forks import finalize_in_owner, reset_in_forks
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
from delf_chat.checks import check_count, check_flag, check_id_without_user, check_name
from delf_chat.history import Transform, apply_transform, for_model, make_message
from delf_chat.memory import MemoryConversations
from delf_chat.on_loop import StoreOnLoop
from delf_chat.summary import Ask, ConversationCompressionError, summarize_old_messages
from delf_engine.agent_context import AgentContext
from delf_engine.journal.factory import need_durable_journal
from delf_engine.sync import LoopThread, await_on_loop, run_on_loop

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from delf import Agent
    from delf.protocols.shared_journal import SharedJournal

T = TypeVar("T")

_DEFAULT: Final = "default"
_DEFAULT_KEPT_MESSAGES: Final = 10


class Chat(FixedAttributes):
    """A conversation that an agent's tasks continue.

    ``len(chat)``, ``chat[0]``, ``chat[-5:]`` and ``for message in chat`` access the newest
    ``history_window`` messages that are not summarised. Each access reads the messages again,
    because other processes may have added some.

    Most methods have an async version whose name begins with ``a``, such as :meth:`aappend`. With
    ``persist`` the sync methods block on the database; in memory they never block.

    Args:
        keep: The number of recent messages that are not summarised. Older messages are summarised
            before the next task; 0 summarises everything. ``"variables"`` keeps ten messages, and
            within this process also the last task's variables that are plain data.
        summarize: Whether older messages are summarised. If false, they stay as they are.
        persist: Whether to store the conversation with all messages in the journal's database (the
            plugin ``journal-sql``). Otherwise the conversation is kept in memory, and summarised
            messages are dropped.
        path: With ``persist``: a SQLite file or a PostgreSQL URL instead of the journal's database.
        namespace: Separates the conversations of programs that share a database.
        summarizer_llm: The model that summarises. By default the agent's ``light_llm``, or its main
            model if there is none.
        history_window: The maximum number of messages that are loaded for a task. A value below
            ``keep`` replaces ``keep``.
        history_transform: A function that gets the list of ``ChatMessage`` for a task, and returns
            the messages that the task gets. Sync functions are called in a thread.
        conversation_id: The id of the conversation within the namespace.

    Raises:
        ConfigurationError: If a value is invalid.
    """

    def __init__(
        self,
        keep: int | Literal["variables"] = _DEFAULT_KEPT_MESSAGES,
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
        if path is not None and not persist:
            raise ConfigurationError(
                "a chat has a path only if it persists", hint="Chat(persist=True, path=…)"
            )
        if history_transform is not None and not callable(history_transform):
            raise ConfigurationError("history_transform must be a function")
        self.keeps_variables = keep == "variables"
        self.keep = _DEFAULT_KEPT_MESSAGES if keep == "variables" else check_count("keep", keep, 0)
        self.history_window = history_window
        if history_window is not None:
            check_count("history_window", history_window, 1)
        self.summarize = check_flag("summarize", summarize)
        self.persist = check_flag("persist", persist)
        # Keep a str unchanged: a text from delf.toml is of a subclass that knows its source, for
        # messages.
        self.path = str(path) if isinstance(path, Path) else path
        self.namespace = check_name("namespace", namespace)
        self.summarizer_llm = None if summarizer_llm is None else as_llm_config(summarizer_llm)
        self.history_transform = history_transform
        self._conversation = check_id_without_user(conversation_id)
        self._lock = threading.Lock()  # protects the journal, the store and the thread
        self._context: AgentContext | None = None
        self._journal: SharedJournal | None = None
        self._store: ConversationStore | None = None if persist else MemoryConversations()
        # The event loop of the synchronous methods.
        self._thread: LoopThread | None = None
        # Stops the thread, at the latest when the chat is garbage-collected.
        self._thread_finalizer: weakref.finalize[..., Chat] | None = None
        self.variables: dict[str, KeptVariables] = {}
        """The variables of each conversation's last task, by conversation id."""
        self.summarising: set[str] = set()
        """The ids of conversations that a task of this process is summarising."""
        reset_in_forks(self)

    @classmethod
    def of(cls, value: Any) -> Self:
        """Create a chat from the option ``Agent(chat=…)`` or from ``delf.toml``.

        Args:
            value: A chat, True for a chat in memory, or a mapping of options.

        Raises:
            ConfigurationError: If the value is anything else, or an option is unknown.
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
        """Return this chat if it is in memory; otherwise a new chat in memory with the same id."""
        if self.persist:
            return Chat(conversation_id=self._conversation)
        return self

    # -- conversations ------------------------------------------------------------------

    @property
    def conversation_id(self) -> str:
        """The id of the conversation."""
        return self._conversation

    def switch(self, conversation_id: str) -> None:
        """Switch to another conversation, which may be new.

        A new conversation is stored when its first message is added.

        Tasks that are already submitted stay in their conversations.
        """
        self._conversation = check_id_without_user(conversation_id)

    def conversations(self, limit: int = 100) -> Sequence[ConversationRecord]:
        """Return the conversations of the namespace that have messages, newest first."""
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
        """Remove all messages and the summary of a conversation.

        Args:
            conversation_id: The id of the conversation; None for the current one.
        """
        self._wait(self.aclear(conversation_id))

    async def aclear(self, conversation_id: str | None = None) -> None:
        """Async version of :meth:`clear`."""
        conversation = self.conversation_for(conversation_id).conversation_id
        self.variables.pop(conversation, None)
        await self.store().clear(conversation)

    def prune(
        self, older_than: float | None = None, keep: int = 0, *, dry_run: bool = False
    ) -> Sequence[ConversationRecord]:
        """Remove old conversations of the namespace.

        Args:
            older_than: The minimum number of seconds since the last message; None for any age.
            keep: The number of newest conversations that are not removed.
            dry_run: Whether to return the conversations without removing them.

        Returns:
            The removed conversations, oldest first.
        """
        return self._wait(self.aprune(older_than, keep, dry_run=dry_run))

    async def aprune(
        self, older_than: float | None = None, keep: int = 0, *, dry_run: bool = False
    ) -> Sequence[ConversationRecord]:
        """Async version of :meth:`prune`."""
        before = None if older_than is None else time.time() - older_than
        removed = await self.store().prune(before, check_count("keep", keep, 0), dry_run=dry_run)
        if not dry_run:
            for record in removed:
                self.variables.pop(record.conversation, None)
        return removed

    def by_role(self, role: str) -> list[ChatMessage]:
        """Return the messages of a role.

        Raises:
            ConfigurationError: If the role does not exist.
        """
        check_one_of("role", role, get_args(Role))
        return [message for message in self if message.role == role]

    @property
    def messages(self) -> list[dict[str, str]]:
        """The messages as dictionaries ``{"role": …, "content": …}``."""
        return [{"role": message.role, "content": message.content} for message in self]

    @property
    def summary(self) -> str | None:
        """The summary of earlier messages; None if nothing is summarised."""
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
        if isinstance(index, slice):
            return list(messages[index])
        return messages[index]

    def __iter__(self) -> Iterator[ChatMessage]:
        return iter(self._state().messages)

    def __repr__(self) -> str:
        kind = "kept" if self.persist else "in memory"
        return f"<Chat {self.namespace}/{self._conversation}, {kind}>"

    # -- the summary --------------------------------------------------------------------

    def needs_compression(self) -> bool:
        """Return True if more than ``keep`` messages are not summarised."""
        return self._state().unsummarized_count > self.kept

    @property
    def kept(self) -> int:
        """The maximum number of messages that stay unsummarised."""
        if self.history_window is None:
            return self.keep
        return min(self.keep, self.history_window)

    def compress(self) -> bool:
        """Summarise all messages now, except the newest :attr:`kept` messages.

        Also works in a chat that was created with ``summarize=False``.

        Returns:
            True if messages were summarised.

        Raises:
            ConversationCompressionError: If summarising fails. No message is dropped then.
        """
        return run_on_loop(self.acompress(), self._loop())

    async def acompress(self) -> bool:
        """Async version of :meth:`compress`."""

        async def ask(question: str) -> str:
            return await self._agent_context().ask_outside_task(self.summarizer_llm, question)

        try:
            return await self.summarize_old_messages(self._conversation, ask)
        except ConversationCompressionError:
            raise
        except DelfError as error:
            raise ConversationCompressionError(
                f"the conversation was not summarised: {error.message}",
                hint=error.hint or "no message was dropped; try again",
            ) from error

    async def summarize_old_messages(self, conversation: str, ask: Ask) -> bool:
        """Summarise a conversation's older messages with a given model.

        Returns:
            True if messages were summarised.
        """
        return await summarize_old_messages(self.store(), conversation, self.kept, ask)

    # -- for the agent ------------------------------------------------------------------

    def attach(self, context: AgentContext) -> None:
        """Use the plugins, options, environment, models and budget of an agent."""
        with self._lock:
            self._context = context

    def _agent_context(self) -> AgentContext:
        if self._context is None:
            self._context = AgentContext.of()
        return self._context

    def conversation_for(self, conversation_id: str | None = None) -> ChatTurns:
        """Return an object that connects a task with a conversation of this chat.

        Args:
            conversation_id: The id of the conversation; None for the current conversation.
        """
        if conversation_id is None:
            return ChatTurns(self, self._conversation)
        return ChatTurns(self, check_name("conversation_id", conversation_id))

    def store(self) -> ConversationStore:
        """Return the store of conversations, for callers on any event loop.

        The store's methods raise ``OptionalDependencyError`` if a plugin for stored conversations
        is missing, and ``PluginError`` if the journal does not support conversations.
        """
        if self._store is not None and not self.persist:
            return self._store  # a store in memory can be used on any event loop
        return StoreOnLoop(self._open_store, self._loop())

    def _open_store(self) -> ConversationStore:
        """Return the journal's store, which the first call opens.

        Call this on the event loop that will use the store.
        """
        with self._lock:
            if self._store is None:
                context = self._agent_context()
                need_durable_journal(context.host, "a chat that persists")
                self._journal = context.open_conversation_journal(self.path)
                self._store = self._journal.conversations(self.namespace)
            return self._store

    # -- closing ------------------------------------------------------------------------

    def close(self) -> None:
        """Close the database. Idempotent; the chat can be used again."""
        self._wait(self.aclose())
        with self._lock:
            thread, self._thread = self._thread, None
        if thread is not None and self._thread_finalizer is not None:
            self._thread_finalizer()  # stops the thread

    async def aclose(self) -> None:
        """Close the database. Idempotent; the chat can be used again."""
        with self._lock:
            journal, self._journal = self._journal, None
            if journal is not None:  # a store in memory stays, with its conversations
                self._store = None
        if journal is not None:
            await await_on_loop(journal.aclose(), self._loop())

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

    def reset_after_fork(self) -> None:
        """Leave the thread and the database to the parent, in a forked process."""
        self._lock = threading.Lock()
        self._thread = None
        self._journal = None
        # A store in memory was copied by the fork, but a store on disk has to be opened again.
        if self.persist:
            self._store = None

    def _loop(self) -> asyncio.AbstractEventLoop:
        """Return the event loop of this chat's own thread, which the first call starts."""
        with self._lock:
            if self._thread is None:
                self._thread = LoopThread("delf-chat")
                self._thread_finalizer = finalize_in_owner(self, self._thread.stop)
            return self._thread.loop

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end from sync code."""
        if self.persist:
            return run_on_loop(work, self._loop())
        # The store is in memory, so no step of the coroutine waits, and no event loop is needed.
        return _run_without_waiting(work)


def _run_without_waiting(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never waits, without an event loop.

    Raises:
        AgentStateError: If the coroutine waits.
    """
    try:
        coroutine.send(None)
    except StopIteration as done:
        return done.value
    coroutine.close()
    raise AgentStateError("the coroutine waits, but must finish without an event loop")


def chat_of(agent: Agent) -> Chat | None:
    """Return an agent's chat if it is a :class:`Chat`, else None."""
    return agent.chat if isinstance(agent.chat, Chat) else None


# The number of newest messages in which a resumed task looks for its own messages.
_MAX_SEARCHED: Final = 200


class ChatTurns:
    """Connects a task with a conversation: loads the earlier messages, and adds new messages.

    Implements :class:`delf.protocols.conversation.TaskConversation`.

    Args:
        chat: The chat to which the conversation belongs.
        conversation: The id of the conversation.
    """

    def __init__(self, chat: Chat, conversation: str) -> None:
        self._chat = chat
        self._conversation = conversation

    @property
    def conversation_id(self) -> str:
        """The id of the conversation."""
        return self._conversation

    @property
    def keeps_variables(self) -> bool:
        """True if scripts can use the variables of the conversation's last task."""
        return self._chat.keeps_variables

    def variables(self) -> KeptVariables:
        """Return the variables of the conversation's last task."""
        return self._chat.variables.get(self._conversation, KeptVariables(values={}))

    def keep_variables(self, variables: KeptVariables) -> None:
        """Store the variables of a task that ended."""
        self._chat.variables[self._conversation] = variables

    async def begin(self, summarise: Summarise, warn: Warn) -> History:
        """Load the history for a task, after summarising older messages.

        Raises:
            DelfError: If the history cannot be read, or ``history_transform`` fails.
        """
        chat = self._chat
        state = await self._load()
        needs_summary = chat.summarize and state.unsummarized_count > chat.kept
        if needs_summary and await self._summarise(summarise, warn):
            state = await self._load()
        messages = await apply_transform(state.messages, chat.history_transform)
        return History(
            messages=for_model(messages), summary=state.summary, summary_trust=state.summary_trust
        )

    async def keep(
        self, task: str, answer: str, task_id: str, *, trust: Trust, is_resumed: bool
    ) -> None:
        """Append a task and its result to the conversation.

        Args:
            task: The text of the task.
            answer: The result.
            task_id: The id of the task.
            trust: ``own`` if neither the task nor an earlier task of the conversation read data
                from others.
            is_resumed: Whether the task was resumed. A resumed task is not appended twice.
        """
        if is_resumed and await self._is_recorded(task_id):
            return
        now = time.time()
        pair = [
            make_message("user", task, at=now, task_id=task_id, trust="own"),
            make_message("assistant", answer, at=now, task_id=task_id, trust=trust),
        ]
        await self._chat.store().append(self._conversation, pair)

    async def _is_recorded(self, task_id: str) -> bool:
        store = self._chat.store()
        last_position = (await store.load(self._conversation, 0)).last
        # load() leaves out summarised messages, and the task's messages may be among them.
        after = max(0, last_position - _MAX_SEARCHED)
        newest = await store.read(self._conversation, after, _MAX_SEARCHED)
        return any(message.task_id == task_id for message in newest)

    async def _load(self) -> ConversationState:
        chat = self._chat
        return await chat.store().load(self._conversation, chat.history_window)

    async def _summarise(self, summarise: Summarise, warn: Warn) -> bool:
        """Summarise older messages. A failure becomes a warning.

        Returns:
            True if messages may have been summarised.
        """
        chat, conversation = self._chat, self._conversation
        if conversation in chat.summarising:
            return False  # a concurrent task already pays for this summary

        async def ask(question: str) -> str:
            return await summarise(chat.summarizer_llm, question)

        chat.summarising.add(conversation)
        try:
            return await chat.summarize_old_messages(conversation, ask)
        except Exception as error:
            reason = error.message if isinstance(error, DelfError) else repr(error)
            await warn(f"the conversation was not summarised, and nothing of it is lost: {reason}")
            return True  # some messages may have been summarised
        finally:
            chat.summarising.discard(conversation)
