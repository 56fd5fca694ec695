"""Changes of the people that a server knows; observers are told of each."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from delf.errors import ConfigurationError, DelfError
from delf.protocols.people import Person, PersonChange, check_apart
from delf.protocols.shared_journal import SharedJournal

_MOST_TRIES: Final = 5

Tell = Callable[[PersonChange], None]
Make = Callable[[Person], Person]


@dataclass(frozen=True, slots=True)
class Changer:
    """A way to change people, with those who are told of it.

    Args:
        by: The name of who changes them.
        via: From where.
        tell: Is told of each change.
    """

    by: str
    via: str
    tell: Tell

    async def change(
        self, keeper: SharedJournal, name: str, make: Callable[[Person | None], Person]
    ) -> Person:
        """Change a person, as often as somebody else is quicker.

        Args:
            keeper: Where they are kept.
            name: The person.
            make: Gives the person as they are from now on, from how they were known.

        Raises:
            ConfigurationError: When they could be taken for somebody else.
            DelfError: When others keep changing the same person.
        """
        for _ in range(_MOST_TRIES):
            people = await keeper.people()
            before = next((p for p in people if p.name == name), None)
            after = make(before)
            if before is None or (before.teams, before.mail) != (after.teams, after.mail):
                check_apart(after, people)
            if await self.keep(keeper, after, before):
                return after
        raise DelfError("others keep changing the same person", hint="try it again")

    async def keep(self, keeper: SharedJournal, after: Person, before: Person | None) -> bool:
        """Keep a person, and tell of it; False, and nothing changes, if somebody was quicker."""
        if not await keeper.keep_person(after, before):
            return False
        if after != before:
            now = time.time()
            self.tell(PersonChange.between(before, after, at=now, by=self.by, via=self.via))
        return True


def present(person: Person | None, name: str) -> Person:
    """A person who is known and was not revoked.

    Raises:
        ConfigurationError: When they are not.
    """
    if person is None or person.revoked_at is not None:
        raise ConfigurationError(f"nobody is known by the name {name!r}", hint="delf users list")
    return person
