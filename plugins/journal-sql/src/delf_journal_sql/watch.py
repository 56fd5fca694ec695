"""Live reading: subscriptions, and the thread that wakes them after writes."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from typing import Any, Final, Generic, Self, TypeVar
from weakref import WeakSet

from delf.network.outages import Outage
from delf_journal_sql.database import Changes, Connection, Database
from delf_journal_sql.errors import ConnectionLostError, JournalError
from delf_journal_sql.store import changed_since, newest_position

T = TypeVar("T")

_log = logging.getLogger(__name__)
_BATCH_SIZE: Final = 200
RETRY_SECONDS: Final = 0.5

Fetch = Callable[[Connection, int, int], Sequence[tuple[int, T | None]]]
"""A function that returns the next (position, item) pairs, with None for an item to skip.

Its arguments are a connection, the position after which items are read, and their maximum number.
"""

Reader = Callable[[Callable[[Connection], Any]], Awaitable[Any]]
"""An async function that calls a blocking function with a connection for reading, in a thread."""


class Subscription(Generic[T]):
    """An async iterator of the events or notes after a position, which are read on demand.

    Args:
        reader: Runs a function that reads the journal.
        start_position: A future with the position after which the subscription starts. The position
            is known only after the pending appends.
        fetch: Reads the next items after a position.
        task_id: The id of the only task to yield items of; None for all tasks.
        are_notes: Whether the items are notes between processes, such as stop requests, instead of
            events.
    """

    def __init__(
        self,
        reader: Reader,
        start_position: Future[int],
        fetch: Fetch[T],
        task_id: str | None,
        *,
        are_notes: bool = False,
    ) -> None:
        self._are_notes = are_notes
        self._task_id = task_id
        self._reader = reader
        self._start_position = start_position
        self._fetch = fetch
        self._position: int | None = None  # of the last item that was read; None before the start
        self._buffer: deque[T] = deque()
        self._loop: asyncio.AbstractEventLoop | None = None  # of the subscriber
        self._signal = asyncio.Event()  # set when there may be new items, and at the end
        self._ended = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        self._loop = asyncio.get_running_loop()  # for wake(), which other threads call
        while not self._buffer:
            if self._ended:
                raise StopAsyncIteration
            if self._position is None:
                # If the subscriber cancels this wait, its next call awaits the same future, which
                # must therefore not be cancelled.
                start_position = asyncio.wrap_future(self._start_position)
                self._position = await asyncio.shield(start_position)
            # Clear the signal before the read: an item that is written during the read sets the
            # signal again.
            self._signal.clear()
            items = await self._reader(self._items_after_position)
            if not items:
                await self._signal.wait()
                continue
            for position, item in items:
                self._position = position
                if item is not None:  # None is an item to skip, such as a damaged note
                    self._buffer.append(item)
        return self._buffer.popleft()

    def _items_after_position(self, connection: Connection) -> Sequence[tuple[int, T | None]]:
        return self._fetch(connection, self._position or 0, _BATCH_SIZE)

    async def aclose(self) -> None:
        """End the subscription."""
        self._ended = True
        self._buffer.clear()
        self._signal.set()

    def concerns(self, tasks: set[str]) -> bool:
        """Return whether there may be new items for this subscription after a write.

        Args:
            tasks: The ids of the tasks to which the write added events; empty if it added notes.
        """
        if self._are_notes:
            return True  # a read finds out whether there are new notes
        if self._task_id is None:
            return bool(tasks)
        return self._task_id in tasks

    def wake(self, *, end: bool = False) -> None:
        """Let the subscription look for new items. Thread-safe.

        Args:
            end: Whether to end the subscription.
        """
        self._ended = self._ended or end
        if self._loop is not None:
            try:
                self._loop.call_soon_threadsafe(self._signal.set)
            except RuntimeError:
                self._ended = True  # the event loop of the subscriber is closed


class Watcher:
    """Wakes subscriptions after writes of any process, with a thread of its own.

    Args:
        database: The database.
        prepare: Creates or migrates the tables; called first in the thread.
    """

    def __init__(self, database: Database, prepare: Callable[[], None]) -> None:
        self._database = database
        self._prepare = prepare
        self._lock = threading.Lock()
        self._subscriptions: WeakSet[Subscription[Any]] = WeakSet()
        self._changes: Changes | None = None
        self._thread: threading.Thread | None = None
        self._stopping = False
        self._outage = Outage(_log, f"the journal {database.name} cannot be watched", database.name)

    def add(self, subscription: Subscription[Any]) -> None:
        """Wake a subscription after each write, until the subscription is garbage-collected."""
        with self._lock:
            self._subscriptions.add(subscription)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="delf-journal-watch", daemon=True
                )
                self._thread.start()

    def poke(self) -> None:
        """Report a write of this process. Thread-safe."""
        with self._lock:
            if self._changes is not None:
                self._changes.poke()

    def end_subscriptions(self) -> None:
        """End all subscriptions."""
        with self._lock:
            subscriptions = list(self._subscriptions)
        for subscription in subscriptions:
            subscription.wake(end=True)

    def stop_thread(self) -> None:
        """Stop the thread and wait for its end. Idempotent."""
        with self._lock:
            self._stopping = True
            thread = self._thread
            if self._changes is not None:
                self._changes.close()
        if thread is not None:
            # Join without the lock, because the thread takes the lock before it ends.
            thread.join()

    def _run(self) -> None:
        while not self._stopping:
            try:
                self._watch()
            except (JournalError, ConnectionLostError) as error:
                self._outage.record_failure(error)
                time.sleep(RETRY_SECONDS)

    def _watch(self) -> None:
        """Wake subscriptions after each change of the database, until :meth:`stop_thread`."""
        self._prepare()
        changes = self._database.changes()
        with self._lock:
            # The lock makes sure that either stop_thread() closes ``changes``, or the check below
            # notices that stop_thread() was called.
            self._changes = changes
            if self._stopping:
                changes.close()
        try:
            with self._database.reader() as connection:
                # ``changes`` already watches, so no write is missed, but a write may be noticed
                # twice.
                position = newest_position(connection)
            self._outage.record_success()
            self._wake(None)  # all subscriptions may have missed writes before the watch
            while changes.wait():
                with self._database.reader() as connection:
                    position, tasks = changed_since(connection, position)
                self._wake(tasks)
        finally:
            with self._lock:
                self._changes = None
            changes.free()

    def _wake(self, tasks: set[str] | None) -> None:
        """Wake the subscriptions to some tasks, or all subscriptions when None."""
        with self._lock:
            subscriptions = list(self._subscriptions)
        for subscription in subscriptions:
            if tasks is None or subscription.concerns(tasks):
                subscription.wake()
