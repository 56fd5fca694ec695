"""The options of ``delf run``, shared by other commands that run tasks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, get_args

import click

from delf.types import ConfirmMode, FlowMode
from delf_cli import complete
from delf_cli.as_json import JsonOption
from delf_cli.pruning import SECONDS
from delf_cli.response_row import ResponseRow

DETACH_OPTIONS: Final = ("queue", "user", "retries", "retry_after")
"""Options that are valid only together with ``--detach``."""
_APPROVAL_MODES: Final = {
    "ask": "interactive",
    "all": "approve_all",
    "none": "strict",
    "reads": "read_only",
}
_OPTIONS: Final = (
    click.Option(
        ["llm", "--llm", "--model"],
        metavar="MODEL",
        shell_complete=complete.models,
        help="The model, such as gpt-4o-mini or recorded:FILE.",
    ),
    click.Option(
        ["--base-url"], metavar="URL", help="The URL of an OpenAI-compatible server for this model."
    ),
    click.Option(
        ["-c", "--connection", "connections"],
        metavar="NAME",
        multiple=True,
        shell_complete=complete.connections,
        help="A connection of delf.toml, or a type with DELF_<TYPE>_… variables. By default all "
        "connections of delf.toml are used. May be repeated.",
    ),
    click.Option(
        ["--tools", "tool_files"],
        metavar="FILE.py",
        multiple=True,
        type=click.Path(),
        help="Use the @tool functions and connections of a Python file. May be repeated.",
    ),
    click.Option(
        ["--set", "overrides"],
        metavar="KEY=VALUE",
        multiple=True,
        help="A setting, such as agent.retry_count=3 or connections.shop.url=… May be repeated.",
    ),
    click.Option(["--memory"], metavar="NAME", help="The memory store with earlier facts."),
    click.Option(
        ["--strategy"],
        metavar="NAME",
        help="The way from a task to tool calls; scripts by default.",
    ),
    click.Option(
        ["--sandbox"],
        metavar="NAME",
        shell_complete=complete.sandboxes,
        help="The sandbox for scripts; the strongest by default.",
    ),
    click.Option(
        ["--approve"],
        type=click.Choice(tuple(_APPROVAL_MODES)),
        help="Calls that need approval: ask for each (the default), allow all, deny all; `reads` "
        "denies every call that changes something.",
    ),
    click.Option(
        ["--confirm-mode"],
        type=click.Choice(get_args(ConfirmMode)),
        help="Ask before each call (default), or once for the whole script before it runs.",
    ),
    click.Option(
        ["--flows"],
        type=click.Choice(get_args(FlowMode)),
        help="Use of the origins of arguments: none, shown in requests for approval (default), ask "
        "even if such a call was approved, or refuse.",
    ),
    click.Option(
        ["--wait-approvals"],
        is_flag=True,
        help="If nobody can be asked, wait for `delf approvals` in another process.",
    ),
    click.Option(
        ["--journal"],
        metavar="NAME",
        help="The journal for events; none keeps nothing.  [default: sql, if installed]",
    ),
    click.Option(
        ["--timeout"],
        type=SECONDS,
        metavar="SECONDS",
        help="The longest time for the task: seconds, or 5m. Waiting for a person does not count.  "
        "[default: 300, with --wait-approvals 600]",
    ),
    click.Option(
        ["--budget"],
        metavar="USD",
        type=click.FloatRange(min=0, min_open=True),
        help="The most that models may cost, in USD.",
    ),
    click.Option(["--out"], metavar="DIR", type=click.Path(), help="The folder for output files."),
    click.Option(
        ["--file", "files"],
        metavar="PATH",
        multiple=True,
        type=click.Path(),
        help="An input file that scripts may read. May be repeated.",
    ),
    click.Option(
        ["--record"],
        metavar="FILE",
        type=click.Path(),
        help="Record the model's answers in a file, which --llm recorded:FILE replays.",
    ),
    click.Option(
        ["--observe", "observers"],
        metavar="NAME",
        multiple=True,
        help="Use an observer that is off by default, such as otel. May be repeated.",
    ),
    click.Option(["--stream"], is_flag=True, help="Take the model's answers in pieces."),
    click.Option(
        ["--detach"],
        is_flag=True,
        help="Leave the task to a runner (`delf runner`), and write its id.",
    ),
    click.Option(
        ["--queue"],
        metavar="NAME",
        help="The queue for the task, with --detach.  [default: default]",
    ),
    click.Option(
        ["--user"],
        metavar="TEXT",
        help="A user such as customer-7, with --detach: a queue limits the tasks of each user.",
    ),
    click.Option(
        ["--retries"],
        metavar="N",
        type=click.IntRange(min=0),
        help="The most retries if a model or service was away, with --detach.  [default: the "
        "queue's]",
    ),
    click.Option(
        ["--retry-after"],
        metavar="SECONDS",
        type=SECONDS,
        help="The time before the first retry, with --detach; each later one waits twice as long.",
    ),
    click.Option(["--calls"], is_flag=True, help="Show each call in one line."),
    click.Option(
        ["-v", "--verbose"], is_flag=True, help="Show each step, script and call, and a summary."
    ),
    JsonOption(
        ["--json", "as_json"],
        is_flag=True,
        help="Write the whole response as one object.",
        row=ResponseRow,
    ),
    click.Option(
        ["--events"], is_flag=True, help="Write each event as a line of JSON as it happens."
    ),
)


def run_options(without: Iterable[str] = (), *, detach: bool = False) -> list[click.Parameter]:
    """Return the options of ``delf run`` for another command.

    Args:
        without: Names of options that the command does not take.
        detach: Whether to include ``--detach`` and the options that need ``--detach``.
    """
    omitted_names = set(without)
    if not detach:
        omitted_names |= {"detach", *DETACH_OPTIONS}
    return [option for option in _OPTIONS if option.name not in omitted_names]


def flags_of(options: dict[str, Any]) -> dict[str, Any]:
    """Convert options of ``delf run`` to fields of the agent's configuration.

    A field is None if its option was not given, or if the command does not take the option.
    """
    given = options.get
    model: dict[str, Any] = {}
    if given("llm") is not None:
        model["model"] = given("llm")
    if given("base_url") is not None:
        model["base_url"] = given("base_url")
    approve = given("approve")
    return {
        "llm": model or None,
        "memory": given("memory"),
        "strategy": given("strategy"),
        "sandbox": given("sandbox"),
        "approval_mode": None if approve is None else _APPROVAL_MODES[approve],
        "confirm_mode": given("confirm_mode"),
        "flows": given("flows"),
        "wait_approvals": given("wait_approvals") or None,
        "journal": given("journal"),
        "timeout": given("timeout"),
        "budget_usd": given("budget"),
        "output_dir": given("out"),
        "files": list(given("files", ())) or None,
        "observers": list(given("observers", ())) or None,
        "record": given("record"),
        "stream": given("stream") or None,
    }


def remaining_options(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of ``delf run`` that :func:`flags_of` leaves out, such as ``--json``.

    The names of the options are fields of :class:`Options`. An option that the command does not
    take is missing from the result.

    Raises:
        click.UsageError: If both ``--json`` and ``--events`` are given.
    """
    if options.get("as_json") and options.get("events"):
        ctx = click.get_current_context()
        raise click.UsageError("--json and --events cannot be used together", ctx)
    names = ("connections", "tool_files", "overrides", "calls", "verbose", "as_json", "events")
    return {name: options[name] for name in names if name in options}
