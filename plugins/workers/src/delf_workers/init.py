"""``delf init``: a small project to begin with."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Final

import click

from delf_cli import errors

_FILES: Final = ("delf.toml", "tools.py", "workers/summarise.worker", "workers/tools.py")


@click.command("init")
@click.argument("folder", default=".", type=click.Path(file_okay=False))
@click.option("--llm", default="gpt-4o-mini", show_default=True, help="The model to begin with.")
@click.pass_context
def init(ctx: click.Context, folder: str, llm: str) -> None:
    """Start a small project in FOLDER: delf.toml, a worker, and a file with tools.

    Files that are there already are left as they are; those that are made are trusted.

    \b
    delf init papers
    cd papers
    delf workers run summarise --attach notes.md
    """  # noqa: D301 - click's mark for lines that stay as they are
    from delf.trust import Trust, items_of

    root = Path(folder)
    templates = files("delf_workers").joinpath("project")
    try:
        for name in _FILES:
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.exists():
                click.echo(f"{path}: left as it is")
                continue
            template = templates.joinpath(f"{name}.txt")
            text = template.read_text(encoding="utf-8").replace("{llm}", llm)
            path.write_text(text, "utf-8")
            click.echo(str(path))
            Trust.here().keep(root, {name: items_of(name, text)})
    except OSError as error:
        errors.say("error", f"{error.filename}: {error.strerror}")
        ctx.exit(errors.USAGE)
    errors.say("hint", "delf doctor says what is missing; delf workers list shows the worker")
