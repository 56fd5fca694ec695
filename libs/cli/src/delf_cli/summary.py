"""A summary of a trace as plain text with aligned columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from delf.terminal import visible
from delf_cli.formats import format_count, format_usd
from delf_cli.story import cut
from delf_cli.tables import format_table
from delf_engine.views.records import ApprovalTrace, ModelUse, TimelineEntry, ToolCallTrace

if TYPE_CHECKING:
    from delf import Trace

MAX_ROWS: Final = 30
_MAX_CELL_CHARACTERS: Final = 60

Row = Sequence[str]


def summary_of(trace: Trace, *, calls: bool = True, width: int | None = None) -> str:
    """Format a task as a table: duration, steps, calls, tokens and cost.

    Args:
        trace: The trace.
        calls: Whether to list the calls.
        width: The terminal's width; None without a terminal.
    """
    retries = "1 retry" if len(trace.retries) == 1 else f"{len(trace.retries)} retries"
    retry_note = f"{format_count(len(trace.reruns), 'rerun')}, {retries}"
    lines = [
        f"task      {trace.task_id}",
        f"sandbox   {trace.sandbox or '-'} ({trace.isolation or '-'})",
        f"scripts   {len(trace.scripts)} ({retry_note})",
        f"calls     {outcomes(trace.tool_calls)}",
        f"models    {format_count(len(trace.model_calls), 'call')}, {trace.usage.text}",
        f"cost      {_usd(trace.total_cost_usd)}",
    ]
    if trace.api_enrichment is not None:
        cached = " (cached)" if trace.api_enrichment.cached else ""
        lines.append(f"set-up    {_usd(trace.api_enrichment.cost_usd)}{cached}")
    if trace.duration_ms is not None:
        lines.append(f"time      {trace.duration_ms:,.0f} ms")
    steps = step_rows(trace.timeline)
    if steps:
        lines += ["", *_indented_table(("step", "status", ">time"), steps, width)]
    if calls and trace.tool_calls:
        rows = call_rows(trace.tool_calls)
        heads = (">call", "action", "status", ">time", "what")
        lines += ["", *_indented_table(heads, rows, width)]
        omitted_count = len(trace.tool_calls) - len(rows)
        if omitted_count:
            lines.append(f"  … and {omitted_count} more")
    if trace.approvals:
        heads = (">call", "action", "decision", "by", "what")
        lines += ["", *_indented_table(heads, approval_rows(trace.approvals), width)]
    if trace.changes:
        lines += ["", "changed", *(f"  {visible(change)}" for change in trace.changes)]
    if trace.model_calls:
        uses: dict[tuple[str, str], ModelUse] = {}  # by model and purpose
        total = ModelUse()
        for call in trace.model_calls:
            uses.setdefault((call.model, call.purpose), ModelUse()).add(call)
            total.add(call)
        heads = ("model", "for", ">calls", ">in", ">cached", ">out", ">time", ">cost")
        lines += ["", *_indented_table(heads, model_rows(uses, total), width)]
    return "\n".join(lines)


def step_rows(timeline: Iterable[TimelineEntry]) -> list[Row]:
    """Return a table row for each step of the task, in order."""
    return [
        (line.label, line.status, _ms(line.duration_ms))
        for line in timeline
        if line.kind == "phase"
    ]


def call_rows(calls: Sequence[ToolCallTrace]) -> list[Row]:
    """Return a table row for each of the first 30 calls, with the error or the purpose."""
    return [
        (
            str(call.call_id),
            call.name,
            call.status,
            _ms(call.duration_ms),
            call.error or call.description or "",
        )
        for call in calls[:MAX_ROWS]
    ]


def approval_rows(approvals: Sequence[ApprovalTrace]) -> list[Row]:
    """Return a table row for each of the first 30 approvals, with a note in the last cell."""
    return [
        (
            str(approval.call_id or "-"),
            approval.action,
            approval.decision,
            approval.by,
            _note_of(approval),
        )
        for approval in approvals[:MAX_ROWS]
    ]


def _note_of(approval: ApprovalTrace) -> str:
    """Return a text about an approval's decision; empty if there is nothing to note.

    The text names the other task in which the decision was made, or has the answer to a question,
    the person's reason, or the edited arguments.
    """
    if approval.from_task is not None:
        return f"decided in {approval.from_task}"
    if approval.answer is not None:
        return str(approval.answer)
    if approval.reason:
        return approval.reason
    return "" if approval.edited is None else repr(dict(approval.edited))


def model_rows(uses: Mapping[tuple[str, str], ModelUse], total: ModelUse) -> list[Row]:
    """Return a table row of tokens and cost for each model and purpose.

    Two or more rows are followed by a row with the total.
    """
    rows: list[Row] = [(model, purpose, *_figures(use)) for (model, purpose), use in uses.items()]
    if len(rows) > 1:
        rows.append(("all", "", *_figures(total)))
    return rows


def _figures(use: ModelUse) -> tuple[str, ...]:
    usage = use.usage
    counts = use.calls, usage.input_tokens, usage.cached_tokens, usage.output_tokens
    return (*(f"{count:,}" for count in counts), _ms(use.duration_ms), _usd(use.cost_usd))


def _usd(cost: float | None) -> str:
    return format_usd(cost, digits=6)


def outcomes(calls: Iterable[ToolCallTrace]) -> str:
    """Format the outcomes of calls: ``3 ok, 1 error``."""
    by_status: dict[str, int] = {}
    for call in calls:
        by_status[call.status] = by_status.get(call.status, 0) + 1
    return ", ".join(f"{count} {status}" for status, count in by_status.items()) or "none"


def _indented_table(heads: Sequence[str], rows: Sequence[Row], width: int | None) -> list[str]:
    cells = [[cut(text, _MAX_CELL_CHARACTERS) for text in row] for row in rows]
    indent = "  "
    lines = format_table(cells, heads, None if width is None else width - len(indent))
    return [f"{indent}{line}" for line in lines]


def _ms(duration: float | None) -> str:
    return "-" if duration is None else f"{duration:,.0f} ms"
