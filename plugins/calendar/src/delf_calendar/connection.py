"""``Calendar``: events that a script can find, make, change and answer."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Final, Literal, TypedDict

from delf import CallContext, action
from delf.errors import ToolRefusedError, did_you_mean
from delf.network.retries import pause
from delf.notes import note
from delf.protocols.connection import Allowed, ProposedCall
from delf.types import Trust
from delf_calendar.events import (
    Event,
    When,
    event_of,
    in_zone,
    later,
    length_of,
    recurrence_lines,
    time_range,
    times,
    zone_named,
    zone_of,
)
from delf_google.addresses import Addresses, addresses
from delf_google.connection import GoogleConnection
from delf_google.errors import GoogleError, LostAnswerError
from delf_google.requests import Request, segment
from delf_google.transport import RETRIES

_MAX_FOUND: Final = 2500
_MAX_CALENDARS: Final = 50
_CHANGED: Final = 412
_WRITES: Final = "calendar.events calendar.readonly"

# The trust level of each field of an event. Texts are "outside": the organizer writes them.
_FIELD_TRUST: Final[Mapping[str, Trust]] = {
    **dict.fromkeys(
        ("id", "start", "end", "all_day", "zone", "my_response", "series", "status", "notice"),
        "own",
    ),
    "*": "outside",
}

_Events = list[Event]
_Texts = list[str]
_Minutes = list[int]


class Found(TypedDict):
    """The events that match; ``notice`` is set if there are more."""

    events: _Events
    notice: str | None


class CalendarInfo(TypedDict):
    """A calendar."""

    id: str
    name: str
    zone: str
    role: str
    primary: bool


class Busy(TypedDict):
    """A busy interval."""

    start: dt.datetime
    end: dt.datetime


_Calendars = list[CalendarInfo]
_Spans = list[Busy]


@dataclass(frozen=True, slots=True)
class Change:
    """A change to one calendar event, without the new values.

    Args:
        what: The change in words, for error messages.
        event: The id of the event.
        calendar: The id of the event's calendar.
        notify: Whether attendees get an email about the change.
        context: The context of the call, with the version that the approving person saw.
    """

    what: str
    event: str
    calendar: str
    notify: bool
    context: CallContext | None

    def check_unchanged(self, etag: str) -> None:
        """Raise if the event has changed since a person saw it."""
        # The basis of an approval holds the event's etag in its first line, then the preview.
        basis = None if self.context is None else self.context.basis
        approved_etag = None if basis is None else basis.partition("\n")[0]
        if approved_etag is not None and approved_etag != etag:
            raise ToolRefusedError(
                "others have changed the event since a person saw it, so nothing was written; "
                "call it again to ask again"
            )


class Calendar(GoogleConnection):
    """Events. A time without a zone is in the calendar's time zone; a date without a time makes an
    event of whole days.
    """  # noqa: D205 - the model reads the whole paragraph

    root = "https://www.googleapis.com/"
    scopes: ClassVar = {
        "reading": "calendar.readonly",
        **dict.fromkeys(("create", "update", "delete", "respond"), _WRITES),
    }
    summary = (
        "Google Calendar: events, invitations, free time; a time without a zone is the calendar's."
    )
    # -- reading ------------------------------------------------------------------------

    @action("reading", effect="read", trust=_FIELD_TRUST)
    async def list(
        self,
        start: When,
        end: When,
        calendar: str = "primary",
        text: str = "",
        limit: int = 100,
    ) -> Found:
        """Events between two times, in order; a series is listed as its single events. With `text` only
        events that contain it. At most 2500.
        """  # noqa: D205, E501 - the model reads the whole paragraph
        if not 1 <= limit <= _MAX_FOUND:
            raise ToolRefusedError(
                f"limit can be from 1 to {_MAX_FOUND}; for more, list shorter periods"
            )
        zone = await self._zone(calendar, start, end)
        # One event more than the limit shows whether there are more.
        listing = Request(
            "list events",
            "GET",
            _events(calendar),
            query={
                **time_range(start, end, zone),
                "singleEvents": True,
                "orderBy": "startTime",
                "q": text or None,
                "maxResults": min(limit + 1, _MAX_FOUND),
            },
        )
        events: _Events = []
        async for item in self.transport.pages(listing, "items"):
            if len(events) == limit:
                return Found(events=events, notice=f"these are the first {limit}; there are more")
            events.append(event_of(item))
        return Found(events=events, notice=None)

    @action("reading", effect="read", trust="own")
    async def calendars(self) -> _Calendars:
        """The user's calendars."""
        return [
            CalendarInfo(
                id=str(item["id"]),
                name=str(item.get("summaryOverride") or item.get("summary", "")),
                zone=str(item.get("timeZone", "UTC")),
                role=str(item.get("accessRole", "")),
                primary=bool(item.get("primary")),
            )
            async for item in self.transport.pages(
                Request("list calendars", "GET", "calendar/v3/users/me/calendarList"), "items"
            )
        ]

    @action("reading", effect="read", trust="own")
    async def free_busy(
        self, start: When, end: When, calendars: _Texts | None = None
    ) -> dict[str, _Spans]:
        """Busy times of people (by address) or calendars between two times; all else is free."""
        calendar_ids = calendars or ["primary"]
        if len(calendar_ids) > _MAX_CALENDARS:
            raise ToolRefusedError(f"at most {_MAX_CALENDARS} calendars at once")
        zone = await self._zone("primary", start, end)
        body = {
            **time_range(start, end, zone),
            "items": [{"id": key} for key in calendar_ids],
        }
        url = "calendar/v3/freeBusy"
        answer = await self.transport.json(
            Request("look for free time", "POST", url, body=body, read_only=True)
        )
        by_calendar: Mapping[str, Mapping[str, Any]] = answer.get("calendars") or {}
        unknown = [key for key, item in by_calendar.items() if item.get("errors")]
        if unknown:
            raise ToolRefusedError(f"no busy times are known for: {', '.join(unknown)}")
        # The keys are addresses, because Google replaces "primary" by the calendar's address.
        return {
            key: [_busy(span) for span in item.get("busy") or ()]
            for key, item in by_calendar.items()
        }

    @action("reading", effect="read", trust=_FIELD_TRUST)
    async def get(self, event: str, calendar: str = "primary") -> Event:
        """An event by its id."""
        return event_of(await self._get(event, calendar))

    # -- changing -----------------------------------------------------------------------

    @action("create", effect="irreversible", trust=_FIELD_TRUST, sinks=["calendar", "attendees"])
    async def create(
        self,
        title: str,
        start: When,
        end: When | None = None,
        calendar: str = "primary",
        zone: str = "",
        description: str = "",
        location: str = "",
        attendees: Addresses | None = None,
        recurrence: _Texts | None = None,
        reminders: _Minutes | None = None,
        meet: bool = False,
        notify: bool = True,
    ) -> Event:
        """Make an event; without an end it takes an hour, or a day if start is a date. Attendees
        (addresses) get an invitation unless `notify` is false. Recurrence is as
        ["RRULE:FREQ=WEEKLY;COUNT=4"], reminders are minutes before, `meet` adds a conference link.
        """  # noqa: D205 - the model reads the whole paragraph
        # A series repeats at the local time of its zone, so the offset of a time is not enough.
        event_zone = await self._zone(
            calendar, start, end, zone=zone, needs_named_zone=bool(recurrence)
        )
        event_id = uuid.uuid4().hex  # makes the request idempotent
        body: dict[str, Any] = {
            "id": event_id,
            "summary": title,
            **times(start, end, event_zone, converts_to_zone=bool(zone)),
        }
        if description:
            body["description"] = description
        if location:
            body["location"] = location
        body |= _details(attendees, reminders)
        if recurrence is not None:
            body["recurrence"] = recurrence_lines(recurrence, body["start"])
        if meet:
            solution = {"type": "hangoutsMeet"}
            request = {"requestId": event_id, "conferenceSolutionKey": solution}
            body["conferenceData"] = {"createRequest": request}
        query = {"sendUpdates": _updates(notify), "conferenceDataVersion": 1}
        try:
            created = await self.transport.json(
                Request("make an event", "POST", _events(calendar), query=query, body=body)
            )
        except GoogleError as error:
            if error.status != 409:  # 409: an earlier attempt has made the event
                raise
            created = await self._get(event_id, calendar)
        event = event_of(created)
        if meet and event["meet"] is None:
            note(f"{title!r} has no conference link yet: get({event_id!r}) has it later")
        return event

    @action(
        "update",
        effect="irreversible",
        trust=_FIELD_TRUST,
        sinks=["event", "calendar", "add_attendees", "remove_attendees"],
    )
    async def update(
        self,
        event: str,
        calendar: str = "primary",
        title: str | None = None,
        start: When | None = None,
        end: When | None = None,
        zone: str = "",
        description: str | None = None,
        location: str | None = None,
        add_attendees: Addresses | None = None,
        remove_attendees: Addresses | None = None,
        recurrence: _Texts | None = None,
        reminders: _Minutes | None = None,
        notify: bool = True,
        context: CallContext | None = None,
    ) -> Event:
        """Change the given fields of an event; a new start without an end moves the event.
        Attendees get mail, unless `notify` is false.
        """  # noqa: D205 - the model reads the whole paragraph
        texts = {"summary": title, "description": description, "location": location}
        changes: dict[str, Any] = {key: value for key, value in texts.items() if value is not None}
        changes |= _details(attendees=None, reminders=reminders)

        async def body_for(old: Mapping[str, Any]) -> dict[str, Any]:
            """Return the fields to write, made from the arguments and the event's present state."""
            body = dict(changes)
            old_event = event_of(old)
            changes_time = start is not None or end is not None or bool(zone)
            becomes_series = bool(recurrence)  # an empty list ends a series
            # A series repeats at a local time, so its times need a zone.
            needs_zone = becomes_series and not old_event["zone"] and not old_event["all_day"]
            if changes_time or needs_zone:
                body |= await self._new_times(old_event, start, end, calendar, zone)
            if recurrence is not None:
                first_start: Mapping[str, Any] = body.get("start") or old.get("start") or {}
                body["recurrence"] = recurrence_lines(recurrence, first_start)
            if add_attendees or remove_attendees:
                body["attendees"] = _new_attendees(old, add_attendees or [], remove_attendees or [])
            if not body:
                raise ToolRefusedError("give the fields to change")
            return body

        change = Change("change an event", event, calendar, notify, context)
        return await self._edit(change, body_for)

    @action("delete", effect="irreversible", trust="own", sinks=["event", "calendar"])
    async def delete(self, event: str, calendar: str = "primary", notify: bool = True) -> None:
        """Delete an event, or a whole series by its id. Attendees get mail, unless notify=False."""
        await self.transport.send(
            Request(
                "delete an event",
                "DELETE",
                f"{_events(calendar)}/{segment(event)}",
                query={"sendUpdates": _updates(notify)},
            )
        )

    @action("respond", effect="irreversible", trust=_FIELD_TRUST, sinks=["event", "calendar"])
    async def respond(
        self,
        event: str,
        answer: Literal["accepted", "declined", "tentative"],
        comment: str = "",
        calendar: str = "primary",
        notify: bool = True,
        context: CallContext | None = None,
    ) -> Event:
        """Answer an invitation; its organizer gets a mail, unless `notify` is false."""
        own_answer = {"responseStatus": answer}
        if comment:
            own_answer["comment"] = comment

        async def body_for(old: Mapping[str, Any]) -> dict[str, Any]:
            """Return the fields to write: the event's attendees, with the user's answer."""
            people: Sequence[Mapping[str, Any]] = old.get("attendees") or ()
            if not any(person.get("self") for person in people):
                title_or_id = old.get("summary", event)
                raise ToolRefusedError(f"the user is not invited to {title_or_id!r}")
            attendees = [
                {**person, **own_answer} if person.get("self") else {**person} for person in people
            ]
            body: dict[str, Any] = {"attendees": attendees}
            # Google marks an event whose other attendees it does not show. With this mark in the
            # request, only the user's answer changes, and the other attendees are kept.
            if old.get("attendeesOmitted"):
                body["attendeesOmitted"] = True
            return body

        change = Change("answer an invitation", event, calendar, notify, context)
        return await self._edit(change, body_for)

    async def preview(self, call: ProposedCall) -> Allowed | None:
        """Return a verdict with the event, its calendar and its attendees as the preview.

        The approval is void if the event's version or the preview has changed when the call is
        made.
        """
        event_id = call.arguments.get("event")
        calendar = str(call.arguments.get("calendar", "primary"))
        lines: list[str] = []
        version = ""
        if event_id:
            event = await self._get(str(event_id), calendar)
            version = str(event.get("etag", ""))
            lines.append(_describe_for_approval(event))
        if calendar != "primary":
            names_by_id = {item["id"]: item["name"] for item in await self.calendars()}
            lines.append(f"In the calendar {names_by_id.get(calendar, calendar)!r}")
        if not lines:
            return None
        text = "\n".join(lines)
        return Allowed(preview=text, basis=f"{version}\n{text}")

    # -- parts --------------------------------------------------------------------------

    async def _get(self, event: str, calendar: str) -> dict[str, Any]:
        return await self.transport.json(
            Request("look at an event", "GET", f"{_events(calendar)}/{segment(event)}")
        )

    async def _edit(
        self, change: Change, body_for: Callable[[Mapping[str, Any]], Awaitable[dict[str, Any]]]
    ) -> Event:
        """Change the current version of an event, retrying after concurrent changes.

        A change that was made from an older version could undo a concurrent change. For example, an
        older list of attendees would undo an answer that an attendee gave meanwhile.
        """
        for attempt in range(RETRIES + 1):
            old = await self._get(change.event, change.calendar)
            etag = str(old.get("etag", ""))
            change.check_unchanged(etag)
            request = Request(
                change.what,
                "PATCH",
                f"{_events(change.calendar)}/{segment(change.event)}",
                query={"sendUpdates": _updates(change.notify)},
                body=await body_for(old),
                headers={"If-Match": etag} if etag else {},
            )
            try:
                return event_of(await self.transport.json(request))
            except GoogleError as error:
                # If the answer to the change was lost, the change itself may have changed the etag.
                is_lost_answer = isinstance(error, LostAnswerError)
                if is_lost_answer or error.status != _CHANGED:
                    raise
                # pause() is meant for outages. A concurrent change is over sooner, so wait a tenth
                # of that.
                await self.transport.sleep(pause(attempt) / 10)
        raise GoogleError(
            f"{self.name}: {change.what}: others keep changing the event; nothing was written",
            hint="try again later",
        )

    async def _new_times(
        self, old: Event, start: When | None, end: When | None, calendar: str, requested_zone: str
    ) -> dict[str, Any]:
        """Return the start and end to write, both in the zone that the event is to have.

        A start or end without a zone is a local time of that zone.

        Args:
            old: The event before the change.
            start: The new start; None to keep the start.
            end: The new end; None to keep the duration. If the start changes from a time to a date,
                or from a date to a time, the event then lasts a day or an hour.
            calendar: The event's calendar.
            requested_zone: The time zone that the event is to have; empty without a request.
        """
        old_start = old["start"]
        old_end = old["end"]
        if old_start is None or old_end is None:
            raise ToolRefusedError(f"{old['title'] or old['id']!r} is cancelled and has no time")
        new_start = old_start if start is None else start
        zone = await self._new_zone(old, new_start, calendar, requested_zone)
        new_start = _with_zone(new_start, zone)
        is_all_day = not isinstance(new_start, dt.datetime)
        if end is not None:
            end = _with_zone(end, zone)
        elif is_all_day == old["all_day"]:
            end = later(new_start, length_of(old_start, old_end))
        new_times = times(new_start, end, zone, converts_to_zone=True)
        # A time has the field "dateTime", a whole day the field "date". None removes the old field.
        for time_fields in new_times.values():
            time_fields.setdefault("dateTime", None)
            time_fields.setdefault("date", None)
        return new_times

    async def _new_zone(
        self, old: Event, new_start: When, calendar: str, requested_zone: str
    ) -> str:
        """Return the name of the time zone that a changed event is to have.

        A new start in UTC, or with an offset such as +02:00, does not decide the zone, because a
        series repeats at the local time of its zone. The event then keeps its old zone or, without
        an old zone, gets the zone of the calendar.
        """
        if not isinstance(new_start, dt.datetime):
            return "UTC"  # for dates, which have no zone
        if requested_zone:
            return zone_named(requested_zone).key
        zone_of_start = zone_of(new_start)  # None for an offset
        if zone_of_start and zone_of_start != "UTC":
            return zone_of_start
        if old["zone"]:
            return zone_named(old["zone"]).key
        return await self._calendar_zone(calendar)

    async def _zone(
        self,
        calendar: str,
        start: When,
        end: When | None,
        *,
        zone: str = "",
        needs_named_zone: bool = False,
    ) -> str:
        """Return the time zone to send with start and end.

        The first of these applies:

        - ``zone``, if given
        - UTC, if all times have an offset and ``needs_named_zone`` is False
        - the calendar's zone, for which Google is asked

        Args:
            calendar: The calendar's id.
            start: The start.
            end: The end.
            zone: The zone that the caller named; empty without one.
            needs_named_zone: Whether to return a named zone, and not UTC, even if all times have an
                offset.
        """
        if zone:
            return zone_named(zone).key
        have_offsets = _has_offset(start) and (end is None or _has_offset(end))
        if have_offsets and not needs_named_zone:
            return "UTC"
        return await self._calendar_zone(calendar)

    @cached_property
    def _zones(self) -> dict[str, str]:
        """The time zones of calendars by id, so that Google is asked only once."""
        return {}

    async def _calendar_zone(self, calendar: str) -> str:
        if calendar not in self._zones:
            calendars = await self.calendars()
            named = [each for each in calendars if each["id"] == calendar]
            primary = [each for each in calendars if each["primary"]]
            # Google lists the user's own calendar by its address, so "primary" equals no id.
            matches = named or primary
            self._zones[calendar] = matches[0]["zone"] if matches else "UTC"
        return self._zones[calendar]


def _describe_for_approval(resource: Mapping[str, Any]) -> str:
    """Return an event's title, time and attendees as one line."""
    event = event_of(resource)
    people = ", ".join(person["email"] for person in event["attendees"]) or "nobody"
    if resource.get("attendeesOmitted"):
        people += " and others who are not shown"
    time_text = "cancelled"
    if event["start"]:
        time_text = f"{event['start']} to {event['end']}"
        if resource.get("recurrence"):
            time_text += ", the whole series"
    return f"{event['title']!r}, {time_text}, with {people}"


def _events(calendar: str) -> str:
    return f"calendar/v3/calendars/{segment(calendar)}/events"


def _updates(notify: bool) -> str:
    return "all" if notify else "none"


def _with_zone(when: When, zone: str) -> When:
    """Return a time with a zone added if it has none; a date stays as it is."""
    return in_zone(when, zone) if isinstance(when, dt.datetime) else when


def _has_offset(when: When) -> bool:
    return isinstance(when, dt.datetime) and when.tzinfo is not None


def _busy(span: Mapping[str, Any]) -> Busy:
    start, end = (dt.datetime.fromisoformat(str(span[side])) for side in ("start", "end"))
    return Busy(start=start, end=end)


def _details(attendees: _Texts | None, reminders: _Minutes | None) -> dict[str, Any]:
    details: dict[str, Any] = {}
    if attendees:
        details["attendees"] = [{"email": person} for person in _checked_addresses(attendees)]
    if reminders is not None:
        overrides = [{"method": "popup", "minutes": minutes} for minutes in reminders]
        details["reminders"] = {"useDefault": False, "overrides": overrides}
    return details


def _checked_addresses(value: Sequence[str]) -> list[str]:
    """Return e-mail addresses without their names; refuse invalid addresses."""
    try:
        return addresses(value)
    except ValueError as error:
        raise ToolRefusedError(str(error)) from None


def _new_attendees(
    event: Mapping[str, Any], add: Sequence[str], remove: Sequence[str]
) -> list[dict[str, Any]]:
    """Return an event's attendees with additions and removals; existing responses are kept."""
    if event.get("attendeesOmitted"):
        raise ToolRefusedError(
            "not all attendees of the event are shown, so changing them would lose some"
        )
    people: Sequence[Mapping[str, Any]] = event.get("attendees") or ()
    attendees_by_address = {str(person.get("email", "")).lower(): dict(person) for person in people}
    for person in _checked_addresses(remove):
        if attendees_by_address.pop(person.lower(), None) is None:
            raise ToolRefusedError(
                f"{person!r} is not invited{did_you_mean(person, attendees_by_address)}"
            )
    for person in _checked_addresses(add):
        attendees_by_address.setdefault(person.lower(), {"email": person})
    return [*attendees_by_address.values()]
