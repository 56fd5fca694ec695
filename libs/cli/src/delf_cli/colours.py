"""The choice of coloured output: ``--color``, ``NO_COLOR``, ``TERM=dumb`` and terminals."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Literal, TextIO

import click

from delf_cli.streams import real_stdout

if TYPE_CHECKING:
    from rich.console import Console

When = Literal["auto", "always", "never"]


def choose(choice: When) -> None:
    """Apply ``--color`` to this program and its child processes.

    Args:
        choice: ``always``, ``never``, or ``auto`` to follow the environment and the terminal.
    """
    if choice == "auto":
        return
    for name in ("NO_COLOR", "FORCE_COLOR"):
        os.environ.pop(name, None)
    os.environ["NO_COLOR" if choice == "never" else "FORCE_COLOR"] = "1"


def explicit_choice() -> bool | None:
    """Return whether the environment turns colours on or off.

    None means that each stream has colours if the stream is a terminal.
    """
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return False if os.environ.get("TERM") == "dumb" else None


def has_colours(stream: TextIO) -> bool:
    """Return True if output to a stream is coloured."""
    explicit = explicit_choice()
    return stream.isatty() if explicit is None else explicit


def apply(ctx: click.Context) -> None:
    """Turn click's colours on or off as the user chose, in a context and its child contexts.

    If the user did not choose, click decides for each stream.
    """
    ctx.find_root().color = ctx.color = explicit_choice()


def console(stream: TextIO | None = None, **options: Any) -> Console:
    """Make a rich console that has colours only if :func:`has_colours` is True for its stream."""
    from rich.console import Console

    file = stream or real_stdout()
    if not has_colours(file):
        options["color_system"] = None
    return Console(file=file, **options)
