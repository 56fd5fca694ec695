"""``CallChecks``: the checks of a call before anybody is asked about it."""

from __future__ import annotations

import asyncio
import copy
import functools
import inspect
from collections.abc import Callable
from typing import Any

from delf.protocols.connection import Allowed, NeedsApproval, ProposedCall, Refused, Verdict
from delf.protocols.strategy import CallGuard
from delf_engine.calls.call import Call
from delf_engine.calls.contexts import CallContexts
from delf_engine.calls.making import describe_failure
from delf_engine.calls.records import CallRecords
from delf_engine.calls.threads import ToolThreads
from delf_engine.waiting import is_cancelled


class CallChecks:
    """Checks calls: first the strategy's guard, then the check of the call's connection.

    Args:
        contexts: Creates the contexts of calls.
        threads: The thread pool for checks that are not async.
        records: Records the ends of calls that are cancelled while they are checked.
    """

    def __init__(self, contexts: CallContexts, threads: ToolThreads, records: CallRecords) -> None:
        self._contexts = contexts
        self._threads = threads
        self._records = records
        self.guard: CallGuard | None = None
        """The strategy's additional rules for the calls of the running script."""
        self.running: list[str] = []
        """The names of the connections' checks in flight, for messages."""

    async def verdict(self, call: Call) -> Verdict:
        """Return the stricter verdict of the strategy's guard and the connection's check."""
        guard_verdict = Allowed() if self.guard is None else self.guard.check(call.script_call)
        if isinstance(guard_verdict, Refused):
            return guard_verdict
        verdict = await self._connection_verdict(call)
        if isinstance(guard_verdict, NeedsApproval) and not isinstance(verdict, Refused):
            reasons = [guard_verdict.reason]
            if isinstance(verdict, NeedsApproval):
                reasons.append(verdict.reason)
            # Keep the verdict of the check, because it has the preview for the person.
            return verdict.with_reason_to_ask("; ".join(reasons))
        return verdict

    async def _connection_verdict(self, call: Call) -> Verdict:
        """Return the verdict of the connection's check; Refused if the check raises an error."""
        check = call.bound.check
        if check is None:
            return Allowed()
        # The journal does not record checks. This list lets an error message name a check that
        # hangs.
        self.running.append(f"the check of {call.bound.name}")
        try:
            verdict = await self._run_check(check, call)
        except asyncio.CancelledError:
            if is_cancelled():
                await self._records.record_not_started(call)
                raise
            return Refused(message="it could not be checked: its check cancelled itself")
        except (Exception, SystemExit) as error:
            # A check is a plugin's code: a sys.exit() in it must refuse the call and not end the
            # host.
            return Refused(message=f"it could not be checked: {describe_failure(error)}")
        finally:
            self.running.remove(f"the check of {call.bound.name}")
        if isinstance(verdict, (Allowed, NeedsApproval, Refused)):
            return verdict
        return Refused(message=f"it could not be checked: check returned {type(verdict).__name__}")

    async def _run_check(self, check: Callable[[ProposedCall], Any], call: Call) -> Any:
        """Return what a connection's check returns for a call; run a plain function in a thread."""
        proposed_call = ProposedCall(
            action=call.bound.action.name,
            # The check gets a copy. If it changed the call's own arguments, the call would differ
            # from what a person is asked about.
            arguments=copy.deepcopy(call.arguments),
            description=call.description,
            context=self._contexts.of(call),
        )
        if inspect.iscoroutinefunction(check):
            return await check(proposed_call)
        check_call = functools.partial(check, proposed_call)
        verdict = await self._threads.run(check_call, lambda: call.abandoned)
        return await verdict if inspect.isawaitable(verdict) else verdict
