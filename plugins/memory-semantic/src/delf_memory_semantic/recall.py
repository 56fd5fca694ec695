"""``Recall``: an action that looks through past conversations."""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
import re
from collections.abc import Awaitable, Iterable, Sequence
from typing import Annotated, Any, Final, Literal, TypedDict

import numpy as np
from pydantic import Field

from delf import CallContext, Connection, action
from delf.errors import DelfError, ToolRefusedError
from delf.machine.contexts import shared_task
from delf.notes import note
from delf.protocols.context import PluginContext
from delf.protocols.conversation import ChatMessage, ConversationStore, conversation_of
from delf.protocols.embedder import Embedder, Vectors
from delf.protocols.embedding import embed_or_refuse, is_refusal
from delf.protocols.shared_journal import SharedJournal
from delf.settings import PluginSettings, SecretStr, SentTo, SourcedText
from delf.tools.ranking import words_of
from delf_memory_semantic.messages import FoundMessage, MessageIndex, Range, UnembeddedMessage
from delf_memory_semantic.store import FIRST_ANSWER_SECONDS, embedder_of, is_loaded, reason_of

_log = logging.getLogger(__name__)

_PAGE: Final = 1000
_NO_LIMIT: Final = 2**31 - 1
# The maximum number of characters of a message that a script gets.
_MAX_SHOWN_CHARS: Final = 600
# The number of messages after which their vectors are stored.
_EMBEDDING_BATCH: Final = 256
# The number of seconds that a call waits for the vectors of messages.
#
# After that, the missing vectors are computed in the background; the search finds messages without
# a vector by words only.
_VECTOR_SECONDS: Final = 2.0
_END_OF_TIME: Final = 1e12


class RecallSettings(PluginSettings):
    """The settings of the connection: the conversations to search, and the embedder."""

    namespace: str = Field(
        default="default",
        description=("The namespace of the conversations, as in Chat(namespace=…)."),
    )
    url: Annotated[SecretStr | None, SentTo()] = Field(
        default=None,
        description=(
            "A journal's file or URL, as in Chat(path=…); the agent's journal when omitted."
        ),
    )
    embedding_model: str | None = Field(
        default=None,
        description=(
            'The name of an embedder; the agent\'s when omitted. With "off", messages '
            "are found by words alone."
        ),
    )
    scope: Literal["person", "agent"] = Field(
        default="person",
        description="The conversations that a task searches: those of the person who asks, or all.",
    )
    max_messages: int = Field(
        default=20_000,
        ge=1,
        description=("The most messages to search, of the newest conversations."),
    )


class Remembered(TypedDict):
    """A message of a past conversation, cut to an excerpt around the first matching word."""

    conversation: str
    at: dt.datetime
    role: str
    text: str


class Recall(Connection[RecallSettings]):
    """A connection that searches past conversations."""

    is_function = True

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._context: PluginContext | None = None
        self._journal: SharedJournal | None = None
        self._index: MessageIndex | None = None
        # By conversation: the time of the last message and the number of messages when indexed.
        self._indexed_states: dict[str, tuple[float, int]] = {}
        self._index_lock = asyncio.Lock()
        self._embedding: asyncio.Task[None] | None = None
        # The digests of the messages whose texts the embedder has refused.
        self._refused: set[bytes] = set()

    def use_context(self, context: PluginContext) -> None:
        """Implements :class:`delf.protocols.connection.SupportsPluginContext`."""
        self._context = context

    @action(effect="read")
    async def recall(
        self,
        query: str,
        since: dt.datetime | None = None,
        until: dt.datetime | None = None,
        limit: Annotated[int, Field(ge=1, le=20)] = 5,
        context: CallContext | None = None,
    ) -> list[Remembered]:
        """Look through past conversations, by meaning and by words; best first.

        Args:
            query: What was talked about, in plain words.
            since: The earliest time; a date without a time means the start of that day.
            until: The latest time.
            limit: How many messages at most, up to 20.
            context: The context of the call.
        """
        if not query.strip():
            raise ToolRefusedError("the query is empty", hint="give words of the conversation")
        within = Range(
            since=0.0 if since is None else _unix_time(since),
            until=_END_OF_TIME if until is None else _unix_time(until),
            user=None if context is None else context.user,
            every_user=self.settings.scope == "agent",
        )
        index = await self._updated_index()
        vector = await self._vector(index, query)
        messages = await asyncio.to_thread(index.find, query, vector, within, limit)
        return [_remembered(item, query, within.user) for item in messages]

    async def _updated_index(self) -> MessageIndex:
        """Return the index, after adding new messages and dropping removed ones."""
        context = self._plugin_context()
        async with self._index_lock:
            if self._journal is None:
                self._journal = self._open_journal(context)
            if self._index is None:
                file = context.data_dir / "recall.db"
                # Journals share the file, and each deletes the vectors of messages that it does not
                # have. So each journal has its own namespace.
                namespace_in_file = f"{self.settings.namespace} of {self._journal.place}"
                self._index = MessageIndex(file, namespace_in_file)
                self._indexed_states = {}  # a new index is empty
            conversations = self._journal.conversations(self.settings.namespace)
            await self._index_changes(conversations, self._index)
            return self._index

    def _open_journal(self, context: PluginContext) -> SharedJournal:
        """Open the journal that holds conversations; by default the agent's own journal."""
        url = self.settings.url
        if url is None:
            return context.conversations(None)
        # The source tells conversations() whether the user's passwords may be added to the URL.
        return context.conversations(
            SourcedText(url.get_secret_value(), self.settings.source("url"))
        )

    async def _index_changes(self, store: ConversationStore, index: MessageIndex) -> None:
        """Index the changed conversations, the newest first up to a limit.

        Removed conversations, and conversations beyond the limit, are dropped from the index.
        """
        indexed: dict[str, tuple[float, int]] = {}
        remaining_messages = self.settings.max_messages
        for record in await store.find(_NO_LIMIT):
            if remaining_messages <= 0:
                break
            remaining_messages -= record.messages
            state = record.updated_at, record.messages
            indexed[record.conversation] = state
            if self._indexed_states.get(record.conversation) != state:
                messages = await _messages(store, record.conversation)
                await asyncio.to_thread(index.replace_messages, record.conversation, messages)
        for conversation in self._indexed_states.keys() - indexed.keys():
            await asyncio.to_thread(index.replace_messages, conversation, ())
        self._indexed_states = indexed

    async def _vector(self, index: MessageIndex, query: str) -> Any:
        """Return the vector of a query; None without a working embedder.

        Wait a short time for the vectors of new messages, which are computed in the background.
        """
        embedder = embedder_of(self._plugin_context(), self.settings.embedding_model)
        if embedder is None:
            return None
        if self._embedding is None or self._embedding.done():
            self._embedding = shared_task(self._embed(index, embedder))
            self._embedding.add_done_callback(_log_failure)
        await asyncio.wait({self._embedding}, timeout=_VECTOR_SECONDS)
        # Loading a model may take long, which is no failure.
        seconds = FIRST_ANSWER_SECONDS if is_loaded(embedder) else None
        try:
            async with asyncio.timeout(seconds):
                (vector,) = await embedder.embed([query], "query")
        except (DelfError, TimeoutError) as error:
            note(f"messages are found by words alone, the embedder failed: {reason_of(error)}")
            return None
        return np.asarray(vector, dtype="float32")

    async def _embed(self, index: MessageIndex, embedder: Embedder) -> None:
        """Store a vector for each message without one; skip texts that the embedder refuses."""

        def embed(texts: Sequence[str]) -> Awaitable[Vectors]:
            return embedder.embed(texts, "passage")

        messages = await asyncio.to_thread(index.sync_vectors, embedder.model)
        missing = [message for message in messages if message.digest not in self._refused]
        for start in range(0, len(missing), _EMBEDDING_BATCH):
            batch = missing[start : start + _EMBEDDING_BATCH]
            outcomes = await embed_or_refuse(embed, [message.text for message in batch])
            vectors: dict[bytes, Iterable[float]] = {}
            for message, outcome in zip(batch, outcomes, strict=True):
                if not isinstance(outcome, DelfError):
                    vectors[message.digest] = outcome
                elif is_refusal(outcome):  # the next search tries again after other failures
                    self._report_refusal(message, embedder.model, outcome)
            await asyncio.to_thread(index.add_vectors, vectors, embedder.model)

    def _report_refusal(self, message: UnembeddedMessage, model: str, error: DelfError) -> None:
        """Log that the embedder refused the text of a message, without the text.

        The error's message may quote the text, so that only the error's code is logged.
        """
        self._refused.add(message.digest)
        _log.warning(
            "the message of %s in the conversation %r is found by words alone: the embedder %s "
            "refused its text (%s)",
            dt.datetime.fromtimestamp(message.at).astimezone().isoformat(" ", "seconds"),
            message.conversation,
            model,
            error.code,
        )

    def _plugin_context(self) -> PluginContext:
        if self._context is None:
            from delf import plugin_context

            self._context = plugin_context()
        return self._context

    async def aclose(self) -> None:
        """Close the journal and the index. Idempotent. A later use opens both again."""
        embedding, self._embedding = self._embedding, None
        if embedding is not None:
            embedding.cancel()
            await asyncio.wait({embedding})
        index, self._index = self._index, None
        if index is not None:
            await asyncio.to_thread(index.close)  # it may wait for a search
        journal, self._journal = self._journal, None
        if journal is not None:
            await journal.aclose()


def _unix_time(moment: dt.datetime) -> float:
    """Return the Unix time of a moment.

    Python cannot convert the first and the last moments of its calendar if they have no time zone.
    The result is then 0 or the end of time.
    """
    try:
        return moment.timestamp()
    except (ValueError, OverflowError):  # in UTC, it is before or after Python's calendar
        return 0.0 if moment.year == dt.MINYEAR else _END_OF_TIME


async def _messages(store: ConversationStore, conversation: str) -> list[ChatMessage]:
    """Return all messages in a conversation that have a text."""
    messages: list[ChatMessage] = []
    last_position = 0
    while page := await store.read(conversation, last_position, _PAGE):
        messages += page
        last_position = page[-1].position
    return [message for message in messages if message.content.strip()]


def _remembered(found: FoundMessage, query: str, user: str | None) -> Remembered:
    """Convert a found message for a script.

    The conversation's name loses the prefix that stands for the user.
    """
    message = found.message
    prefix_of_user = conversation_of(user, "")
    return Remembered(
        conversation=found.conversation.removeprefix(prefix_of_user),
        at=dt.datetime.fromtimestamp(message.at).astimezone(),
        role=message.role,
        text=_excerpt(message.content, query),
    )


def _excerpt(text: str, query: str) -> str:
    """Return an excerpt of a long text, around the text's first word that is in the query."""
    if len(text) <= _MAX_SHOWN_CHARS:
        return text
    words_of_query = set(words_of(query))
    match_start = 0
    for word in re.finditer(r"[^\W_]+", text):
        if not words_of_query.isdisjoint(words_of(word.group())):
            match_start = word.start()
            break
    # Show some text before the match. Near the end of the text, begin earlier to fill the excerpt.
    start_before_match = max(0, match_start - _MAX_SHOWN_CHARS // 4)
    start = min(start_before_match, len(text) - _MAX_SHOWN_CHARS)
    end = start + _MAX_SHOWN_CHARS
    excerpt = text[start:end].strip()
    if start > 0:
        excerpt = f"…{excerpt}"
    if end < len(text):
        excerpt = f"{excerpt}…"
    return excerpt


def _log_failure(embedding: asyncio.Task[None]) -> None:
    error = None if embedding.cancelled() else embedding.exception()
    if error is not None:
        message = error.describe() if isinstance(error, DelfError) else error
        _log.warning("messages are found by words alone, they could not be embedded: %s", message)
