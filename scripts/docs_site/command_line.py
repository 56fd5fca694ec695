"""The commands of ``delf``, and their help as the page about the command line shows it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import click

from delf_cli.main import cli

_PLACE: Final = re.compile(r"<!-- help: ([^\n]*?) -->\n")
_EVERYWHERE: Final = ("--debug", "--no-plugins", "--config", "--trust", "--help")


@dataclass(frozen=True)
class Option:
    """An option as its help has it: how it is written, and what it does."""

    names: str
    meaning: str

    @property
    def flag(self) -> str:
        """Its long name."""
        return re.findall(r"--?[\w-]+", self.names)[-1]


def commands() -> dict[str, click.Context]:
    """Return every command by the words that start it, with plugins' commands."""
    return dict(_walk(click.Context(cli, info_name="delf", **cli.context_settings)))


def _walk(ctx: click.Context) -> Iterator[tuple[str, click.Context]]:
    yield ctx.command_path, ctx
    if isinstance(ctx.command, click.Group):
        for name in ctx.command.list_commands(ctx):
            command = ctx.command.get_command(ctx, name)
            if command is not None:
                yield from _walk(click.Context(command, info_name=name, parent=ctx))


def options_of(ctx: click.Context) -> list[Option]:
    """Return a command's options in the order of its help."""
    records = [
        param.get_help_record(ctx)
        for param in ctx.command.get_params(ctx)
        if isinstance(param, click.Option)
    ]
    return [Option(*map(_one_line, record)) for record in records if record is not None]


def help_of(ctx: click.Context, known: Mapping[str, Sequence[Option]]) -> str:
    """Return what the page says of a command's help.

    Args:
        ctx: The command.
        known: Options of other commands, by their words; those that are the same are only named.
    """
    usage = ctx.command.get_usage(ctx).removeprefix("Usage: ")
    own = options_of(ctx)
    lines = [f"`{_one_line(usage)}`", ""]
    shared: list[str] = []
    for words, options in known.items():
        same = [option for option in own if option in options]
        own = [option for option in own if option not in same]
        if same:
            names = ", ".join(f"`{option.flag}`" for option in same)
            shared.append(f"As in {words}: {names}.")
    if own:
        lines += ["| option | what it does |", "|---|---|"]
        lines += [f"| `{_cell(option.names)}` | {_prose(option.meaning)} |" for option in own]
        lines += [""]
    for text in shared:
        lines += [text, ""]
    return "\n".join(lines)


def with_help(text: str) -> str:
    """Return a page with the help of commands in the places that name them."""
    found = commands()
    everywhere = [option for option in options_of(found["delf"]) if option.flag in _EVERYWHERE]
    run = [option for option in options_of(found["delf run"]) if option not in everywhere]

    def make(match: re.Match[str]) -> str:
        words = match[1]
        known: dict[str, Sequence[Option]] = {}
        if words not in ("delf", "delf run"):
            known["`delf run`"] = run
        if words != "delf":
            known["every command"] = everywhere
        return f"{help_of(found[words], known)}\n"

    return _PLACE.sub(make, text)


def documented(text: str) -> list[str]:
    """Return the commands that a page has a place for."""
    return [match[1] for match in _PLACE.finditer(text)]


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _prose(text: str) -> str:
    return _cell(text).replace("<", "\\<")
