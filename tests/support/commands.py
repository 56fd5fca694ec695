"""The commands of ``delf``, and what ``docs/cli.md`` says about them.

``cd tests && ../.venv/bin/python -m support.commands`` writes the page's help anew.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

import click

from delf_cli.main import cli
from support.workspace import ROOT

PAGE: Final = ROOT / "docs/cli.md"
_HELP: Final = re.compile(r"(<!-- help: ([^\n]*?) -->\n).*?(<!-- end of help -->)", re.DOTALL)
_JSON: Final = re.compile(r"<!-- json: ([^\n]+?) -->\n((?:\|[^\n]*\n)+)")
_EVERYWHERE: Final = ("--debug", "--no-plugins", "--config", "--trust", "--help")
_KINDS: Final[Mapping[str, tuple[type, ...]]] = {
    "text": (str,),
    "number": (int, float),
    "boolean": (bool,),
    "list": (list,),
    "object": (dict,),
    "null": (type(None),),
    "anything": (object,),
}


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
    """Every command by the words that start it, with plugins' commands."""
    return dict(_walk(click.Context(cli, info_name="delf", **cli.context_settings)))


def _walk(ctx: click.Context) -> Iterator[tuple[str, click.Context]]:
    yield ctx.command_path, ctx
    if isinstance(ctx.command, click.Group):
        for name in ctx.command.list_commands(ctx):
            command = ctx.command.get_command(ctx, name)
            assert command is not None, name
            yield from _walk(click.Context(command, info_name=name, parent=ctx))


def options_of(ctx: click.Context) -> list[Option]:
    """A command's options in the order of its help."""
    records = [
        param.get_help_record(ctx)
        for param in ctx.command.get_params(ctx)
        if isinstance(param, click.Option)
    ]
    return [Option(*map(_one_line, record)) for record in records if record is not None]


def help_of(ctx: click.Context, known: Mapping[str, Sequence[Option]]) -> str:
    """What the page says of a command's help.

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
    """A page with the help of its commands made anew."""
    found = commands()
    everywhere = [option for option in options_of(found["delf"]) if option.flag in _EVERYWHERE]
    run = [option for option in options_of(found["delf run"]) if option not in everywhere]

    def make(match: re.Match[str]) -> str:
        words = match[2]
        known: dict[str, Sequence[Option]] = {}
        if words not in ("delf", "delf run"):
            known["`delf run`"] = run
        if words != "delf":
            known["every command"] = everywhere
        return f"{match[1]}{help_of(found[words], known)}{match[3]}"

    return _HELP.sub(make, text)


def documented(text: str) -> list[str]:
    """The commands that a page has help of."""
    return [match[2] for match in _HELP.finditer(text)]


def json_tables(text: str | None = None) -> dict[str, dict[str, str]]:
    """The fields of JSON output, by what has them: kinds by names of fields.

    Args:
        text: A page; the one about commands by default.
    """
    tables: dict[str, dict[str, str]] = {}
    for match in _JSON.finditer(PAGE.read_text(encoding="utf-8") if text is None else text):
        rows = [row.strip("|").split("|") for row in match[2].splitlines()[2:]]
        fields = {row[0].strip(" `"): row[1].strip() for row in rows}
        for name in match[1].split(", "):
            tables[name] = fields
    return tables


def check_object(value: Any, fields: Mapping[str, str]) -> None:
    """See that an object has these fields, of these kinds, and no others.

    Raises:
        AssertionError: When it does not.
    """
    assert isinstance(value, dict), value
    in_one = cast("dict[str, Any]", value).keys() ^ fields.keys()
    assert not in_one, f"not in both: {sorted(in_one)}"
    for name, kinds in fields.items():
        words = kinds.split(" or ")
        number = isinstance(value[name], bool) and "boolean" not in words  # Python's bool is int
        types = tuple(kind for word in words for kind in _KINDS[word])
        fits = isinstance(value[name], types) and (not number or object in types)
        assert fits, f"{name} = {value[name]!r} is not {kinds}"


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _prose(text: str) -> str:
    return _cell(text).replace("<", "\\<")


if __name__ == "__main__":
    PAGE.write_text(with_help(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
