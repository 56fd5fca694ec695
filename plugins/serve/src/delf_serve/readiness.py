"""The readiness check: whether a task could start, tested at most every few seconds."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from delf.errors import DelfError
from delf.protocols.shared_journal import SharedJournal
from delf_serve.problems import ProblemError

if TYPE_CHECKING:
    from delf import Agent

_log = logging.getLogger(__name__)

_READY_SECONDS: Final = 15.0
_UNREADY_SECONDS: Final = 3.0
_MAX_SECONDS: Final = 20.0


class Readiness:
    """Checks whether a task could start.

    The journal and the connections have to answer, the models have to be configured, and a sandbox
    has to open.

    Args:
        agent: The agent.
        journal: Returns the journal.
    """

    def __init__(self, agent: Agent, journal: Callable[[], SharedJournal]) -> None:
        self._agent = agent
        self._journal = journal
        self._lock = asyncio.Lock()
        # The result of the last check: the reason why no task could start, or None.
        self._problem: str | None = None
        self._valid_until = 0.0  # when check() must look again, on the clock of time.monotonic()

    async def check(self) -> None:
        """Check readiness, reusing a recent result.

        Raises:
            ProblemError: If a task could not start. The reason is only logged, because the check is
                public.
        """
        async with self._lock:
            if time.monotonic() >= self._valid_until:
                earlier_problem = self._problem
                self._problem = await self._find_problem()
                seconds = _READY_SECONDS if self._problem is None else _UNREADY_SECONDS
                self._valid_until = time.monotonic() + seconds
                if self._problem is not None and self._problem != earlier_problem:
                    _log.warning("no task can begin: %s", self._problem)
        if self._problem is not None:
            raise ProblemError(
                503,
                "no task can begin",
                "the server's log says why",
                headers={"retry-after": str(int(_UNREADY_SECONDS))},
            )

    async def _find_problem(self) -> str | None:
        try:
            async with asyncio.timeout(_MAX_SECONDS):
                # Any query fails if the journal's database does not respond.
                await self._journal().find(limit=1)
                await self._agent.acheck()
        except TimeoutError:
            return f"the check took longer than {_MAX_SECONDS:g} s"
        except DelfError as error:
            return error.message
        return None
