"""The flows of one task: sources of its calls' values, and reasons for a review."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from delf_engine.approvals.flows import origins_in, reason_of
from delf_engine.journal.log import TaskLog
from delf_engine.origins.fold import Origins
from delf_engine.toolset import BoundAction


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

    def sources(
        self, bound: BoundAction, arguments: Mapping[str, Any]
    ) -> Mapping[str, dict[str, Any]]:
        """Find the sources of a call's values, as plain data by the path of each."""
        return origins_in(self._now(), bound, self._log.redactor.value(arguments))

    def reason(
        self,
        bound: BoundAction,
        arguments: Mapping[str, Any],
        learned: Sequence[str] = (),
        line: int | None = None,
    ) -> str | None:
        """Return why a person should review a call, by current knowledge.

        Args:
            bound: The action.
            arguments: The validated arguments.
            learned: Rules from a person's approvals, in addition to the settings.
            line: The line of the script with the call, if known.
        """
        safe = self._log.redactor.value(arguments)
        return reason_of(self._now(), bound, safe, (*self._allowed, *learned), line)

    async def reason_left(
        self,
        bound: BoundAction,
        arguments: Mapping[str, Any],
        learned: Callable[[], Awaitable[Sequence[str]]] | None = None,
        line: int | None = None,
    ) -> str | None:
        """Find the reason that is left after all that may let a call pass, from the cheapest on.

        Args:
            bound: The action.
            arguments: The validated arguments.
            learned: Returns the rules learned from people's approvals, if they apply.
            line: The line of the script with the call, if known.
        """
        reason = self.reason(bound, arguments, (), line)
        rules: Sequence[str] = ()
        if reason is not None and learned is not None and (rules := await learned()):
            reason = self.reason(bound, arguments, rules, line)
        while reason is not None and await self._has_more_outline(self._origins.outlines):
            reason = self.reason(bound, arguments, rules, line)
        return reason

    def _now(self) -> Origins:
        """Return the origins with all that happened so far."""
        self._origins.follow(self._log.events)
        return self._origins

    async def _has_more_outline(self, known: int) -> bool:
        """Ask for the next part of the task's outline; return whether it added calls.

        The first part is about the user's words, later parts about texts that the user asked the
        model to follow. Each part is asked for once.

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
