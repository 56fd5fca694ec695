"""Deputies: the person who decides in somebody's place while they are away, as the person says."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from delf.protocols.people import Person, stands_in_for
from delf_serve import people
from delf_serve import schemas as s
from delf_serve.keys import Key, Keys
from delf_serve.people import Changer
from delf_serve.problems import ProblemError
from delf_serve.tasks import Tasks

_LONGEST: Final = 366 * 86_400.0
"""The seconds for which somebody may be away at the most."""


class Deputies:
    """The people of the journal, as those who stand in for one another.

    Args:
        tasks: The journal.
        keys: Learn of a change at once.
    """

    def __init__(self, tasks: Tasks, keys: Keys) -> None:
        self._tasks = tasks
        self._keys = keys

    async def of(self, key: Key) -> s.Away:
        """Tell who stands in for a person, and for whom they do."""
        known = await self._tasks.journal.people()
        own = next((person for person in known if _is_of(person, key)), None)
        if own is None:
            return s.Away()
        now = time.time()
        is_away = (own.away_until or 0) > now
        return s.Away(
            delegate=own.delegate if is_away else None,
            until=own.away_until if is_away else None,
            stands_in_for=[
                s.StandIn(name=other.name, until=other.away_until or 0)
                for other in stands_in_for(known, own, now)
            ],
            candidates=[other.name for other in _candidates(known, own, key)],
        )

    async def set(self, given: s.AwayRequest, key: Key, changer: Changer) -> s.Away:
        """Let somebody else decide in a person's place.

        Raises:
            ProblemError: When they cannot, or the time does not fit.
        """
        known = await self._tasks.journal.people()
        own = next((person for person in known if _is_of(person, key)), None)
        if own is None:
            raise _no_person()
        if not 0 < given.until - time.time() <= _LONGEST:
            days = int(_LONGEST / 86_400)
            raise ProblemError(422, f"until: a time within the next {days} days", param="until")
        able = _candidates(known, own, key)
        delegate = next((other for other in able if other.name == given.delegate), None)
        if delegate is None:
            raise ProblemError(
                422,
                f"delegate: {given.delegate!r} cannot decide in your place",
                "GET /away lists who can",
                param="delegate",
            )
        await self._change(key, changer, lambda own: people.away(own, delegate, given.until))
        return await self.of(key)

    async def end(self, key: Key, changer: Changer) -> None:
        """Let a person decide for themselves again."""
        await self._change(key, changer, people.back)

    async def _change(self, key: Key, changer: Changer, make: people.Make) -> None:
        def change(known: Person | None) -> Person:
            if known is None or not _is_of(known, key):
                raise _no_person()
            return make(known)

        await changer.change(self._tasks.journal, key.name, change)
        await self._keys.look(self._tasks.journal, at_once=True)


def _is_of(person: Person, key: Key) -> bool:
    return bool(key.uid) and person.uid == key.uid and person.revoked_at is None


def _no_person() -> ProblemError:
    return ProblemError(409, "this key belongs to no person who could be away")


def _candidates(known: Sequence[Person], own: Person, key: Key) -> list[Person]:
    """The people who may decide in a person's place.

    They have the right to decide. Who does not see all tasks knows only people of their own teams.
    """
    return [
        other
        for other in known
        if other.name != own.name
        and other.revoked_at is None
        and "decide" in other.rights
        and (key.scope == "all" or set(own.teams) & set(other.teams))
    ]
