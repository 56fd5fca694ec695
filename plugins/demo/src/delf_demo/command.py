"""``delf demo``: makes a shop, then runs two tasks on it as anybody would: with ``delf run``."""

from __future__ import annotations

import json
import os
import shlex
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import click

from delf import ConfigurationError
from delf.trust import Trust, items_of
from delf_demo.shop import make_shop

_CONFIG: Final = "delf.toml"
RECORDING: Final = Path(__file__).with_name("recording.jsonl")
QUESTION: Final = (
    "Which five products brought in the most money this quarter, how does that compare with the "
    "quarter before, and how long will each last in stock?"
)
CHANGE: Final = (
    "Reorder what will be sold out within two weeks: place purchase orders that last eight weeks."
)
_MODELS: Final = {
    "OPENAI_API_KEY": "gpt-4o-mini",
    "ANTHROPIC_API_KEY": "claude-haiku-4-5",
    "GEMINI_API_KEY": "gemini-2.5-flash",
    "GOOGLE_API_KEY": "gemini-2.5-flash",
}
"""A small model for each key that may be in the environment."""


@click.command("demo")
@click.option("--llm", metavar="MODEL", help="The model that writes the scripts.")
@click.option("--recorded", is_flag=True, help="Use the recording even if there is a key.")
@click.option(
    "--approve",
    type=click.Choice(("ask", "all", "none")),
    default="ask",
    show_default=True,
    help="What becomes of the change.",
)
@click.option(
    "--keep",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="Make the shop in this folder and leave it there.",
)
@click.option("--json", "as_json", is_flag=True, help="Write both responses as JSON, a line each.")
@click.option("--web", is_flag=True, help="Show both tasks on a page, where you decide.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8080,
    show_default=True,
    help="Of the page.",
)
@click.pass_context
def demo(
    ctx: click.Context,
    llm: str | None,
    recorded: bool,
    approve: str,
    keep: Path | None,
    as_json: bool,
    web: bool,
    port: int,
) -> None:
    """Run two tasks on the database of a small shop; no key is needed.

    The first is a question that takes several queries. The second changes data, so it asks
    first: on a terminal you decide, elsewhere it is rejected.
    """
    model, why = _choose_model(llm, recorded=recorded)
    with _folder(keep) as folder:
        tables, rows = make_shop(folder / "shop.db")
        config = folder / _CONFIG
        text = _config(model, folder / "shop.db") + (_journal(folder) if web else "")
        config.write_text(text, encoding="utf-8")
        if keep is not None:  # a folder that is gone later is trusted for each command instead
            Trust.here().keep(folder, {_CONFIG: items_of(_CONFIG, text)})
        own = ["--config", str(config), *(["--trust", str(folder)] if keep is None else [])]
        tell = _nothing if as_json else _tell
        tell(f"A small tea shop: {tables} tables, {rows:,} rows of SQLite in {folder}")
        tell(f"Scripts are written by {why}, and run in a process of their own.")
        if web:
            tasks = [part for task in (QUESTION, CHANGE) for part in ("--task", task)]
            ctx.exit(_delf(ctx, ["serve", *own, "--port", str(port), *tasks]))
        status = 0
        for number, (title, task) in enumerate(
            (("A question", QUESTION), ("A change that needs your approval", CHANGE)), 1
        ):
            tell(f"\n{number}. {title}", bold=True)
            arguments = ["run", task, *own]
            if os.environ.get("DELF_LLM"):  # wins over the shop's delf.toml, and is not meant here
                arguments += ["--llm", model]
            arguments += ["--approve", approve] if approve != "ask" else []
            arguments += ["--json"] if as_json else ["--show-code", "--verbose"]
            tell(f"$ {shlex.join(('delf', *arguments))}\n", dim=True)
            status = max(status, _delf(ctx, arguments))
            if status > 2:  # interrupted
                break
        if keep is not None:
            tell(f"\nTry your own: cd {shlex.quote(str(folder))} && delf run --llm MODEL …")
    ctx.exit(status)


def _journal(folder: Path) -> str:
    """What lets the page have a journal of its own."""
    return f"\n[plugins.journal-sql]\nurl = {_quoted(str(folder / 'journal.db'))}\n"


def _delf(ctx: click.Context, arguments: list[str]) -> int:
    """Run the program itself, in this process."""
    root = ctx.find_root()
    debug = ["--debug"] if getattr(root.obj, "debug", False) else []
    program: click.Command = root.command
    return int(program.main([*debug, *arguments], standalone_mode=False) or 0)


def _choose_model(llm: str | None, *, recorded: bool) -> tuple[str, str]:
    """The model's name, and who it is in words."""
    if llm and recorded:
        raise click.UsageError("--llm and --recorded exclude each other")
    if llm:
        return llm, llm
    key = next((name for name in _MODELS if os.environ.get(name)), None)
    if key and not recorded:
        return _MODELS[key], f"{_MODELS[key]}, as {key} is set (--recorded asks no model)"
    return f"recorded:{RECORDING}", "a recording made by hand (--llm MODEL asks a model)"


def _config(model: str, database: Path) -> str:
    """A ``delf.toml`` for the shop."""
    return (
        f"[agent]\nllm = {_quoted(model)}\n"
        'sandbox = "local"\n\n'
        "[connections.shop]\n"
        'type = "sql"\n'
        'db_type = "sqlite"\n'
        f"database = {_quoted(str(database))}\n"
    )


def _quoted(text: str) -> str:
    """A text for TOML, whose strings are written as JSON's are; ``$`` would begin a reference."""
    return json.dumps(text.replace("$", "$$"), ensure_ascii=False)


@contextmanager
def _folder(keep: Path | None) -> Generator[Path]:
    """The shop's folder.

    Raises:
        ConfigurationError: When there is a shop in it already, or it cannot be made.
    """
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="delf-demo-") as name:
            yield Path(name).resolve()
        return
    try:
        keep.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigurationError(f"--keep {keep}: {error.strerror}") from error
    for name in ("shop.db", _CONFIG):
        if (keep / name).exists():
            raise ConfigurationError(
                f"--keep {keep}: it holds a {name} already", hint="name an empty folder"
            )
    yield keep.resolve()


def _tell(text: str, *, bold: bool = False, dim: bool = False) -> None:
    click.secho(text, bold=bold, dim=dim)
    sys.stdout.flush()


def _nothing(text: str, *, bold: bool = False, dim: bool = False) -> None:
    """Tell nothing: the output is JSON."""
