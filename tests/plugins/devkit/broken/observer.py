"""Observers that break one thing each."""

import asyncio
import socket
import time
from collections import deque

import pytest
from planting import planting

from delf.errors import ConfigurationError
from delf.events import Printed, TaskFinished, TaskStarted
from delf.testing import ObserverContract


class Good:
    def __init__(self):
        self.seen = deque(maxlen=100)

    async def observe(self, event):
        self.seen.append(event)

    async def aclose(self):
        pass


class Suite(ObserverContract):
    kind = Good

    @pytest.fixture
    def observer(self):
        return self.kind()


breaks = planting(Suite)


class TestGood(Suite):
    pass


@breaks("test_observer_accepts_every_event_without_changing_it")
class TestKnowsNotAllEvents(Good):
    async def observe(self, event):
        {TaskStarted: 1, TaskFinished: 2}[type(event)]


@breaks("test_observer_accepts_every_event_without_changing_it")
class TestRedactsInPlace(Good):
    async def observe(self, event):
        if isinstance(event, Printed):
            object.__setattr__(event, "text", "…")


@breaks("test_observer_can_join_a_running_task")
class TestWaitsForTheStart(Good):
    async def observe(self, event):
        if isinstance(event, TaskStarted):
            self.task = event.task
        assert self.task


@breaks("test_observer_accepts_events_of_many_tasks")
class TestKnowsOneTask(Good):
    async def observe(self, event):
        self.seen.append(event.task_id)
        assert self.seen[0] == event.task_id


@breaks("test_close_is_idempotent_and_works_unused")
class TestClosesOnce(Good):
    async def aclose(self):
        del self.seen


@breaks("test_methods_do_not_block_the_event_loop", says="time.sleep")
class TestSleepsOnTheLoop(Good):
    async def observe(self, event):
        if isinstance(event, Printed):
            time.sleep(0.01)


class TestSendsToAFastServer(Suite):
    """Sending blocks the event loop, for longer over a real network."""

    breaks = ("test_methods_do_not_block_the_event_loop",)
    says = "it waits on the event loop"

    @pytest.fixture
    def observer(self):
        server = socket.create_server(("127.0.0.1", 0))

        class Sends(Good):
            async def observe(self, event):
                socket.create_connection(server.getsockname()).close()

        yield Sends()
        server.close()


@breaks("test_methods_do_not_block_the_event_loop", says="socket.getaddrinfo")
class TestLooksUpItsServer(Good):
    async def observe(self, event):
        socket.getaddrinfo("localhost", 80)


@breaks(
    "test_observer_accepts_every_event_without_changing_it",
    says="observe has not ended",
    seconds=0.3,
)
class TestNeverEnds(Good):
    async def observe(self, event):
        await asyncio.Event().wait()


class Telling(Good):
    """An observer that passes lines on, some concurrently."""

    def __init__(self):
        super().__init__()
        self.waiting = deque(maxlen=100)
        self.reported = deque(maxlen=1_000)

    async def observe(self, event):
        self.waiting.append(f"{event.task_id} {type(event).__name__}")
        if len(self.waiting) > 20:
            self.flush()

    def flush(self):
        self.reported += self.waiting
        self.waiting.clear()

    async def aclose(self):
        self.flush()


class Reports(Suite):
    reports = fails = True
    kind = Telling

    @pytest.fixture
    def reported_texts(self, observer):
        return lambda: observer.reported

    @pytest.fixture
    def failing_observer(self):
        return self.kind()


reports = planting(Reports)


class TestGoodTelling(Reports):
    pass


@reports("test_close_flushes_all_events", says="flush there")
class TestTellsLate(Telling):
    async def aclose(self):
        self.flush()
        asyncio.get_running_loop().call_later(0.01, self.reported.append, "late")


@reports("test_close_flushes_all_events", says="nothing of the second task")
class TestTellsOfItsFirstTask(Telling):
    first = None

    async def observe(self, event):
        self.first = self.first or event.task_id
        if event.task_id == self.first:
            await super().observe(event)
            self.flush()


@reports("test_concurrent_tasks_are_reported_separately", says="are reported differently")
class TestMixesTasks(Telling):
    task = ""

    async def observe(self, event):
        if isinstance(event, TaskStarted):
            self.task = event.task_id
        self.waiting.append(f"{self.task} {type(event).__name__}")


@reports("test_unavailable_service_stops_no_task", says="raised ConnectionRefusedError")
class TestFailsWithItsService(Telling):
    def flush(self):
        raise ConnectionRefusedError("the collector is away")


@reports("test_failure_shows_no_secret", secrets=("tok-secret",))
class TestShowsItsAddressAsItFails(Telling):
    def flush(self):
        raise ConfigurationError("https://ann:tok-secret@collector is away")


@breaks("test_ended_tasks_are_released", says="grows with each task")
class TestKeepsEveryEvent(Good):
    def __init__(self):
        self.seen = []


@breaks(
    "test_use_leaves_the_process_unchanged", says="each use changes TestCountsInItsClass.counts"
)
class TestCountsInItsClass(Good):
    counts: dict = {}

    async def observe(self, event):
        self.counts[type(event)] = self.counts.get(type(event), 0) + 1


@breaks("test_secrets_are_never_shown", secrets=("tok-secret",))
class TestShowsItsToken(Good):
    def __repr__(self):
        return "Collector('tok-secret')"
