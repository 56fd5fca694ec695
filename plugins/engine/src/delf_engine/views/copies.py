"""The events that a fork copied from another task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from delf.events import Event, TaskStarted

PERSON: Final = "person"
"""The model name recorded for a script that a person wrote."""
COPIED: Final = "forked_events"
"""The key in a forked task's setup for the number of events copied from the original task."""


def copied_event_count(events: Sequence[Event]) -> int:
    """Return how many of a fork's events were copied from the forked task; 0 for other tasks."""
    start = next((event for event in events if isinstance(event, TaskStarted)), None)
    return 0 if start is None else int(start.setup.get(COPIED, 0))
