"""Parsing of a command line: words, quotes, ``|``, ``&&``, ``||`` and ``;``, nothing else.

Anything that a shell would expand (variables, substitutions, wildcards, redirections,
here-documents, braces, assignments, reserved words) is refused. The grammar is a subset of
POSIX.1-2024, Shell Command Language, 2.2 (quoting) and 2.9 (commands), on which every shell agrees.
"""

from __future__ import annotations

import re
import shlex
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal, cast

from delf.errors import ToolRefusedError

Operator = Literal["", "&&", "||", ";"]
Words = tuple[str, ...]

_MAX_LENGTH: Final = 100_000
_REFUSED: Final = {
    "$": "variables and substitutions",
    "`": "substitutions",
    "<": "redirections",
    ">": "redirections",
    "(": "subshells",
    ")": "subshells",
    "{": "braces",
    "}": "braces",
    "*": "wildcards",
    "?": "wildcards",
    "[": "wildcards",
    "]": "wildcards",
}
# Matches words of a shell's syntax, and commands that only a shell has: without a shell, ``cd`` or
# ``export`` would change nothing for the next command.
_RESERVED: Final = re.compile(
    r"!|\[\[|\]\]|case|coproc|do|done|elif|else|esac|fi|for|function|if|in|select|then|time|until"
    r"|while|alias|bg|builtin|cd|command|declare|eval|exec|exit|export|fg|hash|jobs|local|readonly"
    r"|return|set|shift|source|trap|type|typeset|ulimit|umask|unalias|unset|wait|\."
)
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=")
_INSTEAD: Final = "do that in Python, or quote the character"


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A sequence of programs connected by pipes.

    Args:
        operator: The operator before the pipeline; empty for the first pipeline.
        commands: The name and arguments of each program.
    """

    operator: Operator
    commands: tuple[Words, ...]


def parse(text: str) -> tuple[Pipeline, ...]:
    """Parse a command line, and return its pipelines.

    Args:
        text: The command line.

    Raises:
        ToolRefusedError: If the text contains any syntax but words and ``| && || ;``.
    """
    if len(text) > _MAX_LENGTH:
        raise ToolRefusedError(f"a command has at most {_MAX_LENGTH} characters")
    pipelines: list[Pipeline] = []
    operator: Operator = ""
    commands: list[Words] = []
    for words, next_operator in _commands(text):
        commands.append(words)
        if next_operator != "|":
            pipelines.append(Pipeline(operator, tuple(commands)))
            operator = next_operator
            commands = []
    return tuple(pipelines)


def _commands(text: str) -> Iterator[tuple[Words, Operator | Literal["|"]]]:
    """Yield the words of each command, with the operator after the command.

    For ``cat a | wc; date``, the operators are ``|``, ``;`` and an empty text.
    """
    words: list[str] = []
    operator = ""
    for kind, value in _tokens(text):
        if kind == "word":
            words.append(value)
        else:
            _check_command(words, text)
            operator = cast('Operator | Literal["|"]', value)
            yield tuple(words), operator
            words = []
    # For a text that ends with another operator, such as ``&&``, _check_command() raises.
    ends_with_semicolon = operator == ";" and not words
    if not ends_with_semicolon:
        _check_command(words, text)
        yield tuple(words), ""


def _check_command(words: list[str], text: str) -> None:
    """Raise if a command has no words, or if the first word belongs to a shell's syntax."""
    if not words:
        raise ToolRefusedError(f"a part of the command is empty: {text!r}")
    if _RESERVED.fullmatch(words[0]):
        raise ToolRefusedError(
            f"{words[0]!r} belongs to a shell, and commands are run without one: "
            "cwd= sets the folder, Python does the rest"
        )
    if _ASSIGNMENT.match(words[0]):
        raise ToolRefusedError(f"variables cannot be set for a command: {words[0]!r}")


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    """Yield the tokens of a command line, as pairs of ``word`` or ``operator`` and the text."""
    position = 0
    while position < len(text):
        character = text[position]
        if character in " \t":
            position += 1
        elif text.startswith(("&&", "||"), position):
            yield "operator", text[position : position + 2]
            position += 2
        elif character in "|;":
            if text.startswith((";;", "|&"), position):
                raise _not_understood(text[position : position + 2], "this operator")
            yield "operator", character
            position += 1
        else:
            word, position = _parse_word(text, position)
            yield "word", word


def _parse_word(text: str, position: int) -> tuple[str, int]:
    """Return the word that starts at a position, without quotes, and the position after it."""
    if text[position] == "#":
        raise _not_understood("#", "comments")
    if text[position] == "~":
        raise _not_understood("~", "home folders")
    word: list[str] = []
    while position < len(text) and text[position] not in " \t|;":
        if text.startswith("&&", position):  # the operator in ``ls&&date``
            break
        character = text[position]
        if character == "'":
            part, position = _single_quoted(text, position + 1)
        elif character == '"':
            part, position = _double_quoted(text, position + 1)
        elif character == "\\":
            part, position = _escaped(text, position + 1)
        elif character == "&":
            raise _not_understood("&", "commands in the background")
        elif character in _REFUSED:
            raise _not_understood(character, _REFUSED[character])
        else:
            part, position = _check_character(character), position + 1
        word.append(part)
    return "".join(word), position


def _escaped(text: str, position: int) -> tuple[str, int]:
    """Return the character after a backslash, and the position after the character."""
    if position == len(text):
        raise ToolRefusedError("a command cannot end with a backslash")
    return _check_character(text[position]), position + 1


def _single_quoted(text: str, position: int) -> tuple[str, int]:
    """Return the text up to the next single quote, and the position after the quote."""
    end = text.find("'", position)
    if end < 0:
        raise ToolRefusedError(f"a quote is not closed: {text[position - 1 : position + 39]!r}")
    part = "".join(_check_character(character, quoted=True) for character in text[position:end])
    return part, end + 1


def _double_quoted(text: str, position: int) -> tuple[str, int]:
    """Return the text up to the next double quote, and the position after the quote."""
    word: list[str] = []
    while position < len(text):
        character = text[position]
        if character == '"':
            return "".join(word), position + 1
        if character in "$`":
            raise _not_understood(character, _REFUSED[character] + " in double quotes")
        next_character = text[position + 1 : position + 2]  # empty at the end
        if character == "\\" and next_character in ('"', "\\", "$", "`"):
            position += 1
            character = next_character
        elif character == "\\" and next_character == "\n":
            raise ToolRefusedError("a line cannot be continued")
        word.append(_check_character(character, quoted=True))
        position += 1
    raise ToolRefusedError(f"a quote is not closed: {text[:40]!r}")


def _check_character(character: str, *, quoted: bool = False) -> str:
    """Return a character. Raise if it is a control character or a space other than ``" "``.

    In quotes, line breaks and tabs are allowed.
    """
    if quoted and character in "\n\t":
        return character
    kind = unicodedata.category(character)
    is_control_character = kind.startswith("C")
    is_other_separator = kind.startswith("Z") and character != " "
    if is_control_character or is_other_separator:
        raise ToolRefusedError(
            f"the character {character!a} is not understood in a command; "
            "plain spaces separate words"
        )
    return character


def _not_understood(character: str, what: str) -> ToolRefusedError:
    return ToolRefusedError(
        f"{what} ({character!r}) are not understood: commands are run without a shell; {_INSTEAD}"
    )


def format_pipelines(pipelines: tuple[Pipeline, ...]) -> str:
    """Format pipelines for a person: one program on each line, with quoted words."""
    lines: list[str] = []
    for pipeline in pipelines:
        for number, words in enumerate(pipeline.commands):
            before = "|" if number else pipeline.operator
            lines.append(f"{before:>2} {shlex.join(words)}")
    return "\n".join(lines)
