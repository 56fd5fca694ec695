"""Management of a server's people over HTTP, and the audit log."""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

from delf.errors import ConfigurationError, JournalUnavailableError
from delf.events import ApprovalAssigned, ApprovalCommented, ApprovalDecided, ApprovalVoted
from delf.protocols.journal import RequestRecord
from delf.protocols.people import Person, new_secret
from delf.protocols.sessions import SessionRecord
from delf_engine.approvals.talk import Reaction
from delf_engine.elsewhere import MAX_REQUESTS
from delf_serve import schemas as s
from delf_serve.call import Call, page_of
from delf_serve.people import Changer, RequestedChanges, require_active, without_key
from delf_serve.problems import ProblemError

_COLUMNS: Final = ("at", "what", "by", "via", "about", "task_id", "request_id")
# Characters that a spreadsheet takes for the start of a formula.
_FORMULA_STARTS: Final = "=+-@\t\r"


def _require_manager(call: Call) -> None:
    """Refuse a caller who may not see all tasks.

    Otherwise the caller could manage people whose tasks the caller may not see.
    """
    sees_all_tasks = call.caller.visible_users is None
    if not sees_all_tasks:
        raise ProblemError(403, "only a person who may see all tasks may manage people")


async def everybody(call: Call, query: s.PageQuery) -> s.PersonList:
    """List all people, including removed people."""
    _require_manager(call)
    people = sorted(await call.service.tasks.journal.people(), key=lambda person: person.name)
    part, more = page_of(people, query)
    return s.PersonList(people=[_view(person) for person in part], more=more)


async def add_or_change(call: Call, body: s.PersonRequest) -> s.PersonMade:
    """Add or change a person, or create a key for a person.

    Raises:
        ProblemError: If the person would get more rights than the caller has, or a value is
            invalid.
    """
    _require_manager(call)
    label_of_new_key = body.key
    secret = None if label_of_new_key is None else new_secret()
    # None leaves a setting unchanged.
    rights = None if body.rights is None else tuple(body.rights)
    teams = None if body.teams is None else tuple(body.teams)
    requested_changes = RequestedChanges(
        rights=rights,
        scope=body.scope,
        teams=teams,
        mail=body.mail,
        label=label_of_new_key or "",
        secret=secret,
    )

    def apply(known: Person | None) -> Person:
        """Return the changed person; ``known`` is None for a new person."""
        after = requested_changes.apply_to(known, body.name)
        # Without this check, callers could create keys with more rights than their own.
        missing_rights = set(after.rights) - call.caller.rights
        if missing_rights:
            raise ProblemError(
                403, f"you cannot give a right that you do not have: {min(missing_rights)}"
            )
        return after

    person = await _change_person(call, body.name, apply)
    return s.PersonMade(**_view(person).model_dump(), key=secret)


async def remove(call: Call, name: str) -> None:
    """Remove a person with all keys and sessions."""
    _require_manager(call)
    if name == call.caller.name:
        raise ProblemError(409, "you cannot remove yourself", "somebody else can")
    at = time.time()
    await _change_person(
        call, name, lambda known: replace(_require_active(known, name), revoked_at=at)
    )


async def remove_key(call: Call, name: str, label: str) -> None:
    """Revoke a key of a person."""
    _require_manager(call)
    await _change_person(call, name, lambda known: without_key(_require_active(known, name), label))


async def sessions(call: Call, name: str) -> s.LoginList:
    """List the sessions of a person."""
    _require_manager(call)
    logins = await _logins(call, name)
    return s.LoginList(sessions=[s.Login.of(login, is_this=False) for login in logins], more=False)


async def end_session(call: Call, name: str, session_id: str) -> None:
    """End a session of a person, with its streams.

    Raises:
        ProblemError: If the person has no such session.
    """
    _require_manager(call)
    for login in await _logins(call, name):
        if login.id == session_id:
            await call.service.sessions.end_digest(login.digest)
            return
    raise ProblemError(404, "no such session is known", "GET /people/{name}/sessions")


async def _logins(call: Call, name: str) -> list[SessionRecord]:
    journal = call.service.tasks.journal
    people_by_name = {person.name: person for person in await journal.people()}
    user = _require_active(people_by_name.get(name), name).user
    return [login for login in await journal.logins() if login.user == user]


async def audit(call: Call, query: s.AuditQuery) -> list[s.AuditEntry]:
    """List decisions on requests, changes to people's accounts, and logins, newest first."""
    _require_manager(call)
    journal = call.service.tasks.journal
    entries = list(_people_entries(await journal.people()))
    entries += [
        s.AuditEntry(
            at=login.began,
            what="logged in",
            by=login.name,
            via=f"page, {login.client}",
            about=login.way,
        )
        for login in await journal.logins(ended=True)
    ]
    for record in await journal.find_requests(waiting=False, limit=MAX_REQUESTS):
        entries += _request_entries(record)
    if query.since is not None:
        entries = [entry for entry in entries if entry.at >= query.since]
    if query.until is not None:
        entries = [entry for entry in entries if entry.at < query.until]
    if query.by is not None:
        entries = [entry for entry in entries if entry.by == query.by]
    return sorted(entries, key=lambda entry: entry.at, reverse=True)


def audit_csv(entries: list[s.AuditEntry]) -> str:
    """Format audit entries as CSV. Cells that look like formulas are escaped."""
    out = io.StringIO()
    table = csv.writer(out)
    table.writerow(_COLUMNS)
    for entry in entries:
        cells = [str(getattr(entry, name) or "") for name in _COLUMNS]
        table.writerow(map(_escape_formula, cells))
    return out.getvalue()


def _escape_formula(cell: str) -> str:
    is_formula = cell != "" and cell[0] in _FORMULA_STARTS
    return f"'{cell}" if is_formula else cell


def _request_entries(record: RequestRecord) -> Iterator[s.AuditEntry]:
    """Yield audit entries for the votes, comments, assignments and the decision of a request."""
    request = record.requested
    decided = record.decided
    events: list[tuple[str, str | None, Reaction | ApprovalDecided]] = []
    for event in record.discussion:
        match event:
            case ApprovalVoted(reason=reason):
                # A vote is the first of the two approvals that the request needs.
                events.append(("approved first", reason, event))
            case ApprovalCommented(text=text):
                events.append(("commented", text, event))
            case ApprovalAssigned(to=to):
                events.append(("assigned", f"to {to or 'nobody'}", event))
    if decided is not None and decided.source == "person":
        events.append((decided.decision, decided.reason, decided))
    for what, detail, event in events:
        about = f"{request.action}, asked by {request.asked_by}"
        yield s.AuditEntry(
            at=event.at,
            what=what,
            by=event.by,
            via=event.via,
            about=f"{about}: {detail}" if detail else about,
            task_id=request.task_id,
            request_id=request.request_id,
        )


def _people_entries(people: list[Person]) -> Iterator[s.AuditEntry]:
    for person in people:
        for entry in person.history:
            about = f"{person.name}: {entry.about}" if entry.about else person.name
            yield s.AuditEntry(
                at=entry.at, what=entry.what, by=entry.by, via=entry.via, about=about
            )


async def _change_person(call: Call, name: str, make: Callable[[Person | None], Person]) -> Person:
    journal = call.service.tasks.journal
    changer = Changer(call.caller.name, call.via, call.service.agent.tell_observers)
    try:
        person = await changer.change(journal, name, make)
    except JournalUnavailableError:  # answered without the message, which may name the database
        raise
    except ConfigurationError as error:
        raise ProblemError(409, error.message) from None
    await call.service.keys.reload(journal, at_once=True)
    return person


def _require_active(person: Person | None, name: str) -> Person:
    try:
        return require_active(person, name)
    except ConfigurationError as error:
        raise ProblemError(404, error.message) from None


def _view(person: Person) -> s.PersonView:
    keys = [s.PersonKeyView.of(key) for key in person.keys if key.revoked_at is None]
    return s.PersonView.of(person, keys=keys)
