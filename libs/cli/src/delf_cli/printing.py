"""``task_printer``: prints tasks for programs, such as ``Agent(verbose=True)`` does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from delf_cli.story import tell_of_event
from delf_cli.summary import summary_of

if TYPE_CHECKING:
    from delf.events import Event
    from delf_engine.views.trace import Trace


class TaskPrinter:
    """Prints events and summaries of tasks.

    Implements :class:`delf_engine.views.trace.PrintsTasks`.
    """

    def tell_of_event(self, event: Event) -> None:
        """Print a line about an event to stderr."""
        tell_of_event(event)

    def summary_of(self, trace: Trace, *, calls: bool = True) -> str:
        """Format a task as a table."""
        return summary_of(trace, calls=calls)


task_printer: Final = TaskPrinter()
