"""Tests of the lines about a task's progress."""

from __future__ import annotations

from delf.events import CallFinished, CallStarted
from delf_cli.progress import Narrator

WIDTH = 60


class NarrowScreen:
    """A screen that keeps its lines."""

    width = WIDTH
    console = None

    def __init__(self) -> None:
        self.lines: list[str] = []

    def line(self, text: str, _style: str = "") -> None:
        self.lines.append(text)


def test_line_about_a_call_fits_the_terminal():
    screen = NarrowScreen()
    narrator = Narrator(screen, verbose=False, show_calls=True)
    place = {"task_id": "t", "at": 1.0, "call_id": 1, "action": "shop.query"}
    subject = {"digest": "0", "arguments": {}, "effect": "read", "description": "the sums " * 20}
    narrator(CallStarted(**place, seq=1, **subject))
    narrator(CallFinished(**place, seq=2, status="ok", duration_ms=12.0))
    (line,) = screen.lines
    assert len(line) <= WIDTH
