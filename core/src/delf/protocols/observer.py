"""An observer: sees every event, changes nothing."""

from __future__ import annotations

from typing import Protocol

from delf.events import Event


class Observer(Protocol):
    """Sees every event after it was journalled. A failing observer is dropped, not fatal."""

    async def observe(self, event: Event) -> None:
        """Take note of an event. Events of one task come in order."""
        ...

    async def aclose(self) -> None:
        """Flush and free what is held. Safe to call twice."""
        ...
