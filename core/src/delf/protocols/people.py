"""People that a server knows: their rights, what they may see, and their keys."""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import asdict, field, fields
from typing import Any, Final, Literal, get_args

from delf.errors import ConfigurationError
from delf.records import dataclass
from delf.values.unicode import normalized

Right = Literal["read", "run", "decide", "delete", "people"]
EVERY_RIGHT: Final[tuple[Right, ...]] = get_args(Right)
RIGHTS: Final[tuple[Right, ...]] = EVERY_RIGHT[:-1]
"""The default rights of a new person; the right ``people`` must be granted by name."""
Scope = Literal["own", "team", "all"]
"""The tasks that a person may see: their own, those of their teams, or all."""
SCOPES: Final[tuple[Scope, ...]] = get_args(Scope)
NoticeChoice = Literal["asked", "reminded", "ended", "assigned", "commented"]
"""The notices that a person can choose.

``asked``: a new request that the person may decide. ``reminded``: a reminder of such a request.
``ended``: the end of the person's own task. ``assigned``: a request is assigned to the person.
``commented``: a comment on a request of the person's task, on an assigned request, or on a request
that the person has commented on.
"""
NOTICES: Final[tuple[NoticeChoice, ...]] = get_args(NoticeChoice)
LOCAL: Final = "local"
"""The name of the local user, who needs no key."""
_NAME: Final = re.compile(r"[A-Za-z][\w.@-]{0,63}")
# A single mail address, without a display name.
_MAIL: Final = re.compile(r"[^\s@,;:<>()\[\]\"\\]+@[^\s@,;:<>()\[\]\"\\]+")
_SECRET: Final = "delf_"  # noqa: S105 - the beginning by which scanners of secrets know a key


@dataclass(frozen=True, slots=True, kw_only=True)
class PersonKey:
    """An API key of a person, stored only as a digest.

    Args:
        label: The name of the key, such as ``laptop`` or ``ci``.
        digest: SHA-256 of the key, as hexadecimal digits.
        made_at: The Unix time of its creation.
        rights: The rights, if fewer than the person's.
        scope: The visible tasks, if fewer than the person's.
        revoked_at: The Unix time of its revocation, if any.
    """

    label: str
    digest: str
    made_at: float
    rights: tuple[str, ...] | None = None
    scope: Scope | None = None
    revoked_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PersonEntry:
    """A line in the history of a person.

    Args:
        at: The Unix time of the change.
        what: The kind of change, as in :class:`PersonChange`.
        by: The person who made the change.
        via: The channel or address.
        about: The new value in words, or the label of a key.
    """

    at: float
    what: str
    by: str
    via: str
    about: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    """A person who may use a server.

    Args:
        name: The name in decisions and tasks.
        uid: A unique id, so a later person with the same name is distinct.
        made_at: The Unix time at which the person was added.
        rights: The rights: some of ``read``, ``run``, ``decide``, ``delete``, ``people``.
        scope: The visible tasks: ``own``, those of the ``team``, or ``all``.
        teams: The person's teams, which approval rules may name.
        mail: The person's mail address, which a login can use; an empty text for none.
        keys: The API keys of the person, oldest first.
        revoked_at: The Unix time from which the person has no access, if revoked.
        notices: The notices that the person chose to receive.
        notice_ways: The delivery channels of the person's notices, by the server's names for them,
            such as ``mail`` and ``browser``.
        webhook: The address of the person's own webhook; empty for none.
        webhook_secret: The key that signs messages to that webhook.
        history: The latest changes made to the person's record, newest last.
        former_uids: The ids of the removed people who had this name before.
    """

    name: str
    uid: str
    made_at: float
    rights: tuple[str, ...] = RIGHTS
    scope: Scope = "own"
    teams: tuple[str, ...] = ()
    mail: str = ""
    keys: tuple[PersonKey, ...] = ()
    revoked_at: float | None = None
    notices: tuple[NoticeChoice, ...] = ()
    notice_ways: tuple[str, ...] = ("mail", "browser")
    webhook: str = field(default="", repr=False)
    webhook_secret: str = field(default="", repr=False)
    history: tuple[PersonEntry, ...] = ()
    former_uids: tuple[str, ...] = ()

    @property
    def user(self) -> str:
        """The name that journals store as the user of the person's tasks: ``NAME:UID``."""
        return f"{self.name}:{self.uid}"

    @property
    def former_users(self) -> Sequence[str]:
        """The ``NAME:UID`` texts of removed people who had this person's name before."""
        return [f"{self.name}:{uid}" for uid in self.former_uids]


def users_seen(person: Person, people: Iterable[Person]) -> frozenset[str] | None:
    """Return the users whose tasks a person may see; None for all users.

    Args:
        person: The person.
        people: All people; the scope ``team`` covers those who share a team with the person.
    """
    if person.scope == "all":
        return None
    users = {person.user}
    if person.scope == "team":
        teams = set(person.teams)
        users.update(other.user for other in people if not teams.isdisjoint(other.teams))
    return frozenset(users)


def sees(person: Person, people: Iterable[Person], user: str | None) -> bool:
    """Return True if a person may see the tasks of a user.

    Args:
        person: The person.
        people: Everybody, as for :func:`users_seen`.
        user: The user; None for the local user.
    """
    visible_users = users_seen(person, people)
    return visible_users is None or user in visible_users


def check_may_run(user: str, people: Iterable[Person]) -> None:
    """Raise if the user of a task or schedule may not run tasks any more.

    Args:
        user: The user. Users who are not in ``people`` may run tasks: their API keys are in the
            settings of a server.
        people: All people of the journal, also removed ones.

    Raises:
        ConfigurationError: If the user was removed, or lost the right ``run``.
    """
    if not keeps_right(user, "run", people):
        raise ConfigurationError(
            f"{name_of_user(user)} may not run tasks any more",
            hint="another person can submit the same task again",
        )


def keeps_right(user: str, right: Right, people: Iterable[Person]) -> bool:
    """Return True if a user still has a right; a removed person has none.

    Args:
        user: The user. Users who are not in ``people`` keep their rights, as in
            :func:`check_may_run`.
        right: The right.
        people: All people of the journal, also removed ones.
    """
    for person in people:
        # This user is a removed person. A new person of the same name gets neither the tasks nor
        # the decisions of the removed person.
        if user in person.former_users:
            return False
        if user == person.user:
            return person.revoked_at is None and right in person.rights
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class PersonChange:
    """A change to a person's rights, scope, teams or API keys, as observers record the change.

    Args:
        at: The Unix time of the change.
        name: The name of the person whose rights or keys changed.
        what: The kind of change.
        by: The name of the person who made the change.
        via: The channel, such as ``page, 203.0.113.9``, or a command.
        facts: The person's new rights, scope and teams; for a change of an API key, the label of
            the key.
    """

    at: float
    name: str
    what: Literal["added", "changed", "revoked", "key added", "key revoked"]
    by: str
    via: str
    facts: dict[str, Any]

    @classmethod
    def between(
        cls, before: Person | None, after: Person, *, at: float, by: str, via: str
    ) -> PersonChange:
        """Return the change from one version of a person to the next.

        Args:
            before: The person before the change; None if the person is new.
            after: The person after the change.
            at: The Unix time of the change.
            by: The person who made the change.
            via: The channel of the change, such as ``page, 203.0.113.9``, or a command.
        """
        change, facts = _difference(before, after)
        return cls(at=at, name=after.name, what=change, by=by, via=via, facts=facts)


def _difference(before: Person | None, after: Person) -> tuple[Any, dict[str, Any]]:
    """Return the kind of a change to a person, such as ``key added``, and the change's details."""
    all_fields = {
        "rights": after.rights,
        "scope": after.scope,
        "teams": after.teams,
        "mail": after.mail,
    }
    # A person who was removed and then added under the same name has another uid.
    if before is None or before.uid != after.uid:
        return "added", all_fields | {"keys": [key.label for key in after.keys]}
    if after.revoked_at is not None:
        return "revoked", {}
    if len(after.keys) > len(before.keys):
        key = after.keys[-1]
        return "key added", {**all_fields, "key": key.label, "key_rights": key.rights}
    # A stored key changes only by its revocation.
    revoked_keys = [
        new.label for old, new in zip(before.keys, after.keys, strict=False) if old != new
    ]
    if revoked_keys:
        return "key revoked", {"key": revoked_keys[0]}
    return "changed", all_fields


def check_name(name: str, what: str = "name") -> str:
    """Return a valid name for a person, team or key; raise for any other text.

    Raises:
        ConfigurationError: If the name is invalid, or reserved for the local user.
    """
    is_valid = _NAME.fullmatch(name) and all(map(_is_latin, name))
    if not is_valid or name == LOCAL:
        raise ConfigurationError(
            f"{name[:80]!r} cannot be the {what}",
            hint="a letter, then Latin letters, digits and . @ - _; `local` is the local user",
        )
    return name


def _is_latin(letter: str) -> bool:
    """Return False for a letter of another alphabet, such as a Cyrillic letter that looks Latin.

    Return True for Latin letters and for all characters that are no letters.
    """
    return not letter.isalpha() or unicodedata.name(letter, "").startswith("LATIN ")


def check_mail(mail: str) -> str:
    """Return a mail address, or an empty text for none; raise for any other text.

    Raises:
        ConfigurationError: If the text is not one address.
    """
    is_address = _MAIL.fullmatch(mail) is not None and mail.isprintable()
    if mail and not is_address:
        raise ConfigurationError(f"{mail[:80]!r} is not a mail address", hint="as ada@example.com")
    return mail


def check_unique_names(person: Person, people: Iterable[Person]) -> None:
    """Raise for a person whose names collide with another person or a team.

    Rules name people and teams alike, and a login identifies a person by name or mail.

    Raises:
        ConfigurationError: If names collide.
    """
    other_people = [other for other in people if other.name != person.name]
    taken_words: set[str] = set()
    for other in other_people:
        taken_words.update(normalise_name(word) for word in (other.name, other.mail) if word)
    for word in (person.name, person.mail):
        if normalise_name(word) in taken_words:
            raise ConfigurationError(f"{word!r} is another person's name or mail")
    everybody = (person, *other_people)
    person_names = {normalise_name(each.name) for each in everybody}
    team_names = {normalise_name(team) for each in everybody for team in each.teams}
    ambiguous_names = team_names & person_names
    if ambiguous_names:
        raise ConfigurationError(
            f"{min(ambiguous_names)!r} is both a person and a team",
            hint="rules name people and teams alike",
        )


def normalise_name(name: str) -> str:
    """Normalise a name for comparison: case and Unicode forms are ignored."""
    return normalized(name, "NFKC").casefold()


def name_of_user(user: str | None) -> str:
    """Return the display name of a task's user.

    Args:
        user: The user: ``NAME:UID`` for a person, ``NAME:DIGEST`` for an API key in a server's
            settings, or ``NAME`` as a program chose it. None for the local user.
    """
    if user is None:
        return LOCAL
    return user.rpartition(":")[0] or user


def digest_of(secret: str | bytes) -> str:
    """Return the SHA-256 digest of an API key or session cookie, as hexadecimal digits."""
    data = secret.encode() if isinstance(secret, str) else secret
    return hashlib.sha256(data).hexdigest()


def new_secret() -> str:
    """Generate a random API key."""
    import secrets

    return f"{_SECRET}{secrets.token_urlsafe(32)}"


def person_text(person: Person) -> str:
    """Encode a person as JSON for a journal."""
    return json.dumps(asdict(person), sort_keys=True, separators=(",", ":"))


def person_of(text: str) -> Person:
    """Decode a person stored by :func:`person_text`, ignoring unknown fields of newer versions."""
    data = _known_fields(Person, json.loads(text))
    keys = tuple(_key_of(_known_fields(PersonKey, item)) for item in data.pop("keys", ()))
    for name in {"rights", "teams", "notices", "notice_ways", "former_uids"} & set(data):
        data[name] = tuple(data[name])  # a list in JSON
    history = tuple(
        PersonEntry(**_known_fields(PersonEntry, item)) for item in data.pop("history", ())
    )
    return Person(**data, keys=keys, history=history)


def _key_of(data: dict[str, Any]) -> PersonKey:
    rights = data.pop("rights", None)
    return PersonKey(**data, rights=None if rights is None else tuple(rights))


def _known_fields(kind: Any, data: dict[str, Any]) -> dict[str, Any]:
    names = {item.name for item in fields(kind)}
    return {name: value for name, value in data.items() if name in names}
