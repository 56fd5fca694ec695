"""The question whether to trust a folder, with the effects of its files."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, TextIO

import click

from delf.machine.folders import expand_home
from delf.terminal import visible
from delf_cli.streams import wrap_text

if TYPE_CHECKING:
    from delf.plugins.host import PluginHost
    from delf.trust.decisions import Change
    from delf_cli.effects import Effect
    from delf_engine.project.folder import Folder

_MAX_FILE_NAMES: Final = 20
_MAX_LINES_PER_KIND: Final = 8
QUESTION: Final = "Trust this folder? You are asked again when what these files say changes."


def can_ask() -> bool:
    """Return True if a person can be asked at the terminal."""
    # During shell completion, for which click sets a variable such as _DELF_COMPLETE, a question
    # would appear in the typed line.
    completing = any(name.endswith("_COMPLETE") and name.startswith("_") for name in os.environ)
    return sys.stdin.isatty() and sys.stderr.isatty() and not completing


def ask(config: str | None, redact: Callable[[str], str], host: PluginHost) -> bool:
    """Show what the files of the current folder do, and ask whether to trust them.

    Only the shown contents become trusted: a file that changes later is not trusted.

    Args:
        config: The file that ``--config`` names; None for the folder's ``delf.toml``.
        redact: Redacts secrets in a line.
        host: The plugins, which name further files that need trust.

    Returns:
        True if the person answered yes.
    """
    from delf.trust.decisions import remember

    folder = read(Path.cwd(), config, host)
    for line in lines(folder, redact, everything=False, stream=sys.stderr):
        click.echo(line, err=True)
    if not click.confirm(f"\n{QUESTION}", default=False, err=True):
        return False
    remember(folder.root, folder.items)
    return True


def read(start: Path, config: str | None, host: PluginHost) -> Folder:
    """Read the files of a folder that need trust.

    Args:
        start: The folder.
        config: The file that ``--config`` names; None for the folder's ``delf.toml``.
        host: The plugins, which name further files that need trust.
    """
    from delf_engine.project.folder import read_folder

    file = expand_home(config).absolute() if config is not None else None
    return read_folder(start.absolute(), file, os.environ, host)


def changes_since(folder: Folder) -> list[Change] | None:
    """Return the changes since the folder was trusted; None if the folder never was trusted."""
    from delf.trust.decisions import load_trusted

    trusted = load_trusted(folder.root)
    return None if trusted is None else list(trusted.changes(folder.items))


def lines(
    folder: Folder,
    redact: Callable[[str], str],
    *,
    everything: bool,
    stream: TextIO | None = None,
) -> Iterator[str]:
    """Yield lines that tell the user what the files of a folder would make delf do.

    The lines are grouped by kind of effect, such as running a program or changing a setting.

    Args:
        folder: The folder.
        redact: Redacts secrets in a line.
        everything: Whether to include all lines of each group, not only the first 8.
        stream: The stream to whose width the lines are wrapped; stdout when omitted.
    """
    for line, indent in _indented_lines(folder, redact, everything):
        yield " " * indent + wrap_text(line, indent=indent, stream=stream)


def _indented_lines(
    folder: Folder, redact: Callable[[str], str], everything: bool
) -> Iterator[tuple[str, int]]:
    """Yield the lines about a folder's files and their effects, each with its indent in spaces.

    Long lists of files and effects are cut, unless ``everything`` is true.
    """
    from delf_cli.effects import KINDS, effects

    folder_text = visible(str(folder.root))
    if not folder.items:
        yield f"{folder_text} has no files that delf reads by itself", 0
        return
    changes = changes_since(folder)
    if changes is None:
        untrusted_heading = (
            f"{folder_text} has files that decide what delf does here, and you have not "
            "trusted them:"
        )
        yield untrusted_heading, 0
    elif changes:
        yield f"{folder_text} has changed since you trusted it:", 0
    else:
        yield f"{folder_text} is trusted:", 0
    names = list(folder.items)
    shown_names = names if everything else names[:_MAX_FILE_NAMES]
    omitted_count = len(names) - len(shown_names)
    rest_note = f" and {omitted_count} more" if omitted_count else ""
    yield f"{visible(', '.join(shown_names))}{rest_note}", 2
    if changes:
        yield from _section("what is new", [_change_line(item) for item in changes], everything)
    folder_effects = effects(folder)
    for kind, heading in KINDS.items():
        kind_effects = [effect for effect in folder_effects if effect.kind == kind]
        if kind_effects:
            texts = [redact(line) for line in _effect_lines(kind_effects, only_names=kind == "set")]
            yield from _section(heading, texts, everything)


def _effect_lines(effects: Sequence[Effect], *, only_names: bool) -> Iterator[str]:
    """Yield a line for each program, address or file that the effects name.

    The line has the name, the first place with this name (such as a setting in a file), and the
    number of further places. With ``only_names``, all names are in one line, without places.
    """
    if only_names:
        yield ", ".join(dict.fromkeys(effect.what for effect in effects))
        return
    places_by_name: dict[str, list[str]] = {}
    for effect in effects:
        places = places_by_name.setdefault(effect.what, [])
        if effect.where not in places:
            places.append(effect.where)
    for name, places in places_by_name.items():
        if places == [name]:  # a file that has its effect as a whole, without a setting
            yield name
            continue
        rest_note = f" and {len(places) - 1} more" if len(places) > 1 else ""
        yield f"{name}  ({places[0]}{rest_note})"


def _section(heading: str, lines: Sequence[str], everything: bool) -> Iterator[tuple[str, int]]:
    """Yield the lines of a section, each with its indent in spaces.

    Only the first lines are shown, unless ``everything`` is true.
    """
    yield "", 0
    yield click.style(heading, bold=True), 2
    shown_lines = lines if everything else lines[:_MAX_LINES_PER_KIND]
    for line in shown_lines:
        text = visible(line.replace("\n", "⏎").replace("\t", " "))
        yield text, 4
    if len(lines) > len(shown_lines):
        yield f"and {len(lines) - len(shown_lines)} more: delf trust --show", 4


def _change_line(change: Change) -> str:
    changed_place = f"{change.file}: {change.key}" if change.key else change.file
    return f"{changed_place} ({change.kind})"
