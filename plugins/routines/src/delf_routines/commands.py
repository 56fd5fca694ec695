"""``delf routines``: save a task that worked, list, run and test routines."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, TypedDict
from xml.sax.saxutils import quoteattr

import click

from delf import Agent
from delf.errors import ConfigurationError, DelfError, FolderNotTrustedError, UnknownTaskError
from delf.events import Event, start_event
from delf.plugins.host import PluginHost
from delf.protocols.journal import TaskRecord
from delf.protocols.shared_journal import SharedJournal
from delf.protocols.strategy import ToolDescription
from delf.terminal import visible
from delf.trust.decisions import Trust
from delf.types import TaskState
from delf_cli import complete, errors
from delf_cli.as_json import as_json_option, write_result
from delf_cli.complete import completes
from delf_cli.confirming import confirm
from delf_cli.ids import short_id
from delf_cli.journals import CurrentProject, ask_journal, load_task
from delf_cli.lazy import BareGroup
from delf_cli.output import json_text
from delf_cli.routine_calls import RoutineCall
from delf_cli.routines import ROUTINE
from delf_cli.session import Options, Setup, restore_options, tool_options
from delf_cli.state import State, state_of
from delf_cli.streams import wrap_text
from delf_cli.tables import table
from delf_routines.cases import Case, case_of, run_case
from delf_routines.drafting import BoundDraft, describe_actions, difference
from delf_routines.drift import drift_of, named_actions
from delf_routines.remaining import remaining_values
from delf_routines.routine import Routine
from delf_routines.store import RoutineStore

# Command-line flags of a task that runs a routine.
_WITHOUT_MODEL: Final = {"strategy": ROUTINE}
_MAX_SHOWN_RUNS: Final = 20
_RUN_FIELDS: Final = ("task_id", "task", "state", "started_at", "cost_usd")


class _RoutineRow(TypedDict):
    """The JSON of a routine.

    Args:
        name: The name of the routine.
        title: The purpose, in one line.
        task: The task from which the routine was made.
        parameters: The parameters by name: type, default, pattern.
        actions: The effects of the actions that the routine calls, by name.
        script: The Python source.
    """

    name: str
    title: str
    task: str
    parameters: dict[str, dict[str, Any]]
    actions: dict[str, str]
    script: str


class _SavedRow(TypedDict):
    """The JSON of ``delf routines save``.

    Args:
        name: The name of the routine.
        path: The file that was written: the routine, or a further recorded run of the routine.
        inputs: The values of the routine's parameters in this task.
        cost_usd: The cost of the model that wrote several scripts as one; 0 without a model, None
            if a price is unknown.
        warnings: The places of the script that still contain the value of a parameter, in words.
    """

    name: str
    path: str
    inputs: dict[str, Any]
    cost_usd: float | None
    warnings: list[str]


class _TestedRow(TypedDict):
    """The JSON of ``delf routines test`` for each routine.

    Args:
        name: The name of the routine.
        ok: True if the routine does the same as in its recorded runs.
        differences: The differences in words, or the reason why the routine cannot be tested.
    """

    name: str
    ok: bool
    differences: list[str]


class _CheckedRow(TypedDict):
    """The JSON of ``delf routines check`` for each routine.

    Args:
        name: The name of the routine.
        ok: True if the routine can run.
        drift: The changes of the routine's actions, in words.
        error: The reason why the routine cannot be checked.
        proposed: True if a repaired script waits for ``delf routines accept``.
    """

    name: str
    ok: bool
    drift: list[str]
    error: str | None
    proposed: bool


class _DiffRow(TypedDict):
    """The JSON of ``delf routines diff``.

    Args:
        name: The name of the routine.
        diff: The proposed change as a unified diff; empty if nothing changes.
    """

    name: str
    diff: str


class _AcceptedRow(TypedDict):
    """The JSON of ``delf routines accept``.

    Args:
        name: The name of the routine.
        changed: False if there was no change.
    """

    name: str
    changed: bool


class _DeletedRow(TypedDict):
    """The JSON of ``delf routines reject`` and ``delf routines remove``.

    Args:
        name: The name of the routine.
        deleted: False if there was no proposal to reject.
    """

    name: str
    deleted: bool


class _RenamedRow(TypedDict):
    """The JSON of ``delf routines rename``.

    Args:
        name: The new name.
        path: The new file.
    """

    name: str
    path: str


@completes
def _names(ctx: click.Context) -> Iterable[str]:
    """Return the names of the project's routines."""
    return _store(state_of(ctx)).names()


name_argument = click.argument("name", shell_complete=_names)


def _store(state: State) -> RoutineStore:
    project = state.load_project()
    return RoutineStore(project.root, Trust.here(*state.trust))


@click.group(
    "routines",
    cls=BareGroup,
    bare_command="list",
    epilog="Exit status: 0 done, 1 a routine failed or its test found differences, 2 usage.",
)
def routines() -> None:
    """Save successful tasks as routines: scripts that run again without a model.

    \b
    delf routines save last revenue
    delf run revenue --input month=2026-11
    delf routines test
    """  # noqa: D301 - click's mark for lines that stay as they are


@routines.command("list")
@as_json_option(_RoutineRow)
@click.pass_context
def list_command(ctx: click.Context, as_json: bool) -> None:
    """List the routines of the project."""
    store = _store(state_of(ctx))
    readable_routines = list(_valid_routines(store))
    if as_json:
        click.echo(json_text([_routine_row(routine) for routine in readable_routines], indent=2))
        return
    if not readable_routines:
        click.echo("There is no routine yet: delf routines save TASK NAME", err=True)
        return
    rows = [
        (routine.name, ", ".join(routine.parameters), visible(routine.title))
        for routine in readable_routines
    ]
    for line in table(rows, ("name", "parameters", "what it does"), whole=True):
        click.echo(line)


def _valid_routines(store: RoutineStore) -> Iterator[Routine]:
    """Yield the readable routines, with a warning for each unreadable routine."""
    for name in store.names():
        try:
            yield store.find(name)
        except FolderNotTrustedError:
            raise  # ends the command: the user has to trust the folder first
        except DelfError as error:
            errors.say("warning", visible(error.message))


@routines.command("show")
@name_argument
@as_json_option(_RoutineRow)
@click.pass_context
def show(ctx: click.Context, name: str, as_json: bool) -> None:
    """Show a routine: its header and its script."""
    routine = _store(state_of(ctx)).find(name)
    if as_json:
        click.echo(json_text(_routine_row(routine), indent=2))
        return
    click.echo(visible(routine.text()), nl=False)


@routines.command("save", short_help="Save a task that worked as a routine.")
@click.argument("task_id", metavar="TASK", shell_complete=complete.task_ids)
@click.argument("name")
@click.option(
    "--fix",
    "fixed",
    metavar="NAME",
    multiple=True,
    help="Keep a proposed parameter as a fixed value in the script. May be repeated.",
)
@click.option("-y", "--yes", is_flag=True, help="Do not ask: I have looked at it.")
@as_json_option(_SavedRow)
@click.pass_context
def save(
    ctx: click.Context, task_id: str, name: str, fixed: tuple[str, ...], yes: bool, as_json: bool
) -> None:
    """Save the task TASK of the journal as the routine NAME of this project.

    TASK is an id, or `last` for the newest task of this project.

    delf shows the routine first, with a diff if it replaces one of that name. If TASK is a run of
    the routine NAME itself, the run is added as a test case for `delf routines test`.
    """
    state = state_of(ctx)
    # The routine is saved for the current folder; restore_options() changes to the task's folder.
    store = _store(state)
    try:
        record, events = load_task(ctx, task_id)
    except UnknownTaskError as error:
        hint = f"{error.hint}; the task comes first, then the name of the routine"
        raise UnknownTaskError(error.message, hint=hint) from None
    first_event = start_event(events)
    if first_event is None:
        raise ConfigurationError(f"the task {short_id(record.task_id)} has not begun")
    agent = Setup.of(state, restore_options(state, Options(flags={}), first_event.setup)).agent()
    call = _find_call(record.task)
    if call is not None and call.routine == name:
        path = _add_test_case(state, store, record, events, call)
        inputs = dict(call.values)
        row = _SavedRow(name=name, path=str(path), inputs=inputs, cost_usd=0.0, warnings=[])
        write_result(f"the run is kept as {path}", row, as_json=as_json)
        return

    drafting = BoundDraft.of(
        agent, record.task_id, name, events, store.root, store.trust, fixed=fixed
    )
    draft = asyncio.run(drafting)
    _show_draft(draft, as_json=as_json)
    if not confirm(f"\nsave it as {name}?", yes=yes):
        ctx.exit(1)
    draft.keep()
    inputs = dict(draft.case.inputs)
    command = _command_of(name, inputs, first_event.setup)
    row = _SavedRow(
        name=name,
        path=str(store.path(name)),
        inputs=inputs,
        cost_usd=draft.cost_usd,
        warnings=[*draft.warnings],
    )
    text = f"saved as {row['path']}\nrun it with: {command}"
    write_result(visible(text), row, as_json=as_json)


def _command_of(name: str, inputs: Mapping[str, Any], setup: Mapping[str, Any]) -> str:
    """Return the shell command that runs a routine with the inputs and options of its task."""
    words = [shlex.quote(f"{key}={value}") for key, value in inputs.items()]
    options = "".join(f" --input {word}" for word in words)
    return f"delf run {name}{options}{tool_options(setup)}"


def _show_draft(draft: BoundDraft, *, as_json: bool) -> None:
    """Show a draft with its cost and warnings; raise if its replay differs from the task."""
    cost_usd = draft.cost_usd
    if cost_usd != 0:
        cost = "" if cost_usd is None else f", which cost {cost_usd:.4f} USD"
        click.echo(f"a model merged the task's scripts into one script{cost}", err=True)
    click.echo(visible(draft.change), nl=False, err=as_json)
    # With the task's recorded results, the routine must repeat the task's calls and answer.
    draft.raise_if_replay_differs()
    _warn_of_remaining_values(draft.routine)


def _find_call(task: str) -> RoutineCall | None:
    """Return the call of a routine in a task's text; None for a task in plain words."""
    try:
        return RoutineCall.read(task)
    except ConfigurationError:
        return None


def _warn_of_remaining_values(routine: Routine) -> None:
    """Warn of values in the script that do not change with the routine's parameters."""
    warnings = remaining_values(routine)
    for warning in warnings:
        errors.say("warning", visible(warning))
    if warnings:
        errors.say("hint", "use the parameter there, or keep its value fixed: save with --fix NAME")


def _add_test_case(
    state: State,
    store: RoutineStore,
    record: TaskRecord,
    events: Sequence[Event],
    call: RoutineCall,
) -> Path:
    """Store a run of a routine as a test case, and return the case's file.

    Raises:
        ConfigurationError: If the run did not succeed, or the routine now behaves differently.
    """
    name = call.routine
    if record.state is not TaskState.DONE:
        raise ConfigurationError(f"the run {short_id(record.task_id)} is not done")
    routine = store.find(name)
    case = case_of(events, routine.values(call.values))
    host = state.discover(state.load_project().environ)
    differences = asyncio.run(run_case(routine, case, partial(Agent, host=host)))
    if differences:
        raise ConfigurationError(
            f"{name} behaves differently from that run: {'; '.join(differences)}"
        )
    return store.add_case(name, short_id(record.task_id), case.text())


def _test_routine(store: RoutineStore, name: str, host: PluginHost) -> list[str]:
    """Return the differences between a routine and its recorded runs."""
    routine = store.find(name)
    differences: list[str] = []
    for path in store.case_paths(name):
        case = Case.of_bytes(store.read_case(path), str(path))
        differences += asyncio.run(run_case(routine, case, partial(Agent, host=host)))
    return differences


@routines.command("test", short_help="Run routines against their recorded runs.")
@click.argument("names", metavar="[NAME]...", nargs=-1, shell_complete=_names)
@click.option(
    "--junit", metavar="FILE", type=click.Path(), help="Write the results as a file for CI."
)
@as_json_option(_TestedRow)
@click.pass_context
def test(ctx: click.Context, names: tuple[str, ...], junit: str | None, as_json: bool) -> None:
    """Run each routine, or the named ones, against its recorded runs. No service is called."""
    state = state_of(ctx)
    store = _store(state)
    host = state.discover(state.load_project().environ)
    results: dict[str, list[str]] = {}
    for name in names or store.names():
        try:
            results[name] = _test_routine(store, name, host)
        except DelfError as error:
            results[name] = [error.message]
        if as_json:
            continue
        click.echo(f"{name}: {'ok' if not results[name] else 'differs'}")
        for line in results[name]:
            click.echo(f"  {wrap_text(visible(line), indent=2)}")
    if junit is not None:
        Path(junit).write_text(_junit(results), encoding="utf-8")
    if as_json:
        rows = [
            _TestedRow(name=name, ok=not problems, differences=problems)
            for name, problems in results.items()
        ]
        click.echo(json_text(rows, indent=2))
    elif not results:
        click.echo("There is no routine yet: delf routines save TASK NAME", err=True)
    ctx.exit(1 if any(results.values()) else 0)


def _junit(results: dict[str, list[str]]) -> str:
    """Format test results as JUnit XML."""
    failed = sum(bool(failures) for failures in results.values())
    lines = [f'<testsuite name="routines" tests="{len(results)}" failures="{failed}">']
    for name, failures in results.items():
        lines.append(f'  <testcase classname="routines" name={quoteattr(name)}>')
        if failures:
            lines.append(f"    <failure message={quoteattr('; '.join(map(visible, failures)))}/>")
        lines.append("  </testcase>")
    return "\n".join([*lines, "</testsuite>", ""])


@routines.command("check", short_help="Read all routines, and compare their actions.")
@click.argument("names", metavar="[NAME]...", nargs=-1, shell_complete=_names)
@as_json_option(_CheckedRow)
@click.pass_context
def check(ctx: click.Context, names: tuple[str, ...], as_json: bool) -> None:
    """Check the files of all routines, or of the named ones, and compare their actions.

    A routine's recorded actions are compared with the project's current actions.
    """
    state = state_of(ctx)
    store = _store(state)
    rows: list[_CheckedRow] = []
    tools: list[ToolDescription] | None = None
    for name in names or store.names():
        row = _CheckedRow(name=name, ok=False, drift=[], error=None, proposed=False)
        rows.append(row)
        try:
            routine = store.find(name)
            if tools is None:  # only once, and only if a routine can be read
                tools = _describe_tools(state)
            drifts = drift_of(routine, tools)
        except DelfError as error:
            row["error"] = error.message
        else:
            row["ok"] = not any(drift.matters for drift in drifts)
            row["drift"] = list(map(str, drifts))
            row["proposed"] = store.has_proposal(name)
    if as_json:
        click.echo(json_text(rows, indent=2))
    else:
        for row in rows:
            outcome = row["error"] or "; ".join(row["drift"]) or "ok"
            click.echo(wrap_text(f"{row['name']}: {visible(outcome)}", indent=2))
            if row["proposed"]:
                click.echo(f"  a repaired script is proposed: delf routines diff {row['name']}")
    ctx.exit(0 if all(row["ok"] for row in rows) else 1)


@routines.command("diff", short_help="Show the proposed change of a routine.")
@name_argument
@as_json_option(_DiffRow)
@click.pass_context
def diff(ctx: click.Context, name: str, as_json: bool) -> None:
    """Show the pending change of the routine NAME, which `accept` takes over.

    The change is a script that a model repaired, or an update of the recorded actions.
    """
    state = state_of(ctx)
    store = _store(state)
    routine = store.find(name)
    change = _pending_change(store, routine, lambda: _describe_tools(state))
    text = "" if change is None else difference(routine, change.routine)
    if as_json:
        click.echo(json_text(_DiffRow(name=name, diff=text), indent=2))
        return
    click.echo(visible(text), nl=False)
    if change is None:
        click.echo(f"nothing of {name} changes", err=True)


@routines.command("accept", short_help="Accept the proposed change of a routine.")
@name_argument
@click.option("-y", "--yes", is_flag=True, help="Do not ask: I have looked at it.")
@as_json_option(_AcceptedRow)
@click.pass_context
def accept(ctx: click.Context, name: str, yes: bool, as_json: bool) -> None:
    """Accept the pending change of the routine NAME; look at it first with `diff`.

    A repaired script is tested first with the recorded results of the task that repaired it.
    """
    state = state_of(ctx)
    store = _store(state)
    routine = store.find(name)
    change = _pending_change(store, routine, lambda: _describe_tools(state))
    if change is None:
        store.drop_proposal(name)  # a proposal that is equal to the routine
        result = _AcceptedRow(name=name, changed=False)
        write_result(f"nothing of {name} changes", result, as_json=as_json)
        return
    click.echo(visible(difference(routine, change.routine)), nl=False, err=as_json)
    if change.case is not None:
        host = state.discover(state.load_project().environ)
        run = run_case(change.routine, change.case, partial(Agent, host=host))
        differences = asyncio.run(run)
        for line in differences:
            errors.say("warning", visible(line))
        if differences:
            raise ConfigurationError(
                "the repaired script behaves differently with its recorded results",
                hint=f"delf routines reject {name}, or edit {store.path(name)} yourself",
            )
    _warn_of_remaining_values(change.routine)
    if not confirm(f"\ntake this for {name}?", yes=yes):
        ctx.exit(1)
    recorded_run = None if change.case is None else change.case.text()
    path = store.keep(change.routine, recorded_run)
    store.drop_proposal(name)
    write_result(f"saved as {path}", _AcceptedRow(name=name, changed=True), as_json=as_json)


@routines.command("reject", short_help="Delete the proposed change of a routine.")
@name_argument
@as_json_option(_DeletedRow)
@click.pass_context
def reject(ctx: click.Context, name: str, as_json: bool) -> None:
    """Delete the script that a model repaired for the routine NAME. The routine stays unchanged."""
    store = _store(state_of(ctx))
    store.find(name)  # raises if there is no such routine
    proposed = store.has_proposal(name)
    store.drop_proposal(name)
    text = f"the proposal for {name} is deleted" if proposed else f"nothing is proposed for {name}"
    write_result(text, _DeletedRow(name=name, deleted=proposed), as_json=as_json)


class _PendingChange(NamedTuple):
    """A change of a routine that a person may accept.

    Args:
        routine: The changed routine.
        case: The recorded run of the script that a model repaired; None for an update of the
            recorded actions.
    """

    routine: Routine
    case: Case | None = None


def _pending_change(
    store: RoutineStore, routine: Routine, describe_tools: Callable[[], list[ToolDescription]]
) -> _PendingChange | None:
    """Return the change of a routine that a person may accept; None if there is none.

    The change is a script that a model repaired. Without such a script, the change is an update of
    the recorded actions, if the tools have changed.
    """
    proposal = store.proposed(routine.name)
    if proposal is not None:
        proposed, recorded_run = proposal
        case = Case.of_bytes(recorded_run, f"the proposal of {routine.name}")
        return None if proposed == routine else _PendingChange(proposed, case)
    tools = describe_tools()
    if not drift_of(routine, tools):
        return None
    # No tool describes which actions may return an empty result: keep what the routine says.
    never_empty = {name for name, recorded in routine.actions.items() if not recorded.empty}
    actions = named_actions(routine.script, tools, called=routine.actions, never_empty=never_empty)
    return _PendingChange(replace(routine, actions=actions))


@routines.command("rename")
@name_argument
@click.argument("new")
@as_json_option(_RenamedRow)
@click.pass_context
def rename(ctx: click.Context, name: str, new: str, as_json: bool) -> None:
    """Rename a routine."""
    path = _store(state_of(ctx)).rename(name, new)
    write_result(f"moved to {path}", _RenamedRow(name=new, path=str(path)), as_json=as_json)


@routines.command("remove")
@name_argument
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@as_json_option(_DeletedRow)
@click.pass_context
def remove(ctx: click.Context, name: str, yes: bool, as_json: bool) -> None:
    """Delete a routine and its recorded run."""
    store = _store(state_of(ctx))
    path = store.existing_path(name)
    if not confirm(f"delete {path}?", yes=yes):
        ctx.exit(1)
    store.remove(name)
    write_result(f"{name} is deleted", _DeletedRow(name=name, deleted=True), as_json=as_json)


@routines.command("history")
@name_argument
@as_json_option(TaskRecord, _RUN_FIELDS)
@click.pass_context
def history(ctx: click.Context, name: str, as_json: bool) -> None:
    """List the tasks that ran a routine of this project, newest first."""
    task_start = f"{name}("  # the task of each run begins with this text
    project = CurrentProject.of(state_of(ctx))

    async def find(journal: SharedJournal) -> list[TaskRecord]:
        runs: list[TaskRecord] = []
        page = await journal.find(_MAX_SHOWN_RUNS, text=task_start)
        while page and len(runs) < _MAX_SHOWN_RUNS:
            # find() also returns tasks that have the text elsewhere than at the beginning.
            runs_in_page = [task for task in page if task.task.startswith(task_start)]
            # Another project may have a routine of this name. A program's task may have no folder.
            runs += [task for task in runs_in_page if not task.folder or project.owns(task.folder)]
            page = await journal.find(_MAX_SHOWN_RUNS, text=task_start, after=page[-1].place)
        return runs[:_MAX_SHOWN_RUNS]

    records = ask_journal(ctx, find)
    if as_json:
        click.echo(json_text([_run_data(task) for task in records], indent=2))
        return
    if not records:
        click.echo(f"{name} has not run yet", err=True)
        return
    rows = [(short_id(task.task_id), task.state, visible(task.task)) for task in records]
    for line in table(rows, ("id", "state", "run"), whole=True):
        click.echo(line)


def _run_data(task: TaskRecord) -> dict[str, Any]:
    """Convert a run of a routine to JSON-ready data."""
    return {name: getattr(task, name) for name in _RUN_FIELDS}


def _routine_row(routine: Routine) -> _RoutineRow:
    return {
        "name": routine.name,
        "title": routine.title,
        "task": routine.task,
        "parameters": {
            name: {"type": item.type, "default": item.default, "pattern": item.pattern}
            for name, item in routine.parameters.items()
        },
        "actions": {name: item.effect for name, item in routine.actions.items()},
        "script": routine.script,
    }


def _describe_tools(state: State) -> list[ToolDescription]:
    """Return descriptions of the project's tools."""
    options = Options(flags=_WITHOUT_MODEL)
    agent: Agent[Any] = Setup.of(state, options).agent()
    return asyncio.run(describe_actions(agent.tools))
