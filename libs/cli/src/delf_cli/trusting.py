"""``delf trust``, and the question whether a folder is trusted."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from delf.errors import ConfigurationError
from delf_cli import errors
from delf_cli.state import state_of

if TYPE_CHECKING:
    from delf.project.effects import Effect
    from delf.project.folder import Folder
    from delf.trust import Change
    from delf_cli.state import State

_MOST: Final = 8
"""Lines of one kind in a question; `delf trust --show` has all."""
_QUESTION: Final = "Trust this folder? You are asked again when what these files say changes."


def can_ask() -> bool:
    """Whether somebody at a terminal can be asked."""
    completing = any(name.endswith("_COMPLETE") and name.startswith("_") for name in os.environ)
    return sys.stdin.isatty() and sys.stderr.isatty() and not completing


def ask(state: State) -> bool:
    """Show what the files of the folder would do, and ask whether they may.

    What was shown is what is trusted: the files are looked at again when they are used.

    Args:
        state: The program's flags, which say what folder it is.
    """
    from delf.trust import remember

    folder = _read(Path.cwd(), state.config)
    for line in _lines(folder, state, everything=False):
        click.echo(line, err=True)
    if not click.confirm(f"\n{_QUESTION}", default=False, err=True):
        return False
    remember(folder.root, folder.items)
    return True


@click.command("trust", epilog="Exit status: 0 it is trusted, or was only shown; 1 it is not.")
@click.argument("folder", required=False, type=click.Path(exists=True, file_okay=False))
@click.option("--show", is_flag=True, help="Show all that the files would do, and ask nothing.")
@click.option("-y", "--yes", is_flag=True, help="Trust it without a question.")
@click.option("--revoke", is_flag=True, help="Trust it no longer.")
@click.option("--list", "as_list", is_flag=True, help="List the folders that are trusted.")
@click.option("--json", "as_json", is_flag=True, help="Write it as JSON.")
@click.pass_context
def trust(ctx: click.Context, folder: str | None, **given: bool) -> None:
    """Show what the files of FOLDER would do (here, when omitted), and ask whether they may.

    Without that, what a project's files say has no effect: delf.toml, .env, pricing.json, workers,
    and the files that these name. It is asked about once, and again when it changes.

    \b
    delf trust
    delf trust --show
    delf trust --list
    """  # noqa: D301 - click's mark for lines that stay as they are
    asked = [name for name in ("show", "yes", "revoke", "as_list") if given[name]]
    if len(asked) > 1:
        words = " and ".join(f"--{name.removeprefix('as_')}" for name in asked)
        raise click.UsageError(f"{words} exclude each other", ctx)
    if given["as_list"]:
        _list(as_json=given["as_json"])
        return
    state = state_of(ctx)
    found = _read(Path(folder or "."), state.config if folder is None else None)
    if given["revoke"]:
        _revoke(found.root)
        return
    if given["as_json"]:
        click.echo(json.dumps(state.clean_data(_as_data(found)), ensure_ascii=False, indent=2))
    else:
        for line in _lines(found, state, everything=given["show"]):
            click.echo(line)
    look = given["show"] or (given["as_json"] and not given["yes"])
    if not look and found.items and not _settle(found, yes=given["yes"]):
        ctx.exit(1)


def _settle(folder: Folder, *, yes: bool) -> bool:
    """Whether the folder is trusted, in the end."""
    from delf.trust import remember

    if _changes(folder) == []:
        return True
    if not yes and not can_ask():
        errors.say("hint", "delf trust --yes trusts it without a question")
        return False
    if not yes and not click.confirm(f"\n{_QUESTION}", default=False):
        return False
    remember(folder.root, folder.items)
    click.echo(f"{errors.visible(str(folder.root))} is trusted", err=True)
    return True


def _read(start: Path, config: str | None) -> Folder:
    from delf.project.folder import read_folder

    file = Path(config).expanduser().absolute() if config is not None else None
    return read_folder(start.absolute(), file, os.environ)


def _changes(folder: Folder) -> list[Change] | None:
    """What changed since it was trusted; None where it never was."""
    from delf.trust import trusted

    known = trusted(folder.root)
    return None if known is None else list(known.changes(folder.items))


def _lines(folder: Folder, state: State, *, everything: bool) -> Iterator[str]:
    from delf.project.effects import KINDS, effects

    where = click.style(errors.visible(str(folder.root)), bold=True)
    if not folder.items:
        yield f"{where} has no files that delf reads by itself"
        return
    changes = _changes(folder)
    if changes is None:
        yield f"{where} has files that decide what delf does here, and you have not trusted them:"
    elif changes:
        yield f"{where} is not as it was when you trusted it:"
    else:
        yield f"{where} is trusted:"
    yield f"  {errors.visible(', '.join(folder.items))}"
    if changes:
        yield from _section("what is new", [_change(item) for item in changes], everything)
    found = effects(folder)
    for kind, words in KINDS.items():
        some = [effect for effect in found if effect.kind == kind]
        if some:
            told = [state.clean(line) for line in _told(some, kind == "set")]
            yield from _section(words, told, everything)


def _told(some: Sequence[Effect], named: bool) -> Iterator[str]:
    """Each thing once, with the places that say it."""
    if named:
        yield ", ".join(dict.fromkeys(effect.what for effect in some))
        return
    for what in dict.fromkeys(effect.what for effect in some):
        places = list(dict.fromkeys(effect.where for effect in some if effect.what == what))
        more = f" and {len(places) - 1} more" if len(places) > 1 else ""
        yield what if places == [what] else f"{what}  ({places[0]}{more})"


def _section(words: str, lines: Sequence[str], everything: bool) -> Iterator[str]:
    yield ""
    yield click.style(f"  {words}", bold=True)
    shown = lines if everything else lines[:_MOST]
    for line in shown:
        text = errors.visible(line.replace("\n", "⏎").replace("\t", " "))
        yield f"    {text}"
    if len(lines) > len(shown):
        yield f"    and {len(lines) - len(shown)} more: delf trust --show"


def _change(change: Change) -> str:
    what = f"{change.file}: {change.key}" if change.key else change.file
    return f"{what} ({change.kind})"


def _as_data(folder: Folder) -> dict[str, Any]:
    from delf.project.effects import effects

    changes = _changes(folder)
    return {
        "folder": str(folder.root),
        "trusted": not folder.items or changes == [],
        "files": list(folder.items),
        "changes": [
            {"file": item.file, "key": item.key, "kind": item.kind} for item in changes or ()
        ],
        "effects": [
            {"kind": item.kind, "what": item.what, "where": item.where} for item in effects(folder)
        ],
    }


def _revoke(root: Path) -> None:
    from delf.trust import revoke

    if not revoke(root):
        raise ConfigurationError(f"{root} was not trusted", hint="delf trust --list")
    click.echo(f"{errors.visible(str(root))} is not trusted any more", err=True)


def _list(*, as_json: bool) -> None:
    from delf.trust import all_trusted

    found = all_trusted()
    if as_json:
        rows = [
            {"folder": str(item.root), "at": item.at, "files": sorted(item.digests)}
            for item in found
        ]
        click.echo(json.dumps(rows, ensure_ascii=False, indent=2))
        return
    for item in found:
        day = time.strftime("%Y-%m-%d", time.localtime(item.at))
        click.echo(f"{day}  {errors.visible(str(item.root))}")
    if not found:
        click.echo("no folder is trusted", err=True)
