"""The flows of one task: the sources of its calls' values, and who has to look at them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from delf.engine.approvals.flows import Flow, flow_of, reason_of
from delf.engine.approvals.remembered import RememberedDecisions
from delf.engine.journal.log import TaskLog
from delf.engine.origins import Origins
from delf.engine.toolset import BoundAction


class TaskFlows:
    """Finds the flows of a task's calls.

    Args:
        origins: Finds where values of calls came from.
        outline: Asks a model which calls the task itself asks for, or a text that the task orders
            to follow.
        log: The task's events.
        allowed: The rules of the settings: flows that are no reason to ask.
    """

    def __init__(
        self,
        origins: Origins,
        outline: Callable[[str], Awaitable[None]],
        log: TaskLog,
        allowed: Sequence[str],
    ) -> None:
        self._origins = origins
        self._outline = outline
        self._log = log
        self._allowed = tuple(allowed)
        self._outlines_asked = 0
        self._outlining = asyncio.Lock()

    def find(
        self, bound: BoundAction, arguments: Mapping[str, Any], learned: Sequence[str] = ()
    ) -> Flow:
        """Find the sources of a call's values.

        Args:
            bound: What is called.
            arguments: Its validated arguments.
            learned: Rules that a person's yes made, beside those of the settings.
        """
        self._origins.follow(self._log.events)
        safe = self._log.redactor.value(arguments)
        return flow_of(self._origins, bound, safe, (*self._allowed, *learned))

    async def find_guarded(
        self,
        bound: BoundAction,
        arguments: Mapping[str, Any],
        remembered: RememberedDecisions,
        worker: str | None,
    ) -> Flow:
        """Find a call's flow by all that may let it pass, from the cheapest on.

        Args:
            bound: What is called.
            arguments: Its validated arguments.
            remembered: Earlier decisions, which may allow flows.
            worker: The name of the worker whose task it is.
        """
        flow = self.find(bound, arguments)
        if flow.reason is None:
            return flow
        learned = await remembered.flow_rules(bound.name, bound.digest, worker)
        flow = self.find(bound, arguments, learned) if learned else flow
        while flow.reason is not None and await self._has_more_outline(self._origins.outlines):
            flow = self.find(bound, arguments, learned)
        return flow

    async def must_look(self, bound: BoundAction, arguments: Mapping[str, Any]) -> bool:
        """Tell whether a person has to look at a call for its flow, that needs no approval else."""
        if bound.action.effect == "read" and not bound.action.egress:
            return False
        self._origins.follow(self._log.events)
        safe = self._log.redactor.value(arguments)
        reason = reason_of(self._origins, bound, safe, self._allowed)
        while reason is not None and await self._has_more_outline(self._origins.outlines):
            reason = reason_of(self._origins, bound, safe, self._allowed)
        return reason is not None

    async def _has_more_outline(self, known: int) -> bool:
        """Tell whether the task's outline says more than its first answers, and ask for the next.

        The first one is about the user's words, the others about the texts that these order to
        follow. Each is asked for once.

        Args:
            known: The answers that were looked at.
        """
        origins = self._origins
        if not origins.own_words:
            return False
        async with self._outlining:
            if origins.outlines == known:
                asked, texts = max(self._outlines_asked, known), ["", *origins.followed()]
                if asked < len(texts):
                    self._outlines_asked = asked + 1
                    await self._outline(texts[asked])
                    origins.follow(self._log.events)
            return origins.outlines > known
