"""Scripts of a task, annotated with calls, the failing line and output."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field
from typing import Final, NamedTuple

from delf import events as ev
from delf.records import dataclass
from delf.terminal import visible
from delf_cli.story import call_line, purpose

_CONTEXT_LINES: Final = 8
_MAX_WHOLE_LINES: Final = 40
_MAX_CALLS_PER_LINE: Final = 3
_MAX_PRINTED_LINES: Final = 20
_UNKNOWN_LINE: Final = 0
_CALL_INDENT: Final = " " * 7  # below the code of its line


@dataclass(kw_only=True)
class ScriptRun:
    """A script and its execution.

    Args:
        number: The number of the script within the task, from 1.
        code: The Python text.
        calls: A mapping from line number to descriptions of the calls in that line; calls whose
            line is unknown are under ``_UNKNOWN_LINE``.
        printed: The printed texts.
        status: The final status; None if the script has not ended.
        failed_at: The failing line, if known.
        error: The error message, if the script failed.
    """

    number: int
    code: str
    calls: dict[int, list[str]] = field(default_factory=dict[int, list[str]])
    printed: list[str] = field(default_factory=list[str])
    status: str | None = None
    failed_at: int | None = None
    error: str | None = None


class _CallSite(NamedTuple):
    line: int
    purpose: str


def scripts_of(events: Iterable[ev.Event], width: int | None = None) -> list[ScriptRun]:
    """Return the scripts of a task in order.

    Args:
        events: The events of the task.
        width: The terminal's width, to which call descriptions are cut; None without a terminal.
    """
    call_width = None if width is None else width - len(_CALL_INDENT)
    script_runs: list[ScriptRun] = []
    site_by_call_id: dict[int, _CallSite] = {}
    for event in events:
        if isinstance(event, ev.ScriptGenerated):
            script_runs.append(ScriptRun(number=len(script_runs) + 1, code=event.code))
        elif isinstance(event, ev.CallStarted | ev.ApprovalRequested):
            site_by_call_id[event.call_id] = _call_site(event)
        elif isinstance(event, ev.CallFinished) and script_runs:
            # A call that was refused before a person was asked has no earlier event.
            site = site_by_call_id.pop(event.call_id, None) or _call_site(event)
            call_text = call_line(event, site.purpose, call_width)
            script_runs[-1].calls.setdefault(site.line, []).append(call_text)
        elif script_runs:
            _add_output_or_end(script_runs[-1], event)
    return script_runs


def _call_site(event: ev.CallStarted | ev.ApprovalRequested | ev.CallFinished) -> _CallSite:
    has_ended = isinstance(event, ev.CallFinished)
    text = (event.description or "") if has_ended else purpose(event)
    return _CallSite(event.line or _UNKNOWN_LINE, text)


def _add_output_or_end(script: ScriptRun, event: ev.Event) -> None:
    if isinstance(event, ev.Printed):
        script.printed.append(event.text)
    elif isinstance(event, ev.ScriptFinished):
        script.status = event.status
        script.failed_at = event.line
        script.error = event.error


def script_lines(
    script: ScriptRun, *, total: int, whole_script: bool = True, width: int | None = None
) -> Iterator[str]:
    """Yield a script as numbered lines, truncated to the terminal's width.

    Args:
        script: The script.
        total: The total number of scripts of the task.
        whole_script: Whether to include all lines and the output. Otherwise a long script is cut
            to the lines around the failing line.
        width: The terminal's width; None without a terminal.
    """
    head = f"script {script.number}"
    if total > 1:
        head += f" of {total}"
    if script.status not in (None, "done"):
        head += f", {script.status}"
    yield head
    code = visible(script.code.rstrip()).split("\n")
    error_line: str | None = None
    if script.error:
        *_, last_error_line = script.error.strip().split("\n")
        error_line = visible(last_error_line)
    failed_line = script.failed_at
    if failed_line is not None:  # may be one of the empty lines that rstrip() removed
        failed_line = min(failed_line, len(code))
    first, last = 1, len(code)
    is_cut = not whole_script and len(code) > _MAX_WHOLE_LINES
    if is_cut and failed_line is not None:
        first = max(1, failed_line - _CONTEXT_LINES)
        last = min(len(code), failed_line + _CONTEXT_LINES)
    if first > 1:
        yield f"      … {first - 1} lines before"
    for number in range(first, last + 1):
        mark = ">" if number == failed_line else " "
        yield _cut(f"{mark}{number:4d}  {code[number - 1]}", width)
        yield from _call_lines(script.calls.get(number, ()))
        if number == failed_line and error_line:
            yield _cut(f"{_CALL_INDENT}{error_line}", width)
    if last < len(code):
        yield f"      … {len(code) - last} lines after"
    yield from _call_lines(script.calls.get(_UNKNOWN_LINE, ()))
    if failed_line is None and error_line:  # the error is not shown at a line above
        yield _cut(f"{_CALL_INDENT}{error_line}", width)
    if whole_script:
        yield from _printed_lines(script, width)


def _printed_lines(script: ScriptRun, width: int | None) -> Iterator[str]:
    """Yield the last lines that a script printed."""
    printed = "".join(script.printed).rstrip("\n")
    lines = visible(printed).split("\n") if printed else []
    if len(lines) > _MAX_PRINTED_LINES:
        yield f"  printed, the last {_MAX_PRINTED_LINES} of {len(lines):,} lines:"
    for line in lines[-_MAX_PRINTED_LINES:]:
        yield _cut(f"  | {line}", width)


def _call_lines(calls: Sequence[str]) -> Iterator[str]:
    for call in calls[:_MAX_CALLS_PER_LINE]:
        yield f"{_CALL_INDENT}{call}"
    if len(calls) > _MAX_CALLS_PER_LINE:
        yield f"{_CALL_INDENT}→ and {len(calls) - _MAX_CALLS_PER_LINE:,} more calls"


def _cut(line: str, width: int | None) -> str:
    if width is None or len(line) <= width:
        return line
    return f"{line[: width - 1]}…"


def summarise_script(code: str, number: int) -> str:
    """Summarise a script in one line with its number and length."""
    lines = len(code.rstrip().split("\n"))
    return f"script {number} · {lines} line{'' if lines == 1 else 's'}"
