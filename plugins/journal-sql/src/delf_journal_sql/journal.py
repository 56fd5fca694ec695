"""The journal ``sql``: stores every event in a database before anyone acts on it."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import threading
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, TypeVar, Unpack

from delf.errors import UnreadableEventError
from delf.events import Event, StoppedBy, size_of
from delf.protocols.approval import RememberedDecision
from delf.protocols.journal import (
    Ages,
    JournalSize,
    Note,
    PerhapsAlive,
    Pruned,
    RequestRecord,
    TaskRecord,
)
from delf.protocols.people import Person
from delf.protocols.search import FigureBy, Figures, Found, TaskFilter
from delf.protocols.sessions import SessionRecord
from delf.protocols.shared_journal import Conditions
from delf.types import TaskState
from delf.values.encoding import to_jsonable
from delf.values.sizes import LARGE, run_in_thread
from delf_journal_sql import inbox, index, people, search, sessions, store
from delf_journal_sql.codec import Packed, pack
from delf_journal_sql.conversations import SqlConversations, namespaces
from delf_journal_sql.copying import copy_database, copy_tables
from delf_journal_sql.database import Connection, transaction
from delf_journal_sql.errors import ConnectionLostError, JournalError, JournalSetupError
from delf_journal_sql.opening import open_database
from delf_journal_sql.owners import forget_dead
from delf_journal_sql.schema import migrate
from delf_journal_sql.settings import JournalSettings
from delf_journal_sql.stopping import stop_task
from delf_journal_sql.watch import Fetch, Subscription, Watcher
from delf_journal_sql.writer import Append, Call, Writer
from delf_postgresql.login import check_login

T = TypeVar("T")

_MAX_READER_THREADS: Final = 4
_NO_LIMIT: Final = 2**31 - 1
# The maximum number of tasks removed in one transaction, so that others can write in between.
_PRUNE_BATCH_SIZE: Final = 50
# The maximum number of events indexed in one transaction.
_INDEX_BATCH_SIZE: Final = 200


class SqlJournal:
    """A journal in an SQL database.

    Implements :class:`delf.protocols.shared_journal.SharedJournal`, which documents the methods.

    The journal also stores people and their login sessions, and has a search index.

    A journal may be used from several event loops, concurrently or in turn. It connects on first
    use, and can be used again after closing.

    Args:
        url: The address: ``sqlite:///path``, a file path, or ``postgresql://…``.
        settings: Fields of :class:`delf_journal_sql.settings.JournalSettings`; omitted ones are
            read from ``DELF_JOURNAL_SQL_…``.

    Raises:
        ConnectionConfigurationError: If a setting is unknown or invalid.
        JournalSetupError: If the URL cannot be used.
        OptionalDependencyError: If the driver is not installed.
    """

    def __init__(self, url: str | None = None, **settings: Any) -> None:
        self._settings = JournalSettings.for_instance("journal_sql", {"url": url, **settings})
        if self._settings.url is not None:
            url = self._settings.url.get_secret_value()
            # A server that only the project names must not get a password of the user.
            check_login("the journal", url, self._settings.source("url"))
        self.database = open_database(self._settings)
        """The database of the journal."""
        self._lock = threading.Lock()
        self._opening_lock = threading.Lock()
        self._opened = False
        self._lease_seconds: float | None = None
        # The futures of subscriptions' start positions that are not known yet; reads wait for them.
        self._starting_subscriptions: set[Future[int]] = set()
        self._writer: Writer | None = None
        self._watcher: Watcher | None = None
        self._threads: ThreadPoolExecutor | None = None

    @property
    def place(self) -> str:
        """The journal's address, without credentials."""
        return self.database.name

    # -- the protocol -------------------------------------------------------------------

    async def append(self, event: Event) -> None:
        """Append an event, and wait until the event is stored. Idempotent."""
        limit = self._settings.blob_bytes
        if size_of(event) <= LARGE:
            packed = pack(event, limit)
        else:
            # If this task is cancelled, run_in_thread() still waits for the thread. The event is
            # therefore stored before the events that are appended after it.
            packed = await run_in_thread(pack, event, limit)
        await self._append(packed)

    async def append_all(self, events: Sequence[Event]) -> None:
        """Append the events of whole tasks, in one transaction."""
        if not events:
            return
        limit = self._settings.blob_bytes
        packed = await run_in_thread(lambda: [pack(event, limit) for event in events])
        await self._ask_writer(lambda writer: writer.append_all(packed))

    def _append(self, packed: Packed) -> asyncio.Future[None]:
        loop = asyncio.get_running_loop()
        operation = Append(packed, loop, loop.create_future())
        self._put(operation)
        return operation.done

    async def read(self, task_id: str, after: int = 0) -> Sequence[Event]:
        """Return a task's events with a sequence number above ``after``, in order."""
        return tuple(await self._read(lambda c: store.read_events(c, task_id, after)))

    def subscribe(self, task_id: str | None = None) -> AsyncIterator[Event]:
        """Yield the events that any process appends from now on, of one task or all tasks.

        If the caller reads the stored events after this call, no event is missed, but some events
        may come twice. The subscription ends when the journal is closed.
        """
        return self._subscribe(
            task_id,
            store.newest_position,
            lambda c, position, limit: store.events_after(c, position, task_id, limit),
        )

    async def find(
        self, limit: int = 100, **conditions: Unpack[Conditions]
    ) -> Sequence[TaskRecord]:
        """Return the records of the newest tasks that meet all conditions, newest first."""
        return await self._read(lambda c: store.find_tasks(c, c.now(), limit=limit, **conditions))

    async def count(self) -> Mapping[TaskState, int]:
        """Count the tasks by state, omitting states without tasks."""
        return await self._read(lambda c: store.count_tasks(c, c.now()))

    async def check(self) -> None:
        """Check the integrity of the stored journal."""
        await self._read(lambda c: c.check())

    @property
    def keep(self) -> Ages:
        """The retention time in seconds by task state; tasks in other states are kept forever."""
        return {TaskState(state): age for state, age in (self._settings.keep or {}).items()}

    async def size(self) -> JournalSize:
        """Return the size of the journal in bytes and events."""

        def measure(connection: Connection) -> JournalSize:
            total, free = connection.size()
            ((events,),) = connection.execute("SELECT COUNT(*) FROM delf_events")
            return JournalSize(place=self.place, bytes=total, free_bytes=free, events=int(events))

        return await self._read(measure)

    async def back_up(self, path: Path) -> None:
        """Copy a consistent snapshot of the journal into a new SQLite file."""

        def copy() -> None:
            self._open()
            _make_file(path)
            try:
                copy_database(self.database, path, self._settings)
            except BaseException:
                path.unlink()
                raise

        await self._in_thread(copy)

    async def restore(self, path: Path) -> int:
        """Fill this journal, which must be empty, from a backup; return the number of tasks.

        Raises:
            DelfError: If the journal is not empty, or the file is not a backup.
        """
        from delf_journal_sql.sqlite import SqliteDatabase

        source = SqliteDatabase(path, self._settings)

        def prepare() -> None:
            with source.reader() as backup:
                if not backup.has_table("delf_tasks"):
                    raise JournalError(f"{path} is not a journal")
            migrate(source)  # the tables of an older version cannot be copied as they are

        def restore_into(connection: Connection) -> int:
            """Copy the tables of ``source`` to a connection's database; return the task count."""
            with source.reader() as backup, transaction(backup, write=False):
                if not copy_tables(backup, connection):
                    raise JournalError(
                        f"the journal {self.place} is not empty",
                        hint="restore it into a new journal, or set the path of the backup as url",
                    )
            return sum(store.count_tasks(connection, connection.now()).values())

        try:
            await self._in_thread(prepare)
            return await self._write(restore_into)
        finally:
            source.close()

    async def read_all(self) -> AsyncIterator[Sequence[Event]]:
        """Yield the events of each task from one consistent snapshot, oldest task first.

        Raises:
            UnreadableEventError: After all other tasks, if events of a task cannot be read.
        """

        def begin() -> tuple[Connection, list[str]]:
            """Begin a transaction for reading all events; return its connection and the task ids.

            The caller closes the connection.
            """
            self._open()
            connection = self.database.connect()
            try:
                connection.begin(write=False, long=True)  # as long as the caller iterates
                return connection, store.task_ids(connection)
            except BaseException:
                connection.close()
                raise

        try:
            first_error: UnreadableEventError | None = None
            connection, task_ids = await self._in_thread(begin)
            with contextlib.closing(connection):
                for task_id in task_ids:
                    try:
                        events = await self._in_thread(
                            lambda task_id=task_id: tuple(store.read_events(connection, task_id, 0))
                        )
                    except UnreadableEventError as error:
                        first_error = first_error or error
                    else:
                        yield events
            if first_error is not None:
                raise first_error
        except ConnectionLostError as lost:
            raise lost.error from lost

    async def aclose(self) -> None:
        """Execute pending writes, end all subscriptions, and release all resources. Idempotent."""
        with self._lock:
            writer, self._writer = self._writer, None
            watcher, self._watcher = self._watcher, None
            threads, self._threads = self._threads, None
            self._opened = False

        def close() -> None:
            # The writer does not end if the database does not respond. The watcher's thread and the
            # other threads may then be blocked, too, and are not waited for.
            has_writer_ended = writer is None or writer.stop()
            if watcher is not None and has_writer_ended:
                watcher.stop_thread()
            if threads is not None:
                threads.shutdown(wait=has_writer_ended)
            self.database.close()

        if watcher is not None:
            watcher.end_subscriptions()
        if (writer, watcher, threads) != (None, None, None):
            # Shield the close from cancellation: these parts were removed above, so nobody else
            # could close them.
            await asyncio.shield(asyncio.to_thread(close))

    async def open(self) -> None:
        """Open the journal and register this process as an owner of tasks.

        Without this call, both happen with the first event.
        """
        try:
            await self._ask_writer(lambda writer: writer.register())
        except JournalSetupError as error:
            # A caller may work without a journal, unless the user has chosen this one.
            is_chosen_by_user = self._settings.url is not None
            error.chosen = is_chosen_by_user
            raise

    # -- more than the protocol ---------------------------------------------------------

    async def resolve(self, text: str, users: Collection[str] | None = None) -> str:
        """Return the full id of the only task whose id begins with ``text``.

        Args:
            text: The beginning of the id, with or without ``task_``; or the full id.
            users: The users whose tasks are searched; None for all tasks.

        Raises:
            UnknownTaskError: If no id, or more than one, begins with ``text``.
        """
        return await self._read(lambda c: store.resolve_id(c, text, users))

    async def task(self, task_id: str) -> TaskRecord:
        """Return the record of one task."""
        return await self._read(lambda c: store.find_task(c, c.now(), task_id))

    def lease(self, seconds: float) -> None:
        """Set the lease of this process.

        Args:
            seconds: The time without heartbeats after which other processes may claim its tasks.
        """
        self._lease_seconds = seconds

    async def claim(self, task_id: str) -> PerhapsAlive | None:
        """Claim a task for this process.

        Returns:
            The former owner of the task if it sends no heartbeats, but may still run, for example
            on another machine; else None.

        Raises:
            JournalConflictError: If another agent of this process has claimed the task, or if the
                task's owner counts as alive.
        """
        return await self._ask_writer(lambda writer: writer.claim(task_id))

    async def reopen(self, task_id: str) -> PerhapsAlive | None:
        """Claim a failed task for this process, so that further events can follow the task's end.

        For the result and the errors see :meth:`claim`.
        """
        return await self._ask_writer(lambda writer: writer.claim(task_id, may_be_failed=True))

    async def release(self, task_id: str) -> None:
        """Release this process's claim on an unfinished task."""
        with self._lock:
            writer = self._writer
        if writer is None:
            return  # the journal is closed and has released all claims
        operation = writer.release(task_id)
        if writer.put(operation):
            await asyncio.wrap_future(operation.done)

    async def post(self, task_id: str, kind: str, data: Mapping[str, Any]) -> int:
        """Store a note, such as an approval, for the process that works on a task.

        Returns:
            The position of the note among the notes of all tasks.
        """
        json_data = to_jsonable(dict(data))
        return await self._write(lambda c: inbox.add_note(c, c.now(), task_id, kind, json_data))

    async def notes(self, task_id: str | None = None, after: int = 0) -> Sequence[Note]:
        """Return the notes of one task or of all tasks after a position, in order."""
        notes = await self._read(lambda c: inbox.notes_after(c, after, task_id))
        return [note for _, note in notes if note is not None]

    async def stop(self, task_id: str, by: str, via: str = "") -> bool:
        """Stop a task of any process; return False if the task had ended already."""
        return await stop_task(self, task_id, StoppedBy(by, via))

    async def asked_to_stop(self, task_ids: Collection[str]) -> Mapping[str, StoppedBy]:
        """Return the tasks that must stop, each with the person who was first to ask for it."""
        names = tuple(task_ids)  # a copy, because the caller may change it while a thread iterates
        return await self._read(lambda c: inbox.find_stops(c, names))

    def subscribe_notes(
        self, task_id: str | None = None, after: int | None = None
    ) -> AsyncIterator[Note]:
        """Yield the notes, such as approvals and stop requests, that any process posts.

        Args:
            task_id: The id of the task; None for the notes of all tasks.
            after: The position after which notes are yielded; None to yield only new notes.
        """

        def find_start(connection: Connection) -> int:
            """Return the position after which notes are yielded."""
            return inbox.newest_note(connection) if after is None else after

        def fetch(
            connection: Connection, position: int, limit: int
        ) -> Sequence[tuple[int, Note | None]]:
            return inbox.notes_after(connection, position, task_id, limit)

        return self._subscribe(task_id, find_start, fetch, are_notes=True)

    async def find_requests(
        self, start: str = "", *, waiting: bool = False, limit: int = 1000
    ) -> Sequence[RequestRecord]:
        """Return the newest ``limit`` requests whose id begins with ``start``, oldest first."""
        return await self._read(
            lambda c: inbox.find_requests(c, c.now(), id_prefix=start, waiting=waiting, limit=limit)
        )

    async def begin_login(self, session: SessionRecord) -> None:
        """Store a login session, and remove old records of ended sessions."""
        await self._write(lambda c: sessions.begin(c, session))

    async def end_login(self, digest: str) -> None:
        """End a login session; its record is kept."""
        await self._write(lambda c: sessions.end(c, digest))

    async def logins(
        self, digests: Collection[str] | None = None, *, ended: bool = False
    ) -> list[SessionRecord]:
        """Return login sessions, oldest first.

        Args:
            digests: The digests of the sessions to return; None for all.
            ended: Whether to include the records of ended sessions.
        """
        # A copy, because the caller may change the collection while a thread iterates.
        copied = None if digests is None else tuple(digests)
        return await self._read(lambda c: sessions.find(c, time.time(), copied, ended=ended))

    async def people(self) -> list[Person]:
        """Return all people in the order of their names, including revoked people."""
        return await self._read(people.find)

    async def keep_person(self, person: Person, instead_of: Person | None) -> bool:
        """Store a person.

        Args:
            person: The new or changed person.
            instead_of: The stored person that is replaced; None for a new person.

        Returns:
            False if the stored person was changed concurrently; nothing is stored then.
        """
        return await self._write(lambda c: people.keep(c, person, instead_of))

    async def remembered(self) -> Sequence[RememberedDecision]:
        """Return the remembered approval decisions, oldest first."""
        return await self._read(inbox.find_remembered)

    async def revoke(self, request_id: str, by: str) -> RememberedDecision:
        """Revoke a remembered approval decision for all processes; return the decision."""
        return await self._write(lambda c: inbox.revoke(c, c.now(), request_id, by))

    async def prune(
        self, older_than: float | Ages | None = None, keep: int = 0, *, dry_run: bool = False
    ) -> Pruned:
        """Remove old tasks with all their events, except running and queued tasks."""

        def choose(connection: Connection, limit: int) -> list[str]:
            now = connection.now()
            return store.find_prunable(
                connection, now, older_than=older_than, keep=keep, limit=limit
            )

        if dry_run:
            task_ids = await self._read(lambda c: choose(c, _NO_LIMIT))
            events = await self._read(lambda c: store.count_events(c, task_ids))
            return Pruned(tasks=tuple(task_ids), events=events)
        tasks: list[str] = []
        events = 0
        files: list[str] = []
        inputs: list[str] = []
        # Each batch has the oldest tasks that are left, until none may be removed.
        while task_ids := await self._read(lambda c: choose(c, _PRUNE_BATCH_SIZE)):
            batch = await self.remove(task_ids)
            if not batch.tasks:
                break  # all tasks of the batch were resumed meanwhile
            tasks += batch.tasks
            events += batch.events
            files += batch.files
            inputs += batch.inputs
        await self._write(lambda c: forget_dead(c, c.now()))
        await self._forget_prompts()
        await self._reclaim()
        return Pruned(tasks=tuple(tasks), events=events, files=tuple(files), inputs=tuple(inputs))

    async def _forget_prompts(self) -> None:
        """Remove the prompts from old events of model calls, in batches."""
        seconds = self._settings.keep_prompts

        def forget(connection: Connection, after: int) -> int | None:
            """Forget the prompts in a batch; return the position of the batch's last event.

            None after the last batch.
            """
            before = connection.now() - seconds
            return store.forget_prompts(connection, before, after, _PRUNE_BATCH_SIZE)

        position: int | None = 0
        while position is not None:
            position = await self._write(functools.partial(forget, after=position))

    async def remove(self, task_ids: Collection[str]) -> Pruned:
        """Remove tasks with all their events, except running and queued tasks."""
        names = tuple(task_ids)
        return await self._write(lambda c: store.remove_tasks(c, names, c.now()))

    async def was_removed(self, task_id: str) -> bool:
        """Return True if a task with this id was removed in the last 90 days."""
        return await self._read(lambda c: store.was_removed(c, task_id))

    async def index(self, seconds: float) -> int:
        """Add new events to the search index; return the number of events still missing.

        Args:
            seconds: The time after which no further batch of events is added.
        """
        # In batches, because an indexing transaction blocks all writers.
        deadline = time.monotonic() + seconds
        remaining = await self._read(index.count_unindexed_events)
        while remaining and time.monotonic() < deadline:
            remaining = await self._write(
                lambda c: index.advance(c, self.database, _INDEX_BATCH_SIZE)
            )
        return remaining

    async def search(self, wanted: TaskFilter, limit: int = 50, before: str | None = None) -> Found:
        """Return the newest tasks that match a filter, found with the search index."""
        return await self._read(
            lambda c: search.find(c, self.database, wanted, limit=limit, before=before)
        )

    async def figures(
        self, by: FigureBy, wanted: TaskFilter, zone: str = "UTC"
    ) -> Sequence[Figures]:
        """Compute the statistics of the tasks that match a filter, by group."""
        return await self._read(lambda c: search.figures(c, self.database, by, wanted, zone))

    def conversations(self, namespace: str) -> SqlConversations:
        """Return the store of the conversations in a namespace."""
        return SqlConversations(namespace, self._read, self._write, self._reclaim)

    async def namespaces(self) -> Sequence[str]:
        """Return the names of all namespaces that have conversations, in order."""
        return await self._read(namespaces)

    async def _reclaim(self) -> None:
        await self._in_thread(self.database.reclaim)

    # -- threads ------------------------------------------------------------------------

    def _open(self) -> None:
        """Create or migrate the tables, once.

        Later calls are no-ops. After the journal was closed, the next call migrates again.
        """
        with self._opening_lock:
            if not self._opened:
                try:
                    migrate(self.database)
                except ConnectionLostError as lost:
                    raise lost.error from lost
                self._opened = True

    async def _in_thread(self, function: Callable[[], T]) -> T:
        with self._lock:
            if self._threads is None:
                self._threads = ThreadPoolExecutor(_MAX_READER_THREADS, "delf-journal-read")
            # Submit under the lock, so that the threads are not shut down before.
            future = asyncio.get_running_loop().run_in_executor(self._threads, function)
        return await future

    async def _read(self, function: Callable[[Connection], T]) -> T:
        """Run a function in a read transaction in a thread."""
        # Wait for subscriptions that are just starting. Otherwise, such a subscription might start
        # after this read, and miss the events in between.
        with self._lock:
            starting = tuple(self._starting_subscriptions)
        if starting:
            await asyncio.gather(*map(asyncio.wrap_future, starting), return_exceptions=True)

        def read() -> T:
            with self.database.reader() as pooled, transaction(pooled, write=False) as connection:
                return function(connection)

        def read_with_retry() -> T:
            self._open()
            with contextlib.suppress(ConnectionLostError):  # then read again below
                return read()
            try:
                return read()  # uses a new connection
            except ConnectionLostError as lost:
                raise lost.error from lost

        return await self._in_thread(read_with_retry)

    async def _write(self, function: Callable[[Connection], T]) -> T:
        call = Call(function, write=True)
        self._put(call)
        return await asyncio.wrap_future(call.done)

    async def _ask_writer(self, make_operation: Callable[[Writer], Call]) -> Any:
        """Make an operation for the current writer, and return the result of the operation.

        If this writer is closed before the operation, make the operation for the next writer.
        """
        while True:
            writer = self._running_writer()
            operation = make_operation(writer)
            # A writer that was closed meanwhile takes no operation: try again with a new writer.
            if writer.put(operation):
                return await asyncio.wrap_future(operation.done)

    def _put(self, operation: Append | Call) -> None:
        while not self._running_writer().put(operation):
            continue  # this writer has just been stopped: take a new one

    def _running_writer(self) -> Writer:
        with self._lock:
            if self._writer is None:
                self._writer = Writer(self.database, self._open, self._poke, self._lease_seconds)
            return self._writer

    def _remove_starting(self, start_position: Future[int]) -> None:
        with self._lock:
            self._starting_subscriptions.discard(start_position)

    def _poke(self) -> None:
        """Wake the subscriptions of this process after a write of this process."""
        watcher = self._watcher
        if watcher is not None:
            watcher.poke()

    def _subscribe(
        self,
        task_id: str | None,
        find_start: Callable[[Connection], int],
        fetch: Fetch[T],
        *,
        are_notes: bool = False,
    ) -> Subscription[T]:
        """Create a subscription that starts after the pending appends of this journal.

        Args:
            task_id: The task whose items are subscribed to; None for all tasks.
            find_start: Returns the position after which the subscription starts.
            fetch: Returns the items after a position, up to a number of items, each with its
                position.
            are_notes: Whether the items are notes, such as requests to stop, instead of events.
        """
        # The writer calls find_start() after the pending appends, and then completes start.done.
        start = Call(find_start, write=False)
        subscription = Subscription(self._read, start.done, fetch, task_id, are_notes=are_notes)
        self._queue_start(start)
        self._running_watcher().add(subscription)
        return subscription

    def _queue_start(self, start: Call) -> None:
        """Queue the start of a subscription; the reads of the subscription wait for the start."""
        # Register the start before the call is queued, because the writer may execute a queued call
        # at any time.
        with self._lock:
            self._starting_subscriptions.add(start.done)
        start.done.add_done_callback(self._remove_starting)
        # The writer executes the call after the appends that are already in the queue.
        self._put(start)

    def _running_watcher(self) -> Watcher:
        with self._lock:
            if self._watcher is None:
                self._watcher = Watcher(self.database, self._open)
            return self._watcher


def _make_file(path: Path) -> None:
    """Create an empty file that only the user can read.

    Raises:
        JournalError: If the file exists or cannot be created.
    """
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except OSError as error:
        raise JournalError(f"{path} cannot be written: {error.strerror}") from error
