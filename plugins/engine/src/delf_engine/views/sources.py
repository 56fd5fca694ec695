"""The origins of calls' values, computed afterwards from a task's events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from delf.events import CallStarted, Event, TaskStarted
from delf_engine.origins.fold import Origins
from delf_engine.origins.origin import Wording

_MOST_CALLS: Final = 200
"""The maximum number of calls to search."""


def sources_of(events: Sequence[Event]) -> Mapping[int, Mapping[str, Any]]:
    """Return the origins of the values in a task's first calls, by call and path.

    The journal does not record authors, so the origins have none. Values found neither in the task
    nor in an earlier result are omitted.

    Args:
        events: The task's events.
    """
    task = next((event.task for event in events if isinstance(event, TaskStarted)), "")
    origins = Origins(task, list, lambda _: Wording(trust="own"))
    found: dict[int, Mapping[str, Any]] = {}
    for at, event in enumerate(events):
        if isinstance(event, CallStarted):
            origins.follow(events[:at])
            sources = origins.of(event.arguments)
            as_data = {path: source.data() for path, source in sources.items()}
            found[event.call_id] = {
                path: {name: item for name, item in data.items() if name != "trust"}
                for path, data in as_data.items()
                if data["kind"] in ("task", "result")
            }
            if len(found) == _MOST_CALLS:
                break
    return found
