"""The commands of ``delf``, and their help as the page about the command line shows it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from inspect import cleandoc
from typing import Final

import click

from delf_cli.main import cli

_PLACE: Final = "<!-- commands -->"
_EVERYWHERE: Final = ("--debug", "--no-plugins", "--config", "--trust", "--help")


@dataclass(frozen=True)
class Option:
    """An option as its help has it: how it is written, and what it does."""

    names: str
    meaning: str

    @property
    def flag(self) -> str:
        """The option's long name."""
        return re.findall(r"--?[\w-]+", self.names)[-1]


@cache
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


def with_commands(text: str) -> str:
    """Return a page with the help of all commands filled in."""
    found = commands()
    everywhere = [option for option in options_of(found["delf"]) if option.flag in _EVERYWHERE]
    run = [option for option in options_of(found["delf run"]) if option not in everywhere]
    sections: list[str] = []
    for words, ctx in found.items():
        known: dict[str, Sequence[Option]] = {}
        if words not in ("delf", "delf run"):
            known["`delf run`"] = run
        if words != "delf":
            known["every command"] = everywhere
        level = "##" if len(words.split()) < 3 else "###"
        sections += [f"{level} {words}", *_text_of(ctx.command), *_options_table(ctx, known)]
    return text.replace(_PLACE, "\n\n".join(sections))


def _text_of(command: click.Command) -> Iterator[str]:
    """Yield the paragraphs of a command's help; unwrapped paragraphs become examples."""
    for paragraph in cleandoc(command.help or "").split("\n\n"):
        lines = paragraph.strip("\n").splitlines()
        if lines and lines[0].strip() == "\b":
            yield "\n".join(["```sh", *lines[1:], "```"])
        elif lines:
            yield _prose(_one_line(paragraph))
    if command.epilog:
        yield _prose(_one_line(command.epilog))


def _options_table(ctx: click.Context, known: Mapping[str, Sequence[Option]]) -> Iterator[str]:
    """Yield the usage and the options of a command.

    Args:
        ctx: The command.
        known: Options of other commands, by their words; those that are the same are only named.
    """
    yield f"`{_one_line(ctx.command.get_usage(ctx).removeprefix('Usage: '))}`"
    own = options_of(ctx)
    shared: list[str] = []
    for words, options in known.items():
        same = [option for option in own if option in options]
        own = [option for option in own if option not in same]
        if same:
            names = ", ".join(f"`{option.flag}`" for option in same)
            shared.append(f"As in {words}: {names}.")
    if own:
        rows = [f"| `{_cell(option.names)}` | {_prose(option.meaning)} |" for option in own]
        yield "\n".join(["| option | meaning |", "|---|---|", *rows])
    yield from shared


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _prose(text: str) -> str:
    return _cell(text).replace("<", "\\<")
