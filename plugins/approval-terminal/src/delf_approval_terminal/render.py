"""A request as text that cannot steer the terminal or leave its frame."""

from __future__ import annotations

import os
import pprint
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from reprlib import Repr
from typing import Any, Final

from delf.protocols.approval import ApprovalRequest
from delf.protocols.facts import FactKind, RequestFact, as_edited, facts, value_text
from delf.questions import Question
from delf.records import dataclass
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

CHOICE_HELP: Final = """\
type one of the answers, or the number of an option
r  answer nothing; the script and the model get your reason
v  show everything in full
Ctrl-C answers nothing, too; a second Ctrl-C stops the task"""

TEXT_HELP: Final = """\
type your answer in one line; the script gets it as it is
Ctrl-D or Ctrl-C answers nothing; a second Ctrl-C stops the task"""

_CHANGES_HELP: Final = """\
c  ask for changes: nothing is made, and the model plans again with what you type
"""

_MAX_LINES: Final = 12
_MAX_CHARACTERS: Final = 1000
_MAX_ARGUMENTS: Final = 30
_MAX_CHANGES: Final = 5
_INDENT: Final = "    "
_CONTINUATION: Final = "↳ "
# Matches the characters with which a content could imitate a line or the frame of a request: line
# breaks, tabs, and box-drawing characters.
_IMITATING: Final = re.compile("[\n\t\u2500-\u257f]")
_STYLES: Final = {"bold": "1", "dim": "2", "red": "1;31", "yellow": "1;33", "green": "1;32"}


def style(text: str, name: str) -> str:
    """Return a text in a style, such as ``red`` or ``bold``; plain if ``NO_COLOR`` is set."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return text
    return f"\x1b[{_STYLES[name]}m{text}\x1b[0m"


def escape(text: str) -> str:
    """Escape control characters, line breaks and box-drawing characters in a text."""
    return _IMITATING.sub(
        lambda match: match[0].encode("unicode_escape").decode("ascii"), visible(text)
    )


def fold(text: str, width: int) -> Iterator[str]:
    """Wrap a line of printable characters to a width, between words if possible."""
    piece = ""
    used_cells = 0
    for character in text:
        cells = 2 if unicodedata.east_asian_width(character) in "WF" else 1
        if used_cells + cells > width and piece:
            end = piece.rfind(" ") + 1
            if end <= width // 2:  # break inside a word rather than waste half of the line
                end = len(piece)
            yield piece[:end]
            piece = piece[end:]
            used_cells = _cells(piece)
        piece += character
        used_cells += cells
    yield piece


def indent_pieces(line: str, width: int) -> Iterator[str]:
    """Wrap a line to a width, and indent the continuation lines."""
    first = next(fold(line, width))
    yield first
    rest = line[len(first) :]
    if rest:
        indent_length = len(line) - len(line.lstrip(" "))
        line_indent = line[:indent_length]
        indent = line_indent[: width // 2] + _INDENT  # cut a deep indent, to leave room for text
        yield from (f"{indent}{piece}" for piece in fold(rest, max(1, width - len(indent))))


def _cells(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


@dataclass(frozen=True, slots=True)
class Part:
    """A section of a shown request, in lines of printable characters.

    Args:
        lines: The lines.
        omitted_chars: The number of omitted characters.
        is_script: Whether the lines are a script, whose continuation lines are marked.
    """

    lines: Sequence[str]
    omitted_chars: int = 0
    is_script: bool = False


def value_part(value: Any, *, whole: bool, width: int = 80) -> Part:
    """Format an argument's value in lines.

    Args:
        value: The validated value.
        whole: Whether to show the whole value instead of its beginning.
        width: The width in columns to which lists and dicts are wrapped.
    """
    if isinstance(value, str) and "\n" in value:
        return _text_part(value, whole=whole)
    if isinstance(value, (str, bytes)):
        start = value if whole else value[:_MAX_CHARACTERS]
        hidden_count = len(value) - len(start)
        line = escape(repr(start))
        if hidden_count:
            line += f" {_remaining_note(hidden_count)}"
        return Part([line], hidden_count)
    short = _SHORT_REPR.repr(value)
    is_cut = "..." in short  # as reprlib marks what it leaves out
    if whole or not is_cut:
        try:
            text = pprint.pformat(value, width=max(20, width), sort_dicts=False)
        except RecursionError:  # JSON is encoded without recursion in Python
            text = value_text(value)
        return _text_part(text, whole=whole)
    start = short[:_MAX_CHARACTERS]
    # At least 1, because _size() is 0 for a value whose repr() fails.
    hidden_count = max(1, _size(value) - len(start))
    return Part([f"{escape(start)} {_remaining_note(hidden_count)}"], hidden_count)


def _text_part(text: str, *, whole: bool) -> Part:
    """Format a text in lines; only its beginning unless ``whole``."""
    start = text
    if not whole:
        first_lines = text[:_MAX_CHARACTERS].split("\n")[:_MAX_LINES]
        start = "\n".join(first_lines)
    lines = [escape(line.replace("\t", "    ")) for line in start.split("\n")]
    hidden_count = len(text) - len(start)
    if hidden_count:
        lines.append(_remaining_note(hidden_count))
    return Part(lines, hidden_count)


def _remaining_note(hidden_count: int) -> str:
    return f"… {hidden_count:,} more characters; v shows them"


def _size(value: Any) -> int:
    try:
        return len(repr(value))
    except Exception:  # repr() of a tool author's object may raise
        return 0


def _make_short_repr() -> Repr:
    short = Repr()
    short.maxlevel = 5
    short.maxdict = short.maxlist = short.maxtuple = short.maxset = short.maxfrozenset = 20
    short.maxstring = short.maxother = short.maxlong = 200
    return short


_SHORT_REPR: Final = _make_short_repr()


def request_text(
    request: ApprovalRequest,
    arguments: Mapping[str, Any],
    *,
    width: int,
    edited: bool = False,
    waiting: int = 0,
    whole: bool = False,
) -> str:
    """Format a request for a terminal, in a frame.

    Args:
        request: The request.
        arguments: The arguments, edited or as requested.
        width: The width of the terminal in columns.
        edited: Whether the person has edited the arguments.
        waiting: The number of other requests that wait for the terminal.
        whole: Whether to show all facts in full.
    """
    colour = "yellow" if can_be_undone(request.effect) else "red"
    request = as_edited(request, arguments)
    headline, effect, *other_facts = facts(request)
    waiting_note = f" · {waiting} more waiting" if waiting else ""
    headline_text, effect_text = _on_one_line(headline.text), _on_one_line(effect.text)
    title = f"{headline_text} · {effect.note} {effect_text}{waiting_note}"
    lines = [f"{style('┌', colour)} {style(piece, colour)}" for piece in fold(title, width - 2)]
    bar = style("│", colour)
    content_width = width - 3
    # While a question takes any text, no key is free to show the rest, so show everything at once.
    if request.question is not None and _takes_any_text(request.question):
        whole = True
    body, omitted_chars = fact_lines(request, other_facts, content_width, whole=whole)
    if edited:
        body.append("(edited by you)")
    lines += [f"{bar} {line}" for line in body]
    menu = _menu(request, edited=edited, omitted_chars=omitted_chars)
    lines += _close_frame(_wrap_menu(menu, content_width), colour)
    return "\n".join(lines) + "\n"


def fact_lines(
    request: ApprovalRequest, all_facts: Sequence[RequestFact], width: int, *, whole: bool
) -> tuple[list[str], int]:
    """Wrap facts into lines; return the lines and the number of omitted characters.

    Args:
        request: The request that the facts describe.
        all_facts: The facts, as :func:`delf.protocols.facts.facts` returns them.
        width: The maximum width of a line in columns.
        whole: Whether to show every fact in full.
    """
    shown_facts = all_facts
    omitted_facts: Sequence[RequestFact] = ()
    if not whole:
        shown_facts, omitted_facts = _split_at_limit(all_facts)
    parts = [_fact_part(request, fact, width, whole=whole) for fact in shown_facts]
    if omitted_facts:
        parts.append(_note_on_omitted(omitted_facts))
    is_call = request.code is None and not request.is_question
    if is_call and not any(map(_describes_argument, all_facts)):
        parts.append(Part(["(no arguments)"]))
    lines: list[str] = []
    for part in parts:
        wrap_line = _mark_continuations if part.is_script else indent_pieces
        for line in part.lines:
            lines += wrap_line(line, width)
    return lines, sum(part.omitted_chars for part in parts)


def _split_at_limit(
    all_facts: Sequence[RequestFact],
) -> tuple[list[RequestFact], list[RequestFact]]:
    """Split facts into those to show and those to omit.

    The facts about all arguments after the first :data:`_MAX_ARGUMENTS` are omitted, except the
    facts that the person must see.
    """
    shown_facts: list[RequestFact] = []
    omitted_facts: list[RequestFact] = []
    argument_count = 0
    for fact in all_facts:
        if fact.kind is FactKind.ARGUMENT:
            argument_count += 1
        is_beyond_limit = argument_count > _MAX_ARGUMENTS and _describes_argument(fact)
        if is_beyond_limit and not _needs_attention(fact):
            omitted_facts.append(fact)
        else:
            shown_facts.append(fact)
    return shown_facts, omitted_facts


def _note_on_omitted(omitted_facts: Sequence[RequestFact]) -> Part:
    # An argument and its origin are two facts, so origins do not count as arguments.
    argument_count = sum(fact.kind is not FactKind.ORIGIN for fact in omitted_facts)
    omitted_chars = sum(len(fact.label) + len(fact.text) for fact in omitted_facts)
    # The key v shows the whole request.
    return Part([f"… {argument_count} more arguments; v shows them"], omitted_chars)


def _describes_argument(fact: RequestFact) -> bool:
    """Return True if a fact is about an argument of the call, such as its value or origin."""
    return fact.about != ""


def _needs_attention(fact: RequestFact) -> bool:
    """Return True if the person must see a fact because it is dangerous or unusual."""
    return fact.required and fact.weight != "information"


def _fact_part(request: ApprovalRequest, fact: RequestFact, width: int, *, whole: bool) -> Part:
    """Format a fact: an argument as Python, a script by line, another fact as text.

    An argument's origin, such as a web page, is shown only if ``whole`` is True, or if the request
    marks this fact as required.

    Args:
        request: The request, which has the values of arguments.
        fact: The fact.
        width: The width in columns.
        whole: Whether to show the fact in full. If false, a long fact is shortened: a fact about
            changes to its last lines, another fact to its beginning. A script is never shortened.
    """
    values_by_kind = {FactKind.ARGUMENT: request.arguments, FactKind.DEFAULT: request.defaults}
    if fact.kind in values_by_kind:
        argument_name = fact.about
        value = values_by_kind[fact.kind][argument_name]
        return _argument_part(fact, value, whole=whole, width=width)
    if fact.kind is FactKind.ORIGIN:
        if not whole and not fact.required:
            return Part([])
        return Part([f"{_INDENT}↑ {escape(fact.label)}: {escape(fact.text)}"])
    if fact.kind is FactKind.CODE:
        return Part(["", *script_source(fact.text)], is_script=True)
    if fact.kind is FactKind.CHANGES and not whole:
        return _last_lines(fact)
    is_marked = fact.weight != "information" and fact.kind is not FactKind.ACTION
    mark = "! " if is_marked else ""
    part = _text_part(fact.text, whole=whole)
    if len(part.lines) == 1:
        return Part([f"{mark}{escape(fact.heading)}: {part.lines[0]}"], part.omitted_chars)
    lines = [f"{_INDENT}{line}" for line in part.lines]
    return Part([f"{mark}{escape(fact.heading)}:", *lines], part.omitted_chars)


def _last_lines(fact: RequestFact) -> Part:
    """Return the heading and the last lines of a fact that lists changes.

    To see all lines, the person who decides presses v.
    """
    lines = fact.text.split("\n")
    last_lines = [f"{_INDENT}{escape(line)}" for line in lines[-_MAX_CHANGES:]]
    more = [f"{_INDENT}… more before these; v shows them"] if len(lines) > _MAX_CHANGES else []
    return Part([f"{escape(fact.heading)}:", *more, *last_lines])


def _argument_part(fact: RequestFact, value: Any, *, whole: bool, width: int) -> Part:
    """Format an argument as ``label = value``, with the value as Python."""
    label = escape(fact.label)
    note = f" ({escape(fact.note)})" if fact.note else ""
    # The value stands behind ``label = ``, or indented on lines of its own.
    columns_before_value = max(len(_INDENT), _cells(label) + len(" = "))
    part = value_part(value, whole=whole, width=width - columns_before_value)
    first, *more = part.lines
    if not more:
        return Part([f"{label}{note} = {first}"], part.omitted_chars)
    return Part(
        [f"{label}{note} =", *(f"{_INDENT}{line}" for line in part.lines)], part.omitted_chars
    )


def _close_frame(lines: Iterator[str], colour: str) -> list[str]:
    """Prefix each line with the left edge of the frame, and the final one with its corner."""
    *more, last = lines
    return [*(f"{style('│', colour)} {line}" for line in more), f"{style('└', colour)} {last}"]


def _menu(request: ApprovalRequest, *, edited: bool, omitted_chars: int) -> str:
    """Return the line with the possible keys, and with the number of characters not shown."""
    plural = "" if omitted_chars == 1 else "s"
    note = f", {omitted_chars:,} character{plural} unseen" if omitted_chars else ""
    question = request.question
    if question is not None:
        # If every typed line is an answer, no key is free for anything else.
        if _takes_any_text(question):
            return f"{_answer_keys(question)}{note}"
        return f"{_answer_keys(question)}{note} · r answer nothing · v view all · ? help"
    reject_keys = "r reject · c ask for changes" if request.takes_changes else "r reject"
    if request.code is not None:
        return f"a approve{note} · {reject_keys} · v view all · ? help"
    if request.outcome_unknown:
        return f"a make it again{note} · h it did happen · r reject · v view all · ? help"
    if edited:
        return f"a approve as edited{note} · {reject_keys} · e edit · v view all · ? help"
    approve_all = f"A every {escape(request.action)} in this task"
    return f"a approve{note} · {reject_keys} · e edit · {approve_all} · v view all · ? help"


def _takes_any_text(question: Question) -> bool:
    """Return True if every typed line is a valid answer."""
    return not question.choices and question.answer == "text"


def _answer_keys(question: Question) -> str:
    if question.options:
        if len(question.options) == 1:
            return "1 choose"
        return f"1-{len(question.options)} choose"
    match question.answer:
        case "yes/no":
            return "y yes · n no"
        case "number":
            return "type a number"
        case _:
            return "type your answer · Ctrl-D answer nothing"


def _wrap_menu(menu: str, width: int) -> Iterator[str]:
    """Wrap the line with the possible keys, such as ``a approve · r reject``, between two keys."""
    line = ""
    for key in menu.split(" · "):
        longer = f"{line} · {key}" if line else key
        if line and _cells(longer) > width:
            yield from fold(line, width)
            longer = key
        line = longer
    yield from fold(line, width)


def help_text(request: ApprovalRequest) -> str:
    """Return an explanation of each possible answer to a request."""
    if (question := request.question) is not None:
        return TEXT_HELP if _takes_any_text(question) else CHOICE_HELP
    if request.outcome_unknown:
        return UNKNOWN_HELP
    text = HELP if request.code is None else SCRIPT_HELP
    if not request.takes_changes:
        return text
    # The line about changes comes before the line about Ctrl-C.
    lines_before, ctrl_c, lines_after = text.rpartition("Ctrl-C rejects")
    return f"{lines_before}{_CHANGES_HELP}{ctrl_c}{lines_after}"


def script_source(code: str) -> list[str]:
    """Return the lines of a script, with unprintable characters escaped."""
    return [escape(line.replace("\t", "    ")) for line in code.strip("\n").split("\n")]


def _mark_continuations(line: str, width: int) -> Iterator[str]:
    """Wrap a line of a script, and put ``↳`` before each continuation line."""
    first = next(fold(line, width))
    yield first
    rest = line[len(first) :]
    if rest:
        yield from (
            _CONTINUATION + piece for piece in fold(rest, max(1, width - len(_CONTINUATION)))
        )


def _on_one_line(text: str) -> str:
    return escape(" ".join(text.split()))
