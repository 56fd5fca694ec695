"""The options ``--json`` and ``--limit``, and the output of commands that change something."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


class JsonOption(click.Option):
    """The option ``--json`` of a command.

    The option also remembers which class describes the JSON that the command writes. The page
    ``docs/json.md`` has a table of fields for each such class.

    Args:
        row: A TypedDict or dataclass whose docstring describes each field, or a pydantic model: the
            command writes one such object, or a list of them. A class that takes long to import is
            given as ``module:Class``. None if no single class describes the JSON.
        fields: The fields that the command writes; None for all of them.
    """

    def __init__(
        self,
        *declarations: Any,
        row: type | str | None,
        fields: Sequence[str] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(*declarations, **options)
        self.row = row  # the class with the description of each field; None for no class
        self.fields = fields  # the names of the fields that the command writes; None for all


def as_json_option(
    row: type | str | None, fields: Sequence[str] | None = None, *, words: str = "Write it as JSON."
) -> Callable[[F], F]:
    """Make the option ``--json`` for a command.

    Args:
        row: The class that describes the command's JSON, as in :class:`JsonOption`.
        fields: The fields of the class that the command writes; None for all of them.
        words: The help text of the option.
    """
    return click.option(
        "--json", "as_json", is_flag=True, help=words, cls=JsonOption, row=row, fields=fields
    )


def limit_option(default: int, words: str, *, highest: int = 1_000_000) -> Callable[[F], F]:
    """Make the option ``--limit`` for a command that lists items.

    Args:
        default: The number of items without the option.
        words: The help text of the option.
        highest: The highest number that the user may give.
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
