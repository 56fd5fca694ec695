"""``delf trust``: show and change the trust in a folder."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

import click

from delf.errors import ConfigurationError
from delf.terminal import visible
from delf_cli import errors
from delf_cli.as_json import as_json_option
from delf_cli.json_encoding import encode_json
from delf_cli.state import state_of
from delf_cli.trust_question import QUESTION, can_ask, changes_since, lines, read

if TYPE_CHECKING:
    from delf_engine.project.folder import Folder


class _FolderRow(TypedDict):
    """The JSON of ``delf trust``: a folder's files, and what they make delf do.

    Args:
        folder: The folder.
        trusted: True if its files are trusted as they are now.
        files: The files that have an effect.
        changes: The differences from the trusted files: ``file``, ``key``, ``kind``.
        effects: The effects of the files: ``kind``, ``what``, ``where``.
    """

    folder: str
    trusted: bool
    files: list[str]
    changes: list[dict[str, str]]
    effects: list[dict[str, str]]


class _TrustedRow(TypedDict):
    """The JSON of a folder in ``delf trust --list``.

    Args:
        folder: The folder.
        at: The Unix time at which the folder was last trusted.
        files: The files of the folder that have an effect.
    """

    folder: str
    at: float
    files: list[str]


@click.command("trust", epilog="Exit status: 0 trusted, or only shown; 1 not trusted.")
@click.argument("folder", required=False, type=click.Path(exists=True, file_okay=False))
@click.option(
    "--show", is_flag=True, help="Show everything that the files would do, without asking."
)
@click.option("-y", "--yes", is_flag=True, help="Trust the folder without asking.")
@click.option("--revoke", is_flag=True, help="End the trust in the folder.")
@click.option("--list", "as_list", is_flag=True, help="List the folders that are trusted.")
@as_json_option(_FolderRow)
@click.pass_context
def trust(ctx: click.Context, folder: str | None, as_json: bool, **flags: bool) -> None:
    """Show what the files of FOLDER (by default this one) would do, and ask you to trust them.

    Without trust, a project's files have no effect: delf.toml, .env, pricing.json, workers, and
    the files that these name. delf asks you once, and again after a change.

    \b
    delf trust
    delf trust --show
    delf trust --list
    """  # noqa: D301 - click's mark for lines that stay as they are
    mode = _mode(ctx, flags)
    if mode == "list":
        _list(as_json=as_json)
        return
    state = state_of(ctx)
    config = state.config if folder is None else None
    folder_files = read(Path(folder or "."), config, state.discover())
    if mode != "revoke" and not as_json:
        for line in lines(folder_files, state.redact, everything=mode == "show"):
            click.echo(line)
    may_ask = mode is None and not as_json  # a program that reads JSON cannot answer
    if mode == "revoke":
        _revoke(folder_files.root)
    elif mode == "yes" and _needs_trust(folder_files):
        _trust(folder_files)
    elif may_ask and _needs_trust(folder_files) and not _ask_trust(folder_files):
        ctx.exit(1)
    if as_json:
        data = state.redact_data(_as_data(folder_files))
        click.echo(encode_json(data, indent=2))


def _mode(ctx: click.Context, flags: Mapping[str, bool]) -> str | None:
    """Return ``show``, ``yes``, ``revoke`` or ``list`` if this flag was given; None without a flag.

    Raise if two of these flags were given.
    """
    names = ("show", "yes", "revoke", "as_list")
    modes = [name.removeprefix("as_") for name in names if flags[name]]
    if len(modes) > 1:
        words = " and ".join(f"--{mode}" for mode in modes)
        raise click.UsageError(f"{words} cannot be used together", ctx)
    return modes[0] if modes else None


def _needs_trust(folder: Folder) -> bool:
    """Return True if a folder has files with an effect, and is not trusted with these contents."""
    # changes_since() returns None if the folder was never trusted.
    return bool(folder.items) and changes_since(folder) != []


def _ask_trust(folder: Folder) -> bool:
    """Ask whether to trust a folder; return True if the folder is now trusted."""
    if not can_ask():
        errors.say("hint", "delf trust --yes trusts it without a question")
        return False
    if not click.confirm(f"\n{QUESTION}", default=False):
        return False
    _trust(folder)
    return True


def _trust(folder: Folder) -> None:
    from delf.trust.decisions import remember

    remember(folder.root, folder.items)
    click.echo(f"{visible(str(folder.root))} is trusted", err=True)


def _as_data(folder: Folder) -> _FolderRow:
    """Return data for JSON: a folder's files, and whether the folder is trusted.

    The data also lists the changes since the files were trusted, and the effects of the files.
    """
    from delf_cli.effects import effects

    return {
        "folder": str(folder.root),
        "trusted": not _needs_trust(folder),
        "files": list(folder.items),
        "changes": [
            {"file": item.file, "key": item.key, "kind": item.kind}
            for item in changes_since(folder) or ()
        ],
        "effects": [
            {"kind": item.kind, "what": item.what, "where": item.where} for item in effects(folder)
        ],
    }


def _revoke(root: Path) -> None:
    from delf.trust.decisions import revoke

    if not revoke(root):
        raise ConfigurationError(f"{root} was not trusted", hint="delf trust --list")
    click.echo(f"{visible(str(root))} is not trusted any more", err=True)


def _list(*, as_json: bool) -> None:
    from delf.trust.decisions import all_trusted

    trusted_folders = all_trusted()
    if as_json:
        rows = [
            _TrustedRow(folder=str(item.root), at=item.at, files=sorted(item.digests))
            for item in trusted_folders
        ]
        click.echo(encode_json(rows, indent=2))
        return
    for item in trusted_folders:
        day = time.strftime("%Y-%m-%d", time.localtime(item.at))
        click.echo(f"{day}  {visible(str(item.root))}")
    if not trusted_folders:
        click.echo("no folder is trusted", err=True)
