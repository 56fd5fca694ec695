"""People who come in without a key: told by a trusted proxy, or by OpenID Connect."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final, cast

from delf.errors import ConfigurationError
from delf.protocols.people import Person, Scope, check_name, folded
from delf_serve.keys import Key, Keys, known_by
from delf_serve.people import Changer, Tell
from delf_serve.settings import ServeSettings
from delf_serve.tasks import Tasks

_log = logging.getLogger(__name__)

_MOST_TEAMS: Final = 100


class Logins:
    """Finds the person behind a name that somebody else vouches for.

    Args:
        keys: The people who are known.
        tasks: The journal, where new ones are kept.
        settings: Whether somebody may come in who is not known.
        tell: Is told of people who become known, and of changes of their teams.
        ruled: The people and teams that the team's rules name.
    """

    def __init__(
        self,
        keys: Keys,
        tasks: Tasks,
        settings: ServeSettings,
        tell: Tell,
        ruled: Iterable[str] = (),
    ) -> None:
        self._changer = Changer("login", "login", tell)
        self._ruled = frozenset(map(folded, ruled))
        self._keys = keys
        self._tasks = tasks
        self._settings = settings

    async def person(
        self, name: str, teams: Sequence[str] | None = None, *, by_mail: bool = True
    ) -> Key | None:
        """The person of a name or a mail; None where they may not come in.

        Args:
            name: As it was told.
            teams: Their teams, where these are told, too; what was known of them is replaced.
            by_mail: Whether a mail is proved to be theirs.
        """
        told = None if teams is None else self._names(teams)
        found = self._keys.person(name, by_mail=by_mail)
        if found is not None and (told is None or frozenset(told) == found.teams):
            return found
        journal = self._tasks.journal
        known = known_by(await journal.people(), name, by_mail=by_mail)
        if known is None:
            kept = self._guest(name, told or (), by_mail=by_mail)
        elif known.revoked_at is None and told is not None:
            kept = replace(known, teams=told)
        else:
            kept = None
        if kept is not None:
            await self._changer.keep(journal, kept, known)
        await self._keys.look(journal, at_once=True)
        return self._keys.person(name, by_mail=by_mail)

    def _guest(self, name: str, teams: tuple[str, ...], *, by_mail: bool) -> Person | None:
        """Somebody new, unless their name has a meaning here: then they are added by a person."""
        rights, _, scope = self._settings.guests.partition("@")
        try:
            check_name(name)
        except ConfigurationError:
            _log.warning("a login was refused: %s is not a name of a person", ascii(name[:80]))
            return None
        if not rights:
            return None
        if folded(name) in self._keys.names | self._keys.teams | self._ruled:
            told = "means somebody or a team here: delf users add makes them known"
            _log.warning("a login was refused: %s %s", ascii(name[:80]), told)
            return None
        return Person(
            name=name,
            uid=secrets.token_hex(6),
            made_at=time.time(),
            rights=tuple(rights.split("+")),
            scope=cast("Scope", scope or "own"),
            teams=teams,
            mail=name if by_mail and "@" in name else "",
        )

    def _names(self, teams: Sequence[str]) -> tuple[str, ...]:
        """The names among those that were told that a team can have; a person's is none."""
        found, people = set[str](), self._keys.names
        for team in teams[:_MOST_TEAMS]:
            try:
                name = check_name(str(team).strip(), "team")
            except ConfigurationError:
                _log.warning("the team %s was left out: it is not a name", ascii(str(team)[:80]))
                continue
            if folded(name) in people:
                _log.warning("the team %s was left out: it is the name of a person", ascii(name))
                continue
            found.add(name)
        return tuple(sorted(found))
