"""The options ``--json`` and ``--limit``, and the output of commands that change something."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

as_json_option = click.option("--json", "as_json", is_flag=True, help="Write it as JSON.")


def limit_option(default: int, words: str, *, highest: int | None = None) -> Callable[[F], F]:
    """Make the option ``--limit`` for a command that lists items.

    Args:
        default: The number of items without the option.
        words: The help text of the option.
        highest: The highest number that the user may give; None for no limit.
    """
    return click.option(
        "--limit",
        type=click.IntRange(min=1, max=highest),
        default=default,
        show_default=True,
        metavar="N",
        help=words,
    )


def write_result(text: str, data: Mapping[str, Any], *, as_json: bool) -> None:
    """Print the result of a command: as JSON to stdout, or as text to stderr.

    Args:
        text: The text.
        data: The JSON data.
        as_json: Whether the user asked for JSON.
    """
    if not as_json:
        click.echo(text, err=True)
        return
    from delf_cli.output import json_text

    click.echo(json_text(dict(data), indent=2))
