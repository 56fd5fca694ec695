"""A request for approval as data: the same for programs, other processes, and the page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from delf.events import ApprovalRequest, content_of


def request_view(request: ApprovalRequest) -> dict[str, Any]:
    """Return every field of a request as plain data; values of arguments are as they are."""
    data = {"task_id": request.task_id, **content_of(request), "message": request.message}
    return {name: _plain(value) for name, value in data.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return list(cast("tuple[Any, ...]", value))
    return dict(cast("Mapping[str, Any]", value)) if isinstance(value, Mapping) else value
