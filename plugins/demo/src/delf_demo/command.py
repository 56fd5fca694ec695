"""``delf demo``: makes a shop, then runs two tasks on it with ``delf run``."""

from __future__ import annotations

import json
import os
import shlex
import sys
import tempfile
import textwrap
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import click

from delf import ConfigurationError
from delf.machine.own_files import make_private_folder, write_private
from delf.trust.decisions import Trust, digest_items, items_of
from delf_cli.as_json import as_json_option
from delf_cli.response_row import ResponseRow
from delf_cli.streams import real_stdout
from delf_demo.shop import make_shop

_CONFIG_FILE: Final = "delf.toml"
_ANSWERS_FILE: Final = "answers.jsonl"
_JOURNAL_FILE: Final = "journal.db"
_WRAP_COLUMNS: Final = 78
RECORDING: Final = Path(__file__).with_name("recording.jsonl")
QUESTION: Final = (
    "Which five products sold best this quarter, how does that compare with the "
    "quarter before, and how long will each last in stock?"
)
SHORT_QUESTION: Final = "What sold best this quarter?"
CHANGE: Final = (
    "Reorder what will be sold out within two weeks: place purchase orders that last eight weeks."
)
_TITLED_TASKS: Final = (("A question", QUESTION), ("A change that needs your approval", CHANGE))


@click.command("demo")
@click.option("--llm", metavar="MODEL", help="The model that writes the scripts.")
@click.option(
    "--approve",
    type=click.Choice(("ask", "all", "none")),
    default="ask",
    show_default=True,
    help="The decision about the change.",
)
@click.option(
    "--keep",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="Make the shop in this folder, and keep it.",
)
@click.option(
    "--make",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="Only make the shop in this folder, with its delf.toml; run nothing.",
)
@click.option("-v", "--verbose", is_flag=True, help="Show scripts, steps and all calls in full.")
@as_json_option(ResponseRow, words="Write both responses as JSON, one line each.")
@click.option("--web", is_flag=True, help="Show both tasks on a page, and decide there.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8080,
    show_default=True,
    help="The port of the page.",
)
@click.pass_context
def demo(
    ctx: click.Context,
    llm: str | None,
    approve: str,
    keep: Path | None,
    make: Path | None,
    verbose: bool,
    as_json: bool,
    web: bool,
    port: int,
) -> None:
    """Run two tasks on the database of a small shop; no key is needed.

    The first is a question that takes several queries. The second changes data, so it needs
    approval: on a terminal you decide, elsewhere the change is rejected.
    """
    model, model_reason = choose_model(llm)
    echo = _print_nothing if as_json else _print
    is_temporary = make is None and keep is None
    with _shop_folder(make or keep) as folder:
        tables, rows = make_shop(folder / "shop.db")
        config = shop_config(model, folder)
        if web or is_temporary:
            # A journal of its own keeps the demo's tasks out of the user's list of tasks, and the
            # user's tasks off the page.
            config += _journal_section(folder)
        config_options = _write_config(folder, config, is_temporary=is_temporary)
        place = "" if is_temporary else f" in {_relative_path(folder)}"
        echo(f"A small tea shop: {tables} tables, {rows:,} rows of SQLite{place}.")
        if make is not None:
            echo(f"\nNext:\n  cd {shlex.quote(_relative_path(folder))}")
            echo(f'  delf run "{SHORT_QUESTION}"')
            return
        echo(_wrap_text(f"Scripts are written by {model_reason}."))
        if web:
            tasks = ["--task", QUESTION, "--task", CHANGE]
            status = _run_delf(ctx, ["serve", *config_options, "--port", str(port), *tasks])
        else:
            options = _options_of_run(model, approve, verbose=verbose, as_json=as_json)
            status = _run_tasks(ctx, [*config_options, *options], echo)
            if approve == "ask" and not sys.stdin.isatty():
                echo(
                    "\nNobody could be asked here: delf demo --approve all says yes to the change."
                )
            kept_folder = None if is_temporary else folder
            for line in _next_steps(kept_folder, model):
                echo(line)
    ctx.exit(status)


def _run_tasks(ctx: click.Context, options: list[str], echo: Callable[..., None]) -> int:
    """Run the demo's tasks with ``delf run``; return the highest exit status."""
    status = 0
    for number, (title, task) in enumerate(_TITLED_TASKS, 1):
        echo(f"\n{number}. {title}", bold=True)
        echo(f"{_wrap_text(task)}\n")
        status = max(status, _run_delf(ctx, ["run", task, *options]))
        if status > 2:  # interrupted, with the status 130: run no further task
            break
    return status


def _options_of_run(model: str, approve: str, *, verbose: bool, as_json: bool) -> list[str]:
    options: list[str] = []
    if os.environ.get("DELF_LLM"):  # it would override the model in the shop's delf.toml
        options += ["--llm", model]
    if approve != "ask":
        options += ["--approve", approve]
    if as_json:
        options.append("--json")
    shows_everything = verbose and not as_json
    options.append("--verbose" if shows_everything else "--calls")
    return options


def _next_steps(kept_folder: Path | None, model: str) -> list[str]:
    is_recorded = model.startswith("recorded:")
    model_option = " --llm gpt-4o-mini   # with OPENAI_API_KEY" if is_recorded else ""
    enter_command = "delf demo --make shop && cd shop"
    if kept_folder is not None:
        enter_command = f"cd {shlex.quote(_relative_path(kept_folder))}"
    return [
        "\nNext:",
        f"  {enter_command}",
        f'  delf run "Who bought the most tea?"{model_option}',
        "  delf demo --verbose   # the scripts, and every step",
    ]


def _relative_path(folder: Path) -> str:
    """Return a folder's path relative to the current folder; outside of it, the absolute path."""
    here = Path.cwd()
    if folder.is_relative_to(here):
        return str(folder.relative_to(here))
    return str(folder)


def _wrap_text(text: str) -> str:
    return textwrap.fill(text, _WRAP_COLUMNS)


def _journal_section(folder: Path) -> str:
    return f"\n[plugins.journal-sql]\nurl = {_quote_toml(str(folder / 'journal.db'))}\n"


def _write_config(folder: Path, text: str, *, is_temporary: bool) -> list[str]:
    """Write a shop's ``delf.toml``; return the options with which ``delf`` uses and trusts it."""
    file = folder / _CONFIG_FILE
    write_private(file, text.encode())
    options = ["--config", str(file)]
    if is_temporary:
        return [*options, "--trust", str(folder)]
    _trust_shop(folder, text)
    return options


def _trust_shop(folder: Path, config: str) -> None:
    """Record that the user trusts a kept shop's ``delf.toml`` and recorded answers."""
    items = {_CONFIG_FILE: items_of(_CONFIG_FILE, config)}
    answers = folder / _ANSWERS_FILE
    if answers.exists():
        items[_ANSWERS_FILE] = digest_items(answers.read_bytes())
    Trust.here().keep(folder, items)


def _run_delf(ctx: click.Context, arguments: list[str]) -> int:
    """Run ``delf`` with arguments in this process; return the exit status."""
    root = ctx.find_root()
    debug_option = ["--debug"] if getattr(root.obj, "debug", False) else []
    program: click.Command = root.command
    return int(program.main([*debug_option, *arguments], standalone_mode=False) or 0)


def choose_model(llm: str | None) -> tuple[str, str]:
    """Return the name of the model, and a phrase that describes the model.

    Args:
        llm: The model that the user chose; None to replay answers recorded with the example.
    """
    if llm:
        return llm, llm
    return f"recorded:{RECORDING}", "a recording made by hand (--llm MODEL asks a model)"


def shop_config(model: str, folder: Path) -> str:
    """Return the text of the shop's ``delf.toml``.

    If the model replays the answers recorded with the example, copy these answers into the folder.
    """
    if model == f"recorded:{RECORDING}":
        write_private(folder / _ANSWERS_FILE, RECORDING.read_bytes())
        model = f"recorded:{_ANSWERS_FILE}"
    return (
        f"[agent]\nllm = {_quote_toml(model)}\n"
        'sandbox = "local"\n\n'
        "[connections.shop]\n"
        'type = "sql"\n'
        'db_type = "sqlite"\n'
        'database = "shop.db"\n'
        'trust = "own"\n'  # nobody else can write into the shop that was just made
    )


def _quote_toml(text: str) -> str:
    """Quote a text for ``delf.toml``.

    Double each ``$``, because a single ``$`` begins a variable.
    """
    return json.dumps(text.replace("$", "$$"), ensure_ascii=False)


@contextmanager
def _shop_folder(keep: Path | None) -> Generator[Path]:
    """Yield the folder for the example shop: ``keep``, or a temporary folder removed afterwards.

    Raises:
        ConfigurationError: If the folder already holds a file of a shop or cannot be created.
    """
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="delf-demo-") as name:
            yield Path(name).resolve()
        return
    try:
        make_private_folder(keep)
    except OSError as error:
        raise ConfigurationError(f"{keep}: {error.strerror}") from error
    for name in ("shop.db", _CONFIG_FILE, _ANSWERS_FILE, _JOURNAL_FILE):
        if (keep / name).exists():
            raise ConfigurationError(
                f"{keep}: it holds a {name} already", hint="name an empty folder"
            )
    yield keep.resolve()


def _print(text: str, *, bold: bool = False, dim: bool = False) -> None:
    click.echo(click.style(text, bold=bold or None, dim=dim or None))
    real_stdout().flush()


def _print_nothing(text: str, *, bold: bool = False, dim: bool = False) -> None:
    """Ignore a text, because stdout is reserved for JSON."""
