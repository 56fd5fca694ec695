"""Shell completion of values: names in this project, and ids.

Completion runs at every press of Tab, so names are read quickly from ``delf.toml`` and plugin specs
without validation, and errors complete nothing.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final, cast

import click

from delf.errors import DelfError
from delf.machine.folders import expand_home
from delf_cli.ids import short_id
from delf_cli.state import state_of

_MAX_IDS: Final = 50
_MODEL_KEYS: Final = ("llm", "light_llm", "heavy_llm", "vision_llm")

Completer = Callable[[click.Context, click.Parameter, str], list[str]]


def completes(find: Callable[[click.Context], Iterable[str]]) -> Completer:
    """Make a shell completer from a function that returns all candidates.

    If the function fails, the completer returns no candidates.
    """

    @functools.wraps(find)
    def complete(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
        try:
            return sorted({name for name in find(ctx) if name.startswith(incomplete)})
        # An error message would appear in the line that the person types.
        except (DelfError, OSError, ValueError):
            return []

    return complete


@completes
def connections(ctx: click.Context) -> Iterable[str]:
    """Return the connections of ``delf.toml`` and the connection types."""
    from delf.specs import ConnectionSpec

    types = (spec.name for spec in state_of(ctx).discover().specs(ConnectionSpec))
    return [*trusted_config(ctx).get("connections", {}), *types]


@completes
def sandboxes(ctx: click.Context) -> Iterable[str]:
    """Return the installed sandboxes."""
    from delf.specs import SandboxSpec

    return ["auto", *(spec.name for spec in state_of(ctx).discover().specs(SandboxSpec))]


@completes
def models(ctx: click.Context) -> Iterable[str]:
    """Return the models that delf.toml and the environment variables name."""
    agent = trusted_config(ctx).get("agent", {})
    model_names = [agent.get(key) for key in _MODEL_KEYS]
    model_names += [os.environ.get(f"DELF_{key.upper()}") for key in _MODEL_KEYS]
    texts = map(_model_name, model_names)
    return [text for text in texts if text]


@completes
def task_ids(ctx: click.Context) -> Iterable[str]:
    """Return the newest task ids, as `delf runs list` shows them."""
    from delf_cli.journals import ask_journal

    return [short_id(task.task_id) for task in ask_journal(ctx, lambda j: j.find(_MAX_IDS))]


def trusted_config(ctx: click.Context) -> dict[str, Any]:
    """Read the applicable ``delf.toml``; the result is empty without such a file.

    Raises:
        FolderNotTrustedError: If the user has not trusted the file's folder.
    """
    from delf.trust.decisions import Trust
    from delf.trust.folders import (
        CONFIG_FILE,
        parse_toml,
        project_folder,
        read_file,
        values_by_path,
    )

    state = state_of(ctx)
    file = project_folder(Path.cwd()) / CONFIG_FILE
    if state.config is not None:
        file = expand_home(state.config).absolute()
    data = parse_toml((read_file(file, file.parent) or b"").decode("utf-8-sig"))
    Trust.here(*state.trust).check(file.parent, {file.name: values_by_path(data)})
    return data


def _model_name(setting: Any) -> str | None:
    """Return the name in a setting such as ``"gpt-4o"`` or ``{model = "gpt-4o"}``, if any."""
    if isinstance(setting, dict):
        return cast("dict[str, str]", setting).get("model")
    return setting
