"""Calendars: events with zones, recurrence, attendees, invitations, and free and busy times."""

from __future__ import annotations

import copy
import datetime as dt
import re
from dataclasses import dataclass, field
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from support.google.calls import ApiError, Call, Ids, page, serves

EVENT_ID = re.compile(r"[a-v0-9]{5,1024}")


@dataclass
class Calendar:
    id: str
    summary: str
    zone: str = "Europe/Berlin"
    role: str = "owner"
    events: dict[str, dict[str, Any]] = field(default_factory=dict)


class CalendarService:
    """All users' calendars; what is sent to people is kept as `mails`."""

    def __init__(self) -> None:
        self.calendars: dict[str, Calendar] = {}
        self.mails: list[tuple[str, str, str]] = []
        self.conferences_pend = False
        self.ids = Ids()

    def calendar(self, key: str, user: str = "") -> Calendar:
        key = user if key == "primary" else key
        if key == user or key.endswith("@example.com"):
            self.calendars.setdefault(key, Calendar(key, key))
        if key not in self.calendars:
            raise ApiError(404, "Not Found", "notFound")
        return self.calendars[key]

    @serves("calendar.calendarList.list")
    def list_calendars(self, call: Call) -> Any:
        self.calendar("primary", call.user)
        items = [
            {
                "kind": "calendar#calendarListEntry",
                "id": c.id,
                "summary": c.summary,
                "timeZone": c.zone,
                "accessRole": c.role if c.id == call.user or "@group" in c.id else "reader",
            }
            | ({"primary": True} if c.id == call.user else {})
            for c in self.calendars.values()
        ]
        some, rest = page(items, call, 100, 250)
        return {"kind": "calendar#calendarList", "items": some, **rest}

    @serves("calendar.events.list")
    def list(self, call: Call) -> Any:
        calendar = self.calendar(call["calendarId"], call.user)
        low, high = _moment(call.get("timeMin")), _moment(call.get("timeMax"))
        if call.get("orderBy") == "startTime" and not call.get("singleEvents"):
            raise ApiError(
                400,
                "The requested ordering is not available for the particular query.",
                "badRequest",
            )
        words = (call.get("q") or "").lower()
        found: list[dict[str, Any]] = []
        for event in calendar.events.values():
            if event["status"] == "cancelled" and not call.get("showDeleted"):
                continue
            if "recurringEventId" in event and call.get("singleEvents"):
                continue  # comes with its series
            found += (
                self._expanded(calendar, event, low, high) if call.get("singleEvents") else [event]
            )
        found = [
            event
            for event in found
            if (low is None or _end(event, calendar) > low)
            and (high is None or _start(event, calendar) < high)
            and (
                not words
                or words
                in str(
                    [event.get(k) for k in ("summary", "description", "location", "attendees")]
                ).lower()
            )
        ]
        found.sort(key=lambda event: (_start(event, calendar), event["id"]))
        some, rest = page(found, call, 250, 2500)
        if "nextPageToken" not in rest:
            rest["nextSyncToken"] = "s"
        return {
            "kind": "calendar#events",
            "summary": calendar.summary,
            "timeZone": call.get("timeZone") or calendar.zone,
            "items": [self._shown(event, call.user, calendar) for event in some],
            **rest,
        }

    def _expanded(self, calendar: Calendar, event: dict[str, Any], low: Any, high: Any) -> Any:
        if "recurrence" not in event:
            yield event
            return
        from dateutil.rrule import rrulestr

        all_day = "date" in event["start"]
        first = (
            dt.datetime.fromisoformat(event["start"]["date"])
            if all_day
            else _start(event, calendar)
        )
        zone = None if all_day else ZoneInfo(event["start"].get("timeZone", calendar.zone))
        local = first if all_day else first.astimezone(zone).replace(tzinfo=None)
        length = _end(event, calendar) - _start(event, calendar)
        rules = [
            re.sub(r"UNTIL=(\d{8}(T\d{6})?)Z", r"UNTIL=\1", line)
            for line in event["recurrence"]
            if line.startswith("RRULE")
        ]
        times = rrulestr("\n".join(rules), dtstart=local)
        after = local if low is None else low.astimezone(zone).replace(tzinfo=None) - length
        before = (
            after + dt.timedelta(days=730)
            if high is None
            else high.astimezone(zone).replace(tzinfo=None)
        )
        left_out = _single_dates(event, "EXDATE", zone)
        found = {*times.between(after - dt.timedelta(days=1), before, inc=True)} - left_out
        for moment in sorted(found | _single_dates(event, "RDATE", zone)):
            stamp = moment.strftime("%Y%m%d" if all_day else "%Y%m%dT%H%M%SZ")
            if not all_day:
                stamp = moment.replace(tzinfo=zone).astimezone(dt.UTC).strftime("%Y%m%dT%H%M%SZ")
            key = f"{event['id']}_{stamp}"
            known = calendar.events.get(key)
            if known is not None:
                if known["status"] != "cancelled":
                    yield known
                continue
            yield self._instance(calendar, event, key, moment, length, zone)

    def _instance(
        self,
        calendar: Calendar,
        event: dict[str, Any],
        key: str,
        moment: Any,
        length: Any,
        zone: Any,
    ) -> dict[str, Any]:
        found = copy.deepcopy({k: v for k, v in event.items() if k != "recurrence"})
        found |= {"id": key, "recurringEventId": event["id"]}
        if zone is None:
            found["start"] = {"date": moment.date().isoformat()}
            found["end"] = {"date": (moment + length).date().isoformat()}
        else:
            start = moment.replace(tzinfo=zone)
            end = (start.astimezone(dt.UTC) + length).astimezone(zone)
            name = str(zone)
            found["start"] = {"dateTime": start.isoformat(), "timeZone": name}
            found["end"] = {"dateTime": end.isoformat(), "timeZone": name}
        found["originalStartTime"] = found["start"]
        return found

    @serves("calendar.events.get")
    def get(self, call: Call) -> Any:
        calendar = self.calendar(call["calendarId"], call.user)
        return self._shown(self._event(calendar, call["eventId"]), call.user, calendar)

    @serves("calendar.events.insert")
    def insert(self, call: Call) -> Any:
        calendar = self._own(call)
        key = call.body.get("id") or self.ids.new("ev")
        if not EVENT_ID.fullmatch(key):
            raise ApiError(400, "Invalid resource id value.", "invalid")
        if key in calendar.events:
            raise ApiError(409, "The requested identifier already exists.", "duplicate")
        moment = dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        event = {
            "status": "confirmed",
            **call.body,
            "id": key,
            "kind": "calendar#event",
            "etag": '"1"',
            "created": moment,
            "updated": moment,
            "iCalUID": f"{key}@google.com",
            "sequence": 0,
            "htmlLink": f"https://www.google.com/calendar/event?eid={key}",
            "creator": {"email": call.user},
            "organizer": {"email": calendar.id},
            "eventType": "default",
        }
        self._check(calendar, event)
        self._conference(event, call)
        for person in event.get("attendees", []):
            person.setdefault("responseStatus", "needsAction")
        calendar.events[key] = event
        self._tell(event, call, "invitation")
        return self._shown(event, call.user, calendar)

    @serves("calendar.events.patch")
    def patch(self, call: Call) -> Any:
        calendar = self._own(call)
        old = self._event(calendar, call["eventId"])
        if old["status"] == "cancelled":
            raise ApiError(403, "Cancelled events cannot be changed", "forbidden")
        event = copy.deepcopy(old)
        if call.headers.get("If-Match") not in (None, "*", event["etag"]):
            raise ApiError(412, "Precondition Failed", "conditionNotMet")
        event["etag"] = f'"{int(event["etag"].strip(chr(34))) + 1}"'
        omitted = call.body.pop("attendeesOmitted", False)
        for name, value in call.body.items():
            if name == "attendees" and omitted:  # only the user's own answer is written
                mine = [person for person in value if person["email"] == call.user]
                others = [p for p in event["attendees"] if p["email"] != call.user]
                event[name] = [*others, *mine]
            elif (
                isinstance(value, dict)
                and isinstance(event.get(name), dict)
                and name in ("start", "end")
            ):
                event[name] = {k: v for k, v in {**event[name], **value}.items() if v is not None}
            elif value is None:
                event.pop(name, None)
            else:
                event[name] = value
        event["sequence"] = event.get("sequence", 0) + 1
        self._check(calendar, event)
        self._conference(event, call)
        for person in event.get("attendees", []):
            person.setdefault("responseStatus", "needsAction")
        calendar.events[event["id"]] = event
        self._tell(event, call, "change")
        return self._shown(event, call.user, calendar)

    @serves("calendar.events.delete")
    def delete(self, call: Call) -> Any:
        calendar = self._own(call)
        event = self._event(calendar, call["eventId"])
        if event["status"] == "cancelled":
            raise ApiError(410, "Resource has been deleted", "deleted")
        calendar.events[event["id"]] = {**event, "status": "cancelled"}
        self._tell(event, call, "cancellation")
        return None

    @serves("calendar.freebusy.query")
    def free_busy(self, call: Call) -> Any:
        low, high = _moment(call.body["timeMin"]), _moment(call.body["timeMax"])
        if low is None or high is None or high <= low:
            raise ApiError(400, "The specified time range is empty.", "timeRangeEmpty")
        answer: dict[str, Any] = {}
        for item in call.body["items"]:
            try:
                calendar = self.calendar(item["id"], call.user)
            except ApiError:
                answer[item["id"]] = {
                    "errors": [{"domain": "global", "reason": "notFound"}],
                    "busy": [],
                }
                continue
            spans = []
            for event in calendar.events.values():
                if (
                    event["status"] == "cancelled"
                    or event.get("transparency") == "transparent"
                    or "recurringEventId" in event
                ):
                    continue
                for one in self._expanded(calendar, event, low, high):
                    start, end = _start(one, calendar), _end(one, calendar)
                    if start < high and end > low:
                        spans.append((max(start, low), min(end, high)))
            merged: list[list[dt.datetime]] = []
            for start, end in sorted(spans):
                if merged and start <= merged[-1][1]:
                    merged[-1][1] = max(merged[-1][1], end)
                else:
                    merged.append([start, end])
            busy = [{"start": _zulu(a), "end": _zulu(b)} for a, b in merged]
            answer[item["id"]] = {"busy": busy}
        return {
            "kind": "calendar#freeBusy",
            "timeMin": _zulu(low),
            "timeMax": _zulu(high),
            "calendars": answer,
        }

    # -- parts --------------------------------------------------------------------------

    def _own(self, call: Call) -> Calendar:
        calendar = self.calendar(call["calendarId"], call.user)
        if calendar.id != call.user and "@group" not in calendar.id:
            raise ApiError(
                403, "You need to have writer access to this calendar.", "requiredAccessLevel"
            )
        return calendar

    def _event(self, calendar: Calendar, key: str) -> dict[str, Any]:
        if key in calendar.events:
            return calendar.events[key]
        series = calendar.events.get(key.partition("_")[0])
        if series is not None and "recurrence" in series:
            for one in self._expanded(calendar, series, None, None):
                if one["id"] == key:
                    return one
        raise ApiError(404, "Not Found", "notFound")

    def _check(self, calendar: Calendar, event: dict[str, Any]) -> None:
        for side in ("start", "end"):
            place = event.get(side)
            if not place or ("date" in place) == ("dateTime" in place):
                raise ApiError(
                    400,
                    f"Missing {side} time." if not place else f"Invalid {side} time.",
                    "required",
                )
            if "timeZone" in place:
                try:
                    ZoneInfo(place["timeZone"])
                except (ZoneInfoNotFoundError, ValueError):
                    raise ApiError(400, "Invalid time zone definition.", "invalid") from None
            elif (
                "dateTime" in place and dt.datetime.fromisoformat(place["dateTime"]).tzinfo is None
            ):
                raise ApiError(400, f"Missing time zone definition for {side} time.", "required")
            elif event.get("recurrence") and "dateTime" in place:
                raise ApiError(400, "Missing time zone definition for start time.", "required")
        if ("date" in event["start"]) != ("date" in event["end"]):
            raise ApiError(
                400, "Start and end times must either both be date or both be dateTime.", "invalid"
            )
        if _end(event, calendar) < _start(event, calendar) or (
            "date" in event["start"] and _end(event, calendar) == _start(event, calendar)
        ):
            raise ApiError(400, "The specified time range is empty.", "timeRangeEmpty")
        for line in event.get("recurrence", []):
            if not re.match(r"(RRULE|EXRULE|RDATE|EXDATE)[:;]", line):
                raise ApiError(400, "Invalid recurrence rule.", "invalid")
        for person in event.get("attendees", []):
            if "@" not in person.get("email", ""):
                raise ApiError(400, "Invalid attendee email.", "invalid")

    def _conference(self, event: dict[str, Any], call: Call) -> None:
        asked = call.body.get("conferenceData", {}).get("createRequest")
        if asked is None:
            return
        if call.get("conferenceDataVersion") != 1:
            event.pop("conferenceData")
            return
        if self.conferences_pend:
            pending = {**asked, "status": {"statusCode": "pending"}}
            event["conferenceData"] = {"createRequest": pending}
            return
        link = f"https://meet.google.com/{asked['requestId'][:12]}"
        event["hangoutLink"] = link
        event["conferenceData"] = {
            "createRequest": {**asked, "status": {"statusCode": "success"}},
            "entryPoints": [{"entryPointType": "video", "uri": link}],
        }

    def _tell(self, event: dict[str, Any], call: Call, what: str) -> None:
        message = call.get("sendUpdates") or "none"
        if message == "none":
            return
        for person in event.get("attendees", []):
            inside = person["email"].endswith("@example.com")
            if person["email"] != call.user and (message == "all" or not inside):
                self.mails.append((person["email"], what, event.get("summary", "")))

    def _shown(self, event: dict[str, Any], user: str, calendar: Calendar) -> dict[str, Any]:
        shown = copy.deepcopy(event)
        if shown["status"] == "cancelled" and "recurringEventId" in shown:
            kept = ("id", "kind", "etag", "status", "recurringEventId", "originalStartTime")
            return {name: shown[name] for name in kept}
        for side in ("start", "end"):
            if "dateTime" in shown[side]:
                zone = ZoneInfo(shown[side].get("timeZone", calendar.zone))
                moment = _place(shown[side], calendar).astimezone(zone)
                shown[side]["dateTime"] = moment.isoformat()
        for person in shown.get("attendees", []):
            if person["email"] == user:
                person["self"] = True
        if shown.pop("guestsHidden", False):
            shown["attendees"] = [p for p in shown["attendees"] if p["email"] == user]
            shown["attendeesOmitted"] = True
        if shown["organizer"]["email"] == user:
            shown["organizer"]["self"] = True
        return shown


def _moment(text: str | None) -> dt.datetime | None:
    if text is None:
        return None
    if not re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", text):
        raise ApiError(400, "Bad Request", "badRequest")  # not a time of RFC 3339
    return dt.datetime.fromisoformat(text)


def _place(place: dict[str, Any], calendar: Calendar) -> dt.datetime:
    zone = ZoneInfo(place.get("timeZone", calendar.zone))
    if "date" in place:
        return dt.datetime.fromisoformat(place["date"]).replace(tzinfo=ZoneInfo(calendar.zone))
    moment = dt.datetime.fromisoformat(place["dateTime"])
    return moment if moment.tzinfo else moment.replace(tzinfo=zone)


def _start(event: dict[str, Any], calendar: Calendar) -> dt.datetime:
    return _place(event["start"], calendar)


def _end(event: dict[str, Any], calendar: Calendar) -> dt.datetime:
    return _place(event["end"], calendar)


def _zulu(moment: dt.datetime) -> str:
    return moment.astimezone(dt.UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _single_dates(event: dict[str, Any], kind: str, zone: Any) -> set[dt.datetime]:
    """The single dates of a series as hours of its own clocks; those without a zone are none."""
    found: set[dt.datetime] = set()
    for line in event["recurrence"]:
        name, _, dates = line.partition(":")
        words = name.split(";")
        if words[0] != kind:
            continue
        for text in dates.split(","):
            if "VALUE=DATE" in words:
                found.add(dt.datetime.strptime(text, "%Y%m%d"))
                continue
            moment = dt.datetime.strptime(text.removesuffix("Z"), "%Y%m%dT%H%M%S")
            named = [w.removeprefix("TZID=") for w in words if w.startswith("TZID=")]
            if text.endswith("Z") or named:
                own = ZoneInfo(named[0]) if named else dt.UTC
                found.add(moment.replace(tzinfo=own).astimezone(zone).replace(tzinfo=None))
    return found
