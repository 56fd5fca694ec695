"""``task_printer``: prints tasks for programs, such as ``Agent(verbose=True)`` does."""

from __future__ import annotations

from typing import Final

from delf_cli.story import tell_of_event
from delf_cli.summary import summary_of


class TaskPrinter:
    """The functions that print events and summaries of tasks.

    Implements :class:`delf_engine.views.trace.PrintsTasks`.
    """

    tell_of_event = staticmethod(tell_of_event)
    summary_of = staticmethod(summary_of)


task_printer: Final = TaskPrinter()
