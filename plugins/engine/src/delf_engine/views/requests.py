"""An approval request as plain data, for programs, other processes and the page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any, Final, cast

from delf.events import ApprovalRequest, Event
from delf.protocols.facts import facts_data

_NAMES: Final = tuple(field.name for field in fields(ApprovalRequest) if field.compare)
"""The fields that are data; an event has more, which concern the journal alone."""


def request_view(request: ApprovalRequest, so_far: Iterable[Event] = ()) -> dict[str, Any]:
    """Return every field of a request as plain data, with its message and its facts.

    Args:
        request: The request.
        so_far: Later events of the task, with votes.
    """
    data = {name: _plain(getattr(request, name)) for name in _NAMES}
    return {**data, "message": request.message, "facts": facts_data(request, so_far)}


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return list(cast("tuple[Any, ...]", value))
    return dict(cast("Mapping[str, Any]", value)) if isinstance(value, Mapping) else value
