"""Takes an interrupted task up again from its journal.

The loop runs once more from the start, and what the journal holds takes the place of the
world: models are not asked again, calls are answered with their recorded results in their
recorded order, prints and events that are there are not written twice. What goes beyond the
journal is done as ever.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from delf import events as ev
from delf.engine.past import Past, PastCall, PastScript
from delf.errors import ReplayMismatch
from delf.messages import ModelReply, Purpose
from delf.protocols.sandbox import LimitReached

PATIENCE_SECONDS: Final = 10.0
"""How long a script may do nothing that the journal tells before it counts as another one."""

_REPLAYED: Final[frozenset[Purpose]] = frozenset({"generate", "prefilter"})
"""Model calls of the loop itself. Those of a script are part of its recorded calls."""

_OF_SCRIPTS: Final = (ev.FileWritten, "refused")


class Replay:
    """A task's journal, used up as the task is lived once more; empty for a new task.

    Args:
        events: The task's events.
        patience: Seconds without any recorded step after which it is a mismatch.
    """

    def __init__(self, events: Sequence[ev.Event] = (), patience: float = PATIENCE_SECONDS) -> None:
        self.events = tuple(events)
        self._stopped: asyncio.Future[ReplayMismatch | LimitReached] | None = None
        self._patience = patience
        self._past = Past(self.events)
        self._script: PastScript | None = None
        self._moved = asyncio.Event()

    def __bool__(self) -> bool:
        """Whether the task is a resumed one."""
        return bool(self.events)

    def relive(self, events: Sequence[ev.Event]) -> None:
        """Let the scripts so far run once more, because their sandbox died.

        Args:
            events: The task's events so far.
        """
        before, self._past = self._past, Past(events)
        self._script = None
        self._past.replies = before.replies
        for key in {*self._past.known, *before.known}:
            if key[0] not in _OF_SCRIPTS:
                self._past.known[key] = before.known[key]

    # -- facts --------------------------------------------------------------------------

    @property
    def seed(self) -> str:
        """What the task's scripts drew chance from."""
        return next((e.seed for e in self.events if isinstance(e, ev.TaskStarted)), "")

    def selected(self) -> ev.ToolsSelected | None:
        """The tools that were chosen, if the task came so far."""
        return next((e for e in self.events if isinstance(e, ev.ToolsSelected)), None)

    def reply(self, purpose: Purpose) -> ModelReply | None:
        """The next recorded answer of a model, if there is one left."""
        if purpose not in _REPLAYED or not self._past.replies[purpose]:
            return None
        past = self._past.replies[purpose].popleft()
        return ModelReply(
            text=past.text, usage=past.usage, model=past.model, cost_usd=past.cost_usd
        )

    @property
    def last_call(self) -> int:
        """The highest number of a call."""
        return self._past.last_call

    # -- what is in the journal already ---------------------------------------------------

    def knows(self, kind: Callable[..., ev.Event], fields: Mapping[str, Any]) -> bool:
        """Whether an event is in the journal; each one counts once."""
        return self._past.knows(kind, fields)

    def unknown_part(self, text: str) -> str:
        """What of a printed text goes beyond all that the journal has of the script's prints."""
        script = self._script
        known = min(script.printed, len(text)) if script is not None else 0
        if script is not None:
            script.printed -= known
        return text[known:]

    # -- scripts --------------------------------------------------------------------------

    def begin_script(self, attempt: int) -> PastScript | None:
        """A script is about to run; what the journal tells of it."""
        self._script = self._past.scripts.get(attempt)
        return self._script

    def end_script(self, status: ev.ScriptStatus, message: str) -> None:
        """A script ended.

        Raises:
            ReplayMismatch: When the journal tells otherwise.
        """
        script, self._script = self._script, None
        if script is None or status == "crashed":
            return
        if status == "limit" and script.finished is not None and script.finished.status == "limit":
            return  # how far it comes until then depends on the machine
        if script.expected:
            raise _mismatch(f"the script ended without the recorded {_named(script.expected[0])}")
        if script.finished is not None and script.finished.status != status:
            raise _mismatch(
                f"a script that ended as {script.finished.status!r} ended as {status!r} this "
                f"time: {message}"
            )

    def plan(self, attempt: int) -> tuple[ev.ApprovalRequested | None, ev.ApprovalDecided | None]:
        """The request for a script as a whole, and the decision about it."""
        script = self._past.scripts.get(attempt)
        return (None, None) if script is None else (script.request, script.decision)

    # -- calls ----------------------------------------------------------------------------

    @property
    def active(self) -> bool:
        """Whether the script that runs is in the journal."""
        return self._script is not None

    async def call(self, digest: str, *, alone: bool = False) -> PastCall | None:
        """The recorded call behind a call of the script, when it is its turn.

        An answered call returns when all answers that were given before it have been given
        again; anything else when the whole record of the script is used up, so that nothing
        new happens before all that happened.

        Args:
            digest: What identifies the call.
            alone: The script does nothing else meanwhile: what it did not do by now, it will
                not do before its answer.

        Returns:
            The call as it is known; None when it is a new one.

        Raises:
            ReplayMismatch: When the script does something else than what is recorded.
        """
        script = self._script
        if script is None:
            return None
        past = next((call for call in script.calls if call.digest == digest), None)
        if past is None:
            await self._until(lambda: not script.ends and not script.expected, None, alone)
            if script.finished is not None:
                await self._end(script.finished)
            return None
        script.calls.remove(past)
        self._move()
        if past.was_given_up:
            if alone and script.finished is not None:
                await self._end(script.finished)
            await asyncio.get_running_loop().create_future()  # until the script gives it up again
        elif past.finished is None:
            await self._until(lambda: not script.ends, past, alone)
        else:
            await self._until(lambda: script.ends[0] == past.call_id, past, alone)
            script.ends.popleft()
            self._move()
        return past

    @property
    def loses_sandbox(self) -> bool:
        """Whether the sandbox went with the script that runs."""
        finished = None if self._script is None else self._script.finished
        return finished is not None and finished.lost

    async def _end(self, finished: ev.ScriptFinished) -> None:
        """A script goes on where the journal has its end: if a limit was that, it is again."""
        if finished.status != "limit":
            raise _mismatch(f"a script that was {finished.status!r} makes a further call")
        message = finished.error or "a limit"
        limit = finished.limit or "recorded"
        self._stop(LimitReached(limit=limit, message=message, line=finished.line))
        await asyncio.get_running_loop().create_future()  # until its sandbox is gone

    def _move(self) -> None:
        self._moved.set()
        self._moved = asyncio.Event()

    async def _until(self, ready: Callable[[], bool], past: PastCall | None, alone: bool) -> None:
        while not ready():
            if alone:
                raise self._stuck(past)
            moved = self._moved
            try:
                async with asyncio.timeout(self._patience):
                    await moved.wait()
            except TimeoutError:
                raise self._stuck(past) from None

    def _stuck(self, past: PastCall | None) -> ReplayMismatch:
        calls = [] if self._script is None else self._script.expected
        expected = ", ".join(_named(call) for call in calls[:3]) or "an earlier answer"
        made = "a call that is not recorded" if past is None else _named(past)
        return _mismatch(f"the script makes {made} where the journal has {expected}")

    def fail(self, error: ReplayMismatch) -> None:
        """End the task: its script is not the recorded one."""
        self._stop(error)

    def _stop(self, why: ReplayMismatch | LimitReached) -> None:
        if self._stopped is not None and not self._stopped.done():
            self._stopped.set_result(why)

    def watch(self) -> asyncio.Future[ReplayMismatch | LimitReached]:
        """Done when the script that runs turned out to be another one, or goes too far."""
        self._stopped = asyncio.get_running_loop().create_future()
        return self._stopped


def _named(call: PastCall) -> str:
    return f"{call.action} (call {call.call_id})"


def _mismatch(what: str) -> ReplayMismatch:
    return ReplayMismatch(
        what,
        hint="resume with the same tools, files and versions; calls that depend on anything but "
        "tools, clock and chance of the script cannot be replayed",
    )
