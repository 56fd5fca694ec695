"""The origins of calls' values, computed afterwards from a task's events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from delf.events import CallStarted, Event, TaskStarted
from delf_engine.origins.fold import Origins
from delf_engine.origins.values import values_of

# The maximum number of a task's calls for which origins are searched.
_MAX_CALLS: Final = 200


def sources_of(events: Sequence[Event]) -> Mapping[int, Mapping[str, Any]]:
    """Return where the values in the arguments of a task's first calls came from.

    The result maps the number of each call to a mapping from the path of a value in the arguments,
    such as ``rows[0].id``, to the value's origin. At most ``_MAX_CALLS`` calls are examined. The
    trust of the origins is left out, because the journal does not record it. Values found neither
    in the task nor in an earlier result are omitted.

    Args:
        events: The task's events.
    """
    task = next((event.task for event in events if isinstance(event, TaskStarted)), "")
    # Search only the task and earlier results: no other texts (``list`` returns an empty list), no
    # tools.
    origins = Origins(task, read_context_texts=list, tool_of=lambda _: None)
    sources_by_call: dict[int, dict[str, Any]] = {}
    for index, event in enumerate(events):
        if not isinstance(event, CallStarted):
            continue
        origins.follow(events[:index])
        sources_by_call[event.call_id] = _sources_of_call(event, origins)
        if len(sources_by_call) == _MAX_CALLS:
            break
    return sources_by_call


def _sources_of_call(call: CallStarted, origins: Origins) -> dict[str, Any]:
    """Return a mapping from path to origin for the arguments from the task or a call's result."""
    sources: dict[str, Any] = {}
    for path, text in values_of(call.arguments):
        origin = origins.find(text)
        if origin.kind in ("task", "result"):
            # data() needs a trust, but the journal records none: set any trust, and remove it
            # again.
            sources[path] = replace(origin, trust="own").data()
            del sources[path]["trust"]
    return sources
