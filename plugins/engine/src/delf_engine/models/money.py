"""Cost of models: prices, reservations, totals and the budget."""

from __future__ import annotations

import asyncio
import contextlib
import math
import threading
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from delf.errors import BudgetExceededError
from delf.events import ChildFinished, Event, ModelReplied
from delf.llm import LLMConfig
from delf.messages import (
    ModelRequest,
    Price,
    Purpose,
    Usage,
)
from delf_engine.models.estimates import Estimate, estimate_by_price

_UNPRICED_HINT: Final = (
    "give its price in pricing.json, or let such models run: the setting "
    "allow_unpriced = true (--set agent.allow_unpriced=true)"
)

# The maximum number of tasks whose costs a ledger keeps, newest first.
_MAX_TASKS: Final = 1000


class Ledger:
    """The model costs of an agent over all its tasks; thread-safe.

    Under a budget, each model call first reserves its maximum cost. A call is refused if its
    expected cost exceeds what is left of the budget. A call waits if other calls have reserved so
    much that its own reservation does not fit.

    Args:
        budget_usd: The most to spend; None for no limit.
        allow_unpriced: Let models without a known price run under a budget.
        outer_ledger: An outer ledger, which also counts all costs, and whose budget also applies.
    """

    def __init__(
        self,
        budget_usd: float | None = None,
        *,
        allow_unpriced: bool = False,
        outer_ledger: Ledger | None = None,
    ) -> None:
        self.budget_usd = budget_usd
        self.outer_ledger = outer_ledger
        # The setting of the agent also holds for the budgets of its child tasks.
        outer_allows_unpriced = outer_ledger is not None and outer_ledger.allow_unpriced
        self.allow_unpriced = allow_unpriced or outer_allows_unpriced
        self.usage = Usage()
        self.cost_usd = 0.0
        self.reserved_usd = 0.0  # the part of the budget for calls in progress
        self.unpriced_calls = 0
        self.highest_costs: dict[tuple[str, Purpose], float] = (
            {} if outer_ledger is None else outer_ledger.highest_costs
        )
        """The cost of the most expensive reply so far, by model and purpose.

        Used to estimate the cost of the next call. Child tasks share the costs of their parent.
        """
        # The running tasks whose calls count against this budget.
        self._tasks: set[str] = set()
        # Child tasks that ended in an earlier process, and whose cost is already counted.
        self._counted_children: set[str] = set()
        # The outermost parent task of each child task, to which the cost is attributed.
        self._paying_task_by_child: dict[str, str] = {}
        # The cost of each outermost task, with the cost of its child tasks.
        self._by_task: dict[str, float] = {}
        self._lock = threading.Lock()
        # The calls that wait until another call no longer reserves a part of the budget.
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    @property
    def remaining_usd(self) -> float | None:
        """The remaining budget in USD; None without a budget."""
        if self.budget_usd is None:
            return None
        return max(0.0, self.budget_usd - self.cost_usd)

    @property
    def available_usd(self) -> float | None:
        """The smallest remaining budget of this ledger and outer ledgers; None without a budget.

        A call counts against all of these budgets.
        """
        outer_usd = None if self.outer_ledger is None else self.outer_ledger.available_usd
        return _smallest([self.remaining_usd, outer_usd])

    @property
    def is_exhausted(self) -> bool:
        """True if the budget is exhausted."""
        return self.remaining_usd == 0.0

    @property
    def is_limited(self) -> bool:
        """True if this ledger or an outer one has a budget."""
        if self.budget_usd is not None:
            return True
        return self.outer_ledger is not None and self.outer_ledger.is_limited

    @property
    def by_task(self) -> dict[str, float]:
        """The costs of recent tasks by task id, including their child tasks; the newest is last."""
        with self._lock:
            return dict(self._by_task)

    def report(self) -> dict[str, Any]:
        """Return cost and tokens as JSON-ready data."""
        return {
            "budget": {
                "limit_usd": self.budget_usd,
                "cost_usd": self.cost_usd,
                "reserved_usd": self.reserved_usd,
                "remaining_usd": self.remaining_usd,
                "is_exhausted": self.is_exhausted,
                "by_task": self.by_task,
            },
            "usage": {
                "input_tokens": self.usage.input_tokens,
                "cached_tokens": self.usage.cached_tokens,
                "output_tokens": self.usage.output_tokens,
                "total_tokens": self.usage.total_tokens,
            },
            "total_cost_usd": self.cost_usd,
            "unpriced_calls": self.unpriced_calls,
        }

    def check(self, expected_usd: float = 0.0) -> None:
        """Check that another model call is within the budget.

        Args:
            expected_usd: The expected cost of the call.

        Raises:
            BudgetExceededError: If the budget is exhausted or would be exceeded, or if a model
                without a known price was used, so that the remaining budget is unknown.
        """
        if self.outer_ledger is not None:
            self.outer_ledger.check(expected_usd)
        limit = self.budget_usd
        used_usd = self.cost_usd
        if limit is None:
            return
        if used_usd >= limit:
            raise BudgetExceededError(
                f"the budget of ${limit:g} is used up (${used_usd:.6f} spent)",
                limit_usd=limit,
                cost_usd=used_usd,
            )
        if used_usd + expected_usd > limit:
            raise BudgetExceededError(
                f"the next model call would cost about ${expected_usd:.6f}, and of the budget of "
                f"${limit:g} only ${limit - used_usd:.6f} are left (${used_usd:.6f} spent)",
                limit_usd=limit,
                cost_usd=used_usd,
                expected_usd=expected_usd,
            )
        if self.unpriced_calls and not self.allow_unpriced:
            raise self._unpriced_error("a model without a known price was used")

    def refuse_unpriced(self, model: str) -> None:
        """Refuse a model without a known price if there is a budget.

        Raises:
            BudgetExceededError: If there is a budget and ``allow_unpriced`` is False.
        """
        if self.outer_ledger is not None:
            self.outer_ledger.refuse_unpriced(model)
        if self.budget_usd is not None and not self.allow_unpriced:
            raise self._unpriced_error(f"the price of the model {model!r} is not known")

    def _unpriced_error(self, reason: str) -> BudgetExceededError:
        return BudgetExceededError(
            f"{reason}, so the budget of ${self.budget_usd:g} cannot be kept",
            limit_usd=self.budget_usd,
            cost_usd=self.cost_usd,
            hint=_UNPRICED_HINT,
        )

    def estimate(self, config: LLMConfig, request: ModelRequest, price: Price | None) -> Estimate:
        """Estimate the cost of a model call, from similar calls and from the model's price.

        If both are known, the higher cost counts.

        Args:
            config: The model.
            request: The request.
            price: The model's price, if known.
        """
        by_calls = self._estimate_by_similar_calls(config, request)
        if price is None:
            return by_calls
        by_price = estimate_by_price(config, request, price)
        return Estimate(
            expected=max(by_calls.expected, by_price.expected),
            maximum=max(by_calls.maximum, by_price.maximum),
        )

    def _estimate_by_similar_calls(self, config: LLMConfig, request: ModelRequest) -> Estimate:
        highest_cost = self.highest_costs.get((config.model, request.purpose))
        if highest_cost is None:
            # A first call reserves the whole budget, so that no other call runs before a reply has
            # shown the real cost.
            return Estimate(expected=0.0, maximum=math.inf)
        return Estimate(expected=highest_cost, maximum=highest_cost)

    def learn_cost(self, config: LLMConfig, request: ModelRequest, cost_usd: float | None) -> None:
        """Record the cost of a reply, for later estimates."""
        key = (config.model, request.purpose)
        # The highest cost, not the mean: a budget is a limit, so the estimate errs upwards.
        self.highest_costs[key] = max(self.highest_costs.get(key, 0.0), cost_usd or 0.0)

    @asynccontextmanager
    async def reserved(self, estimate: Callable[[], Estimate]) -> AsyncGenerator[None]:
        """Reserve the cost of a call while the block runs.

        Args:
            estimate: Computes the estimated cost; called again after each wait, because other calls
                may have been more expensive than estimated.

        Raises:
            BudgetExceededError: If the expected cost exceeds the remaining budget.
        """
        if self.budget_usd is None and self.outer_ledger is None:
            yield
            return
        async with contextlib.AsyncExitStack() as stack:
            if self.budget_usd is not None:
                amount = await self._reserve(estimate)
                stack.callback(self._give_back, amount)
            if self.outer_ledger is not None:
                # All tasks reserve in the inner ledger first. In different orders, two tasks could
                # each hold one budget and wait forever for the other.
                await stack.enter_async_context(self.outer_ledger.reserved(estimate))
            yield

    def _give_back(self, amount: float) -> None:
        with self._lock:
            self.reserved_usd = max(0.0, self.reserved_usd - amount)
            self._wake()

    async def _reserve(self, estimate: Callable[[], Estimate]) -> float:
        """Wait until the budget has room for a call, and reserve the call's estimated cost.

        Returns:
            The reserved amount in USD.
        """
        changed = asyncio.Event()
        # _wake() sets the event when budget becomes free. It may run on another loop, and an event
        # may only be set on its own loop.
        waiter = asyncio.get_running_loop(), changed
        while True:
            changed.clear()
            with self._lock:
                # Estimate again after each wait, because other replies may have cost more
                # meanwhile.
                amount = self._amount_to_reserve(estimate())
                if amount <= self._unspent_usd - self.reserved_usd:
                    self.reserved_usd += amount
                    return amount
                self._waiting.append(waiter)
            try:
                await changed.wait()
            finally:
                with self._lock:
                    self._waiting.remove(waiter)

    def _wake(self) -> None:
        """Wake the calls that wait for budget, on their event loops; requires the lock."""
        for loop, changed in self._waiting:
            # Agents on several loops may share a ledger, and an event belongs to its loop.
            if not loop.is_closed():
                loop.call_soon_threadsafe(changed.set)

    @property
    def _unspent_usd(self) -> float:
        """The money that is left of the budget."""
        if self.budget_usd is None:
            return math.inf
        return self.budget_usd - self.cost_usd

    def _amount_to_reserve(self, estimate: Estimate) -> float:
        """Return the amount to reserve for a call: its maximum cost, or the rest of the budget.

        The rest of the budget is reserved if it is less than the maximum cost.

        Raises:
            BudgetExceededError: If the expected cost exceeds the remaining budget.
        """
        self.check(estimate.expected)
        # The expected cost is the larger one if an earlier reply cost more than the price of the
        # longest possible answer.
        highest_cost = max(estimate.expected, estimate.maximum)
        # A call that could cost more than what is left reserves all of this, and so runs alone.
        return min(highest_cost, self._unspent_usd)

    def add(self, usage: Usage, cost_usd: float | None, task_id: str = "") -> None:
        """Add the tokens and the cost of a model call.

        Args:
            usage: The tokens.
            cost_usd: The cost; None if no price is known.
            task_id: The task that asked; empty for a call outside of tasks.
        """
        self._count(usage, cost_usd, task_id)
        if self.outer_ledger is not None:
            self.outer_ledger.add(usage, cost_usd, task_id)

    def _count(self, usage: Usage, cost_usd: float | None, task_id: str) -> None:
        """Add the tokens and cost of a model call to the totals, and the cost to its task.

        The cost of a child task's call is added to the outermost parent task.
        """
        with self._lock:
            paying_task = self._paying_task_by_child.get(task_id, task_id)
            if paying_task:  # empty for a call outside of tasks
                cost_so_far = self._by_task.get(paying_task, 0.0)
                self._by_task[paying_task] = cost_so_far + (cost_usd or 0.0)
                # Limited, because a server may run for months.
                while len(self._by_task) > _MAX_TASKS:
                    oldest_task = next(iter(self._by_task))
                    del self._by_task[oldest_task]
            self.usage = self.usage + usage
            if cost_usd is None:
                self.unpriced_calls += 1
            else:
                self.cost_usd += cost_usd

    def begin(
        self, task_id: str, events: Sequence[Event] = (), *, parent: str | None = None
    ) -> None:
        """Register a task, and add the costs that a resumed task has from an earlier process.

        Costs of the same task are added only once.

        Args:
            task_id: The task.
            events: The recorded events of a resumed task.
            parent: The parent task, whose cost includes this task's cost.
        """
        with self._lock:
            if parent is not None:
                top_task = self._paying_task_by_child.get(parent, parent)
                self._paying_task_by_child[task_id] = top_task
            is_running = task_id in self._tasks
            is_in_costs_of_parent = task_id in self._counted_children
            self._tasks.add(task_id)
        if not is_running and not is_in_costs_of_parent:
            self._count_recorded_costs(task_id, events)
        if self.outer_ledger is not None:
            self.outer_ledger.begin(task_id, events, parent=parent)

    def _count_recorded_costs(self, task_id: str, events: Iterable[Event]) -> None:
        """Count the costs of a resumed task and its finished child tasks.

        A resumed task may repeat the call that started a child, and so call :meth:`begin` for the
        child. ``_counted_children`` keeps the child's cost from being counted twice.
        """
        for event in events:
            if isinstance(event, ModelReplied):
                self._count(event.usage, event.cost_usd, task_id)
            elif isinstance(event, ChildFinished) and event.cost_usd is not None:
                self._count(Usage(), event.cost_usd, task_id)
                self._counted_children.add(event.child_id)

    def end(self, task_id: str) -> None:
        """Forget a task that is over."""
        with self._lock:
            self._tasks.discard(task_id)
            self._paying_task_by_child.pop(task_id, None)
        if self.outer_ledger is not None:
            self.outer_ledger.end(task_id)

    def set_budget(self, budget_usd: float) -> None:
        """Replace the budget; costs so far still count."""
        with self._lock:
            self.budget_usd = budget_usd
            self._wake()

    def reset(self, limit_usd: float | None = None) -> None:
        """Reset the cost to zero, with a new limit if one is given."""
        with self._lock:
            self.cost_usd = 0.0
            self.unpriced_calls = 0
            self._by_task.clear()
            if limit_usd is not None:
                self.budget_usd = limit_usd
            self._wake()


class SharedLedger(Ledger):
    """The ledger of a task with several budgets: of a person, the person's teams, and the agent.

    :meth:`begin` does not add the earlier costs of a resumed task to the ledgers of the person and
    the teams, which have read these costs from the journal.

    Args:
        parts: The ledgers of the person and the teams, which outlive the task.
        outer_ledger: The agent's ledger.
    """

    def __init__(self, parts: Sequence[Ledger], outer_ledger: Ledger) -> None:
        super().__init__(outer_ledger=outer_ledger)
        # The base class passes each cost on to the outer ledger. This class passes each cost on to
        # each part, too.
        self._parts = parts

    @property
    def is_limited(self) -> bool:
        """True if any of the ledgers has a budget."""
        return super().is_limited or any(part.is_limited for part in self._parts)

    @property
    def remaining_usd(self) -> float | None:
        """The smallest remaining budget of the person and the teams; None without a budget."""
        return _smallest([part.remaining_usd for part in self._parts])

    def check(self, expected_usd: float = 0.0) -> None:
        """Raise an error if another model call would exceed any of the budgets.

        Args:
            expected_usd: The expected cost of the call in US dollars.
        """
        super().check(expected_usd)
        for part in self._parts:
            part.check(expected_usd)

    def refuse_unpriced(self, model: str) -> None:
        """Refuse a model without a known price if any of the ledgers has a budget."""
        super().refuse_unpriced(model)
        for part in self._parts:
            part.refuse_unpriced(model)

    @asynccontextmanager
    async def reserved(self, estimate: Callable[[], Estimate]) -> AsyncGenerator[None]:
        """Reserve the cost of a call in all ledgers; the order is fixed, to avoid deadlocks."""
        async with contextlib.AsyncExitStack() as stack:
            for part in self._parts:
                await stack.enter_async_context(part.reserved(estimate))
            await stack.enter_async_context(super().reserved(estimate))
            yield

    def add(self, usage: Usage, cost_usd: float | None, task_id: str = "") -> None:
        """Add a model call to all ledgers."""
        super().add(usage, cost_usd, task_id)
        for part in self._parts:
            part.add(usage, cost_usd, task_id)


def _smallest(amounts: Iterable[float | None]) -> float | None:
    """Return the smallest known amount; None if no amount is known."""
    return min((amount for amount in amounts if amount is not None), default=None)
