"""An approval request as plain data, for programs, other processes and the page."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from delf.events import ApprovalRequest, Event
from delf.protocols.facts import facts_data


def request_view(request: ApprovalRequest, discussion: Iterable[Event] = ()) -> dict[str, Any]:
    """Return a request as plain data: all fields, ``message``, and ``facts`` to show to a person.

    Args:
        request: The request.
        discussion: The task's events since the request, which contain votes and comments.
    """
    return {**request.to_dict(), "facts": facts_data(request, discussion)}
