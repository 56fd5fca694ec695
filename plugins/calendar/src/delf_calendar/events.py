"""Events as records, and their times as the service takes them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypedDict, cast, overload
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from delf.errors import ToolRefusedError
from delf.notes import note

When = dt.datetime | dt.date
_MINUTE: Final = dt.timedelta(minutes=1)
_HOUR: Final = dt.timedelta(hours=1)
_DAY: Final = dt.timedelta(days=1)
_DATE_AND_TIME: Final = "start and end are both dates, or both have a time"
_SINGLE_DATES: Final = ("RDATE", "EXDATE")
_RECURRENCES: Final = ("RRULE:", *_SINGLE_DATES)


class Attendee(TypedDict):
    """A person who is invited."""

    email: str
    name: str
    response: str
    optional: bool


class Event(TypedDict):
    """An event. ``series`` is the id of its recurring event, if any.

    A cancelled occurrence of a series has the time at which it would have begun. The times are None
    if Google does not report that time.
    """

    id: str
    title: str
    start: When | None
    end: When | None
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
    """Convert an event of the Google Calendar API."""
    # A cancelled event of a series may have only its original start.
    start: Mapping[str, Any] = resource.get("start") or resource.get("originalStartTime") or {}
    people: Sequence[Mapping[str, Any]] = resource.get("attendees") or ()
    organizer: Mapping[str, Any] = resource.get("organizer") or {}
    own_attendee = next((person for person in people if person.get("self")), None)
    title = str(resource.get("summary", ""))
    if resource.get("attendeesOmitted"):
        note(f"not all attendees of {title or resource['id']!r} are shown")
    is_all_day = "date" in start
    start_time = _moment(start)
    end_time = _moment(resource.get("end") or start)
    if is_all_day and start_time is not None and not resource.get("end"):
        end_time = start_time + _DAY  # the end of whole days is the day after the last one
    return Event(
        id=str(resource["id"]),
        title=title,
        start=start_time,
        end=end_time,
        all_day=is_all_day,
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
        my_response=str(own_attendee.get("responseStatus")) if own_attendee else None,
        recurrence=list(resource.get("recurrence") or ()),
        series=resource.get("recurringEventId"),
        status=str(resource.get("status", "")),
        link=str(resource.get("htmlLink", "")),
        meet=resource.get("hangoutLink") or _conference_url(resource.get("conferenceData")),
    )


def _conference_url(conference: Any) -> str | None:
    """Return the URL at which people join an event's conference; None without a conference.

    If the conference can be joined by video, this is the URL of the video call.
    """
    data = cast("Mapping[str, Any]", conference or {})
    entry_points: Sequence[Mapping[str, Any]] = data.get("entryPoints") or ()
    video_first = sorted(entry_points, key=lambda point: point.get("entryPointType") != "video")
    return next((str(point["uri"]) for point in video_first if point.get("uri")), None)


def _moment(time_fields: Mapping[str, Any]) -> When | None:
    """Convert a time of the Google Calendar API; add a note if the time cannot be parsed."""
    text = str(time_fields.get("date") or time_fields.get("dateTime") or "")
    try:
        if "date" in time_fields:
            return dt.date.fromisoformat(text)
        moment = dt.datetime.fromisoformat(text) if text else None
    except ValueError:
        note(f"an event has a date that does not exist, and was read without it: {text[:40]!r}")
        return None
    zone_name = time_fields.get("timeZone")
    if moment is None or moment.tzinfo is not None or not zone_name:
        return moment
    try:
        return moment.replace(tzinfo=zone_named(str(zone_name)))
    except ToolRefusedError as error:
        note(f"an event was read without its time zone: {error.message}")
        return moment


def times(
    start: When, end: When | None, zone: str, *, converts_to_zone: bool = False
) -> dict[str, Any]:
    """Return start and end in the format of the Google Calendar API.

    Without an end, the event takes an hour, or a day if the start is a date.

    Args:
        start: The start.
        end: The end; None for the default.
        zone: The event's zone, unless ``start`` has a named zone such as Europe/Berlin. An offset,
            such as +02:00, is no named zone.
        converts_to_zone: Whether the event gets ``zone`` in any case. Times with another zone are
            then converted to ``zone``.

    Raises:
        ToolRefusedError: If only one of start and end is a date, if only one of two times has a
            zone, or if the event would end before it begins.
    """
    if not isinstance(start, dt.datetime):
        if isinstance(end, dt.datetime):
            raise ToolRefusedError(_DATE_AND_TIME)
        return _whole_days(start, end)
    if end is not None and not isinstance(end, dt.datetime):
        raise ToolRefusedError(_DATE_AND_TIME)
    if end is not None and (start.tzinfo is None) != (end.tzinfo is None):
        raise ToolRefusedError("start and end both have a zone, or neither has")
    named_zone = None if converts_to_zone else zone_of(start)
    event_zone = named_zone or zone
    # in_zone() gives this zone to a local time, and leaves a time with its own zone unchanged.
    start = in_zone(start, event_zone)
    end = later(start, _HOUR) if end is None else in_zone(end, event_zone)
    if converts_to_zone:
        start = start.astimezone(zone_named(zone))
        end = end.astimezone(start.tzinfo)
    # ``end < start`` would compare times of one zone by local time, ignoring ``fold``.
    if end.timestamp() < start.timestamp():
        raise _ends_too_early(start, end)
    return {"start": _time_field(start, event_zone), "end": _time_field(end, event_zone)}


def _whole_days(start: dt.date, end: dt.date | None) -> dict[str, Any]:
    if end is None:
        end = start + _DAY
    if end <= start:
        raise _ends_too_early(start, end)
    return {"start": {"date": start.isoformat()}, "end": {"date": end.isoformat()}}


def _time_field(when: dt.datetime, zone: str) -> dict[str, Any]:
    return {"dateTime": _rfc3339(when), "timeZone": zone}


def _ends_too_early(start: When, end: When) -> ToolRefusedError:
    return ToolRefusedError(
        f"the event ends ({end}) before it begins ({start}); the end of whole days is the day "
        "after the last one"
    )


def recurrence_lines(lines: Sequence[str], start: Mapping[str, Any]) -> list[str]:
    """Return the lines with the rules and dates of a series in the format of the service.

    A date without a time gets the time of the series' start, and a time without a zone gets the
    zone of the series. Otherwise the dates would match no event.

    Args:
        lines: The lines, such as ``RRULE:FREQ=WEEKLY;COUNT=4``.
        start: The start of the series, in the service's form.

    Raises:
        ToolRefusedError: If a line is not a recurrence rule.
    """
    completed: list[str] = []
    for line in lines:
        if not line.startswith(_RECURRENCES):
            raise ToolRefusedError(
                f"{line[:100]!r} is not a recurrence, such as RRULE:FREQ=WEEKLY;COUNT=4"
            )
        name, _, text = line.partition(":")
        dates = [date.strip() for date in text.split(",")]
        local_dates = [date for date in dates if not date.endswith("Z")]
        # RRULE has no dates, and a name such as ``EXDATE;TZID=Europe/Berlin`` has a zone already.
        if name not in _SINGLE_DATES or not local_dates:
            completed.append(line)
            continue
        completed.append(_single_dates(name, local_dates, start))
        # A line has one zone, so the dates in UTC get a line of their own.
        if utc_dates := [date for date in dates if date.endswith("Z")]:
            completed.append(f"{name}:{','.join(utc_dates)}")
    return completed


def _single_dates(name: str, dates: Sequence[str], start: Mapping[str, Any]) -> str:
    """Return an iCalendar line, such as ``EXDATE``, that lists single dates of a series.

    A date without a time gets the time of day at which the series starts.
    """
    if start.get("date"):
        return f"{name};VALUE=DATE:{','.join(date.partition('T')[0] for date in dates)}"
    zone = zone_named(str(start["timeZone"]))
    series_start = dt.datetime.fromisoformat(str(start["dateTime"])).astimezone(zone)
    with_times = (date if "T" in date else f"{date}T{series_start:%H%M%S}" for date in dates)
    return f"{name};TZID={zone.key}:{','.join(with_times)}"


@overload
def later(when: dt.datetime, by: dt.timedelta) -> dt.datetime: ...
@overload
def later(when: dt.date, by: dt.timedelta) -> dt.date: ...
def later(when: When, by: dt.timedelta) -> When:
    """Return the time after an exact duration, also across a change to or from daylight saving."""
    if not isinstance(when, dt.datetime) or when.tzinfo is None:
        return when + by
    return (when.astimezone(dt.UTC) + by).astimezone(when.tzinfo)


def length_of(start: When, end: When) -> dt.timedelta:
    """Return the exact duration between two times, also across a change of the clocks."""
    # Python's ``end - start`` compares two times of one zone by the clock: from 1:00 to 4:00, it is
    # three hours even if the clocks are put forward between them.
    if isinstance(start, dt.datetime) and isinstance(end, dt.datetime):
        return dt.timedelta(seconds=end.timestamp() - start.timestamp())
    return dt.timedelta(days=end.toordinal() - start.toordinal())


def in_zone(when: dt.datetime, zone: str) -> dt.datetime:
    """Return a local time with its zone added; a time that has a zone is unchanged.

    If a time occurs twice, because clocks are put back, the result is the first occurrence, or with
    ``fold=1`` the second.

    Raises:
        ToolRefusedError: If the time does not exist, because clocks are put forward.
    """
    if when.tzinfo is not None:
        return when
    moment = when.replace(tzinfo=zone_named(zone))
    # If the clock skips 02:30, this time is converted to UTC and back to 03:30.
    existing_moment = moment.astimezone(dt.UTC).astimezone(moment.tzinfo)
    if existing_moment.replace(tzinfo=None) != when:
        raise ToolRefusedError(
            f"there is no {when:%H:%M} on {when:%Y-%m-%d} in {zone}: the clock is put forward, "
            f"to {existing_moment:%H:%M}"
        )
    return moment


def zone_of(when: dt.datetime) -> str | None:
    """Return the name of a time's zone; None if the time has no zone or only an offset."""
    key = getattr(when.tzinfo, "key", None)
    if key is None and when.tzinfo is dt.UTC:
        return "UTC"
    return key


def time_range(start: When, end: When, zone: str) -> dict[str, str]:
    """Return the fields of a query for a time range; a date means the start of its day.

    Raises:
        ToolRefusedError: If the range is empty.
    """
    first, last = _moment_in_zone(start, zone), _moment_in_zone(end, zone)
    if last.timestamp() <= first.timestamp():
        raise ToolRefusedError(
            f"nothing is between {start} and {end}; the end of whole days is the day after the "
            "last one"
        )
    return {"timeMin": _rfc3339(first), "timeMax": _rfc3339(last)}


def _moment_in_zone(when: When, zone: str) -> dt.datetime:
    if not isinstance(when, dt.datetime):
        when = dt.datetime.combine(when, dt.time())
    return when if when.tzinfo is not None else when.replace(tzinfo=zone_named(zone))


def _rfc3339(when: dt.datetime) -> str:
    """Format a time with its offset in hours and minutes.

    The offsets of long ago also had seconds, which are left out.
    """
    offset = when.utcoffset()
    if offset is not None and offset % _MINUTE:
        when = when.replace(tzinfo=dt.timezone(offset - offset % _MINUTE))
    return when.isoformat(timespec="seconds")


def zone_named(name: str) -> ZoneInfo:
    """Return a time zone by its name.

    Raises:
        ToolRefusedError: If there is no such zone.
    """
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError):
        raise ToolRefusedError(
            f"there is no time zone {name[:100]!r}; names are like Europe/Berlin"
        ) from None
