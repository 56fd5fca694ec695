"""Changes of a server's people, reported to observers."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, get_args

from delf.errors import ConfigurationError, DelfError
from delf.protocols.people import (
    NoticeChoice,
    Person,
    PersonChange,
    PersonEntry,
    PersonKey,
    Right,
    Scope,
    check_mail,
    check_name,
    check_unique_names,
    digest_of,
)
from delf.protocols.shared_journal import SharedJournal

NoticeWay = Literal["mail", "slack", "webhook", "browser"]
"""A channel through which a person can get notices."""
NOTICE_WAYS: Final[tuple[NoticeWay, ...]] = get_args(NoticeWay)
_MAX_TRIES: Final = 5
# The maximum number of entries in a person's history.
_MAX_ENTRIES: Final = 100

Tell = Callable[[PersonChange], None]
Make = Callable[[Person], Person]


@dataclass(frozen=True, slots=True)
class Changer:
    """Changes people in the journal, and reports each change.

    Args:
        by: The name of the person who makes the change.
        via: The channel and the network address from which the person makes the change.
        tell: Called with each change.
    """

    by: str
    via: str
    tell: Tell

    async def change(
        self, journal: SharedJournal, name: str, make: Callable[[Person | None], Person]
    ) -> Person:
        """Change a person in the journal, retrying after concurrent changes.

        Args:
            journal: The journal.
            name: The name of the person.
            make: Returns the new version of the person from the old one, which is None for a new
                person.

        Returns:
            The new version.

        Raises:
            ConfigurationError: If the name or the e-mail address is invalid or too similar to that
                of another person.
            DelfError: If concurrent changes persist.
        """
        for _ in range(_MAX_TRIES):
            people = await journal.people()
            before = next((p for p in people if p.name == name), None)
            after = make(before)
            # A name, a mail address or a team may collide with those of other people.
            if before is None or (before.teams, before.mail) != (after.teams, after.mail):
                check_mail(after.mail)
                check_unique_names(after, people)
            if await self.store(journal, after, before):
                return after
        raise DelfError("the person is changed at the same time by others", hint="try it again")

    async def store(self, journal: SharedJournal, after: Person, before: Person | None) -> bool:
        """Store a changed person, and report the change.

        Returns:
            False, with nothing stored, if the person was changed concurrently.
        """
        change: PersonChange | None = None
        if after != before:
            change = PersonChange.between(before, after, at=time.time(), by=self.by, via=self.via)
            after = with_history_entry(after, _history_entry(change))
        if not await journal.keep_person(after, before):
            return False
        if change is not None:
            self.tell(change)
        return True


def with_history_entry(person: Person, entry: PersonEntry) -> Person:
    """Return a copy of a person with an entry added to the history."""
    return replace(person, history=(*person.history, entry)[-_MAX_ENTRIES:])


def _history_entry(change: PersonChange) -> PersonEntry:
    """Describe a change of a person for the person's history.

    The entry names the key if the change concerns a key, else the person's new rights, if any.
    """
    facts = change.facts
    parts: list[str] = []
    if "key" in facts:
        parts = [f"key {facts['key']}"]
    elif "rights" in facts:
        parts = [f"rights {'+'.join(facts['rights'])}", f"scope {facts['scope']}"]
        if facts["teams"]:
            parts.append(f"teams {', '.join(facts['teams'])}")
    return PersonEntry(
        at=change.at, what=change.what, by=change.by, via=change.via, about=", ".join(parts)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedChanges:
    """The requested changes of a person. None leaves a field unchanged.

    Args:
        rights: The rights.
        scope: The visible tasks.
        teams: The teams.
        mail: The e-mail address.
        notices: The kinds of notices that the person gets.
        notice_ways: The channels through which the person gets notices.
        label: The name of a new key.
        secret: The new key's secret; None for no new key.
        key_rights: The new key's rights, if fewer than the person's.
        key_scope: The new key's visible tasks, if fewer than the person's.
    """

    rights: tuple[Right, ...] | None = None
    scope: Scope | None = None
    teams: tuple[str, ...] | None = None
    mail: str | None = None
    notices: tuple[NoticeChoice, ...] | None = None
    notice_ways: tuple[NoticeWay, ...] | None = None
    label: str = ""
    secret: str | None = None
    key_rights: tuple[Right, ...] | None = None
    key_scope: Scope | None = None

    def apply_to(self, person: Person | None, name: str) -> Person:
        """Return a copy of a person with the changes. A removed person is created anew.

        Args:
            person: The person; None to create a person.
            name: The name of the person.

        Raises:
            ConfigurationError: If the name is invalid, or the person already has a key with the
                label of the new key.
        """
        now = time.time()
        if person is None or person.revoked_at is not None:
            person = _new_person(name, now, removed=person)
        keys = person.keys
        if self.secret is not None:
            check_name(self.label, "name of the key")
            if self.label in _valid_labels(person):
                raise ConfigurationError(
                    f"{name} has a key {self.label!r}",
                    hint="choose another label, or revoke that key; --no-key changes the person "
                    "and makes no key",
                )
            new_key = PersonKey(
                label=self.label,
                digest=digest_of(self.secret),
                made_at=now,
                rights=self.key_rights,
                scope=self.key_scope,
            )
            keys += (new_key,)
        teams: tuple[str, ...] | None = None
        if self.teams is not None:
            valid_teams = {check_name(team, "team") for team in self.teams}
            teams = tuple(sorted(valid_teams))
        requested: dict[str, Any] = {
            "rights": self.rights,
            "scope": self.scope,
            "teams": teams,
            "mail": self.mail,
            "notices": self.notices,
            "notice_ways": self.notice_ways,
        }
        changed = {field: value for field, value in requested.items() if value is not None}
        return replace(person, keys=keys, **changed)

    def for_new_key_only(self) -> RequestedChanges:
        """Return a copy in which rights and scope apply only to the new key, not to the person."""
        return replace(self, rights=None, scope=None, key_rights=self.rights, key_scope=self.scope)


def without_key(person: Person, label: str) -> Person:
    """Return a copy of a person with one key revoked.

    Raises:
        ConfigurationError: If the person has no such key.
    """
    if label not in _valid_labels(person):
        raise ConfigurationError(f"{person.name} has no key {label!r}", hint="delf users list")
    now = time.time()
    keys: list[PersonKey] = []
    for key in person.keys:
        is_valid_key_of_label = key.label == label and key.revoked_at is None
        keys.append(replace(key, revoked_at=now) if is_valid_key_of_label else key)
    return replace(person, keys=tuple(keys))


def _valid_labels(person: Person) -> set[str]:
    """Return the labels of a person's keys that are not revoked."""
    return {key.label for key in person.keys if key.revoked_at is None}


def require_active(person: Person | None, name: str) -> Person:
    """Return the person, unless unknown or removed.

    Args:
        person: The person; None if unknown.
        name: The name, for the error message.

    Raises:
        ConfigurationError: If the person is unknown or removed.
    """
    if person is None or person.revoked_at is not None:
        raise ConfigurationError(f"nobody is known by the name {name!r}", hint="delf users list")
    return person


def _new_person(name: str, now: float, *, removed: Person | None) -> Person:
    """Create a person. If a person of this name was removed, the new person has the old history."""
    return Person(
        name=check_name(name),
        uid=secrets.token_hex(6),
        made_at=now,
        # Keep the history of the removed person: it records who removed that person.
        history=() if removed is None else removed.history,
        former_uids=() if removed is None else (*removed.former_uids, removed.uid),
    )
