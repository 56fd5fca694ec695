"""An observer: sees every event, changes nothing."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from delf.events import Event
from delf.protocols.people import PersonChange


class Observer(Protocol):
    """Sees every event after it was journalled. A failing observer is dropped, not fatal."""

    async def observe(self, event: Event) -> None:
        """Take note of an event. Events of one task come in order."""
        ...

    async def aclose(self) -> None:
        """Flush and free what is held. Safe to call twice."""
        ...


@runtime_checkable
class SupportsPeopleChanges(Protocol):
    """An observer that is also told when people and their rights change."""

    async def observe_person(self, change: PersonChange) -> None:
        """Take note that people, their keys or rights changed, or who decides in whose place."""
        ...
