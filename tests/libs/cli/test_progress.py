"""Tests of the lines about a task's progress."""

from __future__ import annotations

import io
import os
import pty
import re
import time
from dataclasses import replace

from rich.console import Console

from delf.events import ApprovalRequested, CallFinished, CallStarted, Noted, Printed
from delf_cli import errors
from delf_cli.output import Screen
from delf_cli.progress import LiveStatus, Narrator

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


def test_lines_are_written_above_the_live_status(monkeypatch):
    """A line erases the status first, whether the narrator, a log record or a signal writes it."""
    master, slave = pty.openpty()
    with os.fdopen(slave, "w") as stderr, os.fdopen(master, "rb", buffering=0) as shown:
        monkeypatch.setattr("sys.stderr", stderr)
        screen = Screen()
        status = LiveStatus(screen.console, asks_person=True)
        status.start()
        narrate = Narrator(screen, verbose=False, show_requests=True)
        place = {"task_id": "t", "at": 1.0, "seq": 1, "request_id": "req_1", "call_id": 1}
        call = {"action": "pay", "arguments": {}, "digest": "0", "effect": "write"}
        request = ApprovalRequested(**place, **call)
        for line, write in (
            ("approval needed: ", lambda: narrate(request)),
            ("warning: ", lambda: errors.say("warning", "the disk is nearly full")),
        ):
            before = _read_until(shown, "starting ")
            write()
            before += _read_until(shown, line)
            assert not before.removesuffix(line).endswith(" s"), "written at the end of the status"
        status.stop()


def test_status_keeps_only_the_beginning_of_a_long_printed_line():
    console = Console(file=io.StringIO(), force_terminal=True, width=WIDTH)
    status = LiveStatus(console, asks_person=True)
    printed = Printed(task_id="t", seq=1, at=1.0, text="x" * 10_000)
    began = time.monotonic()
    for _ in range(2_000):
        status(printed)
    status.start()
    status(replace(printed, text="end\nnext"))
    status.stop()
    assert time.monotonic() - began < 3
    assert "xxx…" in console.file.getvalue()


def _read_until(terminal, wanted):
    """Return what a terminal shows, without colours, up to a text."""
    shown = ""
    while wanted not in shown:
        shown = re.sub(r"\x1b\[[0-9;]*m", "", shown + terminal.read(1).decode("latin-1"))
    return shown


def test_notification_of_a_server_cannot_look_like_a_warning():
    screen = NarrowScreen()
    note = Noted(task_id="t", seq=1, at=1.0, topic="notification", text="hi\nwarning: no")
    Narrator(screen, verbose=False)(note)
    assert screen.lines == ["notification: hi\n  warning: no"]


def test_piped_lines_have_no_control_characters(capsys):
    Screen().line("printed \x9b2J\u202e")
    Screen().script("# \u202e", 1)
    shown = capsys.readouterr().err
    assert shown == "printed \\x9b2J\\u202e\n# script 1\n# \\u202e\n\n"
