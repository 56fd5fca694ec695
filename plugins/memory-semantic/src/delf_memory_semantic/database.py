"""Facts and their vectors in SQLite or PostgreSQL; facts saved together are one transaction.

The index of words is in the database (FTS5, ``tsvector``), kept by the database itself, so
facts and their index cannot disagree.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import shlex
import sqlite3
import threading
import time
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import unquote, urlsplit

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.exc import ArgumentError, SQLAlchemyError
from sqlalchemy.schema import CreateTable
from sqlalchemy.util import asbool

from delf.errors import MemoryRetrievalError, MemorySetupError
from delf.machine.forks import reset_in_forks
from delf.machine.own_files import make_private_file, make_private_folder
from delf.protocols.memory import Fact
from delf.tools.ranking import parts_of, singular, words_of
from delf.values.unicode import normalized
from delf_memory_semantic.delfhos import is_delfhos

_VERSION: Final = "2"
_HINT: Final = "see that the database is there, and that the url of the memory is right"
BUSY_MS: Final = 10_000
"""The number of milliseconds for which SQLite waits for another writer."""
_RETRY_SECONDS: Final = 0.01
# The number of the advisory lock that is held while the tables are created in PostgreSQL.
_SETUP_LOCK: Final = 0x64656C66
# The maximum number of values in a statement, or of rows in a batch.
#
# SQLite allows 32,766 values in a statement.
_MAX_BATCH: Final = 10_000
# The maximum number of words of a query that are searched; a longer query is cut off.
_MAX_WORDS: Final = 48
_LETTERS: Final = re.compile(r"[^\W\d_]+")

_tables = sa.MetaData()
_meta = sa.Table(
    "delf_memory_meta",
    _tables,
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("value", sa.Text, nullable=False),
)
_facts = sa.Table(
    "delf_memory_facts",
    _tables,
    sa.Column(
        "id",
        sa.BigInteger().with_variant(sa.Integer, "sqlite"),
        primary_key=True,
        autoincrement=True,
    ),
    sa.Column("namespace", sa.Text, nullable=False),
    sa.Column("digest", sa.String(64), nullable=False),
    sa.Column("content", sa.Text, nullable=False),
    sa.Column("words", sa.Text, nullable=False),
    sa.Column("source", sa.Text),
    sa.Column("saved_at", sa.Double, nullable=False),
    sa.UniqueConstraint("namespace", "digest"),
    sqlite_autoincrement=True,
)
_vectors = sa.Table(
    "delf_memory_vectors",
    _tables,
    sa.Column(
        "fact_id",
        sa.BigInteger().with_variant(sa.Integer, "sqlite"),
        sa.ForeignKey("delf_memory_facts.id", ondelete="CASCADE"),
        primary_key=True,
    ),
    sa.Column("model", sa.Text, nullable=False),
    sa.Column("vector", sa.LargeBinary, nullable=False),
)
_SQLITE_WORD_INDEX: Final = (
    (
        "CREATE VIRTUAL TABLE IF NOT EXISTS delf_memory_words USING fts5("
        "words, content='delf_memory_facts', content_rowid='id', tokenize='porter unicode61')"
    ),
    (
        "CREATE TRIGGER IF NOT EXISTS delf_memory_added AFTER INSERT ON delf_memory_facts BEGIN "
        "INSERT INTO delf_memory_words(rowid, words) VALUES (new.id, new.words); END"
    ),
    (
        "CREATE TRIGGER IF NOT EXISTS delf_memory_removed AFTER DELETE ON delf_memory_facts BEGIN "
        "INSERT INTO delf_memory_words(delf_memory_words, rowid, words) "
        "VALUES ('delete', old.id, old.words); END"
    ),
)
_POSTGRESQL_WORD_INDEX: Final = (
    (
        "CREATE INDEX IF NOT EXISTS delf_memory_words ON delf_memory_facts "
        "USING gin (to_tsvector('english', left(words, 200000)))"
    ),
)
_SEARCH_SQLITE: Final = sa.text(
    "SELECT f.id, bm25(delf_memory_words) AS counts FROM delf_memory_words w "
    "JOIN delf_memory_facts f ON f.id = w.rowid "
    "WHERE delf_memory_words MATCH :words AND f.namespace = :namespace "
    "ORDER BY counts, f.id LIMIT :limit"
)
_SEARCH_POSTGRESQL: Final = sa.text(
    "SELECT id, ts_rank_cd(to_tsvector('english', left(words, 200000)), q, 1) AS counts "
    "FROM delf_memory_facts, to_tsquery('english', :words) q "
    "WHERE to_tsvector('english', left(words, 200000)) @@ q AND namespace = :namespace "
    "ORDER BY counts DESC, id LIMIT :limit"
)
_INSERT_META: Final = sa.text(
    "INSERT INTO delf_memory_meta (key, value) VALUES (:key, :value) ON CONFLICT (key) DO NOTHING"
)
_INCREMENT_COUNTER: Final = sa.text(
    "INSERT INTO delf_memory_meta (key, value) VALUES (:key, :start) ON CONFLICT (key) "
    "DO UPDATE SET value = CAST(CAST(delf_memory_meta.value AS BIGINT) + :increment AS TEXT)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFact(Fact):
    """A fact in the store.

    Args:
        id: The number of the fact in the store.
    """

    id: int


class NewFact(NamedTuple):
    """A fact to store.

    Args:
        content: The text.
        source: The name of the task, document or person from which the fact comes, if known.
        saved_at: The Unix time at which the fact was first saved; None for the present time.
        vector: The vector as bytes; None for a fact that gets its vector later.
    """

    content: str
    source: str | None
    saved_at: float | None
    vector: bytes | None = None


class ChangeCounters(NamedTuple):
    """The counters of the changes of a namespace, which any process may increase.

    An addition adds facts. An invalidation removes facts, or adds vectors of earlier facts. Both
    counters are 0 until the first change, which sets them to random numbers.
    """

    additions: int
    invalidations: int


class FactDatabase:
    """The facts of one namespace in a database. All methods block; call them in threads.

    Args:
        url: The URL of the database: ``sqlite:///path`` or ``postgresql://…``.
        namespace: The namespace of the facts.
    """

    def __init__(self, url: str, namespace: str) -> None:
        self._url = _parse_url(url)
        self.namespace = namespace
        # The keys of two counters in the database, by which other processes notice changes.
        self._additions_key = f"writes:{namespace}"  # counts additions of facts
        self._invalidations_key = f"alterations:{namespace}"  # counts removals and new vectors
        self._engine: sa.Engine | None = None
        self._opening_lock = threading.Lock()
        reset_in_forks(self)

    def reset_after_fork(self) -> None:
        """Forget the parent's connections, so that a forked process opens new ones."""
        self._engine = None
        self._opening_lock = threading.Lock()

    def save(self, facts: Sequence[NewFact], model: str) -> None:
        """Store facts with their vectors in one transaction.

        A new fact replaces a stored fact that differs only in case, spaces and word endings.

        Args:
            facts: The facts; at least one.
            model: The name of the embedding model.
        """
        # Of several facts with the same digest, the last is stored.
        facts_by_digest = {digest_of(fact.content): fact for fact in facts}
        with self._begin() as connection:
            # Other processes watch two counters: after additions, they load the new facts; after
            # invalidations, they load all facts again.
            self._increment_counters(connection, additions=1)
            if self._remove(connection, _facts.c.digest, facts_by_digest):
                self._increment_counters(connection, invalidations=1)
            ids = self._insert_facts(connection, facts_by_digest)
            vector_rows: list[dict[str, Any]] = []
            for fact_id, fact in zip(ids, facts_by_digest.values(), strict=True):
                if fact.vector is not None:
                    vector_rows.append({"fact_id": fact_id, "model": model, "vector": fact.vector})
            if vector_rows:
                connection.execute(sa.insert(_vectors), vector_rows)

    def _insert_facts(
        self, connection: sa.Connection, facts_by_digest: Mapping[str, NewFact]
    ) -> Sequence[int]:
        """Insert facts without their vectors; return the facts' new numbers, in the same order."""
        now = datetime.now(UTC).timestamp()
        rows = [
            {
                "namespace": self.namespace,
                "digest": digest,
                "content": fact.content,
                "words": prepare_for_index(fact.content),
                "source": fact.source,
                "saved_at": now if fact.saved_at is None else fact.saved_at,
            }
            for digest, fact in facts_by_digest.items()
        ]
        insert = sa.insert(_facts).returning(_facts.c.id, sort_by_parameter_order=True)
        return connection.scalars(insert, rows).all()

    def add_vectors(self, vectors: Sequence[tuple[int, bytes]], model: str) -> None:
        """Store the vectors of facts; facts that do not exist any more are skipped.

        Call :meth:`mark_invalidated` after the last batch, so that all processes load the vectors.

        Args:
            vectors: Pairs of a fact's number and the fact's vector.
            model: The name of the model that made the vectors.
        """
        ids = [number for number, _ in vectors]
        with self._begin() as connection:
            # A fact has only one vector. Remove an old vector, which may be of another model.
            connection.execute(sa.delete(_vectors).where(_vectors.c.fact_id.in_(ids)))
            existing_ids = set(
                connection.scalars(sa.select(_facts.c.id).where(_facts.c.id.in_(ids)))
            )
            rows = [
                {"fact_id": number, "model": model, "vector": vector}
                for number, vector in vectors
                if number in existing_ids
            ]
            if rows:
                connection.execute(sa.insert(_vectors), rows)

    def mark_invalidated(self) -> None:
        """Increment the invalidation counter; its change makes all processes reload the vectors."""
        with self._begin() as connection:
            self._increment_counters(connection, invalidations=1)

    def delete(self, facts: Iterable[str]) -> int:
        """Remove the facts with exactly these texts, and return the number of removed facts."""
        with self._begin() as connection:
            self._increment_counters(connection, invalidations=1)
            return self._remove(connection, _facts.c.content, facts)

    def clear(self) -> None:
        """Remove all facts of the namespace."""
        with self._begin() as connection:
            # Each process keeps the vectors in memory. Before a search, it reads the counter of
            # invalidations, and loads the vectors again if the counter has changed.
            self._increment_counters(connection, invalidations=1)
            connection.execute(sa.delete(_facts).where(_facts.c.namespace == self.namespace))

    def _remove(
        self, connection: sa.Connection, column: sa.Column[str], values: Iterable[str]
    ) -> int:
        """Remove the facts that have one of the given values in a column.

        Return the number of removed facts.
        """
        all_values = list(values)
        in_namespace = _facts.c.namespace == self.namespace
        removed = 0
        for start in range(0, len(all_values), _MAX_BATCH):
            in_batch = column.in_(all_values[start : start + _MAX_BATCH])
            removed += connection.execute(sa.delete(_facts).where(in_namespace, in_batch)).rowcount
        return removed

    def _increment_counters(
        self, connection: sa.Connection, *, additions: int = 0, invalidations: int = 0
    ) -> None:
        """Increase the namespace's counters of additions and of invalidations.

        After an addition, other processes load only the new facts. After an invalidation, they load
        all vectors again. Call this before any other write of a transaction, so that writers wait
        for each other.
        """
        # Counters start at random numbers: if a store is deleted and created again, they differ.
        increments = {self._additions_key: additions, self._invalidations_key: invalidations}
        values = [
            {"key": key, "increment": increment, "start": str(secrets.randbits(48))}
            for key, increment in increments.items()
        ]
        connection.execute(_INCREMENT_COUNTER, values)

    def all(self) -> list[StoredFact]:
        """Return all facts of the namespace, oldest first."""
        with self._read() as connection:
            wanted = sa.select(_facts).where(_facts.c.namespace == self.namespace)
            return [_fact(row) for row in connection.execute(wanted.order_by(_facts.c.id))]

    def facts(self, ids: Sequence[int]) -> dict[int, StoredFact]:
        """Return a mapping from number to fact; the numbers of removed facts are left out."""
        with self._read() as connection:
            # The namespace is checked in Python: with it in the WHERE clause, SQLite would use the
            # index of the namespace, and scan all facts of the namespace.
            rows = connection.execute(sa.select(_facts).where(_facts.c.id.in_(ids)))
            return {row.id: _fact(row) for row in rows if row.namespace == self.namespace}

    def with_words(self, query: str, limit: int) -> dict[int, float]:
        """Return at most ``limit`` facts that contain words of a query, best match first.

        The result is a mapping from the number of a fact to its score.
        """
        words = significant_words(query)[:_MAX_WORDS]
        if not words:
            return {}
        with self._read() as connection:
            if connection.dialect.name == "sqlite":
                statement = _SEARCH_SQLITE
                any_word = " OR ".join(f'"{word}"' for word in words)
            else:
                statement = _SEARCH_POSTGRESQL
                any_word = " | ".join(words)
            values = {"words": any_word, "namespace": self.namespace, "limit": limit}
            rows = connection.execute(statement, values)
            # The scores of SQLite are negative.
            return {row[0]: abs(row[1]) for row in rows}

    def change_counters(self) -> ChangeCounters:
        """Return the current counters of changes."""
        keys = self._additions_key, self._invalidations_key
        wanted = sa.select(_meta.c.key, _meta.c.value).where(_meta.c.key.in_(keys))
        with self._read() as connection:
            values = {key: int(value) for key, value in connection.execute(wanted)}
        return ChangeCounters(
            values.get(self._additions_key, 0), values.get(self._invalidations_key, 0)
        )

    def vectors(self, model: str, after: int = 0) -> Iterator[Sequence[tuple[int, bytes]]]:
        """Yield the numbers of facts with their vectors, in batches.

        Args:
            model: The name of the embedding model that made the vectors.
            after: The number after which facts are returned.
        """
        # A join would read the vectors in random order.
        fact_ids = sa.select(_facts.c.id).where(_facts.c.namespace == self.namespace)
        wanted = (
            sa.select(_vectors.c.fact_id, _vectors.c.vector)
            .where(_vectors.c.model == model, _vectors.c.fact_id > after)
            .where(_vectors.c.fact_id.in_(fact_ids.where(_facts.c.id > after)))
            .order_by(_vectors.c.fact_id)
        )
        with self._read() as connection:
            yield from connection.execute(wanted).partitions(_MAX_BATCH)

    def without_vector(self, model: str, limit: int, after: int = 0) -> list[tuple[int, str]]:
        """Return the numbers and texts of at most ``limit`` facts without a vector of a model.

        Args:
            model: The name of the embedding model.
            limit: The maximum number of facts.
            after: The number after which facts are returned.
        """
        of_model = (_vectors.c.fact_id == _facts.c.id) & (_vectors.c.model == model)
        wanted = (
            sa.select(_facts.c.id, _facts.c.content)
            .outerjoin(_vectors, of_model)
            .where(_facts.c.namespace == self.namespace, _facts.c.id > after)
            .where(_vectors.c.fact_id.is_(None))
            .order_by(_facts.c.id)
            .limit(limit)
        )
        with self._read() as connection:
            return [(row[0], row[1]) for row in connection.execute(wanted)]

    def close(self) -> None:
        """Close all connections to the database."""
        engine, self._engine = self._engine, None
        if engine is not None:
            engine.dispose()

    @contextmanager
    def _begin(self) -> Generator[sa.Connection]:
        """Yield a connection with a transaction for writing; convert the errors of the database."""
        try:
            with self._connected_engine().begin() as connection:
                yield connection
        except SQLAlchemyError as error:
            raise MemorySetupError(_message_of(error, self._url, "written"), hint=_HINT) from error

    @contextmanager
    def _read(self) -> Generator[sa.Connection]:
        """Yield a connection for reading; convert the errors of the database."""
        try:
            with self._connected_engine().connect() as connection:
                yield connection
        except SQLAlchemyError as error:
            raise MemoryRetrievalError(_message_of(error, self._url, "read"), hint=_HINT) from error

    def _connected_engine(self) -> sa.Engine:
        with self._opening_lock:
            if self._engine is None:
                self._engine = self._make_engine()
            return self._engine

    def _make_engine(self) -> sa.Engine:
        engine = sa.create_engine(self._url, pool_size=8, max_overflow=8)
        try:
            if engine.dialect.name == "sqlite":
                _prepare_file(engine.url)
                event.listen(engine, "connect", _set_up_sqlite)
            _make_tables(engine)
        except BaseException:
            engine.dispose()
            raise
        return engine


def _file_of(url: sa.URL) -> Path | None:
    """Return the file of a SQLite database, None for a database in memory.

    SQLAlchemy keeps the ``file:`` of SQLite's own URLs in the database's name:
    https://docs.sqlalchemy.org/en/20/dialects/sqlite.html#uri-connections
    """
    name = url.database or ""
    if _is_uri(url) and name.startswith("file:"):
        name = unquote(urlsplit(name).path)
    is_in_memory = name in ("", ":memory:") or _uri_mode(url) == "memory"
    return None if is_in_memory else Path(name)


def _is_uri(url: sa.URL) -> bool:
    return bool(asbool(url.query.get("uri", False)))


def _uri_mode(url: sa.URL) -> str | None:
    """Return the mode in which SQLite opens a database; None if the URL does not set the mode.

    SQLAlchemy ignores ``mode`` unless the database's name is a URL of SQLite.
    """
    mode = url.query.get("mode") if _is_uri(url) else None
    return mode if isinstance(mode, str) else None


def _prepare_file(url: sa.URL) -> None:
    """Create the file of a SQLite database with private permissions, if SQLite would create it.

    Raises:
        MemorySetupError: If the file is a memory of Delfhos, or its folder cannot be created.
    """
    path = _file_of(url)
    if path is None:
        return
    if is_delfhos(path):
        raise MemorySetupError(
            f"{path} is a memory of Delfhos, which has another format",
            hint=f"give the memory another path, then: delf memory import {shlex.quote(str(path))}",
        )
    if _uri_mode(url) not in (None, "rwc"):
        return  # in its other modes, SQLite opens only files that exist
    try:
        make_private_folder(path.parent)
    except OSError as error:
        raise MemorySetupError(
            f"the memory's folder {path.parent} cannot be created: {error.strerror}"
        ) from error
    with suppress(OSError):  # opening the database reports the error
        make_private_file(path)


def _set_up_sqlite(connection: Any, _record: object) -> None:
    """Set the options of a new connection to SQLite; called by SQLAlchemy."""
    cursor = connection.cursor()
    cursor.execute("PRAGMA foreign_keys = ON")
    cursor.execute(f"PRAGMA busy_timeout = {BUSY_MS}")
    _use_wal(cursor, time.monotonic() + BUSY_MS / 1000)
    cursor.close()


def _use_wal(cursor: sqlite3.Cursor, deadline: float) -> None:
    """Switch a database to WAL mode; retry until the deadline while others lock it.

    SQLite's own wait does not apply to this switch.
    """
    while True:
        try:
            cursor.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            is_busy = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
            if not is_busy or time.monotonic() > deadline:
                raise
            time.sleep(_RETRY_SECONDS)
        else:
            return


def _make_tables(engine: sa.Engine) -> None:
    """Create the tables and the word index, unless the database has them already.

    Raises:
        MemorySetupError: If another version of this plugin created them in another format.
    """
    with engine.connect() as connection:
        if sa.inspect(connection).has_table(_meta.name):
            version = connection.scalar(sa.select(_meta.c.value).where(_meta.c.key == "version"))
            if version == _VERSION:
                return
            # None means that a process is creating the tables, or ended before it had created all
            # of them.
            if version is not None:
                place = engine.url.render_as_string(hide_password=True)
                raise MemorySetupError(
                    f"the memory at {place} has the format {version}, and this version knows "
                    f"{_VERSION}",
                    hint="use the version of delf-plugin-memory-semantic that wrote it",
                )
    with engine.begin() as connection:
        is_sqlite = engine.dialect.name == "sqlite"
        if not is_sqlite:  # in PostgreSQL, IF NOT EXISTS may fail for concurrent creators
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_SETUP_LOCK)))
        for table in _tables.sorted_tables:
            connection.execute(CreateTable(table, if_not_exists=True))
        for statement in _SQLITE_WORD_INDEX if is_sqlite else _POSTGRESQL_WORD_INDEX:
            connection.execute(sa.text(statement))
        # Write the version last, because it says that all tables exist.
        connection.execute(_INSERT_META, {"key": "version", "value": _VERSION})


def _parse_url(url: str) -> sa.URL:
    """Parse the URL of a database, and add the driver for PostgreSQL."""
    try:
        parsed = sa.make_url(url)
    except ArgumentError as error:
        raise MemorySetupError(
            "the memory's url cannot be understood",
            hint="write sqlite:///memory.db or postgresql://user:password@host/database",
        ) from error
    if parsed.drivername in ("postgresql", "postgres"):
        return parsed.set(drivername="postgresql+psycopg")
    if parsed.get_backend_name() not in ("sqlite", "postgresql"):
        raise MemorySetupError(
            f"the memory cannot be kept in {parsed.get_backend_name()}",
            hint="use sqlite:/// or postgresql://",
        )
    return parsed


def _message_of(error: SQLAlchemyError, url: sa.URL, participle: str) -> str:
    """Return the message for an error of the database, with the first line of the driver's text.

    Args:
        error: The error.
        url: The URL of the database.
        participle: The word after "cannot be" in the message: ``read`` or ``written``.
    """
    lines = str(getattr(error, "orig", None) or error).strip().splitlines()
    cause = lines[0] if lines else type(error)
    place = url.render_as_string(hide_password=True)
    return f"the memory at {place} cannot be {participle}: {cause}"


def significant_words(query: str) -> list[str]:
    """Return the significant words of a query, split in the same way as in the index.

    A word in a writing system without spaces, such as Chinese, is split into pairs of letters.

    Args:
        query: The query in plain words.
    """
    index_words: dict[str, None] = {}  # a dict, because a set would lose the order
    for word in re.findall(r"[^\W_]+", normalized(query)):
        is_stop_word = not words_of(word)  # words_of() leaves out stop words, such as "the"
        if not is_stop_word:
            index_words |= dict.fromkeys(parts_of(word.lower()))
    return list(index_words)


def prepare_for_index(content: str) -> str:
    """Separate the words of a text for the index of words, and convert them to lower case.

    Only writing systems without spaces, such as Chinese, need the separation. The conversion is
    needed because PostgreSQL's own depends on the database's locale. A text in ASCII needs neither,
    and is returned unchanged.

    Args:
        content: The text of a fact or message.
    """
    if content.isascii():
        return content
    return re.sub(
        r"[^\W_]+", lambda match: " ".join(parts_of(match[0].lower())), normalized(content)
    )


def digest_of(content: str) -> str:
    """Return a digest that is equal for texts that differ only in case, spaces and word endings.

    The word "the" and the last full stop do not count either. All other words and signs do: a
    flight "from Rome to Oslo" is not one "to Rome from Oslo".
    """
    text = normalized(content).lower()
    words = _LETTERS.sub(lambda match: singular(match[0]), text).split()
    counted_words = [word for word in words if word != "the"]
    # A text such as "The." has no counted words, so its digest is that of the unchanged text.
    text = " ".join(counted_words).removesuffix(".") or content.strip()
    return hashlib.sha256(text.encode()).hexdigest()


def storable_text(text: str) -> str:
    """Replace NUL characters and lone surrogates, which databases refuse."""
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()


def _fact(row: Any) -> StoredFact:
    return StoredFact(
        id=row.id,
        content=row.content,
        saved_at=datetime.fromtimestamp(row.saved_at, UTC),
        namespace=row.namespace,
        source=row.source,
    )
