"""Google Calendar: events, invitations, free time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from delf_calendar.connection import Calendar

__all__ = ["Calendar"]


def __getattr__(name: str) -> Any:
    if name == "Calendar":
        from delf_calendar.connection import Calendar

        return Calendar
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
