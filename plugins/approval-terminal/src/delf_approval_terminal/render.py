"""A request as text: nothing in it can steer the terminal or stand outside of its frame."""

from __future__ import annotations

import os
import pprint
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from reprlib import Repr
from typing import Any, Final

from delf.events import content_of
from delf.protocols.approval import ApprovalRequest
from delf.protocols.people import LOCAL
from delf.terminal import visible
from delf.types import can_be_undone

HELP: Final = """\
a  make the call with these arguments
r  refuse it; the script and the model get your reason
e  change arguments first, one by one
t  make it; in this task, do not ask again about the same call with the same arguments
u  like t, also in later tasks, until you revoke it: delf approvals remembered
A  make it; in this task, do not ask again about this action, with any arguments
U  like A, also in later tasks, until you revoke it
v  show every argument in full
Ctrl-C rejects, too; a second Ctrl-C stops the task"""

SCRIPT_MENU: Final = "a approve · r reject · ? help"
SCRIPT_HELP: Final = """\
a  run the script; calls of the actions named above need no further approval, all others do
r  do not run it; the model gets your reason and writes another script
Ctrl-C rejects, too; a second Ctrl-C stops the task"""

UNKNOWN_HELP: Final = """\
a  make the call again, with these arguments
h  it did happen: do not make it again; the script gets the result that you type
r  give it up; the script and the model get your reason
v  show every argument in full
Ctrl-C rejects, too; a second Ctrl-C stops the task"""

_EFFECTS: Final = {
    "read": "it only reads",
    "write": "it changes data",
    "irreversible": "it cannot be undone",
}
_LEFT_OUT: Final = "(left out by the script)"
_MOST_LINES: Final = 12
_MOST_CHARACTERS: Final = 1000
_MOST_ARGUMENTS: Final = 30
_MOST_CHANGES: Final = 5
_INDENT: Final = "    "
_GOES_ON: Final = "↳ "
_LINE_ENDS: Final = re.compile("\r\n|\r|\n")
"""Python's own, and no others: a comment goes on after a form feed."""
_WORDED: Final = {
    "request_id",
    "task",
    "call_id",
    "action",
    "permission",
    "effect",
    "arguments",
    "defaults",
    "description",
    "digest",
    "action_digest",
    "shown_digest",
    "reason",
    "preview",
    "outcome_unknown",
    "changed",
    "code",
    "actions",
    "effects",
    "script",
    "because",
    "changes",
    "changes_before",
    "made_before",
    "line",
    "worker",
    "origins",
    "flow",
}
"""Fields that have words here, or say nothing to a person; every other one shows by its name."""
_FRAME: Final = range(0x2500, 0x2580)
"""Characters that draw boxes: nothing that is shown may look like the frame around it."""
_MARKS: Final = {"bold": "1", "dim": "2", "red": "1;31", "yellow": "1;33", "green": "1;32"}


def style(text: str, mark: str) -> str:
    """A text with a colour, unless ``NO_COLOR`` is set."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return text
    return f"\x1b[{_MARKS[mark]}m{text}\x1b[0m"


def escape(text: str) -> str:
    """A text in one line as it is shown; what looks like the frame is an escape, too."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_in_line(c) for c in visible(text))


def _in_line(character: str) -> str:
    if character not in "\n\t" and ord(character) not in _FRAME:
        return character
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


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a request as lines of printable characters.

    Args:
        lines: The lines.
        unseen: How many characters of it are not among them.
    """

    lines: Sequence[str]
    unseen: int = 0


def value_part(value: Any, *, whole: bool, width: int = 80) -> Part:
    """A value in lines.

    Args:
        value: A validated argument.
        whole: All of it, or a beginning that says how much is left.
        width: Where containers are broken into lines.
    """
    if isinstance(value, str) and "\n" in value:
        return _text_part(value, whole=whole)
    if isinstance(value, (str, bytes)):
        kept = value if whole else value[:_MOST_CHARACTERS]
        left = len(value) - len(kept)
        return Part([escape(repr(kept)) + (f" {_more(left)}" if left else "")], left)
    short = _SHORT.repr(value)
    if whole or "..." not in short:  # small, so that a look at all of it costs nothing
        return _text_part(
            pprint.pformat(value, width=max(20, width), sort_dicts=False), whole=whole
        )
    kept = short[:_MOST_CHARACTERS]
    left = max(1, _size(value) - len(kept))
    return Part([f"{escape(kept)} {_more(left)}"], left)


def _text_part(text: str, *, whole: bool) -> Part:
    """A text of several lines, or its beginning."""
    kept = text if whole else text[:_MOST_CHARACTERS]
    if not whole and kept.count("\n") >= _MOST_LINES:
        kept = "\n".join(kept.split("\n", _MOST_LINES)[:_MOST_LINES])
    lines = [escape(line.replace("\t", "    ")) for line in kept.split("\n")]
    left = len(text) - len(kept)
    return Part([*lines, _more(left)] if left else lines, left)


def _more(left: int) -> str:
    return f"… {left:,} more characters; v shows them"


def _size(value: Any) -> int:
    try:
        return len(repr(value))
    except Exception:  # an object of the author's own may raise anything
        return 0


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
    """A request in its frame, for a terminal."""
    mark = "yellow" if can_be_undone(request.effect) else "red"
    more = f" · {waiting} more waiting" if waiting else ""
    effect = f"{request.effect}, {_EFFECTS.get(request.effect, '')}"
    title = f"{_question(request)} · {effect}{more}"
    lines = [f"{style('┌', mark)} {style(piece, mark)}" for piece in fold(title, width - 2)]
    bar, room = style("│", mark), width - 3
    body, unseen = content_lines(request, arguments, room, whole=whole, edited=edited)
    task = indented(f"task: {_line(request.task, whole=whole)}", room)
    lines += [f"{bar} {line}" for line in (*task, *body)]
    menu = SCRIPT_MENU
    if request.code is None:
        menu = _menu(request, edited=edited, unseen=unseen)
    lines += _closed(_keys(menu, room), mark)
    return "\n".join(lines) + "\n"


def content_lines(
    request: Any,
    arguments: Mapping[str, Any],
    width: int,
    *,
    whole: bool,
    edited: bool = False,
) -> tuple[list[str], int]:
    """Return all that a yes is for, in lines of this width, and how many characters are not there.

    Args:
        request: The request, or its event.
        arguments: Its arguments, as a person may have edited them.
        width: The columns.
        whole: Show every value in full.
        edited: True where a person changed them.
    """
    lines = [*about(request, whole=whole)]
    if request.code is not None:
        names = ", ".join(map(escape, request.actions))
        lines += [f"it may call, as often as it likes: {names}", ""]
        pieces = [piece for line in lines for piece in indented(line, width)]
        return [*pieces, *script_lines(request.code, width)], 0
    parts = argument_parts(request, arguments, width=width, whole=whole, edited=edited)
    lines += [line for part in parts for line in part.lines]
    unseen = sum(part.unseen for part in parts)
    return [piece for line in lines for piece in indented(line, width)], unseen


def _closed(lines: Iterator[str], mark: str) -> list[str]:
    """The last lines of a card, the last of which closes it."""
    *more, last = lines
    return [*(f"{style('│', mark)} {line}" for line in more), f"{style('└', mark)} {last}"]


def argument_parts(
    request: ApprovalRequest,
    arguments: Mapping[str, Any],
    *,
    width: int,
    whole: bool,
    edited: bool = False,
) -> list[Part]:
    """Lay out the arguments of a call, with their sources, and its preview.

    Args:
        request: The request.
        arguments: Its arguments, as a person may have edited them.
        width: The columns.
        whole: Show every value in full.
        edited: True where a person changed them.
    """
    shown = list(arguments.items())
    seen = shown if whole else shown[:_MOST_ARGUMENTS]
    parts = [argument_part(name, value, whole=whole, width=width) for name, value in seen]
    if not edited:
        parts = [
            _with_origins(part, request.origins, name, whole=whole)
            for part, (name, _) in zip(parts, seen, strict=True)
        ]
    parts += default_parts(request.defaults, arguments, whole=whole, width=width)
    if len(seen) < len(shown):
        left = shown[len(seen) :]
        told = f"… {len(left)} more arguments; v shows them"
        parts.append(Part([told], sum(len(name) + _size(value) for name, value in left)))
    if not parts:
        parts.append(Part(["(no arguments)"]))
    if edited:
        parts.append(Part(["(edited by you)"]))
    elif request.preview:
        parts.append(_preview(request.preview, whole=whole))
    return parts


def _menu(request: ApprovalRequest, *, edited: bool, unseen: int) -> str:
    """The keys with their words; a yes to what was not all shown says so."""
    note = f", {unseen:,} character{'s' * (unseen != 1)} unseen" if unseen else ""
    if request.outcome_unknown:
        return f"a make it again{note} · h it did happen · r reject · v view all · ? help"
    if edited:
        return f"a approve as edited{note} · r reject · e edit · v view all · ? help"
    alike = f"A every {escape(request.action)} in this task"
    return f"a approve{note} · r reject · e edit · {alike} · v view all · ? help"


def _keys(menu: str, width: int) -> Iterator[str]:
    """A menu in lines that break between its keys."""
    line = ""
    for key in menu.split(" · "):
        longer = f"{line} · {key}" if line else key
        if line and _cells(longer) > width:
            yield from fold(line, width)
            longer = key
        line = longer
    yield from fold(line, width)


def help_text(request: ApprovalRequest) -> str:
    """Return the meaning of each answer to a request."""
    if request.code is not None:
        return SCRIPT_HELP
    return UNKNOWN_HELP if request.outcome_unknown else HELP


def _question(request: ApprovalRequest) -> str:
    action = escape(request.action)
    if request.outcome_unknown:
        return f"{action} was interrupted; make it again?"
    return f"approval needed · {action}"


def script_lines(code: str, width: int) -> list[str]:
    """A script as lines that fit into a width; what goes on with a line has a mark.

    Args:
        code: The script; what is not printable is shown as an escape.
        width: Columns.
    """
    lines = (escape(line.replace("\t", "    ")) for line in _LINE_ENDS.split(code.strip("\r\n")))
    return [piece for line in lines for piece in _marked(line, width)]


def _marked(line: str, width: int) -> Iterator[str]:
    """A line of a script in pieces; one that goes on with it cannot be taken for a line."""
    first = next(fold(line, width))
    yield first
    rest = line[len(first) :]
    if rest:
        yield from (_GOES_ON + piece for piece in fold(rest, max(1, width - len(_GOES_ON))))


def _preview(text: str, *, whole: bool) -> Part:
    """Lay out the effect of a call in the words of the connection."""
    part = _text_part(text.rstrip("\n"), whole=whole)
    return Part(["what would happen:", *(f"    {line}" for line in part.lines)], part.unseen)


def about(request: ApprovalRequest, *, whole: bool) -> Iterator[str]:
    """Tell of a request all but its task, arguments and script: a line for each fact.

    A question on the terminal and ``delf approvals show`` have these same lines.
    """
    if request.worker:
        yield f"worker: {_line(request.worker, whole=whole)}"
    if request.script > 1:
        because = _line(request.because or "", whole=whole)
        yield f"script {request.script}, because {because}"
    if request.caution:
        yield f"! {_line(request.caution, whole=whole)}"
    if request.reason:
        yield f"why it asks: {_line(request.reason, whole=whole)}"
    if request.changed:
        yield "! it has changed since it was shown; this is what would be done now"
    if request.outcome_unknown:
        yield "The call was begun and interrupted; whether it happened is not recorded."
    if request.permission not in ("", request.action, request.action.rpartition(".")[2]):
        yield f"permission: {escape(request.permission)}"
    if request.description:
        yield f"the script says: {_line(request.description, whole=whole)}"
    if request.made_before is not None:
        yield f"! the very same call was made before in this task (call {request.made_before})"
    if request.changes:
        shown = request.changes if whole else request.changes[-_MOST_CHANGES:]
        count = request.changes_before + len(request.changes)
        yield f"changed so far in this task: {count:,}"
        if count > len(shown):
            keys = "" if whole else "; v shows them"
            yield f"{_INDENT}… {count - len(shown):,} before these{keys}"
        yield from (f"{_INDENT}{_line(change, whole=whole)}" for change in shown)
    for name, value in content_of(request).items():
        is_plain = value in (None, False, "", (), {}) or (name, value) == ("asked_by", LOCAL)
        if name not in _WORDED and not is_plain:
            yield f"{escape(name.replace('_', ' '))}: {_line(str(value), whole=whole)}"


def _line(text: str, *, whole: bool) -> str:
    line = escape(" ".join(visible(text).split()))
    return line if whole or len(line) <= 300 else f"{line[:299]}…"


def _with_origins(part: Part, origins: Mapping[str, Any], name: str, *, whole: bool) -> Part:
    """An argument with the places that its values came from, where a stranger may be behind it."""
    told: dict[str, list[str]] = {}
    for path, origin in origins.items():
        if re.split(r"[.\[]", path, maxsplit=1)[0] != name:
            continue
        is_plain = origin["kind"] == "script" and origin["trust"] == "own"
        if whole or not is_plain or origin.get("is_new"):
            told.setdefault(str(origin["text"]), []).append(path[len(name) :])
    notes: list[str] = []
    for text, paths in told.items():
        where = ", ".join(filter(None, paths[:_MOST_CHANGES]))
        more = f" and {len(paths) - _MOST_CHANGES} more" if len(paths) > _MOST_CHANGES else ""
        notes.append(f"{_INDENT}↑ {escape(where + more + ': ' if where else '')}{escape(text)}")
    return Part([*part.lines, *notes], part.unseen)


def default_parts(
    defaults: Mapping[str, Any], arguments: Mapping[str, Any], *, whole: bool, width: int
) -> Iterator[Part]:
    """Lay out the values of arguments that the script left out: a yes is for these, too.

    Args:
        defaults: What arguments are that the call leaves out.
        arguments: Those that it has.
        whole: All of each value, or a beginning.
        width: Columns.
    """
    for name, value in defaults.items():
        if name not in arguments:
            part = argument_part(name, value, whole=whole, width=width)
            yield Part([*part.lines[:-1], f"{part.lines[-1]} {_LEFT_OUT}"], part.unseen)


def argument_part(name: str, value: Any, *, whole: bool, width: int) -> Part:
    """An argument in lines; what does not fit into one says how long it is.

    Args:
        name: Its name.
        value: A validated argument.
        whole: All of it, or a beginning.
        width: Columns; pieces of longer lines are made by :func:`indented`.
    """
    label = escape(name)
    part = value_part(value, whole=whole, width=width - max(len(_INDENT), _cells(label) + 3))
    first, *more = part.lines
    if not more and _cells(f"{label} = {first}") <= width:
        return Part([f"{label} = {first}"], part.unseen)
    size = f" ({len(value):,} characters)" if isinstance(value, str) else ""
    if not more:
        return Part([f"{label}{size} = {first}"], part.unseen)
    return Part([f"{label}{size} =", *(f"{_INDENT}{line}" for line in part.lines)], part.unseen)
