"""The guest's event loop, which flushes output before it waits and replays recorded turns.

The only external events of a script are answers of the host and timers. The loop records in which
turn each event occurred. A repeated script gets the events in the same turns, however fast the host
answers, and without waiting for timers.

The loop opens no descriptor before :meth:`GuestLoop.open`, so that a template process can create
the loop once and fork many times.
"""

from __future__ import annotations

import _thread
import asyncio
import heapq
import selectors
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from time import monotonic_ns  # the real clock; scripts get a patched one
from typing import Any

_count_threads = _thread._count  # pyright: ignore[reportPrivateUsage]
_TIMER = 0
_MAX_NOTES = 10_000
"""The maximum number of simultaneous events that are replayed exactly."""
_MANY_CANCELLED = 100
_DEEPEST = 30
"""The deepest nesting of blocking waits, each of which takes several stack frames."""
_MAX_TURNS_UNTIL_IDLE = 1_000


def _no_op(*_: object) -> None:
    """Do nothing; a placeholder until a session is attached."""


def _identity(value: Any) -> Any:
    """Return the argument; a placeholder until a session is attached."""
    return value


class _Task(asyncio.Task[Any]):
    """A task whose hash is its number, so that a set's order is the same in each run."""

    def __init__(self, coro: Any, *, loop: GuestLoop, **options: Any) -> None:
        # Before the base class, which puts the task into a set of all tasks and so asks for its
        # hash.
        loop.tasks += 1
        self._number = loop.tasks
        super().__init__(coro, loop=loop, **options)

    def __hash__(self) -> int:
        return self._number


class GuestLoop(asyncio.SelectorEventLoop):
    """An event loop whose turns can be recorded and replayed."""

    _ready: deque[Any]
    _scheduled: list[Any]
    _signal_handlers: dict[int, Any]
    _timer_cancelled_count: int
    _clock_resolution: float
    _stopping: bool
    _process_events: Callable[[Any], None]
    _csock: object = None

    def __init__(self) -> None:
        self.tasks = 0
        self._tasks: weakref.WeakSet[Any] = weakref.WeakSet()
        self._discarded_errors: list[BaseException] = []
        self._coroutine: Callable[[Any], Any] = _identity
        self._depth = 0
        self._threads = 0
        self._watched = selectors.PollSelector()
        self._at_turn: Callable[[], None] = _no_op
        self._deliver: Callable[[Sequence[int]], None] = _no_op
        self._read_clock: Callable[[Callable[[], int]], int] | None = None
        self._recorded: deque[tuple[int, int]] = deque()
        self._notes: list[int] = []
        self._remaining_notes = 0
        self._turn = self._turns_until_idle = 0
        self._offset = 0
        super().__init__(self._watched)
        self.set_exception_handler(self._note_lost)

    def open(self, *, threads: bool) -> None:
        """Open the loop's descriptors and start serving in this process.

        Args:
            threads: Whether threads may wake up the loop.
        """
        # Counted after the fork: more than these are threads of the script's libraries.
        self._threads = _count_threads()
        if threads:
            self._open_wake_up()

    def serve(
        self,
        at_turn: Callable[[], None],
        deliver: Callable[[Sequence[int]], None],
        read_clock: Callable[[Callable[[], int]], int],
    ) -> None:
        """Attach a session.

        Args:
            at_turn: Called at the end of each turn, before the loop waits.
            deliver: Delivers the answers of the given calls, once they have arrived.
            read_clock: Reads a clock through recording and replay.
        """
        self._at_turn, self._deliver, self._read_clock = at_turn, deliver, read_clock

    def begin(self, turns: Sequence[int]) -> None:
        """Prepare for a script.

        Args:
            turns: The recording of an earlier run, as of :meth:`take_notes`: alternately the
                number of a turn and an event of that turn.
        """
        self.tasks = 0
        self._tasks.clear()
        self._discarded_errors.clear()
        self._turn = 0
        self._remaining_notes = _MAX_NOTES - len(turns) // 2
        self._turns_until_idle = _MAX_TURNS_UNTIL_IDLE
        self._recorded = deque(zip(turns[::2], turns[1::2], strict=True))
        self._notes.clear()

    def take_notes(self) -> list[int]:
        """Return the recording since the last call: alternately a turn's number and its event."""
        count = len(self._notes)  # another thread may add notes
        notes = self._notes[:count]
        del self._notes[:count]
        return notes

    def note(self, event: int) -> None:
        """Record an event of this turn: the number of an answered call, or 0 for a timer."""
        if self._remaining_notes > 0:
            self._remaining_notes -= 1
            self._notes.extend((self._turn, event))

    @property
    def is_replaying(self) -> bool:
        """True if messages of the host must wait for their recorded turn.

        After the last recorded turn, this stays true until the script waits again: the work up to
        then may have recorded no event.
        """
        return bool(self._recorded) or self._turns_until_idle > 0

    def install(self, coroutine: Callable[[Any], Any]) -> None:
        """Set the function that makes coroutines of the awaitables given to new tasks.

        Args:
            coroutine: Converts an awaitable to a coroutine.
        """
        self._coroutine = coroutine

    def create_task(self, coro: Any, **options: Any) -> asyncio.Task[Any]:
        """Create a task as asyncio does, with an order that is stable across processes."""
        coro = self._coroutine(coro)
        if self.get_task_factory() is not None:
            return super().create_task(coro, **options)
        self._check_closed()  # pyright: ignore[reportUnknownMemberType,reportAttributeAccessIssue]
        task = _Task(coro, loop=self, **options)
        self._tasks.add(task)
        return task

    @property
    def is_busy(self) -> bool:
        """True if a callback is ready to run."""
        return bool(self._ready)

    def unretrieved_exceptions(self) -> list[BaseException]:
        """Return exceptions of the script's tasks that were never retrieved, in creation order."""
        # asyncio's own mark of an exception that nobody has fetched; there is no public question
        # for it.
        failed_tasks = [task for task in self._tasks if task.done() and task._log_traceback]
        failed_tasks.sort(key=hash)
        return [
            *self._discarded_errors,
            *(error for task in failed_tasks if (error := task.exception())),
        ]

    def _note_lost(self, _loop: object, context: dict[str, Any]) -> None:
        """Record the exception of a discarded task that was never retrieved."""
        error = context.get("exception")
        if isinstance(context.get("future"), _Task) and error is not None:
            self._discarded_errors.append(error)

    def block(self, coro: Any) -> Any:
        """Run a coroutine to its end, even from within running code.

        Raises:
            RecursionError: If blocking waits are nested too deeply.
        """
        outer = asyncio.current_task(self)
        if self._depth >= _DEEPEST:
            # Otherwise Python warns of a coroutine that was never awaited, and hides the real
            # error.
            coro.close()
            raise RecursionError(
                "too many plain functions wait for calls at the same time: make them async, "
                "and await the calls"
            )
        task = self.create_task(coro)
        if outer is not None:  # asyncio requires that no other task is current
            asyncio.tasks._leave_task(self, outer)
        self._depth += 1
        try:
            # Turns of the one loop, not a second loop: other tasks of the script must go on
            # meanwhile.
            while not task.done():
                self._run_once()
        finally:
            self._depth -= 1
            if outer is not None:
                asyncio.tasks._enter_task(self, outer)
        return task.result()

    def run_until_complete(self, future: Any) -> Any:
        """Run a future to its end as asyncio does; inside a running script, in a nested run."""
        return self.block(future) if self.is_running() else super().run_until_complete(future)

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> asyncio.Future[Any]:
        """Call a function at once, because there are no threads here."""
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future

    def close(self) -> None:
        """Close as asyncio does; ignored while the loop runs.

        Scripts may close the loop, believing that they created it.
        """
        if not self.is_running():
            super().close()

    def add_signal_handler(self, sig: int, callback: Callable[..., Any], *args: Any) -> None:
        """Add a signal handler as asyncio does, after creating the wake-up descriptor."""
        self._open_wake_up()
        super().add_signal_handler(sig, callback, *args)

    def _open_wake_up(self) -> None:
        if self._csock is None:
            super()._make_self_pipe()  # pyright: ignore[reportUnknownMemberType,reportAttributeAccessIssue]

    def _make_self_pipe(self) -> None:
        """Skip asyncio's wake-up descriptor until it is needed."""

    def _close_self_pipe(self) -> None:
        if self._csock is not None:
            super()._close_self_pipe()  # pyright: ignore[reportUnknownMemberType,reportAttributeAccessIssue]

    def time(self) -> float:
        """Return the loop's time for timers."""
        now = self._now() if self._read_clock is None else self._read_clock(self._now)
        # A replayed reading moves the clock, so that the following times continue the recorded
        # ones.
        self._offset = now - monotonic_ns()
        return now / 1e9

    def _now(self) -> int:
        """Return the time in nanoseconds; it continues the recorded time of a repeated script."""
        return monotonic_ns() + self._offset

    def _run_once(self) -> None:
        """Run one turn: wait for events, then run the ready callbacks."""
        # Replaces asyncio's method, whose order of descriptors and timers depends on timing: a
        # repeated script would see another order.
        self._drop_cancelled()
        # Before the wait: an answer can only come for calls that have left this process.
        self._at_turn()
        self._turn += 1
        if self._recorded:
            if not self._replay_turn():
                self._wait()
        # In the recording, the script continued after the last event until it only waited for
        # answers. Deliver no answer before it waits again, or the order would differ.
        elif self._turns_until_idle and self._ready:
            self._turns_until_idle -= 1
        else:
            if self._turns_until_idle:
                self._turns_until_idle = 0
                self.call_soon(self._deliver, ())
            self._wait()
        if not self._ready:
            # Do not count an idle wake-up as a turn: their number depends on the machine.
            self._turn -= 1
        # Only those that are ready now: callbacks that they schedule belong to the next turn.
        for _ in range(len(self._ready)):
            if not self._ready:  # a callback ran the loop, and with it the remaining callbacks
                break
            handle = self._ready.popleft()
            if not handle._cancelled:
                handle._run()

    def _drop_cancelled(self) -> None:
        """Drop cancelled timers from the head of the queue, or all if there are many."""
        timers, cancelled = self._scheduled, self._timer_cancelled_count
        if cancelled > _MANY_CANCELLED and 2 * cancelled > len(timers):
            for handle in timers:
                handle._scheduled = handle._scheduled and not handle._cancelled
            timers[:] = [handle for handle in timers if not handle._cancelled]
            heapq.heapify(timers)
            self._timer_cancelled_count = 0
        while timers and timers[0]._cancelled:
            self._timer_cancelled_count -= 1
            heapq.heappop(timers)._scheduled = False

    def _ready_timer(self) -> bool:
        """Fire the next timer; return False if it was cancelled."""
        handle = heapq.heappop(self._scheduled)
        handle._scheduled = False
        if handle._cancelled:
            self._timer_cancelled_count -= 1
            return False
        self._ready.append(handle)
        return True

    def _wait(self) -> None:
        timeout = None
        if self._ready or self._stopping:
            timeout = 0.0
        elif self._scheduled:
            timeout = max(0.0, self._scheduled[0]._when - self._now() / 1e9)
        self._process_events(self._watched.select(timeout))
        end = self._now() / 1e9 + self._clock_resolution
        # All due timers in this turn, and each is recorded: a replay fires the same number.
        while self._scheduled and self._scheduled[0]._when < end:
            if self._ready_timer():
                self.note(_TIMER)

    def _replay_turn(self) -> bool:
        """Replay the recorded events of this turn; return False to wait for a thread instead."""
        if not self._ready and self._recorded[0][0] > self._turn:
            if _count_threads() != self._threads:
                # A library's thread may call back, and skipping to the recorded turn would miss
                # the call.
                return False
            self._turn = self._recorded[0][0]  # nothing can happen before that turn
        answered_numbers: list[int] = []
        timers = 0
        while self._recorded and self._recorded[0][0] <= self._turn:
            event = self._recorded.popleft()[1]
            if event == _TIMER:
                timers += 1
            else:
                answered_numbers.append(event)
        if answered_numbers:
            self.call_soon(self._deliver, answered_numbers)
        while timers and self._scheduled:
            timers -= self._ready_timer()
        return True

    def only_waits(self) -> bool:
        """Return True if only the host can cause the next event.

        False if a callback is ready, a timer is pending, a thread could call back, a signal is
        being handled, another descriptor is watched, or the calling task is being cancelled.
        """
        task = asyncio.current_task(self)
        return (
            task is not None
            and not task.cancelling()
            and not self._ready
            and not self._scheduled
            and not self._signal_handlers
            and self.get_task_factory() is None
            and _count_threads() == self._threads
            and len(self._watched.get_map()) == (1 if self._csock is None else 2)  # the wire
        )
