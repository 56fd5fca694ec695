"""The report of an evaluation: as data, on a terminal, and as a page."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ValidationError

from delf.errors import ConfigurationError
from delf.terminal import visible, wrap_text
from delf.trust.folders import read_file
from delf_cli.formats import format_usd
from delf_cli.tables import table
from delf_evals.places import MAX_BYTES, folder_of_reports, write
from delf_evals.report_row import ReportRow

# Matches the suffix, such as `` [1/3]``, of a repeated case's name in pydantic-evals.
_REPEAT_SUFFIX: Final = re.compile(r" \[\d+/\d+\]$")


class CheckResult(BaseModel):
    """The result of one check of an evaluation case.

    Args:
        name: The check's name in reports.
        passed: Whether it passed; None for a score or a label.
        value: The score or the label, for a check that neither passes nor fails.
        reason: An explanation of the result; for a failed check, what came instead.
        wanted: The expectation of a failed check, as a short text; None if its name says all.
    """

    name: str
    passed: bool | None = None
    value: float | str | None = None
    reason: str | None = None
    wanted: str | None = None

    @property
    def problem(self) -> str:
        """The name of a failed check, the expected value, and the reason for the failure."""
        words: list[str] = []
        if self.wanted is not None and not self._already_says(self.wanted):
            words.append(f"expected {self.wanted}")
        if self.reason:
            words.append(self.reason)
        return f"{self.name}: {'; '.join(words)}" if words else self.name

    def _already_says(self, wanted: str) -> bool:
        """Return True if ``wanted`` is a quoted text that the check's name or reason contains.

        The name ``WroteFile a.csv`` contains ``'a.csv'``, for example.
        """
        is_quoted = wanted[0] in "'\""
        unquoted = wanted[1:-1]
        is_in_name = self.name.endswith(f" {unquoted}")
        is_in_reason = self.reason is not None and wanted in self.reason
        return is_quoted and (is_in_name or is_in_reason)


class CallMade(BaseModel):
    """A tool call in a run of an evaluation case.

    Args:
        action: The action.
        arguments: The arguments as text, such as ``limit=5``.
        status: The final status, such as ``ok``.
    """

    action: str
    arguments: str
    status: str


class CaseResult(BaseModel):
    """The result of one run of an evaluation case under one variant.

    Args:
        name: The case.
        task: The task.
        passed: Whether the task was done and all checks passed.
        error: The error message, if the task failed.
        checks: The results of the checks.
        answer: The answer.
        expected: The expected answer.
        scripts: The scripts that a model wrote.
        calls: The calls.
        unrecorded: The calls, as text, for which the case had no recorded result.
        cost_usd: The cost; None if a price is unknown.
        duration_ms: Wall time in milliseconds.
    """

    name: str
    task: str
    passed: bool
    error: str | None = None
    checks: list[CheckResult] = []
    answer: Any = None
    expected: Any = None
    scripts: list[str] = []
    calls: list[CallMade] = []
    unrecorded: list[str] = []
    cost_usd: float | None = None
    duration_ms: int = 0

    @property
    def problems(self) -> list[str]:
        """The reasons why the case failed, one per item."""
        failed = [check for check in self.checks if check.passed is False]
        lines = [check.problem for check in failed]
        return [self.error, *lines] if self.error else lines


class VariantResult(BaseModel):
    """The results of all cases under one variant, a set of settings.

    Args:
        name: The settings that differ from the project's, as text.
        model: The model.
        cases: The results of the cases.
    """

    name: str
    model: str
    cases: list[CaseResult]

    @property
    def passed(self) -> int:
        """The number of passed runs of cases."""
        return sum(case.passed for case in self.cases)

    def runs(self) -> dict[str, list[CaseResult]]:
        """Return a mapping from a case's name to the results of all its runs."""
        results_by_case: dict[str, list[CaseResult]] = {}
        for case in self.cases:
            results_by_case.setdefault(_REPEAT_SUFFIX.sub("", case.name), []).append(case)
        return results_by_case

    @property
    def rate(self) -> float:
        """The share of passed runs, from 0 to 1."""
        return self.passed / len(self.cases)

    @property
    def cost_usd(self) -> float | None:
        """The cost of all runs in US dollars; None if a price is unknown."""
        total = 0.0
        for case in self.cases:
            if case.cost_usd is None:
                return None
            total += case.cost_usd
        return total

    @property
    def seconds(self) -> float:
        """The mean wall time of a case in seconds."""
        return sum(case.duration_ms for case in self.cases) / 1000 / len(self.cases)


class Change(BaseModel):
    """A case whose result differs from its result in an earlier run.

    Args:
        variant: The variant's name.
        case: The case's name.
        passed: True if a larger share of the case's runs passes than before, False if a smaller
            one.
    """

    variant: str
    case: str
    passed: bool


class Report(BaseModel):
    """The report of a run of a data set.

    Args:
        dataset: The data set's name.
        at: The start of the run in ISO 8601.
        variants: The results by variant.
        judge_cost_usd: The cost of judge models in US dollars; None if a price is unknown.
        since: The start of the earlier run with which this run is compared; None without one.
        changes: The cases with another result than in that run.
    """

    dataset: str
    at: str
    variants: list[VariantResult]
    judge_cost_usd: float | None = 0.0
    since: str | None = None
    changes: list[Change] = []

    def compare_with_last(self, files: Sequence[Path]) -> None:
        """Set ``since`` and ``changes`` by comparison with the newest comparable run.

        A run is comparable if it has a case and variant in common with this report.

        Repeated cases are compared by their share of passed runs.

        Args:
            files: The paths of earlier reports, the newest first. Damaged reports are skipped.
        """
        new_rates = self.rates()
        for file in files:
            try:
                earlier_report = read(file)
            except ConfigurationError:
                continue
            old_rates = earlier_report.rates()
            common_keys = [key for key in new_rates if key in old_rates]
            if not common_keys:
                continue
            self.since = earlier_report.at
            self.changes = []
            for variant, case in common_keys:
                new_rate, old_rate = new_rates[variant, case], old_rates[variant, case]
                if new_rate != old_rate:
                    is_better = new_rate > old_rate
                    self.changes.append(Change(variant=variant, case=case, passed=is_better))
            return

    def rates(self) -> dict[tuple[str, str], float]:
        """Return a mapping from (variant, case) to the share of passed runs, from 0 to 1."""
        rates: dict[tuple[str, str], float] = {}
        for variant in self.variants:
            for case_name, runs in variant.runs().items():
                passed_runs = sum(run.passed for run in runs)
                rates[variant.name, case_name] = passed_runs / len(runs)
        return rates

    def meets(self, least: float) -> bool:
        """Return True if the share of passed runs of each variant is at least ``least``."""
        return all(variant.rate >= least for variant in self.variants)

    def to_dict(self) -> ReportRow:
        """Return the report as JSON-ready data, with the totals of each variant."""
        data: dict[str, Any] = self.model_dump(mode="json")
        for row, variant in zip(data["variants"], self.variants, strict=True):
            row |= {"passed": variant.passed, "total": len(variant.cases)}
            row |= {"cost_usd": variant.cost_usd}
        head, rows = rows_of(self)
        return ReportRow(
            dataset=self.dataset,
            at=self.at,
            variants=data["variants"],
            judge_cost_usd=self.judge_cost_usd,
            since=self.since,
            changes=data["changes"],
            table=[head, *rows],
            summary=summary_of(self),
        )


def keep(report: Report, dataset: Path) -> Path:
    """Write a report as JSON next to its data set; return the path."""
    path = folder_of_reports(dataset) / f"{report.at.replace(':', '-')}.json"
    write(path, json.dumps(report.to_dict(), indent=1, ensure_ascii=False))
    return path


def read(path: Path) -> Report:
    """Load a report from its JSON file.

    Raises:
        ConfigurationError: If the file is missing or is not a report.
    """
    try:
        content = read_file(path, path.parent, MAX_BYTES)
        return Report.model_validate_json(content or b"")  # a missing file is invalid, too
    except ValidationError:
        raise ConfigurationError(
            f"{path} is not a report of an evaluation", hint="`delf evals run DATASET` writes one"
        ) from None


def _letter(number: int) -> str:
    return chr(ord("A") + number) if number < 26 else str(number + 1)


def _lettered(report: Report) -> Iterator[tuple[str, VariantResult]]:
    """Yield pairs such as ``("A  ", variant)``; the text is empty if there is one variant only."""
    has_letters = len(report.variants) > 1
    for number, variant in enumerate(report.variants):
        text = f"{_letter(number)}  " if has_letters else ""
        yield text, variant


def rows_of(report: Report) -> tuple[list[str], list[list[str]]]:
    """Return the header and the rows of a table of results.

    Each case has a row with one cell for each variant. Rows with the totals of the variants follow.
    """
    letters = [_letter(number) for number in range(len(report.variants))]
    head = ["case", *letters] if len(letters) > 1 else ["case", "result"]
    changed = {(change.variant, change.case) for change in report.changes}
    rows: list[list[str]] = []
    runs_of_variants = [variant.runs() for variant in report.variants]
    for case in runs_of_variants[0]:  # all variants have the same cases
        row = [visible(case)]
        for variant, runs in zip(report.variants, runs_of_variants, strict=True):
            cell = _outcome_of(runs[case])
            row.append(f"{cell} (new)" if (variant.name, case) in changed else cell)
        rows.append(row)
    totals = [f"{v.passed} of {len(v.cases)} ({v.rate:.0%})" for v in report.variants]
    rows.append(["passed", *totals])
    rows.append(["cost", *(format_usd(v.cost_usd) for v in report.variants)])
    rows.append(["mean time", *(f"{v.seconds:.1f} s" for v in report.variants)])
    return head, rows


def _outcome_of(runs: Sequence[CaseResult]) -> str:
    """Return ``passed`` or ``FAILED``; for a repeated case, such as ``FAILED 2 of 3``."""
    passed = sum(run.passed for run in runs)
    outcome = "passed" if passed == len(runs) else "FAILED"
    if len(runs) > 1:
        return f"{outcome} {passed} of {len(runs)}"
    return outcome


def summary_of(report: Report) -> list[str]:
    """Return the summary lines of a report.

    Each variant has a line that explains its letter in the table. Lines about the cost of judging
    and the comparison with an earlier run follow.
    """
    lines = [f"{letter}{variant.name} ({variant.model})" for letter, variant in _lettered(report)]
    if report.judge_cost_usd != 0:
        lines.append(f"judges: {format_usd(report.judge_cost_usd)}")
    if report.since is not None:
        better_count = sum(change.passed for change in report.changes)
        worse_count = len(report.changes) - better_count
        if report.changes:
            outcome = f"{better_count} better, {worse_count} worse"
        else:
            outcome = "no result changed"
        lines.append(f"compared with {report.since}: {outcome}")
    return lines


_UNRECORDED_HINT: Final = (
    "hint: give a case without a result one under calls; or add the task again, as the model does "
    "the task now; or make unrecorded calls that only read: --live-reads"
)


def lines_of(report: Report) -> list[str]:
    """Format a report as lines for a terminal."""
    head, rows = rows_of(report)
    lines = [*map(visible, summary_of(report)), "", *table(rows, head, whole=True)]
    for letter, variant in _lettered(report):
        failed_cases = [case for case in variant.cases if not case.passed]
        for case in failed_cases:
            lines += ["", f"{letter}{visible(case.name)}"]
            lines += [wrap_text(f"  {visible(problem)}", indent=4) for problem in case.problems]
    if any(case.unrecorded for variant in report.variants for case in variant.cases):
        lines += ["", wrap_text(_UNRECORDED_HINT)]
    return lines


_STYLE: Final = """
:root { color-scheme: light dark; font: 15px/1.5 system-ui, sans-serif; }
body { max-width: 68rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .25rem .75rem .25rem 0; border-bottom: 1px solid #8884; }
pre { overflow-x: auto; padding: .5rem; background: #8881; white-space: pre-wrap; }
.failed { color: light-dark(#b00020, #ff8a80); font-weight: 600; }
summary { cursor: pointer; padding: .25rem 0; }
"""

_POLICY: Final = (
    '<meta http-equiv="Content-Security-Policy" '
    "content=\"default-src 'none'; style-src 'unsafe-inline'\">"
)


def as_html(report: Report) -> str:
    """Format a report as a self-contained HTML page without JavaScript."""
    head, rows = rows_of(report)
    lines = [
        '<!doctype html><html lang="en"><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        _POLICY,
        f"<title>{escape(report.dataset)}: evaluation</title><style>{_STYLE}</style>",
        f"<h1>{escape(report.dataset)}</h1><p>{escape(report.at)}",
        *(f"<br>{escape(line)}" for line in summary_of(report)),
        "</p><table><thead>",
        _html_row(head, "th"),
        "</thead><tbody>",
        *(_html_row(row, "td") for row in rows),
        "</tbody></table>",
    ]
    for letter, variant in _lettered(report):
        lines.append(f"<h2>{escape(letter + variant.name)}</h2>")
        lines += [_case_html(case) for case in variant.cases]
    return "\n".join(lines) + "\n"


def _html_row(cells: Sequence[str], tag: str) -> str:
    """Format a row of the HTML table; the tag of the cells is ``th`` or ``td``."""
    html_cells: list[str] = []
    for cell in cells:
        attribute = " class=failed" if cell.startswith("FAILED") else ""
        html_cells.append(f"<{tag}{attribute}>{escape(cell)}</{tag}>")
    return f"<tr>{''.join(html_cells)}</tr>"


def _case_html(case: CaseResult) -> str:
    """Format a case as an HTML ``<details>`` element, which is open if the case failed."""
    state = "passed" if case.passed else "FAILED"
    open_attribute = "" if case.passed else " open"
    facts = f"{format_usd(case.cost_usd)}, {case.duration_ms / 1000:.1f} s"
    html_parts = [
        f"<details{open_attribute}><summary>{escape(case.name)}: ",
        f'<span class="{state.lower()}">{state}</span>, {facts}</summary>',
        f"<p>{escape(case.task)}</p>",
        *(f'<p class="failed">{escape(problem)}</p>' for problem in case.problems),
    ]
    for title, value in (("answer", case.answer), ("expected", case.expected)):
        if value is not None:
            text = value if isinstance(value, str) else json.dumps(value, indent=1, default=str)
            html_parts.append(f"<p>{title}</p><pre>{escape(text)}</pre>")
    # A check that neither passes nor fails has a score or a label.
    scores = [f"{c.name}: {c.value}" for c in case.checks if c.passed is None]
    html_parts += [f"<p>{escape(score)}</p>" for score in scores]
    html_parts += [f"<p>script</p><pre>{escape(code)}</pre>" for code in case.scripts]
    calls = [f"{call.action}({call.arguments}): {call.status}" for call in case.calls]
    if calls:
        call_lines = "\n".join(calls)
        html_parts.append(f"<p>calls</p><pre>{escape(call_lines)}</pre>")
    return "".join([*html_parts, "</details>"])
