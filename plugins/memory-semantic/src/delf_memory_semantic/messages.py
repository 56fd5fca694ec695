"""``MessageIndex``: the messages of conversations, found by words and by meaning.

Words are indexed in memory, from the conversations themselves. Only vectors are stored on disk,
under digests of the texts, so forgotten messages cannot be read there.
"""

from __future__ import annotations

import hashlib
import sqlite3
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np

from delf.machine.own_files import make_private_file
from delf.protocols.conversation import ChatMessage, user_of
from delf_memory_semantic.database import prepare_for_index, significant_words
from delf_memory_semantic.fusion import RANKING_SIZE, fuse_rankings

_SCHEMA: Final = """
CREATE TABLE messages (
    id INTEGER PRIMARY KEY, conversation TEXT, user TEXT, role TEXT, content TEXT, at REAL,
    digest BLOB
);
CREATE INDEX messages_of ON messages (conversation);
CREATE VIRTUAL TABLE words USING fts5(content, tokenize='porter unicode61');
"""
_VECTORS_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS vectors (
    namespace TEXT, model TEXT, digest BLOB, vector BLOB, PRIMARY KEY (namespace, model, digest)
) WITHOUT ROWID
"""
_SEARCH: Final = """
SELECT m.id, -bm25(words) FROM words JOIN messages m ON m.id = words.rowid
WHERE words MATCH ? AND m.at BETWEEN ? AND ? AND (? OR m.user IS ?) ORDER BY 2 DESC LIMIT ?
"""
# The number of characters of a message from which its vector is made.
#
# Embedding models read no more.
_MAX_EMBEDDED_CHARS: Final = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """The messages among which a search looks.

    Args:
        since: The Unix time of the oldest message.
        until: The Unix time of the newest message.
        user: The user of the conversations; None for the local user.
        every_user: Whether to look through the conversations of all users.
    """

    since: float
    until: float
    user: str | None = None
    every_user: bool = False


@dataclass(frozen=True, slots=True)
class FoundMessage:
    """A message that a search found, with the key of its conversation."""

    conversation: str
    message: ChatMessage


@dataclass(frozen=True, slots=True)
class UnembeddedMessage:
    """A message that has no vector yet, with its conversation and Unix time."""

    digest: bytes
    """The digest of the message's whole text."""
    text: str
    """The part of the message's text from which its vector is made."""
    conversation: str
    at: float


class MessageIndex:
    """An index of the messages of one namespace of a journal.

    All methods block, and are thread-safe.

    Args:
        file: The path of the file in which vectors are stored; a broken file is created again.
        namespace: A text that names the namespace of the conversations and their journal. The file
            keeps the vectors of different namespaces and journals apart.
    """

    def __init__(self, file: Path, namespace: str) -> None:
        self._file = file
        self._namespace = namespace
        self._lock = threading.Lock()
        self._vectors: dict[bytes, Any] = {}  # by the digest of a message's text
        self._model: str | None = None  # the embedding model that made the vectors

    @cached_property
    def _database(self) -> sqlite3.Connection:
        """The in-memory database, created at its first use, which is always in a thread."""
        database = sqlite3.connect(":memory:", check_same_thread=False)
        database.executescript(_SCHEMA)
        return database

    def close(self) -> None:
        """Close the index; it cannot be used any more."""
        with self._lock:
            self._database.close()

    def replace_messages(self, conversation: str, messages: Sequence[ChatMessage]) -> None:
        """Replace all messages of a conversation in the index."""
        user = user_of(conversation)
        with self._lock, self._database as database:
            database.execute(
                "DELETE FROM words WHERE rowid IN (SELECT id FROM messages WHERE conversation = ?)",
                (conversation,),
            )
            database.execute("DELETE FROM messages WHERE conversation = ?", (conversation,))
            for m in messages:
                inserted = database.execute(
                    "INSERT INTO messages (conversation, user, role, content, at, digest) "
                    "VALUES (?, ?, ?, ?, ?, ?)",
                    (conversation, user, m.role, m.content, m.at, _digest(m.content)),
                )
                database.execute(
                    "INSERT INTO words (rowid, content) VALUES (?, ?)",
                    (inserted.lastrowid, prepare_for_index(m.content)),
                )

    def sync_vectors(self, model: str) -> list[UnembeddedMessage]:
        """Load the vectors of an embedding model, and delete those of removed messages.

        Returns:
            The messages that have no vector of the model.
        """
        with self._lock:
            rows = self._database.execute(
                "SELECT digest, substr(content, 1, ?), conversation, at FROM messages",
                (_MAX_EMBEDDED_CHARS,),
            )
            # Messages with the same text have the same digest, and need only one vector.
            messages = {row[0]: UnembeddedMessage(*row) for row in rows}
            if model != self._model:
                self._vectors = self._read_vectors(model)
                self._model = model
            removed = self._vectors.keys() - messages.keys()
            if removed:
                self._delete_vectors(removed)
            return [each for each in messages.values() if each.digest not in self._vectors]

    def add_vectors(self, vectors: Mapping[bytes, Any], model: str) -> None:
        """Store the vectors of texts, given as a mapping from the text's digest to its vector."""
        arrays = {digest: np.array(vector, dtype="<f4") for digest, vector in vectors.items()}
        rows = [
            (self._namespace, model, digest, array.tobytes()) for digest, array in arrays.items()
        ]
        with self._lock:
            if model == self._model:
                self._vectors.update(arrays)
            self._run_on_file("INSERT OR REPLACE INTO vectors VALUES (?, ?, ?, ?)", rows)

    def find(self, query: str, vector: Any, within: Range, limit: int) -> list[FoundMessage]:
        """Return the messages that match a query best, best first.

        Args:
            query: The query in plain words.
            vector: The vector of the query; None to search by words only.
            within: The messages among which to search.
            limit: The maximum number of messages.
        """
        words = significant_words(query)
        with self._lock:
            by_words: dict[int, float] = {}
            if words:
                any_word = " OR ".join(f'"{word}"' for word in words)
                values = (any_word, *_values_of(within), RANKING_SIZE)
                by_words = dict(self._database.execute(_SEARCH, values).fetchall())
            similarities = self._similarities(vector, within, by_words)
            scores = fuse_rankings(
                query,
                by_words,
                similarities,
                lambda number: self._message(number).message.content,
            )
            chosen = list(scores)[:limit]
            return [self._message(number) for number in chosen]

    def _similarities(
        self, vector: Any, within: Range, by_words: Mapping[int, float]
    ) -> dict[int, float]:
        """Return the similarities of messages to a query.

        The result has the messages that are nearest to the query's vector, and the messages of
        ``by_words`` that have a vector.

        Args:
            vector: The vector of the query; None without an embedding model.
            within: The messages among which to search.
            by_words: The scores of the messages that a search by words has found.

        Returns:
            A mapping from the number of a message to its similarity.
        """
        if vector is None:
            return {}
        rows = self._database.execute(
            "SELECT id, digest FROM messages WHERE at BETWEEN ? AND ? AND (? OR user IS ?)",
            _values_of(within),
        )
        numbers: list[int] = []
        vectors: list[Any] = []
        for number, digest in rows:
            message_vector = self._vectors.get(digest)
            if message_vector is not None and len(message_vector) == len(vector):
                numbers.append(number)
                vectors.append(message_vector)
        if not vectors:
            return {}
        # einsum uses one thread; BLAS's threads would contend with a model's.
        similarities = np.einsum("ij,j->i", np.stack(vectors), vector)
        nearest_indexes: list[int] = np.argsort(-similarities)[:RANKING_SIZE].tolist()
        wanted_numbers = {numbers[index] for index in nearest_indexes} | by_words.keys()
        return {
            number: float(similarity)
            for number, similarity in zip(numbers, similarities, strict=True)
            if number in wanted_numbers
        }

    def _message(self, number: int) -> FoundMessage:
        row = self._database.execute(
            "SELECT conversation, role, content, at FROM messages WHERE id = ?", (number,)
        ).fetchone()
        message = ChatMessage(role=row[1], content=row[2], at=row[3])
        return FoundMessage(row[0], message)

    def _read_vectors(self, model: str) -> dict[bytes, Any]:
        rows = self._run_on_file(
            "SELECT digest, vector FROM vectors WHERE namespace = ? AND model = ?",
            [(self._namespace, model)],
        )
        return {digest: np.frombuffer(vector, dtype="<f4") for digest, vector in rows}

    def _delete_vectors(self, digests: set[bytes]) -> None:
        for digest in digests:
            del self._vectors[digest]
        self._run_on_file(
            "DELETE FROM vectors WHERE namespace = ? AND digest = ?",
            [(self._namespace, digest) for digest in digests],
        )

    def _run_on_file(self, statement: str, rows: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Run a statement on the file of vectors; return the rows.

        Return no rows if the file is locked, full or read-only. A file that is no database is
        created again. In both cases, the vectors are computed again later.

        Args:
            statement: The statement.
            rows: The values of the statement's parameters, for each run of the statement.
        """
        try:
            return self._run_statement(statement, rows)
        except sqlite3.OperationalError:
            return []  # locked, full or read-only: vectors are computed again
        except sqlite3.DatabaseError:
            self._file.unlink(missing_ok=True)  # its vectors are computed again
            return self._run_statement(statement, rows)

    def _run_statement(self, statement: str, rows: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Run a statement once for each row of parameters; return all selected rows."""
        make_private_file(self._file)
        database = sqlite3.connect(self._file, timeout=10)
        try:
            with database:
                database.execute(_VECTORS_SCHEMA)
                selected: list[Any] = []
                for values in rows:
                    selected += database.execute(statement, values)
                return selected
        finally:
            database.close()


def _values_of(within: Range) -> tuple[float, float, bool, str | None]:
    """Return the values for ``at BETWEEN ? AND ? AND (? OR user IS ?)`` in SQL."""
    return within.since, within.until, within.every_user, within.user


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode(errors="surrogatepass")).digest()[:16]
