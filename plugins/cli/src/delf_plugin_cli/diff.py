"""``delf runs diff``: two tasks beside each other."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

import click

from delf.events import Event, TaskFinished
from delf.protocols.journal import SharedJournal, TaskRecord
from delf.terminal import visible
from delf_cli import complete
from delf_cli.ids import short_id
from delf_cli.journals import history_journal, work_with
from delf_cli.output import json_text
from delf_cli.tables import one_line, table
from delf_plugin_cli.runs_view import span

if TYPE_CHECKING:
    from delf.engine.views.trace import Trace

_RESULT: Final = 200
_COLOURS: Final = {"+": "green", "-": "red", "@": "cyan"}

Told = tuple[TaskRecord, "Sequence[Event]"]


@click.command("diff")
@click.argument("first", metavar="A", shell_complete=complete.task_ids)
@click.argument("second", metavar="B", shell_complete=complete.task_ids)
@click.option("--json", "as_json", is_flag=True, help="Write it as JSON.")
@click.pass_context
def diff(ctx: click.Context, first: str, second: str, as_json: bool) -> None:
    """Compare two tasks: figures, scripts, calls with their results, answers.

    \b
    delf runs diff 3f9a 7c21
    """  # noqa: D301 - click's mark for lines that stay as they are

    async def load(journal: SharedJournal) -> tuple[Told, Told]:
        names = [await journal.resolve(text) for text in (first, second)]
        one, other = [(await journal.task(name), await journal.read(name)) for name in names]
        return one, other

    one, other = work_with(history_journal(ctx), load)
    data = compared(one, other)
    if as_json:
        click.echo(json_text(data, indent=2))
        return
    for line in _lines(data):
        click.echo(line)


def compared(one: Told, other: Told) -> dict[str, Any]:
    """Return the differences of two tasks as JSON-ready data.

    Args:
        one: The first task's record and events.
        other: The second's.
    """
    from delf.engine.views.trace import Trace

    traces = Trace(one[1]), Trace(other[1])
    names = f"{short_id(one[0].task_id)}", f"{short_id(other[0].task_id)}"

    def lines(made: tuple[list[str], list[str]]) -> list[str]:
        return list(difflib.unified_diff(*made, *names, lineterm="", n=2))

    return {
        "a": _figures(one[0], traces[0]),
        "b": _figures(other[0], traces[1]),
        "scripts": lines((_scripts(traces[0]), _scripts(traces[1]))),
        "calls": lines((_calls(traces[0]), _calls(traces[1]))),
        "answer": lines((_answer(one[1]), _answer(other[1]))),
    }


def _figures(task: TaskRecord, trace: Trace) -> dict[str, Any]:
    return {
        "task_id": task.task_id,
        "task": task.task,
        "state": task.state,
        "models": list(dict.fromkeys(call.model for call in trace.model_calls)),
        "model_calls": len(trace.model_calls),
        "calls": len(trace.tool_calls),
        "tokens": trace.usage.total_tokens,
        "cost_usd": trace.total_cost_usd,
        "duration_ms": task.duration_ms,
        "error": task.error,
    }


def _scripts(trace: Trace) -> list[str]:
    found: list[str] = []
    for number, code in enumerate(trace.scripts, 1):
        found += [f"# script {number}", *code.rstrip().splitlines()]
    return found


def _calls(trace: Trace) -> list[str]:
    found: list[str] = []
    for call in trace.tool_calls:
        given = ", ".join(f"{name}={json_text(item)}" for name, item in call.arguments.items())
        brought = call.error if call.error is not None else json_text(call.result)
        found.append(f"{call.name}({given}) → {call.status}: {brought[:_RESULT]}")
    return found


def _answer(events: Sequence[Event]) -> list[str]:
    last = events[-1] if events else None
    return last.text.splitlines() if isinstance(last, TaskFinished) else []


def _lines(data: dict[str, Any]) -> Iterator[str]:
    a, b = data["a"], data["b"]
    rows = [
        (words, _shown(name, a[name]), _shown(name, b[name]))
        for words, name in (
            ("task", "task"),
            ("state", "state"),
            ("models", "models"),
            ("model calls", "model_calls"),
            ("calls", "calls"),
            ("tokens", "tokens"),
            ("cost", "cost_usd"),
            ("time", "duration_ms"),
            ("error", "error"),
        )
        if a[name] is not None or b[name] is not None
    ]
    yield from table(rows, ("", short_id(a["task_id"]), short_id(b["task_id"])))
    for name in ("scripts", "calls", "answer"):
        yield ""
        if not data[name]:
            yield f"{name}: the same"
            continue
        yield click.style(f"{name}:", bold=True)
        for line in data[name]:
            yield click.style(visible(line), fg=_COLOURS.get(line[:1]))


def _shown(name: str, value: Any) -> str:
    if value is None:
        return "unknown" if name == "cost_usd" else "-"
    if name == "cost_usd":
        return f"${value:.6f}"
    if name == "duration_ms":
        return span(value)
    if isinstance(value, list):
        return ", ".join(str(item) for item in cast("list[Any]", value))
    return f"{value:,}" if isinstance(value, int) else one_line(str(value))
