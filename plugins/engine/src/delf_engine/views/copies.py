"""The events of a fork that are copies of another task's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from delf.events import Event, TaskStarted

PERSON: Final = "person"
"""The name of the model where a person wrote the script."""
COPIED: Final = "forked_events"
"""The key of a fork's setup with the number of events that are copied for it."""


def copied_events(events: Sequence[Event]) -> int:
    """Return the number of a fork's first events that are copies of another task's; else 0."""
    began = next((event for event in events if isinstance(event, TaskStarted)), None)
    return 0 if began is None else int(began.setup.get(COPIED, 0))
