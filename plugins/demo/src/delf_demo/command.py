"""``delf demo``: makes a shop, then runs two tasks on it with ``delf run``."""

from __future__ import annotations

import json
import os
import shlex
import sys
import tempfile
import textwrap
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import click

from delf import ConfigurationError
from delf.machine.own_files import make_private_folder, write_private
from delf.trust.decisions import Trust, digest_items, items_of
from delf_cli.streams import real_stdout
from delf_demo.shop import make_shop

_CONFIG: Final = "delf.toml"
_ANSWERS: Final = "answers.jsonl"
_COLUMNS: Final = 78
RECORDING: Final = Path(__file__).with_name("recording.jsonl")
QUESTION: Final = (
    "Which five products sold best this quarter, how does that compare with the "
    "quarter before, and how long will each last in stock?"
)
SHORT_QUESTION: Final = "What sold best this quarter?"
CHANGE: Final = (
    "Reorder what will be sold out within two weeks: place purchase orders that last eight weeks."
)


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
@click.option(
    "--json", "as_json", is_flag=True, help="Write both responses as JSON, one line each."
)
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

    The first is a question that takes several queries. The second changes data, so it asks
    first: on a terminal you decide, elsewhere it is rejected.
    """
    model, model_reason = choose_model(llm)
    kept_folder = make or keep
    with _folder(kept_folder) as folder:
        tables, rows = make_shop(folder / "shop.db")
        config = folder / _CONFIG
        # The demo's tasks are removed at its end, so keep them out of the user's list of tasks.
        text = shop_config(model, folder) + (_journal(folder) if web or kept_folder is None else "")
        write_private(config, text.encode())
        if (
            kept_folder is not None
        ):  # a folder that is gone later is trusted for each command instead
            items = {_CONFIG: items_of(_CONFIG, text)}
            if (folder / _ANSWERS).exists():
                items[_ANSWERS] = digest_items((folder / _ANSWERS).read_bytes())
            Trust.here().keep(folder, items)
        config_options = [
            "--config",
            str(config),
            *(["--trust", str(folder)] if kept_folder is None else []),
        ]
        echo = _print_nothing if as_json else _tell
        place = f" in {_short(folder)}" if kept_folder is not None else ""
        echo(f"A small tea shop: {tables} tables, {rows:,} rows of SQLite{place}.")
        if make is not None:
            echo(f"\nNext:\n  cd {shlex.quote(_short(folder))}")
            echo(f'  delf run "{SHORT_QUESTION}"')
            ctx.exit(0)
        echo(_wrap_text(f"Scripts are written by {model_reason}."))
        if web:
            tasks = [part for task in (QUESTION, CHANGE) for part in ("--task", task)]
            ctx.exit(_delf(ctx, ["serve", *config_options, "--port", str(port), *tasks]))
        status = 0
        for number, (title, task) in enumerate(
            (("A question", QUESTION), ("A change that needs your approval", CHANGE)), 1
        ):
            echo(f"\n{number}. {title}", bold=True)
            echo(f"{_wrap_text(task)}\n")
            arguments = ["run", task, *config_options]
            if os.environ.get("DELF_LLM"):  # wins over the shop's delf.toml, and is not meant here
                arguments += ["--llm", model]
            arguments += ["--approve", approve] if approve != "ask" else []
            arguments += ["--json"] if as_json else []
            arguments += ["--verbose"] if verbose and not as_json else ["--calls"]
            status = max(status, _delf(ctx, arguments))
            if status > 2:  # interrupted
                break
        if approve == "ask" and not as_json and not sys.stdin.isatty():
            echo("\nNobody could be asked here: delf demo --approve all says yes to the change.")
        for line in _next(folder if keep is not None else None, model):
            echo(line)
    ctx.exit(status)


def _next(folder: Path | None, model: str) -> list[str]:
    """List the next steps after the demo."""
    key = "" if not model.startswith("recorded:") else " --llm gpt-4o-mini   # with OPENAI_API_KEY"
    first = ["  delf demo --make shop && cd shop"]
    if folder is not None:
        first = [f"  cd {shlex.quote(_short(folder))}"]
    return [
        "\nNext:",
        *first,
        f'  delf run "Who bought the most tea?"{key}',
        "  delf demo --verbose   # the scripts, and every step",
    ]


def _short(folder: Path) -> str:
    """Return a folder relative to here, or its absolute path."""
    here = Path.cwd()
    return str(folder.relative_to(here)) if folder.is_relative_to(here) else str(folder)


def _wrap_text(text: str) -> str:
    return textwrap.fill(text, _COLUMNS)


def _journal(folder: Path) -> str:
    """Return the setting of a separate journal for the page."""
    return f"\n[plugins.journal-sql]\nurl = {_quote_toml(str(folder / 'journal.db'))}\n"


def _delf(ctx: click.Context, arguments: list[str]) -> int:
    """Run the program itself, in this process."""
    root = ctx.find_root()
    debug = ["--debug"] if getattr(root.obj, "debug", False) else []
    program: click.Command = root.command
    return int(program.main([*debug, *arguments], standalone_mode=False) or 0)


def choose_model(llm: str | None) -> tuple[str, str]:
    """Choose a model by the existing keys, and describe the model."""
    if llm:
        return llm, llm
    return f"recorded:{RECORDING}", "a recording made by hand (--llm MODEL asks a model)"


def shop_config(model: str, folder: Path) -> str:
    """Return a ``delf.toml`` for the shop, with files in the same folder."""
    if model == f"recorded:{RECORDING}":
        write_private(folder / _ANSWERS, RECORDING.read_bytes())
        model = f"recorded:{_ANSWERS}"
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
    """Quote a text for TOML, in JSON's notation; ``$`` would begin a reference."""
    return json.dumps(text.replace("$", "$$"), ensure_ascii=False)


@contextmanager
def _folder(keep: Path | None) -> Generator[Path]:
    """Yield the shop's folder.

    Raises:
        ConfigurationError: If the folder already has a shop or cannot be created.
    """
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="delf-demo-") as name:
            yield Path(name).resolve()
        return
    try:
        make_private_folder(keep)
    except OSError as error:
        raise ConfigurationError(f"{keep}: {error.strerror}") from error
    for name in ("shop.db", _CONFIG):
        if (keep / name).exists():
            raise ConfigurationError(
                f"{keep}: it holds a {name} already", hint="name an empty folder"
            )
    yield keep.resolve()


def _tell(text: str, *, bold: bool = False, dim: bool = False) -> None:
    click.echo(click.style(text, bold=bold or None, dim=dim or None))
    real_stdout().flush()


def _print_nothing(text: str, *, bold: bool = False, dim: bool = False) -> None:
    """Print nothing, because the output is JSON."""
