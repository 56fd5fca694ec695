"""``delf evals``: add tasks to data sets, run data sets, show their reports."""

from __future__ import annotations

import asyncio
import shlex
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypedDict

import click

from delf.errors import ConfigurationError, DelfError, did_you_mean
from delf.events import start_event
from delf.terminal import visible
from delf_cli import complete, errors
from delf_cli.as_json import as_json_option, write_result
from delf_cli.formats import format_count
from delf_cli.ids import short_id
from delf_cli.output import json_text
from delf_cli.state import State, state_of
from delf_cli.tables import table
from delf_evals.places import FOLDER, names_of, path_of, runs_of, write
from delf_evals.report_row import ReportRow

if TYPE_CHECKING:
    from delf_evals.datasets import AnyDataset
    from delf_evals.report import CaseResult, Report

_FAILED: Final = 1


class _AddedRow(TypedDict):
    """The JSON of ``delf evals add``.

    Args:
        dataset: The file of the data set.
        name: The name of the case.
        checks: The number of the case's checks.
    """

    dataset: str
    name: str
    checks: int


class _DatasetRow(TypedDict):
    """The JSON of a data set in ``delf evals list``.

    Args:
        name: The name of the data set.
        runs: The number of kept runs.
        last: The start of the last run in ISO 8601; None without a run.
        passed: The share of cases that the best variant of the last run passed, from 0 to 1; None
            without a run.
    """

    name: str
    runs: int
    last: str | None
    passed: float | None


@click.group("evals")
def evals() -> None:
    """Check tasks against recorded results, with several models and prompts.

    A data set is a YAML file of cases in the folder evals of the project. No call of a case
    reaches a service: calls get recorded results.
    """


@evals.command("add", short_help="Add a task of the journal to a data set.")
@click.argument("task_id", metavar="TASK", shell_complete=complete.task_ids)
@click.option("--to", default="cases", show_default=True, help="The data set's name or file.")
@click.option("--name", help="The case's name; the task's id when omitted.")
@click.option("--judge", "judged", is_flag=True, help="Let a model compare the answers.")
@as_json_option(_AddedRow)
@click.pass_context
def add(
    ctx: click.Context, task_id: str, to: str, name: str | None, judged: bool, as_json: bool
) -> None:
    """Add the task TASK, or `last`, as a case with recorded results.

    `last` is the newest task of this project.

    The case expects the same answer, and the same calls of actions that change data. Edit the file
    to add other checks.
    """
    from delf_cli.journals import load_task
    from delf_cli.session import tool_options
    from delf_evals.adding import add_task

    record, events = load_task(ctx, task_id)
    state = state_of(ctx)
    path = Path(to)
    if not path.suffix:
        path = _project_root(state) / FOLDER / f"{to}.yaml"
    name = name or short_id(record.task_id)
    context = _prompt_facts(state, record.task)
    case = add_task(path, record, events, context, name=name, judged=judged)
    data = _AddedRow(dataset=str(path), name=name, checks=len(case["evaluators"]))
    start = start_event(events)
    tools = "" if start is None else tool_options(start.setup)
    text = f"added as {name} to {path}\nrun it with: delf evals run {shlex.quote(to)}{tools}"
    write_result(text, data, as_json=as_json)


def _prompt_facts(state: State, task: str) -> dict[str, str]:
    """Return what each connection adds to the prompt, by connection name.

    If any connection does not answer, print a warning, and return an empty dict.
    """
    from delf_cli.session import Options, Setup
    from delf_evals.running import contexts_of

    try:
        contexts = asyncio.run(contexts_of(Setup.of(state, Options(flags={})), task))
    except DelfError as error:
        reason = state.redact(error.message)
        errors.say("warning", visible(f"no facts of connections are recorded: {reason}"))
        return {}
    return {name: state.redact(text) for name, text in contexts.items()}


@evals.command("run", short_help="Run a data set.")
@click.argument("dataset")
@click.option(
    "--with",
    "variants",
    metavar="SETTINGS",
    multiple=True,
    help="Run with these settings, as 'llm=gpt-5 strategy=stream'. May be repeated, to compare.",
)
@click.option("--case", "cases", metavar="NAME", multiple=True, help="Run only this case.")
@click.option("--repeat", type=click.IntRange(min=1), default=1, help="Runs of each case.")
@click.option(
    "--jobs", type=click.IntRange(min=1), default=4, show_default=True, help="Cases at a time."
)
@click.option("--judge", metavar="MODEL", help="The model of judges; the project's when omitted.")
@click.option(
    "--fail-under",
    metavar="PERCENT",
    type=click.FloatRange(0, 100),
    default=100,
    show_default=True,
    help="Exit with 1 if a variant passes fewer cases.",
)
@click.option("--live-reads", is_flag=True, help="Make unrecorded calls that only read.")
@click.option("--task", "template", metavar="TEXT", help="Make tasks from inputs: 'Say {word}'.")
@click.option(
    "--checks",
    "checks_file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="A Python file with checks.",
)
@click.option(
    "-c",
    "--connection",
    "connections",
    metavar="NAME",
    multiple=True,
    shell_complete=complete.connections,
    help="A connection of delf.toml; all when omitted.",
)
@click.option(
    "--tools", "tool_files", metavar="FILE", multiple=True, help="A Python file with tools."
)
@click.option("--html", metavar="FILE", type=click.Path(path_type=Path), help="Write a page.")
@as_json_option(ReportRow)
@click.pass_context
def run(
    ctx: click.Context,
    dataset: str,
    variants: tuple[str, ...],
    cases: tuple[str, ...],
    template: str | None,
    checks_file: Path | None,
    html: Path | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Run the cases of DATASET, a name in the folder evals or a file.

    Calls are answered with the results recorded in the case and have no effect. The report is
    compared with the last run and kept beside the data set. The exit status is 1 if fewer cases
    pass than --fail-under says.
    """
    from delf_cli.toolfile import load_module
    from delf_evals import report as reports
    from delf_evals.datasets import checks_of, load

    state = state_of(ctx)
    path = path_of(_project_root(state), dataset)
    checks = [] if checks_file is None else checks_of(load_module(checks_file, "--checks"))
    loaded = load(path, template, checks)
    _keep_named_cases(loaded, cases, path)
    earlier_reports = runs_of(path)
    report = asyncio.run(_run_variants(state, loaded, path, variants, is_quiet=as_json, **options))
    report.compare_with_last(earlier_reports)
    # The run cost money, so show and store the report before the HTML page is written: the file of
    # the page may not be writable.
    _show_report(report, as_json=as_json)
    report_path = reports.keep(report, path)
    if not as_json:
        click.echo(f"stored as {report_path}", err=True)
    _write_page(report, html, as_json=as_json)
    ctx.exit(0 if report.meets(options["fail_under"] / 100) else _FAILED)


def _keep_named_cases(dataset: AnyDataset, names: tuple[str, ...], path: Path) -> None:
    """Remove all cases from a data set except the named ones; keep all if no name is given.

    Args:
        dataset: The data set.
        names: The names of the cases to keep.
        path: The data set's file, for the error message.

    Raises:
        ConfigurationError: If one of ``names`` is not the name of a case.
    """
    case_names = [str(case.name) for case in dataset.cases]
    for name in names:
        if name not in case_names:
            raise ConfigurationError(
                f"{path} has no case {name!r}{did_you_mean(name, case_names)}",
                hint=f"cases: {', '.join(case_names[:20])}",
            )
    if names:
        dataset.cases = [case for case in dataset.cases if case.name in names]


async def _run_variants(
    state: State,
    dataset: AnyDataset,
    path: Path,
    variants: tuple[str, ...],
    *,
    is_quiet: bool,
    repeat: int,
    jobs: int,
    judge: str | None,
    live_reads: bool,
    connections: tuple[str, ...],
    tool_files: tuple[str, ...],
    **_: Any,  # the other options of the command, which do not matter here
) -> Report:
    """Run a data set with the settings of each variant in turn; return the report."""
    from delf_cli.session import Options, Setup
    from delf_evals import running
    from delf_evals.report import Report

    texts = variants or ("",)  # without a variant, run the data set with the project's settings
    settings = [running.variant_settings(text, path.parent) for text in texts]
    options = Options(flags={}, connections=connections, tool_files=tool_files)
    total = len(texts) * len(dataset.cases) * repeat
    finished_runs = 0

    def show_progress(case: CaseResult) -> None:
        nonlocal finished_runs
        finished_runs += 1
        if not is_quiet:
            outcome = "passed" if case.passed else "FAILED"
            click.echo(f"{finished_runs}/{total} {outcome} {visible(case.name)}", err=True)

    run_options = running.RunOptions(
        repeat=repeat, jobs=jobs, live_reads=live_reads, on_result=show_progress
    )
    started_at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    checks_asking_model = _checks_asking_model(dataset)
    judge_of_checks = None
    async with AsyncExitStack() as stack:
        if checks_asking_model:
            judge_of_checks = running.make_judge(Setup.of(state, options), judge)
            stack.push_async_callback(judge_of_checks.aclose)
            judge_of_checks.use_agent_models(checks_asking_model)
        # Start all agents before the first run, so that an error in a variant costs no paid runs.
        setups = [
            Setup.of(state, replace(options, overrides=tuple(overrides))) for overrides in settings
        ]
        agents = [await stack.enter_async_context(running.variant_agent(setup)) for setup in setups]
        names = [
            running.variant_name(text, setup) for text, setup in zip(texts, setups, strict=True)
        ]
        results = [
            await running.run_variant(dataset, agent, name, run_options)
            for name, agent in zip(names, agents, strict=True)
        ]
    cost = 0.0 if judge_of_checks is None else judge_of_checks.cost_usd
    return Report(dataset=dataset.name, at=started_at, variants=results, judge_cost_usd=cost)


def _checks_asking_model(dataset: AnyDataset) -> list[Any]:
    """Return the checks of a data set and of its cases that ask a model, such as ``LLMJudge``."""
    checks = list(dataset.evaluators)
    for case in dataset.cases:
        checks += case.evaluators
    return [check for check in checks if hasattr(check, "model")]


@evals.command("list", short_help="List data sets with their last runs.")
@as_json_option(_DatasetRow)
@click.pass_context
def list_command(ctx: click.Context, as_json: bool) -> None:
    """List the data sets of the project with their last runs."""
    root = _project_root(state_of(ctx))
    summaries = [_summary_of(root, name) for name in names_of(root)]
    if as_json:
        click.echo(json_text(summaries, indent=2))
        return
    if not summaries:
        click.echo("There is no data set yet: delf evals add TASK", err=True)
        return
    rows: list[tuple[str, ...]] = []
    for summary in summaries:
        passed = "-" if summary["passed"] is None else f"{summary['passed']:.0%}"
        last_run = summary["last"] or "-"
        rows.append((visible(summary["name"]), str(summary["runs"]), last_run, passed))
    for line in table(rows, ("data set", ">runs", "last run", ">passed"), whole=True):
        click.echo(line)


def _summary_of(root: Path, name: str) -> _DatasetRow:
    """Return the number of a data set's runs, with the best rate of the last run."""
    from delf_evals import report as reports

    runs = runs_of(path_of(root, name))
    if not runs:
        return _DatasetRow(name=name, runs=0, last=None, passed=None)
    last = reports.read(runs[0])
    best_rate = max((variant.rate for variant in last.variants), default=None)
    return _DatasetRow(name=name, runs=len(runs), last=last.at, passed=best_rate)


@evals.command("show", short_help="Show the report of a run.")
@click.argument("dataset")
@click.argument("number", type=click.IntRange(min=1), default=1)
@click.option("--html", metavar="FILE", type=click.Path(path_type=Path), help="Write a page.")
@as_json_option(ReportRow)
@click.pass_context
def show(ctx: click.Context, dataset: str, number: int, html: Path | None, as_json: bool) -> None:
    """Show the last run of DATASET, or the last but one with NUMBER 2, and so on."""
    from delf_evals import report as reports

    path = path_of(_project_root(state_of(ctx)), dataset)
    runs = runs_of(path)
    if number > len(runs):
        raise ConfigurationError(
            f"{path} has {format_count(len(runs), 'run')}",
            hint=f"make one: delf evals run {shlex.quote(dataset)}",
        )
    report = reports.read(runs[number - 1])
    _show_report(report, as_json=as_json)
    _write_page(report, html, as_json=as_json)


def _show_report(report: Report, *, as_json: bool) -> None:
    """Print a report, as text or JSON."""
    from delf_evals import report as reports

    if as_json:
        click.echo(json_text(report.to_dict(), indent=2))
    else:
        for line in reports.lines_of(report):
            click.echo(line)


def _write_page(report: Report, html: Path | None, *, as_json: bool) -> None:
    """Write the report as an HTML page into the file ``html``; no-op if ``html`` is None."""
    from delf_evals import report as reports

    if html is None:
        return
    write(html, reports.as_html(report))
    if not as_json:
        click.echo(f"page: {html}", err=True)


def _project_root(state: State) -> Path:
    return state.load_project().root
