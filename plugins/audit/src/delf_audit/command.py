"""``delf audit``: read the file, and check that nobody changed it."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping
from typing import Any, Final, TypedDict

import click

from delf.plugins.commands import Program
from delf.specs import ObserverSpec
from delf.terminal import visible, wrap_text
from delf_audit.observer import trail_at
from delf_audit.trail import AuditTrail, VerifiedTrail
from delf_cli.as_json import as_json_option
from delf_cli.ids import short_id

_COMMON_FIELDS: Final = ("at", "task", "what", "prev", "mac")


class _VerifiedRow(TypedDict):
    """The JSON of ``delf audit verify``.

    Args:
        path: The path of the file.
        records: The number of records in the file.
        head: The digest of the last line.
        damaged_lines: The numbers of lines that were cut off while they were written.
        records_after_head: The number of records after the digest that you gave; without a digest,
            the number of all records.
        not_proven: The facts that are not proven, in words.
    """

    path: str
    records: int
    head: str
    damaged_lines: list[int]
    records_after_head: int
    not_proven: list[str]


class _HeadRow(TypedDict):
    """The JSON of ``delf audit head``.

    Args:
        head: The digest of the last line.
    """

    head: str


class _RecordRow(TypedDict):
    """The JSON of a record.

    Args:
        at: The time of the record, in ISO 8601.
        task: The id of the task; empty for a change of a person.
        what: The kind of record.
        prev: The digest of the line before the record.
        content: The other fields of the record, as the plugin's README describes them.
    """

    at: str
    task: str
    what: str
    prev: str
    content: dict[str, Any]


@click.group("audit")
@click.option(
    "--path", metavar="FILE", type=click.Path(), help="The file; by default the project's."
)
@click.pass_context
def audit(ctx: click.Context, path: str | None) -> None:
    """Read the audit file, and check that nobody changed it.

    \b
    delf audit verify
    delf audit show 3f9a
    """  # noqa: D301 - click's mark for lines that stay as they are
    ctx.obj = trail_at(path or _configured_path(ctx.find_root().obj))


def _configured_path(program: object) -> str | None:
    """Return the path of the audit file in the project's configuration; None without a path."""
    if not isinstance(program, Program):
        return None
    from delf.plugins.factories import fitting_options

    project = program.load_project()
    host = program.discover(project.environ)
    options = project.plugin_options.get("audit", {})
    return fitting_options(host, host.spec(ObserverSpec, "audit"), options).get("path")


@audit.command()
@click.option(
    "--head", metavar="DIGEST", help="A digest that you noted earlier; the file must contain it."
)
@as_json_option(_VerifiedRow)
@click.pass_obj
def verify(trail: AuditTrail, head: str | None, *, as_json: bool) -> None:
    """Check who wrote the records, and that no record was changed or removed.

    A full check needs the key in DELF_AUDIT_KEY, and with --head a digest that you stored in
    another place. If either of these is missing, a person who can write the file could have
    replaced the file. The command then lists what could not be checked, and fails.
    """
    checked = trail.check(head)
    if as_json:
        row = _VerifiedRow(
            path=str(trail.path),
            records=checked.records,
            head=checked.head,
            damaged_lines=list(checked.damaged_line_numbers),
            records_after_head=checked.records_after_given_digest,
            not_proven=list(checked.unproven),
        )
        click.echo(json.dumps(row))
    else:
        _show_result(trail, checked)
    for description in checked.unproven:
        click.echo(f"not proven: {description}", err=True)
    if checked.unproven:
        raise SystemExit(1)


def _show_result(trail: AuditTrail, checked: VerifiedTrail) -> None:
    click.echo(f"{checked.records:,} records in order in {trail.path}")
    for number in checked.damaged_line_numbers:
        click.echo(f"line {number} was cut off while it was written; the chain goes on after it")
    # If the user gave no digest, all records count as new.
    new_records = checked.records_after_given_digest
    has_old_and_new_records = 0 < new_records < checked.records
    if has_old_and_new_records:
        click.echo(f"{new_records:,} of them after the given digest; note the new digest")
    click.echo(f"digest of the last line: {checked.head}")


@audit.command()
@as_json_option(_HeadRow)
@click.pass_obj
def head(trail: AuditTrail, *, as_json: bool) -> None:
    """Print the digest of the last line, which you should store in another place."""
    digest = trail.check().head
    click.echo(json.dumps(_HeadRow(head=digest)) if as_json else digest)


@audit.command()
@click.argument("task", default="")
@click.option(
    "-n",
    "--last",
    type=click.IntRange(min=0),
    default=50,
    metavar="N",
    help="The maximum number of records.",
    show_default=True,
)
@as_json_option(_RecordRow, words="Write each record as a line of JSON.")
@click.pass_obj
def show(trail: AuditTrail, task: str, last: int, *, as_json: bool) -> None:
    """Show the last records of all tasks or of one TASK, whose id may be shortened."""
    id_prefixes = (task, f"task_{task}")
    wanted = (
        record for record in trail.records() if str(record.get("task", "")).startswith(id_prefixes)
    )
    for record in deque(wanted, maxlen=last):
        if as_json:
            click.echo(json.dumps(_split_record(record)))
        else:
            click.echo(wrap_text(_format_record(record), indent=4))


def _split_record(record: Mapping[str, Any]) -> _RecordRow:
    """Return the common fields of a record, and all other fields together as ``content``."""
    content = {name: value for name, value in record.items() if name not in _COMMON_FIELDS}
    head: dict[str, Any] = {name: record.get(name) for name in ("at", "task", "what", "prev")}
    return _RecordRow(**head, content=content)


def _format_record(record: Mapping[str, Any]) -> str:
    """Format a record as a line of text."""
    content = _split_record(record)["content"]
    words: list[str] = []
    for name, value in content.items():
        # Empty fields and the usual "remember: no" of decisions would only make lines longer.
        if value in (None, "") or (name, value) == ("remember", "no"):
            continue
        words.append(f"{name}={visible(json.dumps(value, ensure_ascii=False))}")
    time_to_the_second = str(record.get("at"))[:19]
    task = short_id(str(record.get("task")))
    begin = f"{time_to_the_second}  {task}  {record.get('what'):<8}"
    return "  ".join([begin, *words])
