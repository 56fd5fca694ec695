"""``delf run``: one task from the command line."""

from __future__ import annotations

import sys
from typing import Any, Final, cast

import click

from delf.cli import complete
from delf.cli.state import state_of

_MODES: Final = {"ask": "interactive", "all": "approve_all", "none": "strict"}
HANDING: Final = ("queue", "key", "retries", "retry_after")
"""Options that go along with ``--detach``."""
_MODES_BY_NAME: Final = ("interactive", "approve_all", "strict", *_MODES)


class _RunCommand(click.Command):
    """Takes the name of an observer that is not used unasked as a flag: ``--otel``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, list(args))
        except click.NoSuchOption as error:
            from delf.specs import ObserverSpec

            specs = state_of(ctx).discover().specs(ObserverSpec)
            if error.option_name not in {f"--{spec.name}" for spec in specs if spec.opt_in}:
                raise
            observe = f"--observe={error.option_name.removeprefix('--')}"
            known = [observe if arg == error.option_name else arg for arg in args]
            return self.parse_args(ctx, known)


@click.command(
    "run",
    cls=_RunCommand,
    epilog="Exit status: 0 done, 1 the task failed, 2 usage or configuration, 130 interrupted.",
)
@click.argument("task")
@click.option(
    "--llm",
    metavar="MODEL",
    shell_complete=complete.models,
    help="The model, as gpt-4o-mini or recorded:FILE.",
)
@click.option("--base-url", metavar="URL", help="An OpenAI-compatible endpoint to ask it at.")
@click.option(
    "-c",
    "--connection",
    "connections",
    metavar="NAME",
    multiple=True,
    shell_complete=complete.connections,
    help="A connection of delf.toml, or a type set up by its DELF_<TYPE>_… variables. Without "
    "any, all of delf.toml are used. May be repeated.",
)
@click.option(
    "--tools",
    "tool_files",
    metavar="FILE.py",
    multiple=True,
    type=click.Path(),
    help="Use the @tool functions and connections that a Python file defines. May be repeated.",
)
@click.option(
    "--set",
    "overrides",
    metavar="KEY=VALUE",
    multiple=True,
    help="A setting, as agent.retry_count=3 or connections.shop.url=… May be repeated.",
)
@click.option("--memory", metavar="NAME", help="Where facts from before are kept.")
@click.option(
    "--strategy", metavar="NAME", help="How a task becomes tool calls; by scripts, when omitted."
)
@click.option(
    "--sandbox",
    metavar="NAME",
    shell_complete=complete.sandboxes,
    help="Where scripts run; the strongest by default.",
)
@click.option(
    "--approval-mode",
    "--approve",
    "approve",
    type=click.Choice(_MODES_BY_NAME),
    help="Calls that need approval: ask for each (interactive, the default), allow all "
    "(approve_all), or deny all (strict). Short: ask, all, none.",
)
@click.option(
    "--confirm-mode",
    type=click.Choice(("call", "plan")),
    help="Ask at each call (default), or once for the whole script before it runs.",
)
@click.option(
    "--wait-approvals",
    is_flag=True,
    help="Where nobody can be asked, wait for `delf approvals` in another process.",
)
@click.option(
    "--journal", metavar="NAME", help="Where events are kept.  [default: sql, if installed]"
)
@click.option("--no-journal", is_flag=True, help="Keep nothing of the task.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="The most that the task may take, with all waiting.  [default: 300, with "
    "--wait-approvals 600]",
)
@click.option("--out", metavar="DIR", type=click.Path(), help="Where output files go.")
@click.option(
    "--file",
    "files",
    metavar="PATH",
    multiple=True,
    type=click.Path(),
    help="An input file that scripts may read. May be repeated.",
)
@click.option(
    "--record",
    metavar="FILE",
    type=click.Path(),
    help="Write what the model answers to a file that --llm recorded:FILE replays.",
)
@click.option(
    "--observe",
    "observers",
    metavar="NAME",
    multiple=True,
    help="Let an observer see the task that is not used unasked; --NAME is short for it. "
    "May be repeated.",
)
@click.option("--stream", is_flag=True, help="Take the model's answers in pieces.")
@click.option(
    "--detach",
    is_flag=True,
    help="Leave the task to a worker (`delf worker`), and write its id.",
)
@click.option("--queue", metavar="NAME", help="Of which worker, with --detach.  [default: default]")
@click.option(
    "--key",
    metavar="TEXT",
    help="On whose behalf, as customer-7, with --detach: a queue has limits for each key.",
)
@click.option(
    "--retries",
    metavar="N",
    type=click.IntRange(min=0),
    help="With --detach: how often it is tried again where a service was away.  [default: the "
    "queue's]",
)
@click.option(
    "--retry-after",
    metavar="SECONDS",
    type=click.FloatRange(min=0, min_open=True),
    help="Until the first of these, with --detach; each later one waits twice as long.",
)
@click.option("--show-code", is_flag=True, help="Show each script.")
@click.option("-v", "--verbose", is_flag=True, help="Show each step and call, and a summary.")
@click.option("--json", "as_json", is_flag=True, help="Write the whole response as one object.")
@click.option("--events", is_flag=True, help="Write each event as a line of JSON as it happens.")
@click.pass_context
def run(ctx: click.Context, task: str, **given: Any) -> None:
    """Do TASK, which is said in plain words; "-" reads it from the standard input.

    The answer goes to the standard output and everything else to the standard error. On a
    terminal, calls that change things are shown and wait for a yes.

    \b
    delf run "How many orders are open?" -c shop
    echo "Say hello" | delf run - --llm gpt-4o-mini
    """  # noqa: D301 - click's mark for lines that stay as they are
    if given["as_json"] and given["events"]:
        raise click.UsageError("--json and --events exclude each other", ctx)
    if given["journal"] and given["no_journal"]:
        raise click.UsageError("--journal and --no-journal exclude each other", ctx)
    handing: dict[str, Any] = {name: given[name] for name in HANDING if given[name] is not None}
    if handing and not given["detach"]:
        option = next(iter(handing)).replace("_", "-")
        raise click.UsageError(f"--{option} goes with --detach", ctx)
    state = state_of(ctx)
    text = _task_text(ctx, task)
    if given["detach"]:
        from delf.cli.session import Options, detach

        handing.setdefault("queue", "default")
        options = Options(flags=flags_of(given), **rest_of(given))
        ctx.exit(detach(state, text, options, cast("Any", handing)))
    from delf.cli.session import Options, run_session

    ctx.exit(run_session(state, text, Options(flags=flags_of(given), **rest_of(given))))


def flags_of(given: dict[str, Any]) -> dict[str, Any]:
    """The options that are fields of the agent's configuration."""
    model = {"model": given["llm"], "base_url": given["base_url"]}
    return {
        "llm": {key: value for key, value in model.items() if value is not None} or None,
        "memory": given["memory"],
        "strategy": given.get("strategy"),
        "sandbox": given["sandbox"],
        "approval_mode": _MODES.get(given["approve"], given["approve"]),
        "confirm_mode": given["confirm_mode"],
        "wait_approvals": given["wait_approvals"] or None,
        "journal": "memory" if given["no_journal"] else given["journal"],
        "timeout": given["timeout"],
        "output_dir": given["out"],
        "files": list(given["files"]) or None,
        "observers": list(given["observers"]) or None,
        "record": given["record"],
        "stream": given["stream"] or None,
    }


def rest_of(given: dict[str, Any]) -> dict[str, Any]:
    """The other fields of a session's options."""
    names = ("connections", "tool_files", "overrides", "show_code", "verbose", "as_json", "events")
    return {name: given[name] for name in names}


def _task_text(ctx: click.Context, task: str) -> str:
    """The task, read from the standard input if it is ``-``."""
    if task == "-":
        try:
            task = sys.stdin.buffer.read().decode("utf-8-sig")
        except UnicodeDecodeError:
            raise click.UsageError("the task on the standard input is not UTF-8", ctx) from None
    if not task.strip():
        raise click.UsageError("the task is empty", ctx)
    return task.strip()
