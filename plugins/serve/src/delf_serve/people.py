"""Changes of a server's people, reported to observers."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, Literal, get_args

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
"""The ways in which a person can get notices."""
NOTICE_WAYS: Final[tuple[NoticeWay, ...]] = get_args(NoticeWay)
_MAX_TRIES: Final = 5
_MAX_ENTRIES: Final = 100
"""The maximum number of entries kept in a person's history."""

Tell = Callable[[PersonChange], None]
Make = Callable[[Person], Person]


@dataclass(frozen=True, slots=True)
class Changer:
    """Changes people and reports each change.

    Args:
        by: The name of the person who makes the change.
        via: The channel and address.
        tell: Called with each change.
    """

    by: str
    via: str
    tell: Tell

    async def change(
        self, keeper: SharedJournal, name: str, make: Callable[[Person | None], Person]
    ) -> Person:
        """Change a person, retrying on concurrent changes.

        Args:
            keeper: The journal.
            name: The person.
            make: Returns the new version of the person from the old one.

        Raises:
            ConfigurationError: If the person could be mistaken for another, or the mail address
                is invalid.
            DelfError: If concurrent changes persist.
        """
        for _ in range(_MAX_TRIES):
            people = await keeper.people()
            before = next((p for p in people if p.name == name), None)
            after = make(before)
            if before is None or (before.teams, before.mail) != (after.teams, after.mail):
                check_mail(after.mail)
                check_unique_names(after, people)
            if await self.keep(keeper, after, before):
                return after
        raise DelfError("others keep changing the same person", hint="try it again")

    async def keep(self, keeper: SharedJournal, after: Person, before: Person | None) -> bool:
        """Store a person and notify; return False, unchanged, after a concurrent change."""
        now, noted = time.time(), None
        if after != before:
            noted = PersonChange.between(before, after, at=now, by=self.by, via=self.via)
            after = with_entry(after, _entry(noted))
        if not await keeper.keep_person(after, before):
            return False
        if noted is not None:
            self.tell(noted)
        return True


def with_entry(person: Person, entry: PersonEntry) -> Person:
    """Return a person with an entry added to the history."""
    return replace(person, history=(*person.history, entry)[-_MAX_ENTRIES:])


def _entry(change: PersonChange) -> PersonEntry:
    facts = change.facts
    parts = [f"key {facts['key']}"] if "key" in facts else []
    if "rights" in facts and "key" not in facts:
        parts = [f"rights {'+'.join(facts['rights'])}", f"scope {facts['scope']}"]
        parts += [f"teams {', '.join(facts['teams'])}"] if facts["teams"] else []
    return PersonEntry(
        at=change.at, what=change.what, by=change.by, via=change.via, about=", ".join(parts)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """The requested changes of a person; None leaves a field unchanged.

    Args:
        rights: The rights.
        scope: The visible tasks.
        teams: The teams.
        mail: The mail address.
        notices: The notices.
        notice_ways: The ways in which the person gets notices.
        label: The name of a new key.
        secret: The new key's secret.
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

    def of(self, known: Person | None, name: str) -> Person:
        """Return the changed person; a removed person becomes a new one.

        Raises:
            ConfigurationError: If the name is invalid, or the label is taken.
        """
        now = time.time()
        if known is None or known.revoked_at is not None:
            known = Person(name=check_name(name), uid=secrets.token_hex(6), made_at=now)
        keys = known.keys
        if self.secret is not None:
            check_name(self.label, "name of the key")
            if any(key.label == self.label and key.revoked_at is None for key in keys):
                raise ConfigurationError(
                    f"{name} has a key {self.label!r}", hint="another label, or revoke that key"
                )
            new_key = PersonKey(
                label=self.label,
                digest=digest_of(self.secret),
                made_at=now,
                rights=self.key_rights,
                scope=self.key_scope,
            )
            keys += (new_key,)
        teams = None if self.teams is None else {check_name(team, "team") for team in self.teams}
        return replace(
            known,
            rights=known.rights if self.rights is None else self.rights,
            scope=self.scope or known.scope,
            teams=known.teams if teams is None else tuple(sorted(teams)),
            mail=known.mail if self.mail is None else self.mail,
            notices=known.notices if self.notices is None else self.notices,
            notice_ways=known.notice_ways if self.notice_ways is None else self.notice_ways,
            keys=keys,
        )

    def narrowing(self) -> Wish:
        """Return the same changes with rights and scope applied to the new key alone."""
        return replace(self, rights=None, scope=None, key_rights=self.rights, key_scope=self.scope)


def without_key(person: Person, label: str) -> Person:
    """Return a person without one of the keys.

    Raises:
        ConfigurationError: If the person has no such key.
    """
    if label not in [key.label for key in person.keys if key.revoked_at is None]:
        raise ConfigurationError(f"{person.name} has no key {label!r}", hint="delf users list")
    now = time.time()
    keys = tuple(
        replace(key, revoked_at=now) if key.label == label and not key.revoked_at else key
        for key in person.keys
    )
    return replace(person, keys=keys)


def present(person: Person | None, name: str) -> Person:
    """Return the person; raise if unknown or revoked.

    Raises:
        ConfigurationError: If the person is unknown or revoked.
    """
    if person is None or person.revoked_at is not None:
        raise ConfigurationError(f"nobody is known by the name {name!r}", hint="delf users list")
    return person
