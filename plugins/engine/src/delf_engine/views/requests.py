"""A request for approval as data: the same for programs, other processes, and the page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

from delf.events import ApprovalRequest, Event, content_of
from delf.protocols.facts import facts_data


def request_view(request: ApprovalRequest, so_far: Iterable[Event] = ()) -> dict[str, Any]:
    """Return every field of a request as plain data, with its facts.

    Args:
        request: The request; values of arguments are as they are.
        so_far: The votes about it.
    """
    data = {"task_id": request.task_id, **content_of(request), "message": request.message}
    data.pop("by_policy", None)  # of the journal's entry: what is shown is the question
    data["facts"] = facts_data(request, so_far)
    return {name: _plain(value) for name, value in data.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return list(cast("tuple[Any, ...]", value))
    return dict(cast("Mapping[str, Any]", value)) if isinstance(value, Mapping) else value
