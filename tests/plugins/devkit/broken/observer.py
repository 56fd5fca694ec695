"""Observers that break one thing each."""

import pytest

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


class TestGood(Suite):
    pass


class TestKnowsNotAllEvents(Suite):
    breaks = ("test_takes_every_kind_of_event",)

    class kind(Good):
        async def observe(self, event):
            {TaskStarted: 1, TaskFinished: 2}[type(event)]


class TestRedactsInPlace(Suite):
    breaks = ("test_changes_no_event",)

    class kind(Good):
        async def observe(self, event):
            if isinstance(event, Printed):
                object.__setattr__(event, "text", "…")


class TestWaitsForTheStart(Suite):
    breaks = ("test_can_join_in_the_middle_of_a_task",)

    class kind(Good):
        async def observe(self, event):
            if isinstance(event, TaskStarted):
                self.task = event.task
            assert self.task


class TestKnowsOneTask(Suite):
    breaks = ("test_takes_events_of_many_tasks",)

    class kind(Good):
        async def observe(self, event):
            self.seen.append(event.task_id)
            assert self.seen[0] == event.task_id


class TestClosesOnce(Suite):
    breaks = ("test_can_be_closed_twice_and_unused",)

    class kind(Good):
        async def aclose(self):
            del self.seen
