"""Observers that break one thing each."""

import asyncio
import socket
import time

import pytest
from planting import planting

from delf.events import Printed, TaskFinished, TaskStarted
from delf.testing import ObserverContract


class Good:
    def __init__(self):
        self.seen = []

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
    """Whatever it takes here: over a network it takes longer."""

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
