"""Monthly budgets of people, API keys and teams."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final, Literal

from delf.errors import ConfigurationError, DelfError, JournalUnavailableError
from delf.protocols.search import TaskFilter
from delf.protocols.shared_journal import SharedJournal
from delf_engine.models.estimates import Estimate
from delf_engine.models.money import Ledger, SharedLedger
from delf_serve.keys import Caller, Keys
from delf_serve.problems import ProblemError
from delf_serve.schemas import OwnBudget

EVERYBODY: Final = "*"
"""The name of the default budget, for users without a budget of their own."""
_INDEX_SECONDS: Final = 0.25
REFRESH_SECONDS: Final = 2.0
"""The seconds after which a running task looks again at the costs of other processes."""

# The name of a team, or a user (``caller.user``). Bare names are ambiguous: a team and a key of
# the settings may have the same name, and so may a removed person and a new one.
_LedgerKey = tuple[Literal["team", "user"], str | None]
_Users = Callable[[], Collection[str] | None]


class _BudgetLedger(Ledger):
    """The ledger of a budget, with the costs of all processes that share the journal.

    Args:
        budget_usd: The limit in US dollars.
        read_cost: Reads the costs so far of the budget's tasks from the journal.
    """

    def __init__(self, budget_usd: float, read_cost: Callable[[], Awaitable[float]]) -> None:
        super().__init__(budget_usd)
        self._read_cost = read_cost
        self._refreshed_at = float("-inf")

    async def refresh(self) -> None:
        """Add the costs that other processes have recorded.

        Raises:
            ProblemError: If the journal computes no costs, so that no limit can be enforced.
            DelfError: If the journal does not respond.
        """
        # Set before the query, so that concurrent calls of reserved() do not query, too.
        self._refreshed_at = time.monotonic()
        recorded_cost = await self._read_cost()
        # The ledger may already know of costs that the journal does not have yet.
        self.cost_usd = max(self.cost_usd, recorded_cost)

    @asynccontextmanager
    async def reserved(self, estimate: Callable[[], Estimate]) -> AsyncGenerator[None]:
        """Reserve the cost of a call.

        The costs of other processes are read first, unless they were read a moment ago.
        """
        # Not before each call: the query takes a while in a journal of many tasks.
        if time.monotonic() - self._refreshed_at >= REFRESH_SECONDS:
            with contextlib.suppress(DelfError):  # during an outage, the known costs count
                await self.refresh()
        async with super().reserved(estimate):
            yield


class Budgets:
    """The monthly budgets of a server's users and teams.

    The journal has the costs of all servers and runners. Each budget's ledger adds reservations of
    this process's running calls, so that concurrent tasks do not spend the same money.

    Args:
        limits: The limits in US dollars, by name of a user or team.
        keys: The people with their teams, and the API keys of the server.
        journal: Returns the journal.
    """

    def __init__(
        self,
        limits: Mapping[str, float],
        keys: Keys,
        journal: Callable[[], SharedJournal],
    ) -> None:
        self._limits = limits
        self._keys = keys
        self._journal = journal
        self._ledgers: dict[_LedgerKey, _BudgetLedger] = {}
        self._month = ""  # the month of these ledgers, for the limits are monthly

    async def ledger(
        self, caller: Caller, agent_ledger: Ledger, *, checked: bool = True
    ) -> SharedLedger | None:
        """Return a ledger that charges a person's task to all budgets that cover the task.

        Args:
            caller: The user of the task.
            agent_ledger: The ledger of the agent, whose own budget covers all tasks.
            checked: Whether to raise if a budget is exhausted. If false, a task with an exhausted
                budget starts, but ends at its next model call.

        Returns:
            The ledger; None if no budget covers the task.

        Raises:
            ProblemError: If a budget is exhausted.
        """
        ledgers = await self._ledgers_of(caller)
        if not ledgers:
            return None
        if checked:
            _raise_if_exhausted(ledgers)
        for _, ledger in ledgers:  # the agent decides whether to allow models without a known price
            ledger.allow_unpriced = agent_ledger.allow_unpriced
        return SharedLedger([ledger for _, ledger in ledgers], agent_ledger)

    async def raise_if_exhausted(self, caller: Caller) -> None:
        """Raise an error if a budget that covers the caller's tasks is exhausted.

        Args:
            caller: The authenticated caller.

        Raises:
            ProblemError: If a budget is exhausted.
        """
        _raise_if_exhausted(await self._ledgers_of(caller))

    async def shown(self, caller: Caller) -> list[OwnBudget]:
        """Return the budgets that cover a person's tasks, in the API's model."""
        return [
            OwnBudget(
                name=name,
                limit_usd=ledger.budget_usd or 0.0,
                cost_usd=ledger.cost_usd,
                left_usd=ledger.remaining_usd or 0.0,
            )
            for name, ledger in await self._ledgers_of(caller)
        ]

    async def _ledgers_of(self, caller: Caller) -> list[tuple[str, Ledger]]:
        """Return (name, current ledger) of each budget that covers a caller's tasks."""
        own_ledger = await self._own_ledger(caller)
        ledgers = [] if own_ledger is None else [(caller.name, own_ledger)]
        for team in sorted(caller.teams & self._limits.keys()):
            # A function, called at each refresh, because the team may change during the month.
            members = partial(self._keys.users_of_team, team)
            ledger = await self._up_to_date_ledger(("team", team), team, members)
            ledgers.append((team, ledger))
        return ledgers

    async def _own_ledger(self, caller: Caller) -> Ledger | None:
        """Return the current ledger of a caller's own budget; None without such a budget.

        The limit is found by the plain name, such as ``ann``, as people write names in the
        settings. The costs are found by ``caller.user``, which the journal stores with each task:
        ``caller.user`` stays unique even if another ``ann`` is added later.
        """
        if caller.name not in self._limits and EVERYBODY not in self._limits:
            return None
        if caller.user is not None:
            users = (caller.user,)
        elif self._keys:  # the caller is a webhook, which only budgets of teams cover
            return None
        else:
            users = None  # the tasks of all users: a server without keys has only its local user
        ledger_key: _LedgerKey = ("user", caller.user)
        return await self._up_to_date_ledger(ledger_key, caller.name, lambda: users)

    async def _up_to_date_ledger(
        self,
        ledger_key: _LedgerKey,
        name: str,
        users: _Users,
    ) -> Ledger:
        """Return the ledger of a budget for this month, with the costs that the journal has.

        Args:
            ledger_key: The key of the ledger.
            name: The name of the budget: that of a person or a team.
            users: A function that returns the users whose tasks count. It returns None if all tasks
                count.
        """
        now = datetime.now(UTC)
        month_start = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        day_in_next_month = month_start + timedelta(days=31)
        month_end = day_in_next_month.replace(day=1)
        month = f"{month_start:%Y-%m}"
        if self._month != month:
            self._month = month
            self._ledgers = {}
        limit = self._limits[name if name in self._limits else EVERYBODY]
        read_cost = partial(self._cost_of, month_start.timestamp(), month_end.timestamp(), users)
        ledger = self._ledgers.setdefault(ledger_key, _BudgetLedger(limit, read_cost))
        await ledger.refresh()
        return ledger

    async def _cost_of(self, since: float, until: float, users: _Users) -> float:
        """Return the costs in US dollars of the tasks of some users.

        Args:
            since: The earliest start of a task, as Unix time.
            until: The Unix time before which a task must have started.
            users: A function that returns the users, or None for all tasks.

        Raises:
            ProblemError: If the journal computes no costs, so that no limit can be enforced.
        """
        journal = self._journal()
        try:
            # The statistics are computed from the search index, which is brought up to date first.
            await journal.index(_INDEX_SECONDS)
        except JournalUnavailableError:  # a subclass of ConfigurationError
            raise
        except ConfigurationError:
            raise ProblemError(501, "budgets need a journal with figures") from None
        tasks = TaskFilter(since=since, until=until, users=users())
        figures_of_people = await journal.figures("person", tasks)
        return sum(figures.cost_usd for figures in figures_of_people)


def _raise_if_exhausted(ledgers: Sequence[tuple[str, Ledger]]) -> None:
    """Raise an error if a budget is exhausted.

    Args:
        ledgers: (name, ledger) of each budget. The error names the first one that is exhausted.

    Raises:
        ProblemError: If a budget is exhausted.
    """
    for name, ledger in ledgers:
        if ledger.is_exhausted:
            raise ProblemError(
                402,
                f"the budget of {name} for this month is used up: "
                f"${ledger.cost_usd:.2f} of ${ledger.budget_usd:.2f}",
                "budgets of [plugins.serve] has the limits; they begin anew each month (UTC)",
            )
