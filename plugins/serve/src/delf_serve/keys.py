"""People and their API keys, from settings and journal."""

from __future__ import annotations

import functools
import hashlib
import hmac
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from delf.errors import ConfigurationError, DelfError
from delf.protocols.approval import Decider
from delf.protocols.people import (
    EVERY_RIGHT,
    SCOPES,
    Person,
    PersonKey,
    Scope,
    check_name,
    digest_of,
)
from delf.protocols.sessions import SessionRecord
from delf.protocols.shared_journal import SharedJournal
from delf_serve.settings import ServeSettings

_log = logging.getLogger(__name__)

VARIABLE: Final = "DELF_API_KEY"
_LOOK_SECONDS: Final = 1.0
"""The interval in seconds of reloading people from the journal."""


@dataclass(frozen=True, slots=True)
class Key:
    """An authenticated caller: by API key, session or proxy.

    Args:
        name: The person's name, shown with decisions.
        rights: The rights.
        digest: The digest of the API key; empty if another login was used.
        scope: The visible tasks.
        uid: The person's unique id in the journal; empty for a key of the settings.
        label: The name of the key among the person's keys.
        teams: The person's teams.
        mates: The owner names of people who share a team with the person.
    """

    name: str
    rights: frozenset[str]
    digest: bytes = field(repr=False)
    scope: Scope = "all"
    uid: str = ""
    label: str = ""
    teams: frozenset[str] = frozenset()
    mates: frozenset[str] = frozenset()

    @property
    def holder(self) -> str | None:
        """The owner name of the person's tasks in the journal.

        For a key of the settings the name depends on the secret. None on a server without keys, for
        the local user.
        """
        if self.uid:
            return f"{self.name}:{self.uid}"
        return _holder(self.name, self.digest) if self.digest else None

    @property
    def limits_name(self) -> str:
        """The name under which limits count: the name of the person or of the settings' key."""
        return self.holder or ""

    def decider(self, via: str) -> Decider:
        """Return the person as the decider of a request.

        Args:
            via: The channel and address.
        """
        return Decider(
            name=self.name,
            key=self.holder,
            teams=tuple(sorted(self.teams)),
            via=via,
        )

    @property
    def owners(self) -> frozenset[str] | None:
        """The owners whose tasks are visible; None for all owners."""
        holder = self.holder
        if self.scope == "all" or holder is None:
            return None
        return frozenset((holder, *(self.mates if self.scope == "team" else ())))

    def sees(self, owner: str | None) -> bool:
        """Return True if an owner's data is visible; None is the local user."""
        owners = self.owners
        return owners is None or owner in owners


@functools.lru_cache(1000)
def _holder(name: str, digest: bytes) -> str:
    """Derive an owner name from a key, slowly, so that the key cannot be guessed from the name."""
    derived = hashlib.pbkdf2_hmac("sha256", digest, f"delf holder {name}".encode(), 100_000, 6)
    return f"{name}:{derived.hex()}"


ANYBODY: Final = Key("local", frozenset(EVERY_RIGHT), b"")
"""The caller on a server without keys, which listens on loopback only."""


class Keys:
    """The people and API keys of a server.

    Keys of the journal are reloaded at least once a second.

    Args:
        texts: Keys in the format of the settings.
        needed: Whether authentication is required, even without any key.

    Raises:
        ConfigurationError: For an invalid key; the error has its number, never its text.
    """

    def __init__(self, texts: Sequence[str] = (), *, needed: bool = False) -> None:
        self._keys = _keys(texts)
        self._keys_by_digest: dict[bytes, Key] = {}
        self._keys_by_holder: dict[str, Key] = {}
        self._all_people: list[Person] = []
        self._people_at = float("-inf")
        self._needed = needed or bool(self._keys)

    @classmethod
    def of(cls, settings: ServeSettings, environ: Mapping[str, str]) -> Keys:
        """Load the keys of the settings, or else of ``DELF_API_KEY``.

        Raises:
            ConfigurationError: For an invalid key; the error has its number, never its text.
        """
        api_key = "" if settings.api_key is None else settings.api_key.get_secret_value()
        api_key = api_key or environ.get(VARIABLE, "")
        texts = [text.strip() for text in api_key.split(",") if text.strip()]
        if api_key and not texts:
            raise ConfigurationError("an API key is empty")
        return cls(texts, needed=settings.has_login)

    def __bool__(self) -> bool:
        """Return True if a key is required, even if all people are revoked."""
        return self._needed

    def find(self, secret: bytes) -> Key | None:
        """Find the caller of a key, in constant time."""
        # Compare all keys: stopping at a match would reveal its position by timing.
        digest = hashlib.sha256(secret).digest()
        match: Key | None = None
        for key in (*self._keys, *self._keys_by_digest.values()):
            if hmac.compare_digest(digest, key.digest):
                match = key
        return match

    def of_session(self, session: SessionRecord) -> Key | None:
        """Return the key that a session acts with; None if the key or its person is revoked."""
        if session.key:
            digest = bytes.fromhex(session.key)
            own_key = next((key for key in self._keys if key.digest == digest), None)
            key_found = own_key or self._keys_by_digest.get(digest)
        else:
            key_found = self._keys_by_holder.get(session.holder)
        return key_found if key_found is not None and key_found.holder == session.holder else None

    def person(self, name: str, *, by_mail: bool) -> Key | None:
        """Return the rights of a person in the journal, for logins without a key; None if unknown.

        Args:
            name: The name, or the mail address.
            by_mail: Whether ``name`` is a verified mail address.
        """
        present = [person for person in self._all_people if person.holder in self._keys_by_holder]
        person = next((person for person in present if person.name == name), None)
        if person is None and by_mail:
            with_mail = (
                p
                for p in present
                if _lower_ascii(name) in (_lower_ascii(p.mail), _lower_ascii(p.name))
            )
            person = next(with_mail, None)
        return None if person is None else self._keys_by_holder[person.holder]

    def everybody(self) -> Iterator[Key]:
        """Yield all people with their full rights, and the keys of the settings."""
        yield from self._keys_by_holder.values()
        yield from self._keys

    def of_holder(self, holder: str) -> Key | None:
        """Return the person, or the key of the settings, by owner name."""
        return self._keys_by_holder.get(holder) or next(
            (key for key in self._keys if key.holder == holder), None
        )

    def known(self, holder: str | None) -> Person | None:
        """Return the person of the journal by owner name, if any."""
        return next((person for person in self._all_people if person.holder == holder), None)

    def of_team(self, team: str) -> frozenset[str]:
        """Return the owner names of a team's people, including removed ones."""
        return frozenset(person.holder for person in self._all_people if team in person.teams)

    def holds(self, key: Key) -> bool:
        """Return True if a key still exists with the same secret and rights."""
        if not self._needed or key in self._keys:
            return True
        return key in (
            self._keys_by_digest.get(key.digest),
            self._keys_by_holder.get(key.holder or ""),
        )

    async def reload(self, journal: SharedJournal, *, at_once: bool = False) -> None:
        """Reload people from the journal, at most once in the interval.

        Args:
            journal: The journal.
            at_once: Reload even within the interval.
        """
        now = time.monotonic()
        if not at_once and now - self._people_at < _LOOK_SECONDS:
            return
        is_first = self._people_at == float("-inf")
        self._people_at = now
        try:
            self._replace_people(await journal.people())
        except DelfError as error:
            # A server that has never read its people must not answer as if there were none.
            if is_first:
                self._people_at = float("-inf")
                raise
            _log.error("people and their keys stay as they were: %s", error.message)

    def _replace_people(self, people: list[Person]) -> None:
        """Replace the people; keys stay required even if all are revoked."""
        self._all_people = people
        # A server whose last person was revoked must not be open to everybody.
        self._needed = self._needed or bool(people)
        here = [person for person in people if person.revoked_at is None]
        self._keys_by_holder = {person.holder: _full_caller(person, here) for person in here}
        self._keys_by_digest = {
            bytes.fromhex(key.digest): _with_rights_of(self._keys_by_holder[person.holder], key)
            for person in here
            for key in person.keys
            if key.revoked_at is None
        }


def _lower_ascii(mail: str) -> bytes:
    """Lower-case the ASCII letters of a mail address, for comparison.

    Unicode case folding would make different addresses equal, such as one with the Kelvin sign
    instead of ``k``.
    """
    return mail.encode("utf-8", "replace").lower()


def _keys(texts: Sequence[str]) -> tuple[Key, ...]:
    """Parse keys of the settings; names and secrets must be unique."""
    keys = tuple(_key(text, number) for number, text in enumerate(texts, 1))
    names = [key.name for key in keys]
    double = next((name for name in names if names.count(name) > 1), None)
    if double is not None:
        raise ConfigurationError(f"two API keys have the name {double!r}")
    if len({key.digest for key in keys}) < len(keys):
        raise ConfigurationError("two names have the same API key")
    return keys


def _full_caller(person: Person, people: Sequence[Person]) -> Key:
    """Return a caller with all rights of a person."""
    teams = frozenset(person.teams)
    return Key(
        name=person.name,
        rights=frozenset(person.rights),
        digest=b"",
        scope=person.scope,
        uid=person.uid,
        teams=teams,
        mates=frozenset(other.holder for other in people if teams & set(other.teams)),
    )


def _with_rights_of(person_key: Key, key: PersonKey) -> Key:
    """Return a caller restricted to the rights of one key."""
    rights = person_key.rights if key.rights is None else person_key.rights & frozenset(key.rights)
    scope = min(person_key.scope, key.scope or person_key.scope, key=SCOPES.index)
    digest = bytes.fromhex(key.digest)
    return replace(person_key, rights=rights, scope=scope, digest=digest, label=key.label)


def _key(text: str, number: int) -> Key:
    """Parse an API key of the settings, which has every right."""
    name, _, secret = text.rpartition(":")
    name = name or f"key{number}"
    try:
        check_name(name)
    except ConfigurationError:
        secret = ""
    if not secret:
        raise ConfigurationError(
            f"API key {number} cannot be read",
            hint="KEY or NAME:KEY; people with fewer rights: delf users add NAME --rights read+run",
        )
    return Key(name, frozenset(EVERY_RIGHT), bytes.fromhex(digest_of(secret)))
