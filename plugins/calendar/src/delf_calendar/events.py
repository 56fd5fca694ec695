"""Events as records, and their times as the service takes them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypedDict
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from delf.errors import ToolRefusedError

When = dt.datetime | dt.date
_HOUR: Final = dt.timedelta(hours=1)
_DAY: Final = dt.timedelta(days=1)


class Attendee(TypedDict):
    """Somebody who is invited."""

    email: str
    name: str
    response: str
    optional: bool


class Event(TypedDict):
    """An event. ``series`` is the id of the series that it is one of."""

    id: str
    title: str
    start: When
    end: When
    all_day: bool
    zone: str | None
    location: str
    description: str
    organizer: str
    attendees: list[Attendee]
    my_response: str | None
    recurrence: list[str]
    series: str | None
    status: str
    link: str
    meet: str | None


def event_of(resource: Mapping[str, Any]) -> Event:
    """An event as the service describes it."""
    start: Mapping[str, Any] = resource.get("start") or {}
    people: Sequence[Mapping[str, Any]] = resource.get("attendees") or ()
    organizer: Mapping[str, Any] = resource.get("organizer") or {}
    mine = next((person for person in people if person.get("self")), None)
    return Event(
        id=str(resource["id"]),
        title=str(resource.get("summary", "")),
        start=_moment(start),
        end=_moment(resource.get("end") or start),
        all_day="date" in start,
        zone=start.get("timeZone"),
        location=str(resource.get("location", "")),
        description=str(resource.get("description", "")),
        organizer=str(organizer.get("email", "")),
        attendees=[
            Attendee(
                email=str(person.get("email", "")),
                name=str(person.get("displayName", "")),
                response=str(person.get("responseStatus", "")),
                optional=bool(person.get("optional")),
            )
            for person in people
        ],
        my_response=str(mine.get("responseStatus")) if mine else None,
        recurrence=list(resource.get("recurrence") or ()),
        series=resource.get("recurringEventId"),
        status=str(resource.get("status", "")),
        link=str(resource.get("htmlLink", "")),
        meet=resource.get("hangoutLink"),
    )


def _moment(place: Mapping[str, Any]) -> When:
    if "date" in place:
        return dt.date.fromisoformat(str(place["date"]))
    moment = dt.datetime.fromisoformat(str(place.get("dateTime")))
    if moment.tzinfo is None and place.get("timeZone"):
        return moment.replace(tzinfo=zone_named(str(place["timeZone"])))
    return moment


def times(start: When, end: When | None, zone: str) -> dict[str, Any]:
    """Start and end as the service takes them; without an end, an hour or a day.

    Raises:
        ToolRefusedError: When they do not fit each other.
    """
    whole_day = not isinstance(start, dt.datetime)
    if end is None:
        end = start + (_DAY if whole_day else _HOUR)
    if whole_day == isinstance(end, dt.datetime):
        raise ToolRefusedError("start and end are both dates, or both have a time")
    if isinstance(start, dt.datetime) and isinstance(end, dt.datetime):
        if (start.tzinfo is None) != (end.tzinfo is None):
            raise ToolRefusedError("start and end both have a zone, or neither has")
        own_zone = _zone_of(start) or zone
    else:
        own_zone = zone
    if end < start or (whole_day and end == start):
        raise ToolRefusedError(
            f"the event ends ({end}) before it begins ({start}); the end of whole days is the day "
            "after the last one"
        )
    return {"start": _place(start, own_zone), "end": _place(end, own_zone)}


def _place(when: When, zone: str) -> dict[str, Any]:
    # What is None takes away what a change would leave of another kind.
    if isinstance(when, dt.datetime):
        return {"dateTime": when.isoformat(timespec="seconds"), "timeZone": zone}
    return {"date": when.isoformat()}


def _zone_of(when: dt.datetime) -> str | None:
    """The name of a time's own zone; an offset alone has none."""
    key = getattr(when.tzinfo, "key", None)
    if key is None and when.tzinfo is dt.UTC:
        return "UTC"
    return key


def moment_text(when: When, zone: str) -> str:
    """A moment with its offset, as parameters take it; a date is its first moment."""
    if not isinstance(when, dt.datetime):
        when = dt.datetime.combine(when, dt.time())
    if when.tzinfo is None:
        when = when.replace(tzinfo=zone_named(zone))
    return when.isoformat(timespec="seconds")


def zone_named(name: str) -> ZoneInfo:
    """A time zone by its name.

    Raises:
        ToolRefusedError: When there is none.
    """
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError):
        raise ToolRefusedError(
            f"there is no time zone {name[:100]!r}; it is a name as Europe/Berlin"
        ) from None
