"""Every command that a text of delf names exists, with its options: hints can be typed."""

import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import cast

import click
import pytest

from delf.errors import PluginError
from delf_cli.main import cli
from delf_cli.state import State
from support.typed_commands import commands_in, texts
from support.workspace import ROOT, modules, place


@cache
def _context() -> click.Context:
    return click.Context(cli, obj=State())


def _resolved(words: Sequence[str]) -> tuple[click.Command, list[str]]:
    """The command that some words name, and the words that follow."""
    command, rest = cast("click.Command", cli), list(words)
    while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
        try:
            found = command.get_command(_context(), rest[0])
        except (PluginError, click.UsageError):
            found = None
        if found is None:
            break
        command = found
        rest.pop(0)
    return command, rest


def _faults(text: str, *, whole: bool = True) -> Iterator[str]:
    """The words in the commands of a text that nobody can type.

    Args:
        text: A hint, a line of help, a line of code on a page.
        whole: Commands have all their arguments.
    """
    for found in commands_in(text):
        command, words = _resolved(found.words)
        if command is cli and words and not words[0].startswith("-"):
            if found.is_quoted:
                yield f"there is no command delf {words[0]}"
            continue
        if isinstance(command, click.Group) and words and words[0][0] not in "-…":
            yield f"there is no command {command.name} {words[0]}"
            continue
        context = click.Context(command, parent=_context())
        typed = f"{command.name} {' '.join(words)}"
        try:
            given, rest, _ = command.make_parser(context).parse_args(words)
        except click.UsageError as error:
            if whole or isinstance(error, click.NoSuchOption):
                yield f"{typed!r}: {error.format_message()}"
            continue
        if rest not in ([], ["…"]) and not isinstance(command, click.Group):
            yield f"{typed!r}: {rest[0]!r} is too much"
        for param in command.params if whole else ():
            if isinstance(param, click.Argument) and param.required:
                value = given.get(param.name or "")
                if not isinstance(value, (str, tuple, list)) or not value:
                    yield f"{typed!r} needs {param.make_metavar(context)}"


@pytest.mark.slow
def test_commands_in_messages_exist() -> None:
    wrong = [
        f"{place(path, node)}: {fault}"
        for path in modules()
        if "guest" not in path.parts
        for text, node in texts(path)
        if "delf " in text
        for fault in _faults(text)
    ]
    assert wrong == [], "\n".join(wrong)


_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`delf [^`]+`")
_SHELL = ("sh", "console", "bash", "")


def _faults_of_page(text: str) -> Iterator[str]:
    for language, code in _BLOCK.findall(text):
        for line in code.splitlines() if language in _SHELL else ():
            yield from _faults(line)
    for code in _INLINE.findall(_BLOCK.sub("", text)):
        # In a sentence, a command may be named without its arguments.
        yield from _faults(" ".join(code.replace("\\|", "|").split()), whole=False)


@pytest.mark.slow
def test_commands_on_pages_exist() -> None:
    wrong = [
        f"{page.relative_to(ROOT)}: {fault}"
        for pattern in ("*.md", "docs/**/*.md", "plugins/*/*.md", "libs/*/*.md", "core/*.md")
        for page in ROOT.glob(pattern)
        for fault in _faults_of_page(page.read_text(encoding="utf-8"))
    ]
    assert wrong == [], "\n".join(wrong)


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        ("delf runs show ID --events", 1),
        ("type `delf nonsense x`", 1),
        ("delf waits for you", 0),
        ('type: delf run "x" --llm gpt-4o-mini', 0),
        ("delf doctor says why; delf config chekc", 1),
        ("`delf trust --lisst`", 1),
        ("delf keys set", 1),
        ("delf keys set openai keeps one; delf keys remove forgets it", 1),
        ("delf runs list tells; so does delf runs lisst", 1),
        ("delf resume ID --budget, and more", 1),
        ("delf plugins list all", 1),
    ],
)
def test_check_of_hints_finds_commands_that_do_not_exist(text: str, faults: int) -> None:
    assert len(list(_faults(text))) == faults


def test_check_of_pages_finds_a_missing_command_in_a_sentence() -> None:
    assert [*_faults_of_page("Type `delf nonsense`,\nor `delf\nrunner`. A delf stops.")] == [
        "there is no command delf nonsense"
    ]
