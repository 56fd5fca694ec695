"""``task_printer``: lines about tasks for programs, as ``Agent(verbose=True)`` writes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from delf_cli.story import tell_of_event
from delf_cli.summary import summary_of

if TYPE_CHECKING:
    from delf.events import Event
    from delf_engine.views.trace import Trace


class TaskPrinter:
    """Writes about tasks. Implements :class:`delf_engine.views.trace.PrintsTasks`."""

    def tell_of_event(self, event: Event) -> None:
        """Write a line about an event to stderr."""
        tell_of_event(event)

    def summary_of(self, trace: Trace, *, calls: bool = True) -> str:
        """Return a table of a task."""
        return summary_of(trace, calls=calls)


task_printer: Final = TaskPrinter()
