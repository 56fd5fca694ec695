"""``delf workers``: list, check and run workers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypedDict

import click

from delf.errors import DelfError, ToolRefusedError
from delf.terminal import visible
from delf.types import TaskState
from delf_cli import errors
from delf_cli.as_json import as_json_option
from delf_cli.json_encoding import encode_json
from delf_cli.lazy import BareGroup
from delf_cli.options import flags_of, remaining_options, run_options
from delf_cli.state import State, state_of
from delf_cli.streams import wrap_text

if TYPE_CHECKING:
    from delf import Agent, Response
    from delf.events import Event
    from delf_workers.definition import WorkerDefinition
    from delf_workers.registry import Registry

_NOT_SHARED: Final = {"connections", "files", "strategy"}


class _ListedRow(TypedDict):
    """The JSON of a worker in ``delf workers list``.

    Args:
        name: The worker's name.
        file: The worker's file.
        description: The worker's description; None if the file is invalid.
        generated: True if a task made the worker.
        error: The error in the file; None if the file is valid.
    """

    name: str
    file: str
    description: str | None
    generated: bool
    error: str | None


class _CheckedRow(TypedDict):
    """The JSON of ``delf workers check`` for each worker.

    Args:
        name: The worker's name.
        ok: True if the worker is valid.
        error: The error in the worker's file or connections; None if the worker is valid.
    """

    name: str
    ok: bool
    error: str | None


@click.group("workers", cls=BareGroup, bare_command="list")
def workers() -> None:
    """List, show, check and run workers: agents that are declared in files.

    \b
    delf workers list
    delf workers run summarise "Sum up the plan." --attach plan.md
    """  # noqa: D301 - click's mark for lines that stay as they are


@workers.command("list")
@as_json_option(_ListedRow)
@click.pass_context
def list_command(ctx: click.Context, *, as_json: bool) -> None:
    """List the workers, and the errors in invalid files."""
    state = state_of(ctx)
    registry = _registry(ctx, state)
    rows: list[_ListedRow] = []
    for name, path in registry.files().items():
        row = _ListedRow(
            name=name,
            file=str(path),
            description=None,
            generated=registry.is_generated(path),
            error=None,
        )
        try:
            row["description"] = registry.find(name).description
        except DelfError as error:
            row["error"] = state.redact(error.message)
        rows.append(row)
    if as_json:
        click.echo(encode_json(rows, indent=2))
        return
    _print_rows(rows)
    if not rows:
        folders = ", ".join(str(folder) for folder in registry.folders)
        errors.say("hint", f"no worker is in {folders}; delf init")


def _print_rows(rows: Sequence[_ListedRow]) -> None:
    widest = max((len(row["name"]) for row in rows), default=0)
    for row in rows:
        text = row["description"] or ""
        if row["error"]:
            text = f"! {row['error']}"
        if row["generated"]:
            text += "  (generated)"
        padded_name = f"{row['name']:<{widest}}"
        wrapped_text = wrap_text(visible(text), indent=widest + 2)
        click.echo(f"{padded_name}  {wrapped_text}".rstrip())


@workers.command("show")
@click.argument("name")
@as_json_option("delf_workers.definition:WorkerDefinition")
@click.pass_context
def show(ctx: click.Context, name: str, *, as_json: bool) -> None:
    """Check the file of the worker NAME, and show it."""
    state = state_of(ctx)
    worker = _registry(ctx, state).find(name)
    if as_json:
        click.echo(encode_json(worker.model_dump(mode="json"), indent=2))
        return
    click.echo(click.style(str(worker.file), dim=True))
    click.echo(visible(worker.file.read_text(encoding="utf-8").rstrip("\n")))


@workers.command("check", epilog="Exit status: 0 all workers are valid, 2 one is not.")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@as_json_option(_CheckedRow)
@click.pass_context
def check(ctx: click.Context, names: tuple[str, ...], *, as_json: bool) -> None:
    """Check all workers, or the named ones: their files and the connections in them."""
    state = state_of(ctx)
    registry = _registry(ctx, state)
    rows: list[_CheckedRow] = []
    checker = _ConnectionChecker(state, registry)
    for name in names or tuple(registry.files()):
        row = _CheckedRow(name=name, ok=True, error=None)
        rows.append(row)
        try:
            checker.check(name)
        except DelfError as error:
            row["ok"] = False
            row["error"] = state.redact(error.message)
            errors.report(error, debug=state.debug, redact=state.redact)
        else:
            if not as_json:
                click.echo(f"{name}: ok")
    if as_json:
        click.echo(encode_json(rows, indent=2))
    if not all(row["ok"] for row in rows):
        ctx.exit(errors.USAGE)


class _ConnectionChecker:
    """Creates the connections of workers without using them, as a check."""

    def __init__(self, state: State, registry: Registry) -> None:
        from delf_workers.connection import Workers
        from delf_workers.rights import Workshop

        project = state.load_project()
        self._registry = registry
        # A worker may call further workers through a copy of this connection, as in a task.
        self._workers = Workers.of_registry(registry)
        create_connection = project.connector(state.discover(project.environ))
        connections = {
            connection.name: connection
            for connection in map(create_connection, project.connections)
        }
        tools = {self._workers.name: self._workers, **connections}
        self._workshop = Workshop(
            registry, tools, create_connection, project.environ, Workers.for_worker
        )

    def check(self, name: str) -> None:
        """Check that a worker's connections can be created.

        Raises:
            ConfigurationError: If the worker's file is invalid. The message names file, line and
                key.
        """
        worker = self._registry.find(name)
        self._workshop.tools_of(worker, self._workers)  # raises for invalid settings


@workers.command(
    "run",
    epilog="Exit status: 0 done, 1 the task failed, 2 usage or configuration, 130 interrupted.",
)
@click.argument("name")
@click.argument("task", required=False)
@click.option(
    "--input", "inputs", metavar="KEY=VALUE", multiple=True, help="An input of the worker."
)
@click.option(
    "--attach",
    "files",
    metavar="FILE",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False),
    help="A file that the worker may read. May be repeated.",
)
@click.pass_context
def run(ctx: click.Context, name: str, task: str | None, **given: Any) -> None:
    """Let the worker NAME do TASK. Without TASK, the worker follows its instructions.

    \b
    delf workers run summarise --attach plan.md --input words=50
    """  # noqa: D301 - click's mark for lines that stay as they are
    from delf_cli.session import Options, work_session
    from delf_workers.running import response_of_worker, text_of_worker_task

    state = state_of(ctx)
    worker = _registry(ctx, state).find(name)
    inputs = _inputs(ctx, worker, given["inputs"])
    try:
        worker.fill(inputs)  # only to report wrong inputs before the task begins
    except ToolRefusedError as error:
        raise click.UsageError(error.message, ctx) from None
    # The outer task needs ``workers``. A generated worker uses the connections of the outer task.
    project_connections = state.load_project().connections
    needed_by_worker = project_connections if worker.generated else ()
    connections = tuple(dict.fromkeys([*needed_by_worker, "workers"]))  # each name once
    file_names = [Path(file).name for file in given["files"]]
    text = text_of_worker_task(name, task, inputs, file_names)
    flags = {**flags_of(given), "strategy": "worker"}
    other_options = remaining_options({**given, "connections": connections})
    options = Options(flags=flags, **other_options)

    async def run_worker_task(agent: Agent, run_options: Mapping[str, Any]) -> Response:
        """Run an outer task, which does nothing but run the worker as its child task.

        Returns:
            The response of the worker; the response of the outer task if that task was stopped.
        """
        worker_events: list[Event] = []
        outer_response = await agent.arun(
            text,
            setup=options.to_record(state),
            child_listeners=[worker_events.append],
            **run_options,
        )
        was_stopped = outer_response.state not in (TaskState.DONE, TaskState.FAILED)
        if was_stopped:
            return outer_response
        return response_of_worker(outer_response, worker_events)

    ctx.exit(work_session(state, run_worker_task, options))


run.params += run_options(without=_NOT_SHARED)


def _inputs(ctx: click.Context, worker: WorkerDefinition, pairs: tuple[str, ...]) -> dict[str, Any]:
    """Parse ``KEY=VALUE`` texts. The values of inputs that are not strings are JSON."""
    values: dict[str, Any] = {}
    for text in pairs:
        key, separator, value = text.partition("=")
        if not separator:
            raise click.UsageError(f"--input {text}: KEY=VALUE", ctx)
        declared = worker.inputs.get(key)
        if declared is None or declared.type == "string":  # unknown names are reported later
            values[key] = value
        else:
            try:
                values[key] = json.loads(value)
            except (ValueError, RecursionError):
                raise click.UsageError(
                    f"--input {key}: {value!r} is not of the type {declared.type}", ctx
                ) from None
    return values


def _registry(ctx: click.Context, state: State) -> Registry:
    from delf_workers.connection import Workers

    project = state.load_project()
    workers: Any = project.connector(state.discover(project.environ))("workers")
    if not isinstance(workers, Workers):
        raise click.UsageError("the connection 'workers' of delf.toml is of another type", ctx)
    return workers.registry
