"""A journal that can be brought back to an earlier state, as if a process had died then."""

from __future__ import annotations

from collections.abc import Sequence

from delf.events import Event
from delf_engine.journal.in_process import InProcessJournal


class CutJournal(InProcessJournal):
    """An in-process journal that a test cuts short."""

    async def ended_after(self, events: Sequence[Event]) -> None:
        """Hold these events and nothing else."""
        super().__init__()
        for event in events:
            await self.append(event)

    async def ended_with(self, task_id: str, kind: type[Event], *, first: bool = False) -> None:
        """Hold the events of a task up to the last one of a kind, or the first one."""
        events = await self.read(task_id)
        places = [n for n, event in enumerate(events) if isinstance(event, kind)]
        await self.ended_after(events[: (places[0] if first else places[-1]) + 1])
