"""``TaskSandbox``: the sandbox session of one task, reopened if it dies."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final

from delf.errors import SandboxUnavailableError
from delf.events import SandboxOpened
from delf.protocols.sandbox import Limits, SandboxSession
from delf_engine.closing import STOP_SECONDS, close_all
from delf_engine.kept_variables import restore_variables
from delf_engine.resource_budget import ResourceBudget
from delf_engine.task_run import TaskRun
from delf_engine.toolset import Toolset

_SPARE_CALLS: Final = 1_000
_log = logging.getLogger(__name__)
PAUSES: Final = (0.5, 1.0, 2.0, 4.0, 8.0, 15.0)
"""The pauses, in seconds, before each further attempt to open a session."""


class TaskSandbox:
    """Opens and closes the sandbox sessions of one task, one at a time.

    Args:
        run: The task.
        run_in_background: Runs clean-up work after the task.
    """

    def __init__(self, run: TaskRun, run_in_background: Callable[[Awaitable[None]], None]) -> None:
        self._run = run
        self._log = run.log
        self._restarts = run.restarts
        self._sandbox = run.resources.sandbox
        self._spec = run.session_spec
        self._run_in_background = run_in_background
        self._opening: asyncio.Task[SandboxSession] | None = None
        # The latest session that a script has used, and whose start is in the journal.
        self._recorded_session: SandboxSession | None = None
        # True if this session has run a script that nobody approved as a whole.
        self._has_run_unapproved_script = False
        self.budget = ResourceBudget(self._spec.limits)

    @property
    def limits(self) -> Limits:
        """The limits of the current or next session."""
        return self._spec.limits

    def use(self, tools: Toolset) -> None:
        """Replace the callable tools, from the next session on."""
        self._spec = replace(self._spec, tools=tools.names_for_sandbox())

    def open(self) -> asyncio.Task[SandboxSession]:
        """Start opening a session in the background, unless a session is open or opening."""
        if self._opening is None:
            # At the limit, delf lets the calls in flight end, and then ends the script. The sandbox
            # has a higher limit, for a script that makes calls nevertheless.
            limits = self._spec.limits
            sandbox_limits = replace(limits, calls=2 * limits.calls + _SPARE_CALLS)
            opening = self._sandbox.backend.open(replace(self._spec, limits=sandbox_limits))
            self._opening = asyncio.create_task(opening)
        return self._opening

    @property
    def alive(self) -> bool:
        """True if a session is open and has not died, so that its variables still exist."""
        opening = self._opening
        if opening is None or not opening.done() or opening.cancelled():
            return False
        return opening.exception() is None and opening.result().alive

    @property
    def has_died(self) -> bool:
        """True if the session of the earlier scripts has died, so that their variables are lost."""
        return self._recorded_session is not None and not self.alive

    @property
    def name(self) -> str:
        """The name of the sandbox."""
        return self._sandbox.spec.name

    @property
    def is_opening(self) -> bool:
        """True while a session opens."""
        return self._opening is not None and not self._opening.done()

    @property
    def holds_unapproved(self) -> bool:
        """True if the open session has run a script that nobody approved as a whole.

        An unapproved script may have replaced ``print``, patched a module, started a thread, or
        left an object whose ``__format__`` makes calls. A later script may then do something else
        than the text that a person approves.
        """
        return self._has_run_unapproved_script and self.alive

    def note_unapproved(self) -> None:
        """Record that the open session runs a script that nobody approved as a whole."""
        self._has_run_unapproved_script = True

    async def close(self) -> None:
        """Kill the sandbox with all its processes, and wait until the processes are gone."""
        opening, self._opening = self._opening, None
        if opening is not None:
            await self._close(opening)

    def retire(self) -> None:
        """Kill the sandbox without waiting."""
        opening, self._opening = self._opening, None
        if opening is not None:
            self._run_in_background(self._close(opening))

    async def end(self, seconds: float) -> None:
        """Kill the sandbox, and wait for its end for a limited time.

        Args:
            seconds: The longest wait; a container server may hang.
        """
        opening, self._opening = self._opening, None
        if opening is not None:
            closing = asyncio.ensure_future(self._close(opening))
            self._run_in_background(closing)
            await asyncio.wait({closing}, timeout=seconds)

    async def _close(self, opening: asyncio.Task[SandboxSession]) -> None:
        """Close a session, or cancel its opening; a failure is only logged."""
        if not opening.done():
            opening.cancel()
        await asyncio.wait({opening}, timeout=STOP_SECONDS)
        if not opening.done() or opening.cancelled() or opening.exception() is not None:
            return
        try:
            await close_all({f"a session of the sandbox {self.name!r}": opening.result()})
        except Exception as error:  # a failed close does not change the task's outcome
            message = f"the sandbox of task {self._log.task_id} could not be closed"
            self._log.redactor.log_failure(_log, message, error)

    async def session(self) -> SandboxSession:
        """Return the open session; open another one if the session died."""
        has_died_or_failed = self._opening is not None and self._opening.done() and not self.alive
        if has_died_or_failed:
            await self.close()  # so that open() opens another session
        try:
            session = await self.open()  # waits if the session is already opening
        except SandboxUnavailableError:  # the process that sessions are forked from may have died
            session = await self._open_again()
        is_first_use = session is not self._recorded_session
        if is_first_use:
            await self._begin(session)
        return session

    async def _begin(self, session: SandboxSession) -> None:
        """Record a new session, and restore the task's variables in it."""
        self._recorded_session = session
        self._has_run_unapproved_script = False
        self.budget.begin_session()
        name = self._sandbox.spec.name
        isolation = self._sandbox.isolation
        await self._log.record(SandboxOpened, backend=name, isolation=isolation)
        run = self._run
        variables = {**run.conversation_variables.values, **run.request.variables}
        if variables:
            problem = await restore_variables(session, variables)
            if problem is not None:
                await run.warn(problem)

    async def _open_again(self) -> SandboxSession:
        """Open a new session.

        If a sandbox of the task has died, retry a few times, because its server may be restarting.
        """
        pauses = PAUSES if self._restarts.has_lost_sandbox else ()
        for pause in pauses:
            await self.close()
            try:
                return await self.open()
            except SandboxUnavailableError:
                await asyncio.sleep(pause)
        await self.close()
        return await self.open()

    async def end_session(self) -> None:
        """End the session, and count its use of resources against the task's budget."""
        session = self._recorded_session
        # A session that is open and not recorded has run no script, so nothing is charged for it.
        await self.close()
        if session is not None:  # charged after the close, when its CPU seconds are known
            self.budget.charge_session(session)
            self._spec = replace(self._spec, limits=self.budget.remaining)
            self._recorded_session = None
