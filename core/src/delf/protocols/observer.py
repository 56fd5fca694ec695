"""An observer: sees every event, changes nothing."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from delf.events import Event
from delf.members import ProtocolMeta
from delf.protocols.people import PersonChange


class Observer(Protocol):
    """A receiver of every journalled event. A failing observer is dropped; the task continues."""

    async def observe(self, event: Event) -> None:
        """Process an event. Events of one task come in order."""
        ...

    async def aclose(self) -> None:
        """Flush and release all resources. Idempotent."""
        ...


@runtime_checkable
class SupportsPeopleChanges(Protocol, metaclass=ProtocolMeta):
    """An observer that also receives changes of people and their rights."""

    async def observe_person(self, change: PersonChange) -> None:
        """Process a change of people, keys or rights."""
        ...
