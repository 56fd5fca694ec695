"""``delf run``: one task from the command line."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import click

from delf.errors import ConfigurationError, did_you_mean
from delf.trust.decisions import Trust
from delf_cli.options import DETACH_OPTIONS, flags_of, remaining_options, run_options
from delf_cli.printing import task_printer
from delf_cli.routines import ROUTINE, ROUTINES
from delf_cli.state import state_of

__all__ = ["run", "task_printer"]


@click.command(
    "run",
    epilog="Exit status: 0 done, 1 the task failed, 2 usage or configuration, 130 interrupted.",
)
@click.argument("words", metavar="TASK", nargs=-1, required=True)
@click.option(
    "--schema",
    "schema",
    metavar="FILE.json",
    type=click.Path(),
    help="A file with a JSON Schema: the answer is JSON data of this form.",
)
@click.option(
    "--input",
    "inputs",
    metavar="NAME=VALUE",
    multiple=True,
    help="A parameter of a routine, if TASK is a routine's name. May be repeated.",
)
@click.pass_context
def run(ctx: click.Context, words: tuple[str, ...], **run_options: Any) -> None:
    """Do TASK, which is in plain words, with or without quotes; "-" reads the standard input.

    A single word is the name of a routine. The answer goes to the standard output, and everything
    else to the standard error. At a terminal, a call that changes something is shown and waits
    for your approval.

    \b
    delf run "How many orders are open?" -c shop
    echo "Say hello" | delf run - --llm gpt-4o-mini
    delf run revenue --input month=2026-11
    """  # noqa: D301 - click's mark for lines that stay as they are
    from delf_cli.session import Options, run_session, submit_task

    queue_options: dict[str, Any] = {
        name: run_options[name] for name in DETACH_OPTIONS if run_options[name] is not None
    }
    if queue_options and not run_options["detach"]:
        option = next(iter(queue_options)).replace("_", "-")
        raise click.UsageError(f"--{option} goes with --detach", ctx)
    state = state_of(ctx)
    text = _task_text(ctx, " ".join(words))
    flags = flags_of(run_options)
    is_routine = bool(run_options["inputs"]) or (len(words) == 1 and _is_routine_name(words[0]))
    if is_routine:
        text = _routine_task(ctx, text, run_options["inputs"])
        flags["strategy"] = ROUTINE
    else:
        _refuse_bare_inputs(ctx, words)
    schema_file = run_options["schema"]
    schema = None if schema_file is None else _read_schema(ctx, Path(schema_file))
    options = Options(flags=flags, schema=schema, **remaining_options(run_options))
    if run_options["detach"]:
        queue_options.setdefault("queue", "default")
        ctx.exit(submit_task(state, text, options, cast("Any", queue_options)))
    ctx.exit(run_session(state, text, options))


run.params += run_options(detach=True)


def _is_routine_name(word: str) -> bool:
    # The length excludes "-", which means the standard input.
    return len(word) > 1 and word.replace("-", "_").isidentifier()


def _refuse_bare_inputs(ctx: click.Context, words: Sequence[str]) -> None:
    """Raise if the words are a routine's name and inputs that lack the option ``--input``.

    Otherwise a model would get these words as a task.
    """
    name, *inputs = words
    has_inputs = bool(inputs) and all("=" in word for word in inputs)
    if not (has_inputs and _is_routine_name(name)):
        return
    file = state_of(ctx).load_project().root / "routines" / f"{name}.py"
    if file.is_file():
        options = "".join(f" --input {shlex.quote(word)}" for word in inputs)
        raise click.UsageError(f"{name} is a routine: delf run {name}{options}", ctx)


def _routine_task(ctx: click.Context, name: str, inputs: tuple[str, ...]) -> str:
    """Return the text of a task that calls a routine, from ``NAME=VALUE`` inputs."""
    arguments: dict[str, str] = {}
    for text in inputs:
        key, separator, value = text.partition("=")
        if not separator:
            raise click.UsageError(f"--input {text!r} is not a NAME=VALUE", ctx)
        arguments[key.strip()] = value
    state = state_of(ctx)
    project = state.load_project()
    folder = project.root / "routines"
    # The command ``delf run NAME`` runs a routine. Without ``--input``, the user may have meant the
    # word as a task for a model. With ``--input``, task_of() below refuses an unknown name.
    if not arguments and not (folder / f"{name}.py").is_file():
        names = (path.stem for path in folder.glob("*.py"))
        raise ConfigurationError(
            f"{name!r} is one word, and no routine has this name{did_you_mean(name, names)}",
            hint=f'to ask a model: delf run "{name}." (a full stop, or more words)',
        )
    routines = state.discover(project.environ).service(ROUTINES)
    return routines.task_of(project.root, Trust.here(*state.trust), name, arguments)


def _read_schema(ctx: click.Context, path: Path) -> dict[str, Any]:
    try:
        schema: Any = json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise click.UsageError(f"--schema {path}: {error.strerror}", ctx) from None
    except (ValueError, RecursionError) as error:
        raise click.UsageError(f"--schema {path} is not JSON: {error}", ctx) from None
    if not isinstance(schema, dict):
        raise click.UsageError(f"--schema {path} is not a JSON Schema: it is not an object", ctx)
    return cast("dict[str, Any]", schema)


def _task_text(ctx: click.Context, task: str) -> str:
    """Return the task, read from the standard input if it is ``-``."""
    if task == "-":
        try:
            task = sys.stdin.buffer.read().decode("utf-8-sig")
        except UnicodeDecodeError:
            raise click.UsageError("the task on the standard input is not UTF-8", ctx) from None
    if not task.strip():
        raise click.UsageError("the task is empty", ctx)
    return task.strip()
