"""A request as text: nothing in it can steer the terminal or stand outside of its frame."""

from __future__ import annotations

import io
import os
import pprint
import re
import unicodedata
from collections.abc import Iterator, Mapping
from reprlib import Repr
from typing import Any, Final

from delf.protocols.approval import ApprovalRequest

MENU: Final = "a approve · r reject · e edit · A approve all like this · v view all · ? help"
EDITED_MENU: Final = "a approve as edited · r reject · e edit · v view all · ? help"
HELP: Final = """\
a  make the call with these arguments
r  refuse it; a reason is passed on to the script and the model
e  change arguments first, one by one
A  make it, and all calls like it in this task without asking; you say which arguments may differ
t  make it, and the same call with the same arguments again in this task without asking
s  the same for as long as this session lasts
v  show every argument in full
Ctrl-C rejects, too, and once more stops the task"""

SCRIPT_MENU: Final = "a approve · r reject · ? help"
SCRIPT_HELP: Final = """\
a  run the script; calls of the actions named above pass while it runs, all others ask
r  do not run it; a reason is passed on to the model, which writes another
Ctrl-C rejects, too, and once more stops the task"""

UNKNOWN_MENU: Final = "a make it again · h it did happen · r reject · v view all · ? help"
UNKNOWN_HELP: Final = """\
a  make the call again, with these arguments
h  it did happen: it is not made again, and the script gets the result that you type
r  give it up; a reason is passed on to the script and the model
v  show every argument in full
Ctrl-C rejects, too, and once more stops the task"""

_EFFECTS: Final = {
    "read": "it only reads",
    "write": "it changes data",
    "irreversible": "it cannot be undone",
}
_MOST_LINES: Final = 12
_MOST_CHARACTERS: Final = 1000
_MOST_ARGUMENTS: Final = 30
_MOST_CHANGES: Final = 5
_INDENT: Final = "    "
_GOES_ON: Final = "↳ "
_LINE_ENDS: Final = re.compile("\r\n|\r|\n")
"""Python's own, and no others: a comment goes on after a form feed."""
_FRAME: Final = range(0x2500, 0x2580)
"""Characters that draw boxes: nothing that is shown may look like the frame around it."""
_MARKS: Final = {"bold": "1", "dim": "2", "red": "1;31", "yellow": "1;33", "green": "1;32"}


def style(text: str, mark: str) -> str:
    """A text with a colour, unless ``NO_COLOR`` is set."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return text
    return f"\x1b[{_MARKS[mark]}m{text}\x1b[0m"


def escape(text: str) -> str:
    """A text in one line; what is not printable, or looks like the frame, is an escape."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(c if c.isprintable() and ord(c) not in _FRAME else _escaped(c) for c in text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def fold(text: str, width: int) -> Iterator[str]:
    """A line of printable characters in pieces that fit into a width, between words if it can."""
    piece, used = "", 0
    for character in text:
        cells = 2 if unicodedata.east_asian_width(character) in "WF" else 1
        if used + cells > width and piece:
            end = piece.rfind(" ") + 1
            end = end if end > width // 2 else len(piece)
            yield piece[:end]
            piece = piece[end:]
            used = _cells(piece)
        piece += character
        used += cells
    yield piece


def indented(line: str, width: int) -> Iterator[str]:
    """A line in pieces that fit into a width, the later ones indented under the first."""
    inner = line[: len(line) - len(line.lstrip(" "))][: width // 2]
    pieces = fold(line, width)
    first = next(pieces)
    yield first
    rest = line[len(first) :]
    if rest:
        indent = inner + _INDENT
        yield from (f"{indent}{piece}" for piece in fold(rest, max(1, width - len(indent))))


def _cells(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def value_lines(value: Any, *, whole: bool, width: int = 80) -> list[str]:
    """A value as lines of printable characters.

    Args:
        value: A validated argument.
        whole: All of it, or a beginning that says how much is left.
        width: Where containers are broken into lines.
    """
    if isinstance(value, str) and "\n" in value:
        text = value if whole else value[: 2 * _MOST_CHARACTERS]
        lines = [escape(line.replace("\t", "    ")) for line in text.split("\n")]
        if not whole:
            lines = _capped(lines, value.count("\n") + 1, len(value))
        return lines
    if isinstance(value, (str, bytes)):
        if whole:
            return [escape(repr(value))]
        text = repr(value[:_MOST_CHARACTERS])
        left = len(value) - _MOST_CHARACTERS
        return [escape(text) + (f" … {left:,} more; v shows them" if left > 0 else "")]
    short = _SHORT.repr(value)
    if whole or "..." not in short:  # small, so that a look at all of it costs nothing
        text = pprint.pformat(value, width=max(20, width), sort_dicts=False)
        lines = [escape(line) for line in text.split("\n")]
        return lines if whole else _capped(lines, len(lines), len(text))
    text = escape(short)
    return [f"{text[:_MOST_CHARACTERS]} … cut; v shows all"]


def _capped(lines: list[str], count: int, size: int) -> list[str]:
    kept: list[str] = []
    room = _MOST_CHARACTERS
    for line in lines[:_MOST_LINES]:
        if room <= 0:
            break
        kept.append(line if len(line) <= room else f"{line[:room]} …")
        room -= len(line)
    if len(kept) < count or room < 0:
        kept.append(f"… {count:,} lines, {size:,} characters in all; v shows them")
    return kept


def _short() -> Repr:
    short = Repr()
    short.maxlevel = 5
    short.maxdict = short.maxlist = short.maxtuple = short.maxset = short.maxfrozenset = 20
    short.maxstring = short.maxother = short.maxlong = 200
    return short


_SHORT: Final = _short()


def request_text(
    request: ApprovalRequest,
    arguments: Mapping[str, Any],
    *,
    width: int,
    edited: bool = False,
    waiting: int = 0,
    whole: bool = False,
) -> str:
    """A request in its frame, for a terminal.

    Args:
        request: What is asked.
        arguments: Its arguments.
        width: The terminal's columns.
        edited: Whether the person changed them.
        waiting: How many more requests wait.
        whole: Show every value in full.
    """
    mark = "red" if request.effect == "irreversible" else "yellow"
    more = f" · {waiting} more waiting" if waiting else ""
    effect = f"{request.effect}, {_EFFECTS.get(request.effect, '')}"
    head = f"{_question(request)} · {effect}{more}"
    lines = [f"{style('┌', mark)} {style(piece, mark)}" for piece in fold(head, width - 2)]
    bar = style("│", mark)
    room = width - 3
    if request.code is not None:
        about = (*_about(request, whole=whole), *_script_head(request))
        lines += [f"{bar} {piece}" for line in about for piece in indented(line, room)]
        lines += [f"{bar} {line}" for line in script_lines(request.code, room)]
        lines += [f"{style('└', mark)} {piece}" for piece in fold(SCRIPT_MENU, room)]
        return "\n".join(lines) + "\n"
    body = list(_about(request, whole=whole))
    shown = list(arguments.items())
    for name, value in shown if whole else shown[:_MOST_ARGUMENTS]:
        body += argument_lines(name, value, whole=whole, width=room)
    if not whole and len(shown) > _MOST_ARGUMENTS:
        body.append(f"… {len(shown) - _MOST_ARGUMENTS} more arguments; v shows them")
    if not shown:
        body.append("(no arguments)")
    if edited:
        body.append("(edited by you)")
    if request.preview and not edited:
        body += _preview(request.preview, whole=whole)
    lines += [f"{bar} {piece}" for line in body for piece in indented(line, room)]
    menu = UNKNOWN_MENU if request.outcome_unknown else EDITED_MENU if edited else MENU
    lines += [f"{style('└', mark)} {piece}" for piece in fold(menu, room)]
    return "\n".join(lines) + "\n"


def help_text(request: ApprovalRequest) -> str:
    """What each answer to a request means."""
    if request.code is not None:
        return SCRIPT_HELP
    return UNKNOWN_HELP if request.outcome_unknown else HELP


def _question(request: ApprovalRequest) -> str:
    action = escape(request.action)
    if request.outcome_unknown:
        return f"{action} was interrupted; make it again?"
    return f"approval needed · {action}"


def _script_head(request: ApprovalRequest) -> Iterator[str]:
    yield f"it may call, as often as it likes: {', '.join(map(escape, request.actions))}"
    yield ""


def script_lines(code: str, width: int, *, plain: bool = False) -> list[str]:
    """A script in colours, as lines that fit into a width; what goes on with a line has a mark.

    Args:
        code: The script; what is not printable is shown as an escape.
        width: Columns.
        plain: Without colours in any case.
    """
    lines = [escape(line.replace("\t", "    ")) for line in _LINE_ENDS.split(code.strip("\r\n"))]
    if plain or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return [piece for line in lines for piece in _marked(line, width)]
    from rich.console import Console
    from rich.syntax import Syntax

    console = Console(
        file=io.StringIO(), force_terminal=True, color_system="standard", legacy_windows=False
    )
    syntax = Syntax("", "python", theme="ansi_dark")
    coloured = syntax.highlight("\n".join(lines)).split("\n", allow_blank=True)
    with console.capture() as capture:
        for line, styled in zip(lines, coloured, strict=False):
            start = 0
            for piece in _marked(line, width):
                end = start + len(piece) - len(_GOES_ON) * bool(start)
                console.print(_GOES_ON * bool(start), styled[start:end], sep="", soft_wrap=True)
                start = end
    return [line.rstrip() for line in capture.get().rstrip("\n").split("\n")]


def _marked(line: str, width: int) -> Iterator[str]:
    """A line of a script in pieces; one that goes on with it cannot be taken for a line."""
    first = next(fold(line, width))
    yield first
    rest = line[len(first) :]
    if rest:
        yield from (_GOES_ON + piece for piece in fold(rest, max(1, width - len(_GOES_ON))))


def _preview(text: str, *, whole: bool) -> list[str]:
    """What would happen, in the words of the connection."""
    lines = [escape(line.replace("\t", "    ")) for line in text.rstrip("\n").split("\n")]
    if not whole:
        lines = _capped(lines, len(lines), len(text))
    return ["what would happen:", *(f"    {line}" for line in lines)]


def _about(request: ApprovalRequest, *, whole: bool) -> Iterator[str]:
    """Who asks and why, and where the task stands."""
    yield f"task: {_line(request.task, whole=whole)}"
    if request.worker:
        yield f"worker: {_line(request.worker, whole=whole)}"
    if request.script > 1:
        because = _line(request.because or "", whole=whole)
        yield f"script {request.script}, because {because}"
    if request.reason:
        yield f"why it asks: {_line(request.reason, whole=whole)}"
    if request.outcome_unknown:
        yield "The call was begun when its process died; whether it happened is not recorded."
    if request.permission not in (request.action, request.action.rpartition(".")[2]):
        yield f"permission: {escape(request.permission)}"
    if request.description:
        yield f"the script says: {_line(request.description, whole=whole)}"
    if request.made_before is not None:
        yield f"! the very same call was made before in this task (call {request.made_before})"
    if request.changes:
        shown = request.changes if whole else request.changes[-_MOST_CHANGES:]
        left = len(request.changes) - len(shown)
        yield f"changed so far in this task: {len(request.changes)}"
        if left:
            yield f"{_INDENT}… {left:,} before these; v shows them"
        yield from (f"{_INDENT}{_line(change, whole=whole)}" for change in shown)


def _line(text: str, *, whole: bool) -> str:
    line = escape(" ".join(text.split()))
    return line if whole or len(line) <= 300 else f"{line[:299]}…"


def argument_lines(name: str, value: Any, *, whole: bool, width: int) -> list[str]:
    """An argument in lines; what does not fit into one says how long it is.

    Args:
        name: Its name.
        value: A validated argument.
        whole: All of it, or a beginning.
        width: Columns; pieces of longer lines are made by :func:`indented`.
    """
    lines = value_lines(value, whole=whole, width=width - len(_INDENT))
    label = escape(name)
    if len(lines) == 1 and _cells(f"{label} = {lines[0]}") <= width:
        return [f"{label} = {lines[0]}"]
    size = f" ({len(value):,} characters)" if isinstance(value, str) else ""
    if len(lines) == 1:
        return [f"{label}{size} = {lines[0]}"]
    return [f"{label}{size} =", *(f"{_INDENT}{line}" for line in lines)]
