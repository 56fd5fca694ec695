"""Budgets of people, keys and teams: what each may spend in a calendar month."""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from delf.errors import ConfigurationError
from delf.protocols.search import TaskFilter
from delf.protocols.shared_journal import SharedJournal
from delf_engine.models.money import Ledger, SharedLedger
from delf_serve.keys import Key, Keys
from delf_serve.problems import ProblemError
from delf_serve.schemas import OwnBudget
from delf_serve.settings import ServeSettings

if TYPE_CHECKING:
    from delf import Agent

EVERYBODY: Final = "*"
"""The name of the budget that each person or key has who is not named."""
_INDEX_SECONDS: Final = 0.25


class Budgets:
    """The budgets of a server, each with a ledger for the current month.

    The journal says what all servers have spent; the ledgers add what is spent here meanwhile, so
    that tasks that run at the same time cannot spend the same money twice.

    Args:
        agent: Its own budget covers all tasks.
        settings: The limits.
        keys: The people.
        journal: Returns the journal, which has the cost of all tasks.
    """

    def __init__(
        self,
        agent: Agent,
        settings: ServeSettings,
        keys: Keys,
        journal: Callable[[], SharedJournal],
    ) -> None:
        self._agent = agent
        self._limits = settings.budgets
        self._keys = keys
        self._journal = journal
        self._ledgers: dict[str, Ledger] = {}
        self._month = ""

    async def ledger(self, key: Key, *, checked: bool = True) -> SharedLedger | None:
        """Return the ledger for a task of somebody; None where no budget of theirs is set.

        Args:
            key: Who asks for the task.
            checked: Refuse a budget that is used up. A task that goes on by itself is not refused:
                it ends at its next model call.

        Raises:
            ProblemError: When a budget is used up.
        """
        parts = await self._parts(key)
        if not parts:
            return None
        for name, ledger in parts.items():
            if checked and ledger.is_exhausted:
                raise ProblemError(
                    402,
                    f"the budget of {name} for this month is used up: "
                    f"${ledger.cost_usd:.2f} of ${ledger.budget_usd:.2f}",
                    "budgets of [plugins.serve] has the limits; they begin anew each month (UTC)",
                )
        return SharedLedger(list(parts.values()), self._agent.ledger)

    async def shown(self, key: Key) -> list[OwnBudget]:
        """Return the budgets that cover somebody's tasks, as the page shows them."""
        return [
            OwnBudget(
                name=name,
                limit_usd=ledger.budget_usd or 0.0,
                spent_usd=ledger.cost_usd,
                left_usd=ledger.remaining_usd or 0.0,
            )
            for name, ledger in (await self._parts(key)).items()
        ]

    async def _parts(self, key: Key) -> dict[str, Ledger]:
        """The ledgers of somebody's budgets by their names, up to date."""
        owners: dict[str, Collection[str]] = {}
        holder = key.holder
        if key.name in self._limits or EVERYBODY in self._limits:
            owners[key.name] = () if holder is None else (holder,)
        for team in sorted(key.teams & self._limits.keys()):
            owners[team] = self._keys.of_team(team)
        return {name: await self._refreshed(name, found) for name, found in owners.items()}

    async def _refreshed(self, name: str, owners: Collection[str]) -> Ledger:
        now = datetime.now(UTC)
        begin = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        if self._month != (month := f"{begin:%Y-%m}"):
            self._month, self._ledgers = month, {}
        limit = self._limits.get(name, self._limits.get(EVERYBODY, 0.0))
        allow = self._agent.config.allow_unpriced
        ledger = self._ledgers.setdefault(name, Ledger(limit, allow_unpriced=allow))
        spent = await self._spent(begin.timestamp(), owners or None)
        ledger.cost_usd = max(ledger.cost_usd, spent)
        return ledger

    async def _spent(self, since: float, owners: Collection[str] | None) -> float:
        """Add up what tasks of some owners have cost; None for all tasks."""
        journal = self._journal()
        try:
            await journal.index(_INDEX_SECONDS)
        except ConfigurationError:
            # A limit that nobody can count is none: refuse rather than spend without end.
            raise ProblemError(501, "budgets need a journal with figures") from None
        found = await journal.figures("person", TaskFilter(since=since, keys=owners))
        return sum(one.cost_usd for one in found)
