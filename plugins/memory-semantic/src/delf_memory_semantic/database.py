"""Facts and their vectors in SQLite or PostgreSQL: one transaction for each batch.

The index of words lives in the database (FTS5, ``tsvector``), kept by the database itself, so
facts and their index cannot disagree.
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.exc import ArgumentError, SQLAlchemyError
from sqlalchemy.schema import CreateTable

from delf.errors import MemoryRetrievalError, MemorySetupError
from delf.protocols.memory import Fact
from delf_ranking import words_of

_VERSION: Final = "1"
_HINT: Final = "see that the database is there, and that the url of the memory is right"
_BUSY_MS: Final = 10_000
"""How long SQLite waits for another writer."""
_MOST_WORDS: Final = 24
"""How many words of a query count: a task of pages is found by its first words as well."""

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
_SQLITE_WORDS: Final = (
    (
        "CREATE VIRTUAL TABLE IF NOT EXISTS delf_memory_words USING fts5("
        "content, content='delf_memory_facts', content_rowid='id', tokenize='porter unicode61')"
    ),
    (
        "CREATE TRIGGER IF NOT EXISTS delf_memory_added AFTER INSERT ON delf_memory_facts BEGIN "
        "INSERT INTO delf_memory_words(rowid, content) VALUES (new.id, new.content); END"
    ),
    (
        "CREATE TRIGGER IF NOT EXISTS delf_memory_removed AFTER DELETE ON delf_memory_facts BEGIN "
        "INSERT INTO delf_memory_words(delf_memory_words, rowid, content) "
        "VALUES ('delete', old.id, old.content); END"
    ),
)
_POSTGRESQL_WORDS: Final = (
    (
        "CREATE INDEX IF NOT EXISTS delf_memory_words ON delf_memory_facts "
        "USING gin (to_tsvector('english', left(content, 200000)))"
    ),
)
_FOUND_IN_SQLITE: Final = sa.text(
    "SELECT f.id, -bm25(delf_memory_words) FROM delf_memory_words w "
    "JOIN delf_memory_facts f ON f.id = w.rowid "
    "WHERE delf_memory_words MATCH :words AND f.namespace = :namespace "
    "ORDER BY bm25(delf_memory_words), f.id LIMIT :limit"
)
_FOUND_IN_POSTGRESQL: Final = sa.text(
    "SELECT id, ts_rank_cd(to_tsvector('english', left(content, 200000)), q, 1) AS counts "
    "FROM delf_memory_facts, to_tsquery('english', :words) q "
    "WHERE to_tsvector('english', left(content, 200000)) @@ q AND namespace = :namespace "
    "ORDER BY counts DESC, id LIMIT :limit"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFact(Fact):
    """A fact as it is stored.

    Args:
        id: Its number in the store.
        source: Where it is from: a task, a document, a person.
    """

    id: int
    source: str | None = None


class FactDatabase:
    """The facts of one namespace. Its methods block; they are called in threads.

    Args:
        url: ``sqlite:///path`` or ``postgresql://…``.
        namespace: Whose facts.
    """

    def __init__(self, url: str, namespace: str) -> None:
        self._url = _driver(url)
        self.namespace = namespace
        self._engine: sa.Engine | None = None
        self._opening = threading.Lock()

    @property
    def place(self) -> str:
        """Where the facts are, without a password."""
        return self._url.render_as_string(hide_password=True)

    def open(self) -> None:
        """Connect, and make the tables where they are missing.

        Raises:
            MemorySetupError: When the database cannot be used.
        """
        with self._begin():
            pass

    def save(
        self, facts: Sequence[tuple[str, str | None]], vectors: Sequence[bytes] | None, model: str
    ) -> None:
        """Remember facts with their vectors, all or none.

        One that says the same as a stored one, but for case, spaces and endings of words,
        takes its place.

        Args:
            facts: Texts with their sources.
            vectors: A vector for each, or None without an embedder.
            model: What made them.
        """
        rows = {
            digest_of(content): (content, source, vectors[n] if vectors is not None else None)
            for n, (content, source) in enumerate(facts)
        }
        now = datetime.now(UTC).timestamp()
        with self._begin() as connection:
            self._remove(connection, rows)
            for digest, (content, source, vector) in rows.items():
                added = connection.execute(
                    sa.insert(_facts)
                    .values(
                        namespace=self.namespace,
                        digest=digest,
                        content=content,
                        source=source,
                        saved_at=now,
                    )
                    .returning(_facts.c.id)
                )
                number = added.scalar_one()
                if vector is not None:
                    values = {"fact_id": number, "model": model, "vector": vector}
                    connection.execute(sa.insert(_vectors).values(**values))

    def add_vectors(self, vectors: Sequence[tuple[int, bytes]], model: str) -> None:
        """Give facts their vectors; those that were forgotten meanwhile are left out."""
        ids = [number for number, _ in vectors]
        with self._begin() as connection:
            connection.execute(sa.delete(_vectors).where(_vectors.c.fact_id.in_(ids)))
            known = set(connection.scalars(sa.select(_facts.c.id).where(_facts.c.id.in_(ids))))
            rows = [
                {"fact_id": number, "model": model, "vector": vector}
                for number, vector in vectors
                if number in known
            ]
            if rows:
                connection.execute(sa.insert(_vectors), rows)

    def delete(self, facts: Iterable[str]) -> int:
        """Forget facts with exactly these texts; how many there were."""
        with self._begin() as connection:
            here = _facts.c.namespace == self.namespace
            return connection.execute(
                sa.delete(_facts).where(here, _facts.c.content.in_(list(facts)))
            ).rowcount

    def clear(self) -> None:
        """Forget all facts of the namespace."""
        with self._begin() as connection:
            connection.execute(sa.delete(_facts).where(_facts.c.namespace == self.namespace))

    def _remove(self, connection: sa.Connection, digests: Iterable[str]) -> None:
        here = _facts.c.namespace == self.namespace
        connection.execute(sa.delete(_facts).where(here, _facts.c.digest.in_(list(digests))))

    def all(self) -> list[StoredFact]:
        """Every fact, oldest first."""
        with self._read() as connection:
            wanted = sa.select(_facts).where(_facts.c.namespace == self.namespace)
            return [_fact(row) for row in connection.execute(wanted.order_by(_facts.c.id))]

    def facts(self, ids: Sequence[int]) -> dict[int, StoredFact]:
        """Facts by their numbers; those that are gone are left out."""
        with self._read() as connection:
            # Asked for the namespace, too, SQLite would go through all of its facts.
            rows = connection.execute(sa.select(_facts).where(_facts.c.id.in_(ids)))
            return {row.id: _fact(row) for row in rows if row.namespace == self.namespace}

    def with_words(self, query: str, limit: int) -> dict[int, float]:
        """The facts that share most with a query, and how much that counts, best first."""
        words = list(dict.fromkeys(re.findall(r"[^\W_]+", query)))
        said = {word.lower() for word in words if words_of(word)}
        chosen = [word for word in words if word.lower() in said][:_MOST_WORDS]
        if not chosen:
            return {}
        with self._read() as connection:
            sqlite = connection.dialect.name == "sqlite"
            joined = " OR ".join(f'"{w}"' for w in chosen) if sqlite else " | ".join(chosen)
            statement = _FOUND_IN_SQLITE if sqlite else _FOUND_IN_POSTGRESQL
            values = {"words": joined, "namespace": self.namespace, "limit": limit}
            return {row[0]: float(row[1]) for row in connection.execute(statement, values)}

    def state(self) -> tuple[int, int]:
        """The highest number and how many facts there are: another pair means other facts."""
        with self._read() as connection:
            columns = sa.func.coalesce(sa.func.max(_facts.c.id), 0), sa.func.count()
            here = _facts.c.namespace == self.namespace
            highest, count = connection.execute(sa.select(*columns).where(here)).one()
            return highest, count

    def vectors(self, model: str, after: int = 0) -> list[tuple[int, bytes]]:
        """The numbers and vectors of one model, of facts with higher numbers than this."""
        wanted = (
            sa.select(_vectors.c.fact_id, _vectors.c.vector)
            .join(_facts)
            .where(_facts.c.namespace == self.namespace, _vectors.c.model == model)
            .where(_facts.c.id > after)
        )
        with self._read() as connection:
            return [(row[0], row[1]) for row in connection.execute(wanted)]

    def vector_count(self, model: str) -> int:
        """How many facts have a vector of a model."""
        wanted = (
            sa.select(sa.func.count())
            .select_from(_vectors.join(_facts))
            .where(_facts.c.namespace == self.namespace, _vectors.c.model == model)
        )
        with self._read() as connection:
            return connection.scalar(wanted) or 0

    def without_vector(self, model: str, limit: int) -> list[tuple[int, str]]:
        """Facts that have no vector of a model."""
        of_model = (_vectors.c.fact_id == _facts.c.id) & (_vectors.c.model == model)
        wanted = (
            sa.select(_facts.c.id, _facts.c.content)
            .outerjoin(_vectors, of_model)
            .where(_facts.c.namespace == self.namespace, _vectors.c.fact_id.is_(None))
            .order_by(_facts.c.id)
            .limit(limit)
        )
        with self._read() as connection:
            return [(row[0], row[1]) for row in connection.execute(wanted)]

    def close(self) -> None:
        """Close all connections."""
        engine, self._engine = self._engine, None
        if engine is not None:
            engine.dispose()

    @contextmanager
    def _begin(self) -> Generator[sa.Connection]:
        try:
            with self._connected().begin() as connection:
                yield connection
        except SQLAlchemyError as error:
            raise MemorySetupError(_told(error, self._url, "written"), hint=_HINT) from error

    @contextmanager
    def _read(self) -> Generator[sa.Connection]:
        try:
            with self._connected().connect() as connection:
                yield connection
        except SQLAlchemyError as error:
            raise MemoryRetrievalError(_told(error, self._url, "read"), hint=_HINT) from error

    def _connected(self) -> sa.Engine:
        with self._opening:
            if self._engine is None:
                self._engine = self._made()
            return self._engine

    def _made(self) -> sa.Engine:
        engine = sa.create_engine(self._url, pool_size=8, max_overflow=8)
        if engine.dialect.name == "sqlite":
            if engine.url.database:
                _make_folder(Path(engine.url.database).parent)
            event.listen(engine, "connect", _set_up_sqlite)
        try:
            _make_tables(engine)
        except BaseException:
            engine.dispose()
            raise
        return engine


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise MemorySetupError(
            f"the memory's folder {folder} cannot be made: {error.strerror}"
        ) from error


def _set_up_sqlite(connection: Any, _record: object) -> None:
    cursor = connection.cursor()
    for pragma in ("foreign_keys = ON", f"busy_timeout = {_BUSY_MS}", "journal_mode = WAL"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _make_tables(engine: sa.Engine) -> None:
    with engine.connect() as connection:
        if sa.inspect(connection).has_table(_meta.name):
            version = connection.scalar(sa.select(_meta.c.value).where(_meta.c.key == "version"))
            if version != _VERSION:
                raise MemorySetupError(
                    f"the memory has the format {version}, and this version knows {_VERSION}",
                    hint="use the version of delf-plugin-memory-semantic that wrote it",
                )
            return
    with engine.begin() as connection:
        for table in _tables.sorted_tables:
            connection.execute(CreateTable(table, if_not_exists=True))
        sqlite = engine.dialect.name == "sqlite"
        for statement in _SQLITE_WORDS if sqlite else _POSTGRESQL_WORDS:
            connection.execute(sa.text(statement))
        known = sa.select(_meta.c.key).where(_meta.c.key == "version")
        if connection.scalar(known) is None:
            connection.execute(sa.insert(_meta).values(key="version", value=_VERSION))


def _driver(url: str) -> sa.URL:
    """A URL with the driver that is meant."""
    try:
        made = sa.make_url(url)
    except ArgumentError as error:
        raise MemorySetupError(
            "the memory's url cannot be understood",
            hint="as sqlite:///memory.db or postgresql://user:password@host/database",
        ) from error
    if made.drivername in ("postgresql", "postgres"):
        return made.set(drivername="postgresql+psycopg")
    if made.get_backend_name() not in ("sqlite", "postgresql"):
        raise MemorySetupError(
            f"the memory cannot be kept in {made.get_backend_name()}",
            hint="use sqlite:/// or postgresql://",
        )
    return made


def _told(error: SQLAlchemyError, url: sa.URL, doing: str) -> str:
    cause = str(getattr(error, "orig", None) or error).strip().splitlines()
    place = url.render_as_string(hide_password=True)
    return f"the memory at {place} cannot be {doing}: {cause[0] if cause else type(error)}"


def digest_of(content: str) -> str:
    """What two texts have in common that say the same: their words in order, without endings."""
    said = " ".join(words_of(content)) or content.strip()
    return hashlib.sha256(said.encode()).hexdigest()


def _fact(row: Any) -> StoredFact:
    return StoredFact(
        id=row.id,
        content=row.content,
        saved_at=datetime.fromtimestamp(row.saved_at, UTC),
        namespace=row.namespace,
        source=row.source,
    )
