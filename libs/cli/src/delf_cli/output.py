"""Output of a run: the answer on stdout, everything else on stderr."""

from __future__ import annotations

import dataclasses
import json
import math
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

import click

from delf.errors import DelfError
from delf.events import Event, TaskFinished, encode
from delf.terminal import visible
from delf.types import TaskState
from delf.values.encoding import UnsupportedValueError, to_jsonable
from delf_cli import colours
from delf_cli.errors import hint_of, say
from delf_cli.formats import format_count, format_usd
from delf_cli.json_encoding import encode_json
from delf_cli.script_view import script_lines, scripts_of
from delf_cli.story import cut, printed_so_far
from delf_cli.streams import real_stdout, wrap_text

if TYPE_CHECKING:
    from rich.console import Console

    from delf_cli.response_row import ResponseRow
    from delf_engine.response import Response

# Matches a text that has a heading, list, quote, code, table, bold words or link of Markdown.
_MARKDOWN: Final = re.compile(
    r"^(?:#{1,6} |\s{0,3}[-*+] \S|\s{0,3}\d+[.)] \S|> |```|\|.*\|\s*$)"
    r"|\*\*[^\s*][^*\n]*\*\*|`[^`\n]+`|\[[^\[\]\n]+\]\((?:[^()\n]|\([^()\n]*\))+\)",
    re.MULTILINE,
)
# A longer answer is written as it is, because rendering takes seconds.
_MAX_MARKDOWN_CHARACTERS: Final = 100_000
_MAX_DEPTH: Final = 100


class Screen:
    """Writes text to stderr, with control characters escaped; coloured on a terminal."""

    def __init__(self) -> None:
        self.console: Console | None = None
        if sys.stderr.isatty():
            self.console = colours.console(sys.stderr, highlight=False, soft_wrap=True)

    def _colour_console(self) -> Console | None:
        """Return the console for a terminal or for coloured output; None for plain text."""
        # With --color=always, stderr is coloured even if it is not a terminal. In that case,
        # self.console stays None, because there is no width.
        if self.console is None and colours.has_colours(sys.stderr):
            return colours.console(sys.stderr, highlight=False, soft_wrap=True)
        return self.console

    @property
    def width(self) -> int | None:
        """The terminal's width in columns; None without a terminal."""
        return None if self.console is None else self.console.width

    def line(self, text: str, style: str = "") -> None:
        """Write a text and a line break.

        Args:
            text: One or more lines.
            style: The rich style on a terminal, such as ``dim``.
        """
        console = self._colour_console()
        if console is None:
            click.echo(visible(text), err=True)
            return
        from rich.text import Text

        console.print(Text(wrap_text(visible(text), stream=sys.stderr), style))

    def script(self, code: str, number: int) -> None:
        """Write a script, with syntax colours on a terminal."""
        console = self._colour_console()
        if console is None:
            click.echo(f"# script {number}\n{visible(code.rstrip())}\n", err=True)
            return
        from rich.padding import Padding
        from rich.syntax import Syntax

        console.rule(f"[dim]script {number}", style="dim", align="left")
        syntax = Syntax(visible(code.rstrip()), "python", theme="ansi_dark", word_wrap=True)
        console.print(Padding(syntax, (0, 0, 1, 2)), soft_wrap=False)


def show_answer(text: str) -> None:
    """Write the answer to stdout, rendered as Markdown on a terminal."""
    if not text.strip():
        return
    if not real_stdout().isatty():
        click.echo(text, nl=not text.endswith("\n"))
        return
    text = visible(text)
    if len(text) <= _MAX_MARKDOWN_CHARACTERS and _MARKDOWN.search(text):
        from delf_cli.markdown import render_markdown

        console = colours.console()
        page = render_markdown(text, console.width)
        if page is not None:
            console.print(page)
            return
    click.echo(wrap_text(text.rstrip("\n")))


def show_end(response: Response, screen: Screen) -> None:
    """Write the outcome of a task: changes, files, time, cost, calls."""
    if response.changes:
        heading = "changed" if response.status else f"changed {response.end_phrase}"
        screen.line(f"{heading}:", "dim")
        width = screen.width
        for change in response.changes:
            shown_change = change if width is None else cut(change, width - len("  "))
            screen.line(f"  {shown_change}")
    for label, path in response.files.items():
        screen.line(f"file: {label} → {path}")
    trace = response.trace
    parts = [
        f"{response.duration_ms / 1000:.1f} s",
        "cost unknown" if response.cost_usd is None else format_usd(response.cost_usd),
        format_count(len(trace.model_calls), "model call"),
        format_count(len(trace.tool_calls), "tool call"),
    ]
    has_worked_with_tools = response.used_tools or trace.scripts
    if response.status and not has_worked_with_tools:
        parts[-1] = "answered without tools"  # instead of the number of calls
    elif response.status and not response.changes:
        parts.append("nothing changed")
    screen.line(f"{response.state} · {' · '.join(parts)}", "dim")


def show_stopped(events: Sequence[Event], screen: Screen) -> bool:
    """Write the outcome of a stopped task.

    Returns:
        False if nothing was written, because the events do not contain the end of the task.
    """
    from delf_engine.response import past_response

    if not events or not isinstance(events[-1], TaskFinished):
        return False
    response = past_response(events, events[-1])
    show_printed(response, screen)
    show_end(response, screen)
    return True


def show_printed(response: Response, screen: Screen) -> None:
    """Write the output of a task's scripts, for a task that ended without an answer."""
    # Without an answer, ``text`` is what the last script printed.
    printed = response.text if response.text.strip() else printed_so_far(response.events)
    if printed.strip():
        screen.line(f"printed {response.end_phrase}:", "dim")
        screen.line("\n".join(f"  {line}" for line in printed.rstrip().splitlines()))


def show_failure(response: Response, screen: Screen) -> None:
    """Write a failed task's output, failing script and error.

    The error is not written if the response has an exception, which the caller reports.
    """
    show_printed(response, screen)
    scripts = scripts_of(response.events, screen.width)
    if scripts and scripts[-1].status != "done":
        lines = script_lines(
            scripts[-1], total=len(scripts), whole_script=False, width=screen.width
        )
        screen.line("\n".join(lines))
    if response.exception is None:
        say("error", response.error or "the task failed")


def json_text(value: Any, *, indent: int | None = None) -> str:
    """Encode any value as valid JSON; values that are not in JSON become text."""
    try:
        return encode_json(value, indent=indent)
    except (TypeError, ValueError, RecursionError):
        return json.dumps(_json_data(value), allow_nan=False, indent=indent)


def _json_data(value: Any, depth: int = 0) -> Any:
    """Convert a value to JSON data; non-finite numbers and unknown types become text."""
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if depth > _MAX_DEPTH:
        return "…"
    if isinstance(value, Mapping):
        items = cast("Mapping[Any, Any]", value).items()
        return {str(key): _json_data(item, depth + 1) for key, item in items}
    if isinstance(value, (list, tuple)):
        return [_json_data(item, depth + 1) for item in cast("list[Any]", value)]
    try:
        return _json_data(to_jsonable(value), depth + 1)
    except UnsupportedValueError:
        return repr(value)


def event_line(event: Event) -> str:
    """Encode an event as one line of JSON."""
    try:
        return json_text(encode(event))
    except UnsupportedValueError:  # a plugin's event has a value that JSON does not express
        fields = {f.name: getattr(event, f.name) for f in dataclasses.fields(event)}
        head = {name: fields.pop(name) for name in ("task_id", "seq", "at")}
        return json_text({"type": type(event).__name__, "v": 1, **head, "data": fields})


def response_json(response: Response, **extra_fields: Any) -> str:
    """Encode a response as a JSON object."""
    fields = response.to_dict()
    if response.exception is not None:
        fields["hint"] = hint_of(response.exception)
    return json_text({**extra_fields, **fields})


def failure_json(
    error: DelfError, *, redact: Callable[[str], str] = str, **extra_fields: Any
) -> str:
    """Encode a response, as JSON, for a task that could not start.

    Args:
        error: The error.
        redact: Redacts secrets in the error's message and hint.
        extra_fields: Fields to put before the fields of the response.
    """
    hint = hint_of(error)
    fields: ResponseRow = {
        "text": "",
        "value": None,
        "status": False,
        "state": TaskState.FAILED,
        "error": redact(error.message),
        "code": error.code,
        "hint": redact(hint) if hint else None,
        "cost_usd": None,
        "duration_ms": 0,
        "files": {},
        "used_tools": False,
        "changes": [],
        "trace": None,
    }
    return json_text({**extra_fields, **fields})
