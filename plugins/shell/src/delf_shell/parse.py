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
from typing import Final, Literal

from delf.errors import ToolRefusedError

Joint = Literal["", "&&", "||", ";"]
Words = tuple[str, ...]

_LONGEST: Final = 100_000
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
_RESERVED: Final = re.compile(
    r"!|\[\[|\]\]|case|coproc|do|done|elif|else|esac|fi|for|function|if|in|select|then|time|until"
    r"|while|alias|bg|builtin|cd|command|declare|eval|exec|exit|export|fg|hash|jobs|local|readonly"
    r"|return|set|shift|source|trap|type|typeset|ulimit|umask|unalias|unset|wait|\."
)
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=")
_INSTEAD: Final = "do that in Python, or quote the character"


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Programs connected by pipes.

    Args:
        joint: The operator before the pipeline; empty for the first.
        commands: The words of each program.
    """

    joint: Joint
    commands: tuple[Words, ...]


def parse(text: str) -> tuple[Pipeline, ...]:
    """Return a command line in its parts.

    Args:
        text: The command line.

    Raises:
        ToolRefusedError: For anything but words and ``| && || ;``.
    """
    if len(text) > _LONGEST:
        raise ToolRefusedError(f"a command has at most {_LONGEST} characters")
    pipelines: list[Pipeline] = []
    joint: Joint = ""
    commands: list[Words] = []
    words: list[str] = []
    for kind, value in _tokens(text):
        if kind == "word":
            words.append(value)
            continue
        _end_command(text, words, commands)
        if value != "|":
            pipelines.append(Pipeline(joint, tuple(commands)))
            joint, commands = _joint(value), []
    if words or commands or joint != ";" or not pipelines:
        _end_command(text, words, commands)
        pipelines.append(Pipeline(joint, tuple(commands)))
    return tuple(pipelines)


def _joint(value: str) -> Joint:
    match value:
        case "&&":
            return "&&"
        case "||":
            return "||"
        case _:
            return ";"


def _end_command(text: str, words: list[str], commands: list[Words]) -> None:
    if not words:
        raise ToolRefusedError(f"a part of the command is empty: {text!r}")
    if _RESERVED.fullmatch(words[0]):
        raise ToolRefusedError(
            f"{words[0]!r} belongs to a shell, and commands are run without one: "
            "cwd= sets the folder, Python does the rest"
        )
    if _ASSIGNMENT.match(words[0]):
        raise ToolRefusedError(f"variables cannot be set for a command: {words[0]!r}")
    commands.append(tuple(words))
    words.clear()


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    """Yield words and operators, in order."""
    at = 0
    while at < len(text):
        sign = text[at]
        if sign in " \t":
            at += 1
        elif text.startswith(("&&", "||"), at):
            yield "operator", text[at : at + 2]
            at += 2
        elif sign in "|;":
            if text.startswith((";;", "|&"), at):
                raise _not_understood(text[at : at + 2], "this operator")
            yield "operator", sign
            at += 1
        else:
            word, at = _word(text, at)
            yield "word", word


def _word(text: str, at: int) -> tuple[str, int]:
    """Return the unquoted word that starts at a position, and its end."""
    if text[at] in "#~":
        raise _not_understood(text[at], "comments" if text[at] == "#" else "home folders")
    word: list[str] = []
    while at < len(text) and text[at] not in " \t|;":
        sign = text[at]
        if sign == "'":
            end = text.find("'", at + 1)
            part, at = _read_quoted(text, at, end), end + 1
        elif sign == '"':
            part, at = _double_quoted(text, at + 1)
        elif sign == "\\":
            part, at = _plain(text[at + 1 : at + 2] or "\n"), at + 2
        elif sign == "&":
            raise _not_understood("&", "commands in the background")
        elif sign in _REFUSED:
            raise _not_understood(sign, _REFUSED[sign])
        else:
            part, at = _plain(sign), at + 1
        word.append(part)
    return "".join(word), at


def _read_quoted(text: str, start: int, end: int) -> str:
    if end < 0:
        raise ToolRefusedError(f"a quote is not closed: {text[start : start + 40]!r}")
    return "".join(_plain(sign, quoted=True) for sign in text[start + 1 : end])


def _double_quoted(text: str, at: int) -> tuple[str, int]:
    word: list[str] = []
    while at < len(text):
        sign = text[at]
        if sign == '"':
            return "".join(word), at + 1
        if sign in "$`":
            raise _not_understood(sign, _REFUSED[sign] + " in double quotes")
        if sign == "\\" and text[at + 1 : at + 2] in ('"', "\\", "$", "`"):
            at += 1
            sign = text[at]
        elif sign == "\\" and text[at + 1 : at + 2] == "\n":
            raise ToolRefusedError("a line cannot be continued")
        word.append(_plain(sign, quoted=True))
        at += 1
    raise ToolRefusedError(f"a quote is not closed: {text[:40]!r}")


def _plain(sign: str, *, quoted: bool = False) -> str:
    """Return a character if it has no special meaning in any shell; raise otherwise."""
    if quoted and sign in "\n\t":
        return sign
    kind = unicodedata.category(sign)
    if kind[0] == "C" or (kind[0] == "Z" and sign != " "):
        raise ToolRefusedError(
            f"the character {sign!a} is not understood in a command; plain spaces separate words"
        )
    return sign


def _not_understood(sign: str, what: str) -> ToolRefusedError:
    return ToolRefusedError(
        f"{what} ({sign!r}) are not understood: commands are run without a shell; {_INSTEAD}"
    )


def format_pipelines(pipelines: tuple[Pipeline, ...]) -> str:
    """Format the commands, one program per line, with quoted words."""
    lines: list[str] = []
    for pipeline in pipelines:
        for number, words in enumerate(pipeline.commands):
            before = "|" if number else pipeline.joint
            lines.append(f"{before:>2} {shlex.join(words)}")
    return "\n".join(lines)
