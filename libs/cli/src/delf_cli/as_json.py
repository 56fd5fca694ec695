"""The option ``--json``, and the result of a command that does one thing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

as_json_option = click.option("--json", "as_json", is_flag=True, help="Write it as JSON.")


def write_result(text: str, data: Mapping[str, Any], *, as_json: bool) -> None:
    """Write what a command has done: as JSON, or in words to the standard error.

    Args:
        text: The words.
        data: The same for programs.
        as_json: Whether the user asked for JSON.
    """
    if not as_json:
        click.echo(text, err=True)
        return
    from delf_cli.output import json_text

    click.echo(json_text(dict(data), indent=2))
