"""People who come in without a key: told by a trusted proxy, or by OpenID Connect."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Final, cast

from delf.errors import ConfigurationError
from delf.protocols.people import Person, Scope, check_name
from delf_serve.keys import Key, Keys
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
    """

    def __init__(self, keys: Keys, tasks: Tasks, settings: ServeSettings) -> None:
        self._keys = keys
        self._tasks = tasks
        self._settings = settings

    async def person(self, name: str, teams: Sequence[str] | None = None) -> Key | None:
        """The person of a name or a mail; None where they may not come in.

        Args:
            name: As it was told.
            teams: Their teams, where these are told, too; what was known of them is replaced.
        """
        told = None if teams is None else _names(teams)
        found = self._keys.person(name)
        if found is not None and (told is None or frozenset(told) == found.teams):
            return found
        journal = self._tasks.journal
        known = next(
            (p for p in await journal.people() if p.name == name or (p.mail and p.mail == name)),
            None,
        )
        if known is None:
            kept = self._guest(name, told or ())
        elif known.revoked_at is None and told is not None:
            kept = replace(known, teams=told)
        else:
            kept = None
        if kept is not None:
            await journal.keep_person(kept, known)
        await self._keys.look(journal, at_once=True)
        return self._keys.person(name)

    def _guest(self, name: str, teams: tuple[str, ...]) -> Person | None:
        rights, _, scope = self._settings.guests.partition("@")
        try:
            check_name(name)
        except ConfigurationError:
            _log.warning("a login was refused: %s is not a name of a person", ascii(name[:80]))
            return None
        if not rights:
            return None
        return Person(
            name=name,
            uid=secrets.token_hex(6),
            made_at=time.time(),
            rights=tuple(rights.split("+")),
            scope=cast("Scope", scope or "own"),
            teams=teams,
            mail=name if "@" in name else "",
        )


def _names(teams: Sequence[str]) -> tuple[str, ...]:
    """The names among those that were told that a team can have."""
    found: set[str] = set()
    for team in teams[:_MOST_TEAMS]:
        try:
            found.add(check_name(str(team).strip(), "team"))
        except ConfigurationError:
            _log.warning("the team %s was left out: it is not a name", ascii(str(team)[:80]))
    return tuple(sorted(found))
