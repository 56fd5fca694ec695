"""Live progress on a terminal, and a task's progress as lines; both are event listeners."""

from __future__ import annotations

import hashlib
import sys
import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Final

from delf import events as ev
from delf.machine.own_files import make_private_folder
from delf.terminal import visible
from delf_cli.errors import say
from delf_cli.output import Screen, format_count
from delf_cli.script_view import summarise_script
from delf_cli.story import call_line, cut, printed_lines, purpose, story
from delf_cli.streams import wrap_text

if TYPE_CHECKING:
    from rich.console import Console, Group
    from rich.live import Live
    from rich.spinner import Spinner

_DOING: Final = {
    "recall": "remembering",
    "setup": "getting tools ready",
    "select": "choosing tools",
    "context": "looking at the connections",
    "generate": "writing a script",
    "preview": "checking the script",
    "execute": "running the script",
    "rerun": "reading what it found",
    "retry": "reading what went wrong",
    "compose": "finishing",
}
REPLAYING: Final = "replaying what was done"
_WIDEST: Final = 50
_LAST_LINES: Final = 8
"""The maximum number of lines of output shown while a script runs."""


class Narrator:
    """Writes warnings, and details if requested, as they happen.

    Args:
        screen: The output.
        calls: Write a line for each call.
        verbose: Write each step, model call, script and tool call, and printed text unless a live
            status shows it.
        waits: Write how to answer requests that are not asked on this terminal.
        asks: Whether approvals are asked on this terminal; those about interrupted calls always
            are.
        root: The project's folder, for which set-up warnings are shown once.
    """

    def __init__(
        self,
        screen: Screen,
        *,
        verbose: bool,
        calls: bool = False,
        waits: bool = False,
        asks: bool = True,
        root: Path | None = None,
    ) -> None:
        self._screen = screen
        self._root = root
        self._asks = asks
        self._waits = waits
        self._calls = calls
        self._what: dict[int, str] = {}
        self._verbose = verbose
        self._scripts = 0
        self._begun = False

    def __call__(self, event: ev.Event) -> None:
        """Write a line about an event, if the options ask for it."""
        self._begun = self._begun or isinstance(event, ev.StepStarted)
        match event:
            case ev.Warned() if self._was_shown(event):
                pass
            case ev.Warned() if self._screen.console is not None:
                warning = wrap_text(f"warning: {event.message}", stream=sys.stderr)
                self._screen.line(warning, "yellow")  # above the moving line
            case ev.Warned():
                say("warning", event.message)
            case ev.ScriptGenerated():
                self._scripts += 1
                if self._verbose:
                    self._screen.script(event.code, self._scripts)
                elif self._screen.console is not None:
                    text = summarise_script(event.code, self._scripts)
                    self._screen.line(f"  {text} (delf runs code {event.task_id[5:12]})", "dim")
            case ev.ApprovalRequested() if self._waits and _asks(event, self._asks):
                name = event.request_id
                requested = "answer" if event.is_question else "approval"
                about = event.message if event.is_question else event.action
                say(f"{requested} needed", f"{about}; delf approvals show {name}")
            case ev.ApprovalDecided() if event.note is not None:
                self._screen.line(f"{event.decision} by {event.by}", "dim")
            case ev.Noted() if event.topic == "notification" and event.text:
                self._screen.line(f"{event.topic}: {event.text}", "dim")
            case ev.SandboxOpened() if self._screen.console is not None:
                self._tell(event)
            case ev.Printed() if self._verbose and self._screen.console is None:
                self._screen.line(printed_lines(event))
            case _ if self._verbose:
                self._tell(event)
            case ev.CallStarted() if self._calls:
                self._what[event.call_id] = purpose(event)
            case ev.CallFinished() if self._calls:
                line = call_line(event, self._what.pop(event.call_id, ""), self._screen.width)
                self._screen.line(f"  {line}", "dim")
            case _:
                pass

    def _was_shown(self, event: ev.Warned) -> bool:
        """Return whether a set-up warning was already shown for this project."""
        of_set_up = not self._begun and self._root is not None and not self._verbose
        return of_set_up and not is_news(f"{self._root}\n{event.message}")

    def _tell(self, event: ev.Event) -> None:
        text = story(event)
        if text:
            self._screen.line(text, "dim")


def _asks(event: ev.ApprovalRequested, asks: bool) -> bool:
    """Return True if a person is asked about a request.

    Args:
        event: The request.
        asks: Whether people are asked for approvals.
    """
    if event.is_question:
        return not event.by_policy
    return asks or event.outcome_unknown


def is_news(text: str) -> bool:
    """Return True if this user has not seen a text yet, and remember the text."""
    from platformdirs import user_state_path

    name = hashlib.sha256(text.encode(errors="backslashreplace")).hexdigest()[:32]
    try:
        path = user_state_path("delf") / "shown"
        make_private_folder(path)
        (path / name).touch(mode=0o600, exist_ok=False)
    except FileExistsError:
        return False
    except OSError:  # cannot be remembered: show it again
        return True
    return True


class LiveStatus:
    """A live status line: current step, calls, seconds.

    The line is hidden while a person is asked, from ``ApprovalRequested`` to ``ApprovalDecided``. A
    thread redraws it a few times a second, whatever the number of events.

    Args:
        console: The terminal.
        asks: Whether approvals are asked on this terminal; those about interrupted calls always
            are.
        doing: The text of the first step.
    """

    def __init__(self, console: Console, *, asks: bool, doing: str = "starting") -> None:
        self._console = console
        self._asks = asks
        self._live: Live | None = None
        self._started = time.monotonic()
        self._waiting: set[str] = set()
        self._doing = doing
        self._calls = 0
        self._running: dict[int, str] = {}
        self._spinner: Spinner | None = None
        self._printed = deque[str]([""], maxlen=_LAST_LINES + 1)

    def start(self) -> None:
        """Show the line."""
        if self._live is not None:
            return
        from rich.live import Live
        from rich.spinner import Spinner

        self._spinner = self._spinner or Spinner("dots", style="cyan")
        self._live = Live(
            get_renderable=self._render,
            console=self._console,
            refresh_per_second=8,
            transient=True,
            redirect_stdout=False,
        )
        self._live.start()

    def stop(self) -> None:
        """Hide the line until :meth:`start` is called again."""
        live, self._live = self._live, None
        if live is not None:
            live.stop()

    def __call__(self, event: ev.Event) -> None:
        """Process an event."""
        match event:
            case ev.TaskResumed():
                self._doing = REPLAYING
            case ev.StepStarted():
                self._doing = _DOING.get(event.step, event.step)
                if event.step == "generate" and event.attempt > 1:
                    self._doing = f"writing script {event.attempt}"
            case ev.Printed():
                first, *further_lines = event.text.split("\n")
                self._printed[-1] += first
                self._printed.extend(further_lines)
            case ev.CallStarted():
                self._running[event.call_id] = event.description or event.action
            case ev.CallFinished():
                self._calls += 1
                self._running.pop(event.call_id, None)
            case ev.ApprovalRequested() if _asks(event, self._asks):
                self._waiting.add(event.request_id)
                self.stop()
            case ev.ApprovalDecided() if event.request_id in self._waiting:
                self._waiting.discard(event.request_id)
                if not self._waiting:
                    self.start()
            case ev.TaskFinished():
                self.stop()
            case _:
                pass

    def _render(self) -> Group:
        """Draw the last printed lines and the status line."""
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        parts = [self._doing]
        running_calls = list(self._running.values())
        if running_calls:
            rest_note = f" and {len(running_calls) - 1} more" if len(running_calls) > 1 else ""
            parts.append(cut(visible(running_calls[-1]).replace("\n", " "), _WIDEST) + rest_note)
        if self._calls:
            parts.append(format_count(self._calls, "call"))
        parts.append(f"{time.monotonic() - self._started:.1f} s")
        row = Table.grid(padding=(0, 1))
        text = Text(" · ".join(parts), no_wrap=True, overflow="ellipsis")
        row.add_row(self._spinner or "", text)
        lines = [line for line in list(self._printed)[-_LAST_LINES:] if line]
        printed = (Text(f"  {visible(line)}", no_wrap=True, overflow="ellipsis") for line in lines)
        return Group(*printed, row)
