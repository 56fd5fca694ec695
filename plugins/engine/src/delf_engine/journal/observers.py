"""Delivery of events to observers, in order and without delaying tasks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextvars import Context, copy_context
from dataclasses import replace
from typing import Any

from delf.events import Event
from delf.machine.contexts import awaited_in, shared_task
from delf.plugins.host import PluginHost
from delf.protocols.observer import Observer, SupportsPeopleChanges
from delf.protocols.people import PersonChange
from delf.records import dataclass
from delf.specs import ObserverSpec
from delf_engine.bounded import convert_exits_to_errors
from delf_engine.closing import all_ended, close_all
from delf_engine.redact import Redactor

_log = logging.getLogger(__name__)
CLOSE_SECONDS = 5.0
"""The maximum time for delivering an observer's last events when the agent stops, in seconds."""
MAX_QUEUED_EVENTS = 100_000
"""The maximum number of events that wait for an observer; with more, the observer is left out."""


@dataclass(frozen=True, slots=True)
class Observers:
    """The observers of a started agent.

    Args:
        feeds: The queues of the observers, each of which gets every event.
        setups: Functions of the observers that return setup data for each submitted task.
    """

    feeds: Sequence[ObserverFeed]
    setups: Sequence[Callable[[], Mapping[str, Any]]]

    def tell(self, change: PersonChange) -> None:
        """Send a change of a person's account to the observers."""
        for feed in self.feeds:
            feed(change)

    async def aclose(self) -> None:
        """Deliver queued events, then close each observer."""
        await all_ended(feed.aclose() for feed in self.feeds)


def open_observers(
    host: PluginHost,
    requested: Sequence[str],
    make: Callable[[type[ObserverSpec], str], Observer],
    redactor: Redactor,
) -> Observers:
    """Create the requested observers of an agent, and all observers that are on by default.

    Args:
        host: The plugins.
        requested: The names of requested observers.
        make: Creates an observer.
        redactor: Redacts failures.
    """
    always_on = [spec.name for spec in host.specs(ObserverSpec) if not spec.opt_in]
    specs = [host.spec(ObserverSpec, name) for name in dict.fromkeys((*always_on, *requested))]
    feeds = [ObserverFeed(spec.name, make(ObserverSpec, spec.name), redactor) for spec in specs]
    # resolve() imports the object that ``factory`` names, which is here the function ``setup``.
    setups = [host.resolve(replace(spec, factory=spec.setup)) for spec in specs if spec.setup]
    return Observers(feeds, setups)


class ObserverFeed:
    """Delivers events to one observer in order and in the background.

    An observer that fails, or that lets too many events wait, gets no further events. Each event is
    delivered with the context variables of the task that queued it.

    Args:
        name: The observer's name, for the log.
        observer: The observer.
        redactor: Redacts failures.
    """

    def __init__(self, name: str, observer: Observer, redactor: Redactor) -> None:
        self._name = name
        self._redactor = redactor
        self._observer = observer
        # None marks the end of the queue.
        self._queue: asyncio.Queue[tuple[Event | PersonChange, Context] | None] = asyncio.Queue()
        self._task = shared_task(self._deliver_all())
        self._failed = False

    def __call__(self, event: Event | PersonChange) -> None:
        """Queue an event, or a change of a person's account."""
        if self._failed:
            return
        if self._queue.qsize() < MAX_QUEUED_EVENTS:
            self._queue.put_nowait((event, copy_context()))
            return
        self._stop_delivery(TimeoutError(f"{MAX_QUEUED_EVENTS:,} events wait for the observer"))
        self._task.cancel()  # the observer may hang in its current event

    def _stop_delivery(self, error: Exception) -> None:
        """Drop the observer's queued and future events, and log the reason."""
        self._failed = True
        self._queue = asyncio.Queue()
        message = f"the observer {self._name!r} failed and is left out from now on"
        self._redactor.log_failure(_log, message, error)

    async def _deliver_all(self) -> None:
        while await self._deliver_next():
            pass

    async def _deliver_next(self) -> bool:
        """Deliver the next event; return False after the last event or a failure."""
        queued = await self._queue.get()
        if queued is None:
            return False
        event, context = queued
        try:
            # A SystemExit or a cancellation by the plugin itself becomes an ordinary exception.
            await convert_exits_to_errors(lambda: awaited_in(context, self._observe(event)))
        except Exception as error:
            self._stop_delivery(error)
        return not self._failed

    async def _observe(self, event: Event | PersonChange) -> None:
        if not isinstance(event, PersonChange):
            await self._observer.observe(event)
        elif isinstance(self._observer, SupportsPeopleChanges):
            await self._observer.observe_person(event)

    async def aclose(self) -> None:
        """Deliver queued events, then close the observer."""
        self._queue.put_nowait(None)
        _, unfinished = await asyncio.wait({self._task}, timeout=CLOSE_SECONDS)
        if unfinished:
            self._task.cancel()
            _log.warning("the observer %r did not take its last events in time", self._name)
        await close_all({f"the observer {self._name!r}": self._observer})
