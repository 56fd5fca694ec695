"""The plugin's hooks."""

from __future__ import annotations

from collections.abc import Iterable

from delf.hookspecs import hookimpl
from delf.specs import ConnectionSpec


@hookimpl
def delf_connections() -> Iterable[ConnectionSpec]:
    yield ConnectionSpec(
        name="calendar",
        summary="Google Calendar: events, invitations, free time.",
        factory="delf_calendar.connection:Calendar",
    )
