"""Scripts of a task, annotated with calls, the failing line and output."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field
from typing import Final

from delf import events as ev
from delf.records import dataclass
from delf.terminal import visible
from delf_cli.story import call_line, purpose

_AROUND: Final = 8
"""The number of lines shown before and after the failing line of a long script."""
_WHOLE: Final = 40
_CALLS_OF_A_LINE: Final = 3
_PRINTED: Final = 20
"""The maximum number of output lines shown for a script, from its end."""


@dataclass(kw_only=True)
class ScriptRun:
    """A script and its execution.

    Args:
        number: The number in the task.
        code: The text.
        calls: The calls by script line; 0 for calls whose line is unknown.
        printed: The output.
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


def scripts_of(events: Iterable[ev.Event], width: int | None = None) -> list[ScriptRun]:
    """Return the scripts of a task in order."""
    script_runs: list[ScriptRun] = []
    begun_calls: dict[int, tuple[int, str]] = {}
    for event in events:
        if isinstance(event, ev.ScriptGenerated):
            script_runs.append(ScriptRun(number=len(script_runs) + 1, code=event.code))
            continue
        if not script_runs:
            continue
        script = script_runs[-1]
        match event:
            case ev.CallStarted():
                begun_calls[event.call_id] = event.line or 0, purpose(event)
            case ev.CallFinished():
                line, call_note = begun_calls.pop(event.call_id, (0, ""))
                call_text = call_line(event, call_note, None if width is None else width - 7)
                script.calls.setdefault(line, []).append(call_text)
            case ev.Printed():
                script.printed.append(event.text)
            case ev.ScriptFinished():
                script.status, script.failed_at = event.status, event.line
                script.error = event.error
            case _:
                pass
    return script_runs


def script_lines(
    script: ScriptRun, *, of: int, whole_script: bool = True, width: int | None = None
) -> Iterator[str]:
    """Yield a script as numbered lines, truncated to the terminal's width.

    Args:
        script: The script.
        of: The number of scripts of the task.
        whole_script: Whether to include all lines and the output; otherwise only lines around the
            failing one of a long script.
        width: The terminal's width; None without a terminal.
    """
    head = f"script {script.number}" + (f" of {of}" if of > 1 else "")
    yield head if script.status in (None, "done") else f"{head}, {script.status}"
    code = visible(script.code.rstrip()).split("\n")
    error_line = visible(script.error.strip().split("\n")[-1]) if script.error else None
    line_numbers = range(1, len(code) + 1)
    at = script.failed_at
    if not whole_script and len(code) > _WHOLE and at is not None:
        line_numbers = range(max(1, at - _AROUND), min(len(code), at + _AROUND) + 1)
    if line_numbers and line_numbers[0] > 1:
        yield f"      … {line_numbers[0] - 1} lines before"
    for number in line_numbers:
        mark = ">" if number == at else " "
        yield _cut(f"{mark}{number:4d}  {code[number - 1]}", width)
        yield from _calls(script.calls.get(number, ()))
        if number == at and error_line:
            yield _cut(f"       {error_line}", width)
    if line_numbers and line_numbers[-1] < len(code):
        yield f"      … {len(code) - line_numbers[-1]} lines after"
    yield from _calls(script.calls.get(0, ()))
    if at is None and error_line:
        yield _cut(f"       {error_line}", width)
    if not whole_script:
        return
    printed = "".join(script.printed).rstrip("\n")
    lines = visible(printed).split("\n") if printed else []
    if len(lines) > _PRINTED:
        yield f"  printed, the last {_PRINTED} of {len(lines):,} lines:"
    for line in lines[-_PRINTED:]:
        yield _cut(f"  | {line}", width)


def _calls(lines: Sequence[str]) -> Iterator[str]:
    for line in lines[:_CALLS_OF_A_LINE]:
        yield f"       {line}"
    if len(lines) > _CALLS_OF_A_LINE:
        yield f"       → and {len(lines) - _CALLS_OF_A_LINE:,} more calls"


def _cut(line: str, width: int | None) -> str:
    """Truncate a line to the terminal's width, keeping its indentation."""
    return line if width is None or len(line) <= width else f"{line[: width - 1]}…"


def summarise_script(code: str, number: int) -> str:
    """Summarise a script in one line with its number and length."""
    lines = len(code.rstrip().split("\n"))
    return f"script {number} · {lines} line{'' if lines == 1 else 's'}"
