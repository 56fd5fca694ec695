"""A request for approval as data: the same for programs, other processes, and the page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Final, cast

from delf.events import ApprovalRequested
from delf.protocols.approval import ApprovalRequest

_BEHIND: Final = {"task_id", "call_id", "line", "action_digest", "shown_digest"}
"""What is of no use to whoever decides."""
_SHOWN: Final = [
    item.name
    for item in fields(ApprovalRequested)
    if item.name in {known.name for known in fields(ApprovalRequest)} - _BEHIND
]


def request_view(asked: ApprovalRequest | ApprovalRequested) -> dict[str, Any]:
    """What a request says of itself, as plain data; values of arguments are as they are."""
    return {name: _plain(getattr(asked, name)) for name in _SHOWN}


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return list(cast("tuple[Any, ...]", value))
    return dict(cast("Mapping[str, Any]", value)) if isinstance(value, Mapping) else value
