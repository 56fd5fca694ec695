"""The guest's event loop, which flushes output before it waits and replays recorded iterations.

The only external events of a script are answers of the host and timers. The loop records in which
iteration, or turn, each event occurred. A repeated script gets the events in the same iterations,
however fast the host answers, and without waiting for timers.

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
from itertools import starmap
from time import monotonic_ns  # the real clock; scripts get a patched one
from typing import Any, NamedTuple, cast

_thread_count = _thread._count  # pyright: ignore[reportPrivateUsage]
# The maximum number of recorded events; a replay does not order any events after these.
_MAX_EVENTS = 10_000
_MAX_CANCELLED_TIMERS = 100
# The maximum depth of nested blocking waits, each of which takes several stack frames.
_MAX_BLOCK_DEPTH = 30
# The maximum number of iterations without new answers of the host, after the start of a script or
# after the last replayed event.
_MAX_HOLD_BACK_ITERATIONS = 1_000
# The event of an iteration in which the script sent a frame; see EventLog.record_late_frame().
_LATE_FRAME = 0
# The maximum number of seconds that a replay waits for a callback of a library's thread.
_MAX_THREAD_WAIT_SECONDS = 1.0


def _no_op(*_: object) -> None:
    pass


def _identity(value: Any) -> Any:
    return value


class _Task(asyncio.Task[Any]):
    """A task whose hash is its number, so that sets of tasks have the same order in each run."""

    def __init__(self, coro: Any, *, loop: GuestLoop, **options: Any) -> None:
        # Set the number first: the base class puts the task into a set, and so asks for its hash.
        loop.task_count += 1
        self._number = loop.task_count
        super().__init__(coro, loop=loop, **options)

    def __hash__(self) -> int:
        """Return the number of the task, which orders sets of tasks in the same way in each run."""
        return self._number


class _Timer(asyncio.TimerHandle):
    """A timer with its number in the script, by which a replay finds the timer that fired."""

    def __init__(self, number: int, when: float, callback: Any, args: Any, **options: Any) -> None:
        super().__init__(when, callback, args, **options)
        self.number = number  # counts the script's timers in the order of their creation


class _RecordedEvent(NamedTuple):
    """An event that the loop handled in a run.

    Args:
        iteration: The number of the iteration, from 1 in each script.
        event: The number of the call that the host answered, the negative number of the timer that
            fired, or ``_LATE_FRAME``.
    """

    iteration: int
    event: int


class EventLog:
    """The events that a script repeats from a recorded run, and the events that are new.

    A recording is a list of iterations, each followed by an event (:class:`_RecordedEvent`). In
    ``[4, 1, 7, -2]``, call 1 was answered in iteration 4, and timer 2 fired in iteration 7.
    """

    def __init__(self) -> None:
        self.iteration_number = 0
        # The iteration of the last event that was recorded or replayed.
        self._last_event_iteration = 0
        self._events_to_replay: deque[_RecordedEvent] = deque()
        self._new_recording: list[int] = []
        # How many further events of this script record() stores.
        self._recordable_events_left = 0

    def begin(self, recording: Sequence[int]) -> None:
        """Reset the log for a new script.

        Args:
            recording: The recording to replay; empty for no replay.
        """
        self.iteration_number = 0
        self._last_event_iteration = 0
        iteration_numbers = recording[::2]  # each is followed by an event of the iteration
        events = recording[1::2]
        self._events_to_replay = deque(
            starmap(_RecordedEvent, zip(iteration_numbers, events, strict=True))
        )
        # The replayed events count, too, because new events continue the same recording.
        self._recordable_events_left = _MAX_EVENTS - len(events)
        self._new_recording.clear()

    def end(self) -> None:
        """Record nothing until the next script begins."""
        self._recordable_events_left = 0

    def record(self, event: int) -> None:
        """Record an event of this iteration.

        Args:
            event: The number of the call that was answered, the negative number of the timer that
                fired, or ``_LATE_FRAME``.
        """
        if self._recordable_events_left > 0:
            self._recordable_events_left -= 1
            self._last_event_iteration = self.iteration_number
            self._new_recording.extend((self.iteration_number, event))

    def record_late_frame(self) -> None:
        """Record ``_LATE_FRAME`` if the script sends a frame long after the last recorded event.

        A replay delivers new answers ``_MAX_HOLD_BACK_ITERATIONS`` iterations after the last
        recorded event. With ``_LATE_FRAME`` as that event, the script sends the frame again before
        it gets a new answer.
        """
        if not self.is_soon_after_last_event:
            self.record(_LATE_FRAME)

    def take_new_recording(self) -> list[int]:
        """Return the recording of the events since the last call of this method."""
        count = len(self._new_recording)  # another thread may add events
        recording = self._new_recording[:count]
        del self._new_recording[:count]
        return recording

    @property
    def is_soon_after_last_event(self) -> bool:
        """True if few iterations were run since an event was recorded or replayed."""
        iterations = self.iteration_number - self._last_event_iteration
        return iterations <= _MAX_HOLD_BACK_ITERATIONS

    @property
    def next_event_iteration(self) -> int | None:
        """The iteration of the next event to replay; None if all events were replayed."""
        return self._events_to_replay[0].iteration if self._events_to_replay else None

    def take_due_events(self) -> list[int]:
        """Return the events to replay in this iteration, and remove these events."""
        due_events: list[int] = []
        while self._events_to_replay:
            iteration, event = self._events_to_replay[0]
            if iteration > self.iteration_number:
                break
            self._events_to_replay.popleft()
            self._last_event_iteration = iteration
            due_events.append(event)
        return due_events


class GuestLoop(asyncio.SelectorEventLoop):
    """An event loop that records in which iteration it handled each event.

    The events are the answers to calls, and timers. The loop can replay the recording: each event
    is then handled in the recorded iteration, called its turn.
    """

    _ready: deque[Any]
    _scheduled: list[_Timer]
    _signal_handlers: dict[int, Any]
    _timer_cancelled_count: int
    _clock_resolution: float
    _stopping: bool
    _process_events: Callable[[Any], None]
    _csock: object = None

    def __init__(self) -> None:
        # -- the script's tasks
        self.task_count = 0
        self._tasks: weakref.WeakSet[Any] = weakref.WeakSet()
        self._discarded_errors: list[BaseException] = []
        # Converts the awaitable of each new task to a coroutine.
        self._to_coroutine: Callable[[Any], Any] = _identity
        self._block_depth = 0  # the number of nested blocking waits
        # The number of threads before the first script; see open().
        self._initial_thread_count = 0

        # -- functions of the session, see attach(), and the wire to the host, see watch_wire()
        self._selector = selectors.PollSelector()
        self._wire: selectors.SelectorKey | None = None
        self._receive: Callable[[], None] = _no_op
        self._flush: Callable[[], None] = _no_op
        self._replay_answers: Callable[[Sequence[int]], None] = _no_op
        self._release_answers: Callable[[], None] = _no_op
        self._read_clock: Callable[[Callable[[], int]], int] | None = None

        # -- recording and replay
        self.event_log = EventLog()
        # The number of timers that this script has set.
        self._timer_count = 0
        self.holds_back_answers = False
        """True if an answer that arrives now has to be kept instead of being delivered."""
        # How far the loop's clock is ahead of the real clock. Not 0 after a replay has set the
        # loop's clock to a recorded time.
        self._clock_offset_ns = 0
        super().__init__(self._selector)
        self.set_exception_handler(self._record_discarded_error)

    def open(self, *, threads: bool) -> None:
        """Prepare the loop for a session, after the process was forked.

        Args:
            threads: Whether other threads of this process may wake up the loop.
        """
        # Any thread above this count was started later, by a library of the script.
        self._initial_thread_count = _thread_count()
        if threads:
            self._open_wake_up()

    def attach(
        self,
        flush: Callable[[], None],
        replay_answers: Callable[[Sequence[int]], None],
        release_answers: Callable[[], None],
        read_clock: Callable[[Callable[[], int]], int],
    ) -> None:
        """Set the functions of the session that the loop calls.

        Args:
            flush: Sends the queued frames to the host; called in each iteration, before the loop
                waits.
            replay_answers: Passes the answers of the calls with the given numbers to the script.
            release_answers: Passes all answers that were held back to the script.
            read_clock: Calls a clock function and records its result, or returns a recorded result.
        """
        self._flush = flush
        self._replay_answers = replay_answers
        self._release_answers = release_answers
        self._read_clock = read_clock

    def watch_wire(self, fd: int, receive: Callable[[], None]) -> None:
        """Receive the host's frames in each iteration of the loop, before the callbacks run.

        Args:
            fd: The descriptor of the connection to the host.
            receive: Reads the available data, and dispatches its frames.
        """
        # With asyncio's ``add_reader``, each read would be a callback with an iteration of its own.
        # The number of reads depends on the machine, so a replay would count other iterations. And
        # waits_only_for_host() would return False while such a callback is ready.
        self._wire = self._selector.register(fd, selectors.EVENT_READ)
        self._receive = receive

    def begin(self, recording: Sequence[int]) -> None:
        """Reset the loop for a new script.

        Args:
            recording: The recording to replay; empty for no replay.
        """
        self._cancel_timers()  # those that tasks set between the scripts
        self.task_count = 0
        self._tasks.clear()
        self._discarded_errors.clear()
        self._timer_count = 0
        self.event_log.begin(recording)
        self.holds_back_answers = True  # see phase 2 of _handle_events()

    def end(self) -> None:
        """End a script: cancel its timers, and record nothing until the next script begins.

        A timer that went on would fire before or in the next script, depending on how long the
        model thinks, and a replay does not wait for the model.
        """
        self._cancel_timers()
        self.event_log.end()

    def _cancel_timers(self) -> None:
        for timer in self._scheduled:
            timer.cancel()

    def set_coroutine_factory(self, coroutine: Callable[[Any], Any]) -> None:
        """Set the function that converts the awaitable of each new task to a coroutine.

        Args:
            coroutine: Converts an awaitable to a coroutine.
        """
        self._to_coroutine = coroutine

    def create_task(self, coro: Any, **options: Any) -> asyncio.Task[Any]:
        """Create a task as asyncio does, with a hash that is the same in every process."""
        coro = self._to_coroutine(coro)
        if self.get_task_factory() is not None:
            return super().create_task(coro, **options)
        self._check_closed()  # pyright: ignore[reportUnknownMemberType,reportAttributeAccessIssue]
        task = _Task(coro, loop=self, **options)
        self._tasks.add(task)
        return task

    def call_at(
        self, when: float, callback: Callable[..., Any], *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        """Set a timer as asyncio does, with the number by which a replay finds the timer."""
        if cast("float | None", when) is None:
            raise TypeError("when cannot be None")
        self._check_closed()  # pyright: ignore[reportUnknownMemberType,reportAttributeAccessIssue]
        self._timer_count += 1
        timer = _Timer(self._timer_count, when, callback, args, loop=self, context=context)
        heapq.heappush(self._scheduled, timer)
        timer._scheduled = True
        return timer

    @property
    def has_ready_callbacks(self) -> bool:
        """True if a callback is ready to run."""
        return bool(self._ready)

    def unretrieved_exceptions(self) -> list[BaseException]:
        """Return the task exceptions that the script never retrieved, oldest task first."""
        # asyncio's own flag for an exception that nobody has retrieved; it has no public name.
        failed_tasks = [task for task in self._tasks if task.done() and task._log_traceback]
        # The class _Task defines the hash of a task: its number in the order of creation.
        failed_tasks.sort(key=hash)
        errors = list(self._discarded_errors)
        for task in failed_tasks:
            error = task.exception()
            if error is not None:
                errors.append(error)
        return errors

    def _record_discarded_error(self, _loop: object, context: dict[str, Any]) -> None:
        """Record the exception of a task that was deleted before its exception was retrieved."""
        error = context.get("exception")
        if isinstance(context.get("future"), _Task) and error is not None:
            self._discarded_errors.append(error)

    def block(self, coro: Any) -> Any:
        """Run a coroutine to its end and return its result, even while the loop is running.

        Raises:
            RecursionError: If blocking waits are nested too deeply.
        """
        outer = asyncio.current_task(self)
        if self._block_depth >= _MAX_BLOCK_DEPTH:
            # Without the close, Python would warn that the coroutine was never awaited, which
            # hides the real error.
            coro.close()
            raise RecursionError(
                "too many plain functions wait for calls at the same time: make them async, "
                "and await the calls"
            )
        task = self.create_task(coro)
        if outer is not None:
            # The iterations below run tasks, and asyncio allows only one current task at a time.
            asyncio.tasks._leave_task(self, outer)
        self._block_depth += 1
        try:
            # Run further iterations of this loop instead of a second loop, so that other tasks of
            # the script go on meanwhile.
            while not task.done():
                self._run_once()
        finally:
            self._block_depth -= 1
            if outer is not None:
                asyncio.tasks._enter_task(self, outer)
        return task.result()

    def run_until_complete(self, future: Any) -> Any:
        """Run the loop until a future is done and return its result.

        Unlike asyncio's method, this one also works while the loop is running.
        """
        if self.is_running():
            return self.block(future)
        return super().run_until_complete(future)

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> asyncio.Future[Any]:
        """Call a function immediately, because the guest has no threads."""
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future

    def close(self) -> None:
        """Close the loop, unless it is running.

        Scripts may close the loop in the belief that they created it.
        """
        if not self.is_running():
            super().close()

    def add_signal_handler(self, sig: int, callback: Callable[..., Any], *args: Any) -> None:
        """Create the wake-up descriptor, and add a signal handler as asyncio does."""
        self._open_wake_up()
        super().add_signal_handler(sig, callback, *args)

    def _open_wake_up(self) -> None:
        """Create the descriptors by which a thread or signal wakes up the loop. Idempotent.

        The constructor does not create the descriptors, because processes that are forked from
        this one would share them.
        """
        if self._csock is None:  # asyncio keeps one of the descriptors here
            super()._make_self_pipe()  # pyright: ignore[reportUnknownMemberType,reportAttributeAccessIssue]

    def _make_self_pipe(self) -> None:
        """Do nothing: the wake-up descriptor is created when it is needed."""

    def _close_self_pipe(self) -> None:
        """Close the wake-up descriptors as asyncio does, if :meth:`_open_wake_up` created them."""
        if self._csock is not None:
            super()._close_self_pipe()  # pyright: ignore[reportUnknownMemberType,reportAttributeAccessIssue]

    def time(self) -> float:
        """Return the time of the loop in seconds, on which timers are based."""
        # In a replay, read_clock() returns the recorded time instead of calling _now_ns().
        now_ns = self._now_ns() if self._read_clock is None else self._read_clock(self._now_ns)
        # After a recorded time, such as that of yesterday's run, the clock goes on from that time.
        self._clock_offset_ns = now_ns - monotonic_ns()
        return now_ns / 1e9

    def _now_ns(self) -> int:
        """Return the monotonic time in nanoseconds, continuing the recorded time in a replay."""
        return monotonic_ns() + self._clock_offset_ns

    def _run_once(self) -> None:
        """Run one iteration of the loop: handle events, then run the callbacks that are ready."""
        # This replaces asyncio's method, in which the order of descriptors and timers depends on
        # timing: a replayed script would see another order.
        self._remove_cancelled_timers()
        # Flush before the wait, because the host can answer only calls that were sent.
        self._flush()
        self.event_log.iteration_number += 1
        self._handle_events()
        if not self._ready:
            # Nothing to run: the loop woke up for nothing. Do not count this as an iteration,
            # because the number of such wake-ups depends on the machine.
            self.event_log.iteration_number -= 1
        self._run_ready_callbacks()

    def _handle_events(self) -> None:
        """Replay the recorded events, or wait for events."""
        # Phase 1, only in a replay: handle the recorded events in their iterations.
        next_event_iteration = self.event_log.next_event_iteration
        if next_event_iteration is not None:
            self._replay_iteration(next_event_iteration)
            return
        # Phase 2: let the script run on without events until it can only wait. Otherwise the first
        # answer of a fast host could arrive before the script's second call, and that of a slow
        # host after it. A replay with another host could then make other calls.
        if self.holds_back_answers:
            # A script that never waits gets its answers after a while.
            if self._ready and self.event_log.is_soon_after_last_event:
                return
            self.holds_back_answers = False
            self._release_answers()
        # Phase 3: handle events as they arrive.
        self._wait()

    def _run_ready_callbacks(self) -> None:
        """Run the callbacks that are ready now.

        Callbacks that these callbacks schedule belong to the next iteration.
        """
        for _ in range(len(self._ready)):
            if not self._ready:  # a callback ran the loop, and with it the remaining callbacks
                break
            handle = self._ready.popleft()
            if not handle._cancelled:
                handle._run()

    def _remove_cancelled_timers(self) -> None:
        """Remove cancelled timers from the queue.

        Usually, only the cancelled timers that are due before every other timer are removed. If
        very many timers are cancelled, all cancelled timers are removed.
        """
        timers = self._scheduled
        cancelled_count = self._timer_cancelled_count
        if cancelled_count > _MAX_CANCELLED_TIMERS and 2 * cancelled_count > len(timers):
            for handle in timers:
                if handle._cancelled:
                    handle._scheduled = False
            timers[:] = [handle for handle in timers if not handle._cancelled]
            heapq.heapify(timers)
            self._timer_cancelled_count = 0
        while timers and timers[0]._cancelled:
            self._timer_cancelled_count -= 1
            heapq.heappop(timers)._scheduled = False

    def _fire(self, timer: _Timer) -> bool:
        """Schedule the callback of a timer that is due; return False if the timer was cancelled."""
        timer._scheduled = False
        if timer._cancelled:
            self._timer_cancelled_count -= 1
            return False
        self._ready.append(timer)
        return True

    def _replay_timer(self, number: int) -> None:
        """Fire the timer with a number; do nothing if there is no such timer.

        A timer of a replay does not fire by time, because the clock of a replay advances only when
        the script reads the clock. The timer is missing if the script does not do the same as in
        the recorded run.
        """
        timers = self._scheduled
        for index, timer in enumerate(timers):
            if timer.number != number:
                continue
            if index == 0:  # nearly always
                self._fire(heapq.heappop(timers))
            else:
                self._fire(timers.pop(index))
                heapq.heapify(timers)
            return

    def _wait(self) -> None:
        """Wait for the next event or timer, and fire the timers that are due."""
        timeout = None
        if self._ready or self._stopping:
            timeout = 0.0
        elif self._scheduled:
            timeout = max(0.0, self._scheduled[0]._when - self._now_ns() / 1e9)
        self._select(timeout)
        due_before = self._now_ns() / 1e9 + self._clock_resolution
        # Record each timer that fires, so that a replay fires the same timers in this iteration.
        while self._scheduled and self._scheduled[0]._when < due_before:
            timer = heapq.heappop(self._scheduled)
            is_fired = self._fire(timer)  # False if the timer was cancelled
            if is_fired:
                # A negative number stands for a timer, and a positive one for an answered call.
                self.event_log.record(-timer.number)

    def _select(self, timeout: float | None) -> None:
        """Wait until a descriptor is ready, then handle all descriptors that are ready.

        For the connection to the host, receive the frames; for any other descriptor, schedule its
        callback.

        Args:
            timeout: The maximum number of seconds to wait; None to wait without a limit.
        """
        events = self._selector.select(timeout)
        other_events = [(key, mask) for key, mask in events if key is not self._wire]
        self._process_events(other_events)
        has_frame = len(other_events) < len(events)
        if has_frame:
            self._receive()

    def _replay_iteration(self, next_event_iteration: int) -> None:
        """Replay the recorded events of this iteration, if any.

        Args:
            next_event_iteration: The iteration of the next recorded event.
        """
        is_event_due = next_event_iteration <= self.event_log.iteration_number
        if not is_event_due:
            self._wait_for_threads()  # returns at once if a callback is ready
            if self._ready:  # the script runs on, and comes to the event's iteration later
                return
            # Only the next event can make the script continue, so skip to the event's iteration.
            self.event_log.iteration_number = next_event_iteration
        # A positive event is the number of an answered call, a negative one that of a fired timer.
        # _LATE_FRAME is 0 and needs nothing here: the script sends the frame itself.
        events = self.event_log.take_due_events()
        answered_call_numbers = [event for event in events if event > 0]
        fired_timer_numbers = [-event for event in events if event < 0]
        if answered_call_numbers:
            self._replay_answers(answered_call_numbers)
        for number in fired_timer_numbers:
            self._replay_timer(number)

    def _wait_for_threads(self) -> None:
        """Wait until a thread of a library has scheduled a callback.

        Do not wait if a callback is ready already, or if no library runs a thread. Called in a
        replay for an iteration without a recorded event.
        """
        # The wait needs a time limit: if the thread scheduled its callback in an earlier iteration
        # of the replay, no further callback comes.
        deadline = monotonic_ns() + _MAX_THREAD_WAIT_SECONDS * 1e9
        # The number of threads is higher while a thread of a library runs.
        while not self._ready and _thread_count() != self._initial_thread_count:
            seconds_left = (deadline - monotonic_ns()) / 1e9
            if seconds_left <= 0:
                return
            self._select(seconds_left)

    def waits_only_for_host(self) -> bool:
        """Return True if only a message of the host can make the script continue.

        Return False if a callback is ready, a timer is pending, a thread could call back, a signal
        handler is set, another descriptor is watched, or the current task is being cancelled. Also
        return False if the script has set a task factory, whose tasks may behave in other ways.
        """
        task = asyncio.current_task(self)
        if task is None or task.cancelling():
            return False
        if self._ready or self._scheduled or self._signal_handlers:
            return False
        has_task_factory = self.get_task_factory() is not None
        if has_task_factory or _thread_count() != self._initial_thread_count:
            return False
        # The loop itself watches the wire and, if open, the wake-up descriptor.
        own_descriptor_count = 1 if self._csock is None else 2
        return len(self._selector.get_map()) == own_descriptor_count
