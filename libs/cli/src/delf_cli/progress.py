"""Live progress on a terminal, and a task's progress as lines; both are event listeners."""

from __future__ import annotations

import hashlib
import sys
import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Final

from delf import events as ev
from delf.machine.folders import user_folder
from delf.machine.own_files import make_private_folder
from delf.terminal import visible
from delf_cli.errors import INDENT, say
from delf_cli.formats import format_count
from delf_cli.ids import short_id
from delf_cli.output import Screen
from delf_cli.script_view import summarise_script
from delf_cli.story import call_line, cut, printed_lines, purpose, story
from delf_cli.streams import wrap_text

if TYPE_CHECKING:
    from rich.console import Console, Group
    from rich.live import Live
    from rich.spinner import Spinner

_STEP_TEXTS: Final = {
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
_MAX_CALL_CHARACTERS: Final = 50
_MAX_OUTPUT_LINES: Final = 8
_MAX_LINE_CHARACTERS: Final = 1_000


class Narrator:
    """An event listener that writes warnings and, if requested, details of a task.

    Args:
        screen: The output.
        show_calls: Whether to write a line for each call.
        verbose: Whether to write each step, model call, script and tool call, and the text that
            scripts print, unless a live status already shows this text.
        show_requests: Whether to write the command that answers a request, because the task waits
            for approvals from another process.
        asks_person: Whether approvals are asked on this terminal. Approvals of interrupted calls
            are asked in any case.
        root: The project's folder. A warning that comes before a task's first step is shown only
            once for each project. Without a project or with ``verbose``, it is always shown.
    """

    def __init__(
        self,
        screen: Screen,
        *,
        verbose: bool,
        show_calls: bool = False,
        show_requests: bool = False,
        asks_person: bool = True,
        root: Path | None = None,
    ) -> None:
        self._screen = screen
        self._root = root
        self._asks_person = asks_person
        self._shows_requests = show_requests
        self._shows_calls = show_calls
        self._purpose_by_call_id: dict[int, str] = {}
        self._is_verbose = verbose
        self._script_count = 0
        self._has_begun_steps = False  # until then, warnings are about the set-up

    def __call__(self, event: ev.Event) -> None:
        """Write a line about an event if the options ask for the event.

        Warnings, notifications, decisions from other processes and requests to a person look the
        same with and without ``--verbose``. With ``--verbose``, other events are written in more
        detail, and some are written only then.
        """
        # A warning before the first step is about the set-up: see _is_repeated_warning().
        self._has_begun_steps = self._has_begun_steps or isinstance(event, ev.StepStarted)
        match event:
            case ev.Warned():
                if not self._is_repeated_warning(event):
                    self._write_warning(event)
            case ev.ApprovalRequested() if self._shows_requests and _is_for_person(
                event, self._asks_person
            ):
                requested = "answer" if event.is_question else "approval"
                about = event.message if event.is_question else event.action
                say(f"{requested} needed", f"{about}; delf approvals show {event.request_id}")
            case ev.ApprovalDecided() if _is_from_other_process(event):
                self._screen.line(f"{ev.DECISION_WORDS[event.decision]} by {event.by}", "dim")
            case ev.Noted() if event.topic == "notification" and event.text:
                note = wrap_text(f"{event.topic}: {event.text}", indent=INDENT, stream=sys.stderr)
                self._screen.line(note, "dim")
            case _ if self._is_verbose:
                self._write_verbosely(event)
            case _:
                self._write_briefly(event)

    @property
    def _is_on_terminal(self) -> bool:
        return self._screen.console is not None

    def _write_warning(self, event: ev.Warned) -> None:
        if self._is_on_terminal:
            warning = wrap_text(f"warning: {event.message}", indent=INDENT, stream=sys.stderr)
            self._screen.line(warning, "yellow")  # so that rich prints above the live status
        else:
            say("warning", event.message)

    def _write_verbosely(self, event: ev.Event) -> None:
        """Write an event as verbose output shows it, such as the whole code of a script."""
        match event:
            case ev.ScriptGenerated():
                self._script_count += 1
                self._screen.script(event.code, self._script_count)
            case ev.Printed():
                if not self._is_on_terminal:  # the live status of a terminal shows printed text
                    self._screen.line(printed_lines(event))
            case _:
                self._write_story(event)

    def _write_briefly(self, event: ev.Event) -> None:
        """Write an event without ``--verbose``.

        Scripts and new sandboxes are written only on a terminal, and calls only with the option
        ``show_calls``.
        """
        match event:
            case ev.ScriptGenerated():
                self._script_count += 1
                if self._is_on_terminal:
                    text = summarise_script(event.code, self._script_count)
                    self._screen.line(f"  {text} (delf runs code {short_id(event.task_id)})", "dim")
            case ev.SandboxOpened():
                if self._is_on_terminal:
                    self._write_story(event)
            case ev.CallStarted() if self._shows_calls:
                self._purpose_by_call_id[event.call_id] = purpose(event)
            case ev.CallFinished() if self._shows_calls:
                call_purpose = self._purpose_by_call_id.pop(event.call_id, "")
                width = self._screen.width
                line_width = None if width is None else width - len("  ")
                line = call_line(event, call_purpose, line_width)
                self._screen.line(f"  {line}", "dim")
            case _:
                pass

    def _is_repeated_warning(self, event: ev.Warned) -> bool:
        """Return True if an earlier task of this project showed the same warning about the set-up.

        A warning before the first step of a task is about the set-up. If the warning is new, record
        the warning as shown.
        """
        # Only warnings about the set-up come again in each task of a project.
        is_of_task = self._has_begun_steps
        if is_of_task or self._is_verbose or self._root is None:
            return False
        is_new = mark_as_shown(f"{self._root}\n{event.message}")
        return not is_new

    def _write_story(self, event: ev.Event) -> None:
        text = story(event)
        if text:
            self._screen.line(text, "dim")


def _is_from_other_process(event: ev.ApprovalDecided) -> bool:
    """Return True if another process sent the decision, as a note in the journal."""
    return event.note is not None


def _is_for_person(event: ev.ApprovalRequested, asks_person: bool) -> bool:
    """Return True if a request is answered by a person instead of a rule.

    Args:
        event: The request.
        asks_person: Whether the approval mode asks a person for approvals.
    """
    if event.is_question:
        return not event.by_policy
    # Only a person can find out whether an interrupted call happened, so such a request goes to a
    # person in every approval mode.
    return asks_person or event.outcome_unknown


def mark_as_shown(text: str) -> bool:
    """Record on disk that this user was shown a text.

    Returns:
        True if the text was not recorded before, or cannot be recorded.
    """
    name = hashlib.sha256(text.encode(errors="backslashreplace")).hexdigest()[:32]
    try:
        path = user_folder("state") / "shown"
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
    thread redraws the line eight times a second.

    Args:
        console: The terminal.
        asks_person: Whether approvals are asked on this terminal. Approvals of interrupted calls
            are asked in any case.
        doing: The text shown until the first step.
    """

    def __init__(self, console: Console, *, asks_person: bool, doing: str = "starting") -> None:
        self._console = console
        self._asks_person = asks_person
        self._live: Live | None = None
        self._start_time = time.monotonic()
        self._pending_requests: set[str] = set()
        self._activity = doing
        self._finished_calls = 0
        self._running_calls: dict[int, str] = {}  # what each call does, by call id
        self._spinner: Spinner | None = None
        # The last line is the one that is being printed; it is empty after a line break.
        self._printed_lines = deque[str]([""], maxlen=_MAX_OUTPUT_LINES + 1)

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
        """Update the line from an event."""
        match event:
            case ev.TaskResumed():
                self._activity = REPLAYING
            case ev.StepStarted():
                self._activity = _STEP_TEXTS.get(event.step, event.step)
                if event.step == "generate" and event.attempt > 1:
                    self._activity = f"writing script {event.attempt}"
            case ev.Printed():
                first, *further_lines = event.text.split("\n")
                # Only the beginning of a line fits the terminal.
                self._printed_lines[-1] = (self._printed_lines[-1] + first)[:_MAX_LINE_CHARACTERS]
                self._printed_lines.extend(line[:_MAX_LINE_CHARACTERS] for line in further_lines)
            case ev.CallStarted():
                self._running_calls[event.call_id] = event.description or event.action
            case ev.CallFinished():
                self._finished_calls += 1
                self._running_calls.pop(event.call_id, None)
            case ev.ApprovalRequested() if _is_for_person(event, self._asks_person):
                self._pending_requests.add(event.request_id)
                self.stop()
            case ev.ApprovalDecided() if event.request_id in self._pending_requests:
                self._pending_requests.discard(event.request_id)
                if not self._pending_requests:
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

        parts = [self._activity]
        running_calls = list(self._running_calls.values())
        if running_calls:
            rest_note = f" and {len(running_calls) - 1} more" if len(running_calls) > 1 else ""
            newest_call = visible(running_calls[-1]).replace("\n", " ")
            parts.append(cut(newest_call, _MAX_CALL_CHARACTERS) + rest_note)
        if self._finished_calls:
            parts.append(format_count(self._finished_calls, "call"))
        parts.append(f"{time.monotonic() - self._start_time:.1f} s")
        row = Table.grid(padding=(0, 1))
        text = Text(" · ".join(parts), no_wrap=True, overflow="ellipsis")
        row.add_row(self._spinner or "", text)
        lines = [line for line in list(self._printed_lines)[-_MAX_OUTPUT_LINES:] if line]
        printed = (Text(f"  {visible(line)}", no_wrap=True, overflow="ellipsis") for line in lines)
        return Group(*printed, row)
