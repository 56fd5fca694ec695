"""Changes of the people that a server knows, with notification of observers."""

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
    """A way to change people and notify observers.

    Args:
        by: The name of who changes them.
        via: From where.
        tell: Is notified of each change.
    """

    by: str
    via: str
    tell: Tell

    async def change(
        self, keeper: SharedJournal, name: str, make: Callable[[Person | None], Person]
    ) -> Person:
        """Change a person, retrying on concurrent changes.

        Args:
            keeper: Where they are kept.
            name: The person.
            make: Gives the person as they are from now on, from how they were known.

        Raises:
            ConfigurationError: If the person could be mistaken for another.
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
        """Store a person and notify; return False, unchanged, after a concurrent change."""
        if not await keeper.keep_person(after, before):
            return False
        if after != before:
            now = time.time()
            self.tell(PersonChange.between(before, after, at=now, by=self.by, via=self.via))
        return True


def present(person: Person | None, name: str) -> Person:
    """Return a known person who is not revoked.

    Raises:
        ConfigurationError: When they are not.
    """
    if person is None or person.revoked_at is not None:
        raise ConfigurationError(f"nobody is known by the name {name!r}", hint="delf users list")
    return person
