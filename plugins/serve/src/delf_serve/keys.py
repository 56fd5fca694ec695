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
from delf.network.outages import Outage
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
# The interval in seconds of reloading people from the journal.
_RELOAD_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class Caller:
    """A person or program that calls the API, identified by API key, session or proxy.

    Args:
        name: The person's name, shown with decisions.
        rights: The rights.
        digest: The digest of the API key; empty after another kind of login.
        scope: Which tasks are visible: the caller's own, the team's, or all.
        uid: The person's unique id in the journal; empty for a key of the settings.
        label: The name of the API key among the person's keys.
        teams: The person's teams.
        mates: The people who share a team with the person, each as :attr:`Person.user`.
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
    def user(self) -> str | None:
        """The name that the journal stores as the user of the caller's tasks.

        For a key of the settings, the name is derived from the secret. None for the local user of a
        server without keys.
        """
        if self.uid:
            return f"{self.name}:{self.uid}"
        return _derive_user(self.name, self.digest) if self.digest else None

    def decider(self, via: str = "") -> Decider:
        """Return the caller as the decider of a request.

        Args:
            via: The channel and the client's address from which the decision came, for the
                journal. Empty if there is no decision, but only a check of what the caller may
                decide.
        """
        return Decider(
            name=self.name,
            user=self.user,
            teams=tuple(sorted(self.teams)),
            via=via,
        )

    @property
    def visible_users(self) -> frozenset[str] | None:
        """The users whose tasks are visible; None for all users."""
        user = self.user
        if self.scope == "all" or user is None:
            return None
        if self.scope == "team":
            return self.mates | {user}
        return frozenset({user})

    def sees(self, user: str | None) -> bool:
        """Return True if the caller may see a user's data. The ``user`` None is the local user."""
        users = self.visible_users
        return users is None or user in users


@functools.lru_cache(1000)
def _derive_user(name: str, digest: bytes) -> str:
    """Derive the user for an API key of the settings.

    The derivation is slow, so that the key cannot be guessed from the result.
    """
    # Never change the salt: journals and upload folders store users derived with it.
    salt = f"delf holder {name}".encode()
    derived = hashlib.pbkdf2_hmac("sha256", digest, salt, 100_000, 6)
    return f"{name}:{derived.hex()}"


ANYBODY: Final = Caller("local", frozenset(EVERY_RIGHT), b"")
"""The caller of every request on a server without keys, which listens on loopback only."""


class Keys:
    """The people and API keys of a server.

    People in the journal are reloaded at most once a second.

    Args:
        texts: API keys in the format of the settings.
        requires_login: Whether every request must authenticate even if there is no API key. True
            if people can log in without a key, for example through OpenID Connect.

    Raises:
        ConfigurationError: If a key is invalid. The message has only the key's position.
    """

    def __init__(self, texts: Sequence[str] = (), *, requires_login: bool = False) -> None:
        self._callers_of_settings = _parse_keys(texts)
        # The callers with an API key of the settings or of a person, by the digest of the key.
        self._callers_by_digest = {caller.digest: caller for caller in self._callers_of_settings}
        # The people in the journal, by :attr:`Person.user`.
        self._callers_by_user: dict[str, Caller] = {}
        self._all_people: list[Person] = []
        self._reloaded_at = float("-inf")
        self._outage: Outage | None = None
        self._requires_login = requires_login or bool(self._callers_of_settings)

    @classmethod
    def of(cls, settings: ServeSettings, environ: Mapping[str, str]) -> Keys:
        """Load the API keys of the settings or, if there are none, of ``DELF_API_KEY``.

        Raises:
            ConfigurationError: If a key is invalid. The message has only the key's position.
        """
        api_keys = "" if settings.api_key is None else settings.api_key.get_secret_value()
        if not api_keys:
            api_keys = environ.get(VARIABLE, "")
        stripped_texts = [text.strip() for text in api_keys.split(",")]
        texts = [text for text in stripped_texts if text]
        if api_keys and not texts:
            raise ConfigurationError("an API key is empty")
        # A server with a login of people must never be open to everybody, even without API keys.
        return cls(texts, requires_login=settings.has_login)

    def __bool__(self) -> bool:
        """Return True if a key is required.

        Once a person was added to the server, a key stays required even after all people have been
        removed.
        """
        return self._requires_login

    def find(self, secret: bytes) -> Caller | None:
        """Return the caller with an API key, in constant time; None if the key is unknown."""
        # Compare all keys: stopping at a match would reveal its position by timing.
        digest = hashlib.sha256(secret).digest()
        match: Caller | None = None
        for caller in self._callers_by_digest.values():
            if hmac.compare_digest(digest, caller.digest):
                match = caller
        return match

    def caller_of_session(self, session: SessionRecord) -> Caller | None:
        """Return the caller who logged in for a session.

        Return None if the caller, or the API key used for the login, has been revoked.
        """
        if session.key:  # the digest of the API key with which the session began
            caller = self._callers_by_digest.get(bytes.fromhex(session.key))
        else:
            caller = self._callers_by_user.get(session.user)
        # The API key may have been given to another person since: then the users differ.
        if caller is None or caller.user != session.user:
            return None
        return caller

    def find_person(self, name: str, *, by_mail: bool) -> Caller | None:
        """Return a person as a caller with all rights of the person; None if unknown.

        Used for a person who logs in without an API key, or who owns a webhook.

        Args:
            name: The name of an active person, or the verified e-mail address.
            by_mail: Whether ``name`` may be an e-mail address. The case of letters is then ignored
                in e-mail addresses and names.
        """
        if not name:
            return None  # would equal the address "" of a person without an e-mail address
        active = [person for person in self._all_people if person.user in self._callers_by_user]
        for person in active:  # an exact name counts before any address
            if person.name == name:
                return self._callers_by_user[person.user]
        if not by_mail:
            return None
        lower_name = _lower_ascii(name)
        for person in active:
            if lower_name in (_lower_ascii(person.mail), _lower_ascii(person.name)):
                return self._callers_by_user[person.user]
        return None

    def everybody(self) -> Iterator[Caller]:
        """Yield a caller for each active person, then one for each API key of the settings.

        The caller for a person has all of this person's rights. The person's API keys, which may
        have fewer rights, are not yielded.
        """
        yield from self._callers_by_user.values()
        yield from self._callers_of_settings

    def caller_of(self, user: str) -> Caller | None:
        """Return the caller whose :attr:`Caller.user` is ``user``, or None.

        The caller is a person, or has a key of the settings.
        """
        person = self._callers_by_user.get(user)
        if person is not None:
            return person
        for caller in self._callers_of_settings:
            if caller.user == user:
                return caller
        return None

    def person_of(self, user: str | None) -> Person | None:
        """Return the person whose :attr:`Person.user` is ``user``; None if unknown.

        Removed people are found, too.
        """
        return next((person for person in self._all_people if person.user == user), None)

    def users_of_team(self, team: str) -> frozenset[str]:
        """Return the user ids of a team's members, including removed members."""
        return frozenset(person.user for person in self._all_people if team in person.teams)

    def current(self, caller: Caller) -> Caller | None:
        """Return a caller with up-to-date rights, scope and teams; None if the access has ended."""
        if not self._requires_login:
            return caller
        if caller.digest:
            current = self._callers_by_digest.get(caller.digest)
        else:  # a login by proxy or OpenID Connect has no API key
            current = self._callers_by_user.get(caller.user or "")
        # The API key may have been given to another person since: then the users differ.
        if current is None or current.user != caller.user:
            return None
        return current

    async def reload(self, journal: SharedJournal, *, at_once: bool = False) -> None:
        """Reload the people and their keys from the journal, at most once a second.

        If the journal does not respond, keep the people that were loaded before.

        Args:
            journal: The journal.
            at_once: Whether to reload even if the last reload was less than a second ago.

        Raises:
            DelfError: If the very first load fails.
        """
        now = time.monotonic()
        if not at_once and now - self._reloaded_at < _RELOAD_SECONDS:
            return
        is_first = self._reloaded_at == float("-inf")
        if not is_first:  # meanwhile, concurrent calls use the people that were loaded before
            self._reloaded_at = now
        if self._outage is None:
            effect = "changes of people and keys are not loaded"
            self._outage = Outage(_log, effect, journal.place)
        try:
            people = await journal.people()
        except DelfError as error:
            # A server that has never read its people must not answer as if there were none.
            if is_first:
                raise
            self._outage.record_failure(error)
            return
        self._outage.record_success()
        self._replace_people(people)
        self._reloaded_at = now

    def _replace_people(self, people: list[Person]) -> None:
        """Replace the people of the server.

        Once the server has had people, it requires authentication, even if all people are removed.
        """
        self._all_people = people
        # A server whose last person was revoked must not be open to everybody.
        self._requires_login = self._requires_login or bool(people)
        active = [person for person in people if person.revoked_at is None]
        # For sessions and logins by proxy: the caller has all rights of the person.
        self._callers_by_user = {
            person.user: _caller_with_all_rights(person, active) for person in active
        }
        # For requests with an API key: the caller has the rights of this key.
        # If a key of a person is also in the settings, the person's key counts.
        callers_by_digest = {caller.digest: caller for caller in self._callers_of_settings}
        for person in active:
            caller = self._callers_by_user[person.user]
            for api_key in person.keys:
                if api_key.revoked_at is None:
                    callers_by_digest[bytes.fromhex(api_key.digest)] = _restrict(caller, api_key)
        self._callers_by_digest = callers_by_digest


def _lower_ascii(mail: str) -> bytes:
    """Lower-case the ASCII letters of an e-mail address, for comparison.

    Unicode case folding would make different addresses equal, such as an address with the Kelvin
    sign instead of ``k``.
    """
    return mail.encode("utf-8", "replace").lower()


def _parse_keys(texts: Sequence[str]) -> tuple[Caller, ...]:
    """Parse the API keys of the settings. Names and secrets must be unique."""
    callers = tuple(_parse_key(text, number) for number, text in enumerate(texts, 1))
    names = [caller.name for caller in callers]
    for name in names:
        if names.count(name) > 1:
            raise ConfigurationError(f"two API keys have the name {name!r}")
    if len({caller.digest for caller in callers}) < len(callers):
        raise ConfigurationError("two names have the same API key")
    return callers


def _caller_with_all_rights(person: Person, people: Sequence[Person]) -> Caller:
    """Return a person as a caller with all rights of the person.

    Args:
        person: The person.
        people: All people with access, also those outside of the person's teams.
    """
    teams = frozenset(person.teams)
    return Caller(
        name=person.name,
        rights=frozenset(person.rights),
        digest=b"",  # no API key
        scope=person.scope,
        uid=person.uid,
        teams=teams,
        mates=frozenset(other.user for other in people if teams & set(other.teams)),
    )


def _restrict(person: Caller, api_key: PersonKey) -> Caller:
    """Return a person as a caller with only the rights and scope of one of the API keys.

    Args:
        person: The person with all rights and the full scope.
        api_key: The API key, which may have fewer rights and a smaller scope than the person.
    """
    rights = person.rights
    if api_key.rights is not None:
        # A right that the person has lost is lost for the API key, too.
        rights = person.rights & frozenset(api_key.rights)
    # SCOPES begins with the smallest scope.
    scope = min(person.scope, api_key.scope or person.scope, key=SCOPES.index)
    digest = bytes.fromhex(api_key.digest)
    return replace(person, rights=rights, scope=scope, digest=digest, label=api_key.label)


def _parse_key(text: str, number: int) -> Caller:
    """Parse an API key of the settings. A key of the settings has every right.

    Args:
        text: ``KEY`` or ``NAME:KEY``.
        number: The position of the key in the settings, for its default name and for errors.
    """
    name, _, secret = text.rpartition(":")
    name = name or f"key{number}"
    unreadable_key = ConfigurationError(
        f"API key {number} cannot be read",
        hint="KEY or NAME:KEY; people with fewer rights: delf users add NAME --rights read+run",
    )
    if not secret:
        raise unreadable_key
    try:
        check_name(name)
    except ConfigurationError:
        raise unreadable_key from None
    return Caller(name, frozenset(EVERY_RIGHT), bytes.fromhex(digest_of(secret)))
