"""The findings of ``delf doctor`` and ``delf config check``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict

import click

if TYPE_CHECKING:
    from delf_cli.state import State

Status = Literal["ok", "note", "problem"]
_MARKS: Final = {"ok": ("✓", "green"), "note": ("!", "yellow"), "problem": ("✗", "red")}


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A finding of ``delf doctor``.

    Args:
        area: The checked part, such as ``python``, ``sandbox`` or ``model``.
        status: ``problem`` for a fault that prevents tasks, ``note`` for any other remark.
        text: The finding as a sentence.
        hint: The suggested next step.
    """

    area: str
    status: Status
    text: str
    hint: str | None = None


class FindingsRow(TypedDict):
    """The JSON of ``delf doctor`` and ``delf config check``.

    Args:
        ok: True if a task can run.
        findings: The results, each with ``area``, ``status``, ``text`` and ``hint``.
    """

    ok: bool
    findings: list[dict[str, Any]]


def write_findings(state: State, findings: Iterable[Finding], *, as_json: bool) -> bool:
    """Print the findings as lines or as JSON, with secrets redacted.

    Returns:
        True if no finding is a problem.
    """
    clean_findings = [Finding(**state.redact_data(asdict(finding))) for finding in findings]
    is_ready = all(finding.status != "problem" for finding in clean_findings)
    if as_json:
        from delf_cli.output import json_text

        data = FindingsRow(ok=is_ready, findings=list(map(asdict, clean_findings)))
        click.echo(json_text(data, indent=2))
        return is_ready
    for finding in clean_findings:
        _show(finding)
    return is_ready


def _show(finding: Finding) -> None:
    from delf.terminal import visible
    from delf_cli.streams import wrap_text

    mark, colour = _MARKS[finding.status]
    wrapped_text = wrap_text(visible(finding.text), indent=12)
    click.echo(f"{click.style(mark, fg=colour)} {finding.area:<9} {wrapped_text}")
    if finding.hint:
        click.echo(f"            → {wrap_text(visible(finding.hint), indent=14)}")
