"""The single writer thread, which groups pending operations into transactions.

An event is stored when its transaction commits. Concurrent appends share a commit, and a single
task waits for one commit only.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from delf.errors import DelfError
from delf.events import Event
from delf.network.outages import Outage
from delf.protocols.journal import PerhapsAlive
from delf_journal_sql.codec import Packed
from delf_journal_sql.database import Connection, Database, transaction
from delf_journal_sql.errors import (
    ConnectionLostError,
    DuplicateRowError,
    JournalConflictError,
    JournalError,
)
from delf_journal_sql.owners import Owner, forget_dead
from delf_journal_sql.store import key_of
from delf_journal_sql.tasks import Appending, Claims

_log = logging.getLogger(__name__)

# The maximum number of operations in one transaction.
_MAX_BATCH_SIZE: Final = 512
_RETRY_PAUSE_SECONDS: Final = 0.1
# The maximum time for retries after a lost connection, in seconds.
_MAX_RETRY_SECONDS: Final = 15.0
# The time after which a stopping writer checks if its database responds, in seconds.
_STOP_CHECK_SECONDS: Final = 2.0


@dataclass(slots=True, eq=False)
class Append:
    """An operation that appends an event.

    Args:
        packed: The event.
        loop: The event loop of the caller.
        done: A future of that loop, resolved when the event is stored.
        error: The error to set on the future, if the event is refused.
    """

    packed: Packed
    loop: asyncio.AbstractEventLoop
    done: asyncio.Future[None]
    error: BaseException | None = None


@dataclass(slots=True, eq=False)
class Call:
    """A queued operation that calls a function with a database connection.

    Calls and :class:`Append` operations are executed in the order of the queue.

    Args:
        function: The function.
        write: Whether the function writes.
        on_commit: Called with the function's result after the commit.
        on_failure: Called if the function or the commit failed.
        done: The future of the function's result.
    """

    function: Callable[[Connection], Any]
    write: bool
    on_commit: Callable[[Any], None] | None = None
    on_failure: Callable[[], None] | None = None
    done: Future[Any] = field(default_factory=Future[Any])

    def __post_init__(self) -> None:
        self.done.set_running_or_notify_cancel()  # makes the future uncancellable


class Writer:
    """A thread that executes operations in the order in which they are queued.

    Args:
        database: The database.
        prepare: Creates or migrates the tables; called in the writer's thread.
        on_write: Called in the writer's thread after each transaction that appends events, and
            after each call that writes.
        lease: The time in seconds without heartbeats after which other processes may claim this
            process's tasks; None as for :class:`Owner`.
    """

    def __init__(
        self,
        database: Database,
        prepare: Callable[[], None],
        on_write: Callable[[], None],
        lease: float | None = None,
    ) -> None:
        self._database = database
        self._prepare = prepare
        self._on_write = on_write
        self._queue: deque[Append | Call] = deque()
        self._queue_changed = threading.Condition()
        self._stopping = False
        self.owner = Owner(lease=lease)
        self._last_heartbeat_at: float | None = None
        self._has_uncommitted_heartbeat = False
        self._outage = Outage(
            _log, f"the journal {database.name} takes no heartbeat", database.name
        )
        self._claims = Claims(self.owner)
        self._connection: Connection | None = None
        self.next_heartbeat_at = time.monotonic() + self.owner.heartbeat_seconds
        """The time of the next heartbeat, on the clock of ``time.monotonic()``."""
        # A daemon: a database that hangs must not keep the interpreter from ending.
        self._thread = threading.Thread(target=self._run, name="delf-journal", daemon=True)
        self._thread.start()

    def claim(self, task_id: str, *, may_be_failed: bool = False) -> Call:
        """Create the operation that claims a task in a transaction.

        The operation's result is the previous owner if that process may still be alive, so that the
        caller can warn of it; otherwise None.

        Args:
            task_id: The id of the task.
            may_be_failed: Whether the task may be claimed even if it has failed.
        """

        def store_claim(connection: Connection) -> PerhapsAlive | None:
            key_of(connection, task_id)  # raises for an unknown task, before anything is written
            # Without a heartbeat, other processes would take this one for dead, and claim the task.
            self._write_heartbeat(connection)
            return self._claims.claim(connection, task_id, may_be_failed=may_be_failed)

        def after_commit(_previous_owner: PerhapsAlive | None) -> None:
            self._claims.hold(task_id)

        def after_failure() -> None:
            # The claim may have been stored in spite of the failure. Release it later; otherwise
            # the heartbeats of this process would keep the task from all other processes.
            # But if this process held the task before, the claim of another agent is kept.
            if task_id not in self._claims.held:
                self._claims.unreleased.add(task_id)

        return Call(store_claim, write=True, on_commit=after_commit, on_failure=after_failure)

    def release(self, task_id: str) -> Call:
        """Create the operation that releases this process's claim on a task.

        If the operation fails, the next heartbeat after the outage releases the task.
        """

        def remove_claim(connection: Connection) -> None:
            self._claims.release(connection, task_id)

        def after_failure() -> None:
            self._claims.unreleased.add(task_id)

        return Call(remove_claim, write=True, on_failure=after_failure)

    def append_all(self, events: Sequence[Packed]) -> Call:
        """Create the operation that appends all events or none."""

        def append(connection: Connection) -> Appending:
            self._write_heartbeat(connection)
            appending = Appending(connection, self._claims, events)
            for event in events:
                appending.add(event)
            appending.flush()
            return appending

        return Call(append, write=True, on_commit=lambda appending: appending.after_commit())

    def register(self) -> Call:
        """Create the operation that registers this process as a possible owner of tasks."""
        return Call(self._write_heartbeat, write=True)

    def put(self, operation: Append | Call) -> bool:
        """Queue an operation; return False if the writer is stopped."""
        with self._queue_changed:
            if self._stopping:
                return False
            self._queue.append(operation)
            self._queue_changed.notify()
        return True

    def stop(self) -> bool:
        """Execute the queued operations, then stop the thread.

        Blocks until the thread has ended, or until the database no longer responds. Idempotent.

        Returns:
            True if the thread has ended; False if the database does not respond.
        """
        with self._queue_changed:
            self._stopping = True
            self._queue_changed.notify()
        self._thread.join(_STOP_CHECK_SECONDS)
        # Wait for a slow commit. Waiting for a database that is gone would block the shutdown
        # forever.
        while self._thread.is_alive() and self._database.is_responding():
            self._thread.join(_STOP_CHECK_SECONDS)
        return not self._thread.is_alive()

    # -- the thread ---------------------------------------------------------------------

    def _run(self) -> None:
        """Execute operations until :meth:`stop`, and then remove this process from the owners."""
        try:
            while (batch := self._next_batch()) is not None:
                # Groups keep the order of the queue: a claim must not overtake earlier events.
                for group in _group_appends(batch):
                    self._execute(group)
                self.beat()
                # Free the memory of the events before the thread waits for the next batch.
                del batch
        finally:
            self._leave()

    def _next_batch(self) -> list[Append | Call] | None:
        """Wait for operations, and return the next batch of them.

        Returns:
            The operations; empty if a heartbeat is due first; None after :meth:`stop`.
        """
        with self._queue_changed:
            while not self._queue and not self._stopping:
                seconds_to_heartbeat = self.next_heartbeat_at - time.monotonic()
                if seconds_to_heartbeat <= 0:
                    return []
                self._queue_changed.wait(seconds_to_heartbeat)
            # An empty queue here means that the writer is stopping.
            if not self._queue:
                return None
            return [self._queue.popleft() for _ in range(min(_MAX_BATCH_SIZE, len(self._queue)))]

    def _execute(self, group: list[Append] | Call) -> None:
        """Execute operations, and pass errors to the waiting callers.

        Operations are retried for a while if the connection breaks.
        """
        deadline = time.monotonic() + _MAX_RETRY_SECONDS
        while True:
            try:
                if isinstance(group, Call):
                    self._execute_call(group)
                else:
                    self._append_together(group)
                return
            except ConnectionLostError as lost:
                self._disconnect()
                if time.monotonic() >= deadline or self._stopping:
                    self._fail(group, lost.error)
                    return
            except BaseException as error:  # the waiters get the error
                self._fail(group, error)
                return
            # The whole transaction is repeated, although the first attempt may have been committed
            # after all. Appending an event that is stored already does nothing. A call that must
            # not be repeated checks what is stored, as SqlConversations.append() does.
            time.sleep(_RETRY_PAUSE_SECONDS)

    def _fail(self, group: list[Append] | Call, error: BaseException) -> None:
        """Pass the error of operations to the waiting callers."""
        if isinstance(group, list):
            for operation in group:
                operation.error = error
            _resolve_all(group)
            return
        if group.on_failure is not None:
            group.on_failure()
        group.done.set_exception(error)

    def _execute_call(self, call: Call) -> None:
        """Run the function of a call in a transaction; pass the function's result to the caller."""
        with self._transaction(write=call.write) as connection:
            result = call.function(connection)
        if call.write:
            self._on_write()
        # After the commit: until then, a rollback could undo the change that ``on_commit`` records,
        # such as the claim of a task.
        if call.on_commit is not None:
            call.on_commit(result)
        call.done.set_result(result)

    def _append_together(self, appends: list[Append]) -> None:
        """Append a batch of events; if the database refuses the batch, append them one by one."""
        try:
            self._append(appends)
        except (ConnectionLostError, DelfError):
            raise  # the cause is no single event: one by one, the events would fail in the same way
        except Exception as error:
            if len(appends) == 1:
                raise _refused_event_error(appends[0].packed.event, error) from error
            for append in appends:  # so that only the wrong event fails
                self._execute([append])
            return
        self._on_write()
        _resolve_all(appends)

    def _append(self, group: Sequence[Append]) -> None:
        """Append events in one transaction.

        If an event conflicts with stored events, its operation gets the error, and all other events
        are appended.
        """
        with self._transaction(write=True) as connection:
            # Write the heartbeat first, so that other processes see this one as alive.
            self._write_heartbeat(connection)
            appending = Appending(connection, self._claims, [append.packed for append in group])
            for append in group:
                append.error = None  # of an earlier attempt, if the transaction is repeated
                try:
                    appending.add(append.packed)
                except JournalConflictError as error:
                    append.error = error
            appending.flush()
        appending.after_commit()

    def _connect(self) -> Connection:
        if self._connection is None:
            self._prepare()
            self._connection = self._database.connect()
        return self._connection

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _write_heartbeat(self, connection: Connection) -> None:
        """Store a heartbeat of this process within a transaction, unless the last one is recent.

        A process without tasks writes no heartbeats, so other processes take it for dead. Its first
        event after such a pause is therefore stored in one transaction with a new heartbeat;
        otherwise another process would claim the new task at once.
        """
        if self._has_recent_heartbeat():
            return
        self.owner.register(connection)
        self._has_uncommitted_heartbeat = True  # until _transaction() has committed
        if self._last_heartbeat_at is None:
            # With its first heartbeat, a process also removes the records of dead processes.
            forget_dead(connection, connection.now())

    def _has_recent_heartbeat(self) -> bool:
        if self._last_heartbeat_at is None:
            return False
        return time.monotonic() - self._last_heartbeat_at < self.owner.heartbeat_seconds

    @contextmanager
    def _transaction(self, *, write: bool) -> Generator[Connection]:
        """Run a block in a transaction.

        If the block has stored a heartbeat, note its time after the commit.
        """
        self._has_uncommitted_heartbeat = False
        with transaction(self._connect(), write=write) as connection:
            yield connection
        if self._has_uncommitted_heartbeat:
            self._last_heartbeat_at = time.monotonic()

    def beat(self) -> None:
        """Store a heartbeat in a separate transaction, if a heartbeat is due."""
        if time.monotonic() < self.next_heartbeat_at:
            return
        self.next_heartbeat_at = time.monotonic() + self.owner.heartbeat_seconds
        # A process without open tasks needs no heartbeat: it has no task to lose. The first
        # heartbeat of a process is written together with its first event or claim.
        is_registered = self._last_heartbeat_at is not None
        unreleased = tuple(self._claims.unreleased)
        has_open_tasks = bool(self._claims.held or unreleased)
        if not (is_registered and has_open_tasks):
            return
        try:
            with self._transaction(write=True) as connection:
                self._write_heartbeat(connection)
                for task_id in unreleased:
                    self._claims.release(connection, task_id)
            self._claims.unreleased.difference_update(unreleased)
        except (JournalError, ConnectionLostError) as error:
            self._disconnect()
            self._outage.record_failure(error)
        else:
            self._outage.record_success()

    def _leave(self) -> None:
        """Remove this process from the owners of tasks, and close the connection."""
        is_registered = self._last_heartbeat_at is not None
        if is_registered:
            try:
                with transaction(self._connect(), write=True) as connection:
                    self.owner.leave(connection)
            except (JournalError, ConnectionLostError) as error:
                _log.warning("the end of this process could not be journalled: %s", error)
        self._disconnect()


def _group_appends(batch: list[Append | Call]) -> list[list[Append] | Call]:
    """Group adjacent appends, keeping the order: append, append, call → [append, append], call."""
    groups: list[list[Append] | Call] = []
    for operation in batch:
        if isinstance(operation, Call):
            groups.append(operation)
        elif groups and isinstance(groups[-1], list):
            groups[-1].append(operation)
        else:
            groups.append([operation])
    return groups


def _refused_event_error(event: Event, error: Exception) -> DelfError:
    place = f"event {event.seq} of task {event.task_id!r}"
    if isinstance(error, DuplicateRowError):
        return JournalConflictError(f"{place} already exists: another process works on the task")
    return JournalError(f"{place} cannot be written: {type(error).__name__}: {error}")


def _resolve_all(group: Sequence[Append]) -> None:
    """Resolve the futures of some appends in their event loops."""
    by_loop: defaultdict[asyncio.AbstractEventLoop, list[Append]] = defaultdict(list)
    for operation in group:
        by_loop[operation.loop].append(operation)
    for loop, operations in by_loop.items():
        try:
            # Appends are grouped by loop, because each of these calls wakes the loop with a system
            # call.
            loop.call_soon_threadsafe(_resolve, operations)
        except RuntimeError:  # nobody waits for the events any more
            _log.debug("%d events were stored, but their loop is closed", len(operations))


def _resolve(operations: list[Append]) -> None:
    for operation in operations:
        # The waiting task was cancelled, but its event is kept.
        if operation.done.done():
            continue
        if operation.error is None:
            operation.done.set_result(None)
        else:
            operation.done.set_exception(operation.error)
