"""Requests for approval, as lines and as data."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import click

from delf.events import DECISION_WORDS
from delf.protocols.approval import RememberedDecision
from delf.protocols.facts import FactKind, RequestFact, as_edited, facts, value_text
from delf.protocols.journal import RequestRecord
from delf_approval_terminal.render import fact_lines
from delf_cli.answering import state_of_request
from delf_cli.formats import format_age
from delf_cli.ids import short_ids
from delf_cli.streams import real_stdout, wrap_text
from delf_cli.tables import cut_at_word, one_line, project_column, table

_MAX_VALUE_CHARS: Final = 60
_INDENT: Final = "  "
# The width of an output that is not a terminal, whose lines are not wrapped.
_UNLIMITED: Final = 1_000_000
_KINDS_IN_OTHER_COLUMNS: Final = (FactKind.QUESTION, FactKind.EFFECT, FactKind.ACTION)
_COLOURS: Final = {
    "waiting": "yellow",
    "approved": "green",
    "edited": "green",
    "answered": "green",
    "rejected": "red",
}


def request_line(record: RequestRecord, edited: Mapping[str, Any] | None = None) -> str:
    """Describe a request in one line.

    Args:
        record: The request.
        edited: The arguments that a person changed.
    """
    request = record.requested
    worker_prefix = f"{request.worker}: " if request.worker else ""
    if request.is_question:
        return one_line(f"{worker_prefix}{request.message}")
    if request.code is not None:
        return one_line(f"script with {', '.join(request.actions)}")
    arguments = {**request.arguments, **(edited or {})}
    argument_text = ", ".join(f"{name}={_short(value)}" for name, value in arguments.items())
    call = one_line(f"{worker_prefix}{request.action}({argument_text})")
    return f"again? {call}" if request.outcome_unknown else call


def requests_table(records: Sequence[RequestRecord]) -> list[str]:
    """Format requests in aligned columns, within the terminal's width."""
    names = short_ids([record.requested.request_id for record in records])
    # Each is a list with one cell; all are empty if the table needs no column for the project.
    project_header, *project_cells = project_column([record.task.folder for record in records])
    rows = [
        (
            name,
            format_age(record.requested.at),
            "question" if record.requested.is_question else record.requested.effect,
            _warnings(record),
            *project_cell,
            request_line(record),
        )
        for name, record, project_cell in zip(names, records, project_cells, strict=True)
    ]
    return table(rows, ("id", "asked", "effect", "look at", *project_header, "call"))


def _warnings(record: RequestRecord) -> str:
    """Name the kinds of facts that need attention, dangerous kinds first; ``-`` if there are none.

    Leave out facts that a person need not see before approving (``required`` is False), facts of
    the weight ``information``, and facts that other columns of the table show.
    """
    notable_facts: list[RequestFact] = []
    for fact in facts(record.requested, record.discussion):
        if not fact.required or fact.weight == "information":
            continue
        if fact.kind not in _KINDS_IN_OTHER_COLUMNS:
            notable_facts.append(fact)
    notable_facts.sort(key=lambda fact: fact.weight != "danger")
    kinds = dict.fromkeys(fact.kind.value.replace("_", " ") for fact in notable_facts)
    return f"! {', '.join(kinds)}" if kinds else "-"


def remembered_line(decision: RememberedDecision) -> str:
    """Describe in one line the calls that a remembered decision allows."""
    who = f"{decision.worker}: " if decision.worker else ""
    if decision.arguments is None:
        # A flow rule is "source -> target": untrusted data that the calls may pass on.
        flows = "".join(f"; allows the data flow {rule}" for rule in decision.flow_rules)
        return one_line(f"{who}{decision.action}, with any arguments{flows}")
    arguments = ", ".join(f"{name}={_short(value)}" for name, value in decision.arguments.items())
    return one_line(f"{who}{decision.action}({arguments})")


def remembered_table(decisions: Sequence[RememberedDecision]) -> list[str]:
    """Format remembered decisions in aligned columns."""
    names = short_ids([decision.request_id for decision in decisions])
    rows = [
        (
            name,
            format_age(decision.at),
            one_line(decision.by),
            one_line(decision.user or ""),
            one_line(decision.project or ""),
            remembered_line(decision),
        )
        for name, decision in zip(names, decisions, strict=True)
    ]
    return table(rows, ("id", "since", "by", "user", "project", "approved calls"))


def show(record: RequestRecord) -> None:
    """Write a request in full to stdout."""
    request = record.requested
    decided = record.decided
    state = state_of_request(record)
    click.echo(
        f"{request.request_id}: {click.style(state, fg=_COLOURS.get(state))}, asked "
        f"{format_age(request.at)}"
    )
    click.echo(wrap_text(f"task {request.task_id}: {one_line(record.task.task)}"))
    if decided is not None:
        note = decided.reason if decided.answer is None else value_text(decided.answer)
        why = f": {one_line(note)}" if note else ""
        click.echo(wrap_text(f"{DECISION_WORDS[decided.decision]} by {one_line(decided.by)}{why}"))
    click.echo("")
    for piece in facts_of(record):
        click.echo(piece)


def facts_of(
    record: RequestRecord, edited: Mapping[str, Any] = MappingProxyType({})
) -> Iterator[str]:
    """Yield the facts that a person needs for a decision, as lines.

    Args:
        record: The request.
        edited: The arguments that a person changes.
    """
    request = as_edited(record.requested, {**record.requested.arguments, **edited})
    if request.outcome_unknown:
        yield (
            '"approve" makes the call again, "settle" records that the call was made, '
            '"reject" gives up the call.'
        )
    votes_and_comments = record.discussion
    # The question is always the first fact, and the effect the second.
    question, effect, *other_facts = facts(request, votes_and_comments)
    yield wrap_text(one_line(f"{question.text} {effect.note} {effect.text}"))
    width = columns() - len(_INDENT)
    lines, _omitted_chars = fact_lines(request, other_facts, width, whole=True)
    for line in lines:
        yield f"{_INDENT}{line}"


def columns() -> int:
    """Return the width of the output in columns; practically unlimited without a terminal."""
    if real_stdout().isatty():
        return shutil.get_terminal_size().columns
    return _UNLIMITED


def _short(value: Any) -> str:
    return cut_at_word(repr(value), _MAX_VALUE_CHARS)
