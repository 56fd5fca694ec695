"""Parses thoughts, text and calls from an answer in arbitrary pieces."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from delf.answers import Opening, may_be_reasoning, reasoning_in
from delf_strategy_stream.calls import read_call
from delf_strategy_stream.events import (
    Event,
    Invented,
    Misread,
    Prose,
    Thought,
)

_OPEN: Final = "<execute>"
_CLOSE: Final = "</execute>"
_IN_STRING: Final = re.compile(r'["\\]')
_OUTSIDE: Final = re.compile(r'["{}\[\]<]')
_NAME: Final = re.compile(r"(await\s+)?[A-Za-z_][\w.]*")
_NOT_JSON: Final = 'it is not JSON; expected is [{"name": …, "args": {…}}]'
_NEXT: Final = re.compile(r"[\n<]")
_BETWEEN: Final = " \t\r\n,[]"
_FENCE: Final = "```json"
_FENCES: Final = ("```", "~~~")
_QUOTES: Final = "\"'`“‘«„"
_ONLY_FENCED: Final = re.compile(r"\s*```\w*\s*<execute>.*</execute>\s*```\s*", re.DOTALL)
_LONGEST_INVENTION: Final = 10_000


class Parser:
    """A parser that turns one answer into events.

    An answer is optional reasoning, then text, then calls. Calls start with ``<execute>``, outside
    of code fences and quotes, followed by a JSON array; nothing may follow ``</execute>`` in its
    line. After the end only another ``<execute>`` counts. Marks elsewhere, such as within a JSON
    string, are ordinary text.

    Args:
        calls: Whether calls are in the text.
    """

    def __init__(self, *, calls: bool = True) -> None:
        self._marks = ("<think>", _OPEN) if calls else ("<think>",)
        self._rest: str = ""
        self._state: Callable[[list[Event]], bool] = self._start
        self._opening: Opening | None = None
        self._thought_mark: str = ""
        self._line: list[str] = []
        self._in_fence = False
        self._prose: list[str] = []
        self._garbage: list[str] = []
        self._searched_to = 0
        self._depth = 0
        self._in_string = False
        self._is_over = False
        self._invented: list[str] = []

    def feed(self, text: str) -> list[Event]:
        """Return the events that a piece completes; longer texts are several events.

        Args:
            text: The next piece.
        """
        self._rest += text
        events: list[Event] = []
        while self._state(events):
            pass
        return events

    def finish(self) -> list[Event]:
        """Return the remaining events at the end of the answer."""
        self._is_over = True
        events = self.feed("")
        rest, state = self._rest, self._state
        self._rest = ""
        if state in (self._start, self._text, self._quoting) and rest:
            self._say(rest, events)
        elif state == self._think:
            events += [Thought(rest)] if rest else []
            events.append(Misread("", f"{self._thought_mark} has no end"))
        elif state == self._open:
            events.append(Misread(_OPEN, "no calls follow"))
        elif state == self._element:
            events.append(Misread(rest, "it has no end"))
        elif state == self._calls and not _FENCE.startswith(rest):
            self._garbage.append(rest)
        self._tell_garbage(events)
        prose = "".join(self._prose)
        if _OPEN in self._marks and _ONLY_FENCED.fullmatch(prose):
            events.append(Misread(prose, "calls are not written in a fence"))
        if self._invented:
            events.append(Invented("".join(self._invented)[:_LONGEST_INVENTION]))
        return events

    # -- states: each consumes input, and returns False if more input is needed ---------------

    def _start(self, events: list[Event]) -> bool:
        """Parse the start of an answer; return False if more input is needed."""
        self._opening = reasoning_in(self._rest)
        if self._opening is not None:
            self._thought_mark = self._rest[: self._opening.length].strip()
            self._rest = self._rest[self._opening.length :]
            self._state = self._think
            return True
        if may_be_reasoning(self._rest) and not self._is_over:
            return False
        self._state = self._text
        return True

    def _think(self, events: list[Event]) -> bool:
        """Parse reasoning; return False if more input is needed."""
        opening = self._opening
        end = None if opening is None else opening.end.search(self._rest)
        if end is not None:
            thought, self._rest = self._rest[: end.start()], self._rest[end.end() :]
            self._state = self._start
        else:
            mark_length = 0 if opening is None else _begun_mark_length(self._rest, opening.mark)
            place = len(self._rest) - mark_length
            thought, self._rest = self._rest[:place], self._rest[place:]
        if thought:
            events.append(Thought(thought))
        return end is not None

    def _text(self, events: list[Event]) -> bool:
        match = _NEXT.search(self._rest)
        place = len(self._rest) if match is None else match.start()
        self._say(self._rest[:place], events)
        self._rest = self._rest[place:]
        if match is None:
            return False
        if match.group() == "\n":
            self._say("\n", events)
            self._rest = self._rest[1:]
            return True
        mark = next((mark for mark in self._marks if self._rest.startswith(mark)), None)
        if mark is not None and self._is_valid_mark(mark):
            return self._begin(mark)
        # A piece may end within a mark: keep the mark's beginning until the next piece.
        may_begin_mark = any(mark.startswith(self._rest) for mark in self._marks)
        if mark is None and may_begin_mark and not self._is_over:
            return False
        mark = mark or "<"
        self._say(mark, events)
        self._rest = self._rest[len(mark) :]
        return True

    def _is_valid_mark(self, mark: str) -> bool:
        """Return whether a mark is valid at its position."""
        line = "".join(self._line)
        # Calls that a model quotes in an explanation must not be made. A tuple, because the empty
        # string is in every string.
        if self._in_fence or line.count("`") % 2 or line[-1:] in tuple(_QUOTES):
            return False
        return mark == _OPEN or not line.strip()

    def _begin(self, mark: str) -> bool:
        if mark == "<think>":
            self._state = self._quoting  # a thought is valid only at the beginning
            return True
        if "".join(self._line).strip():
            self._searched_to, self._state = len(mark), self._aside
            return True
        self._rest = self._rest[len(mark) :]
        self._state = self._open
        return True

    def _quoting(self, events: list[Event]) -> bool:
        """Parse quoted text, in which only its own end mark counts; return False for more input."""
        text, end_mark, rest = self._rest.partition("</think>")
        if not end_mark:
            return False
        self._say(text + end_mark, events)
        self._rest, self._state = rest, self._text
        return True

    def _aside(self, events: list[Event]) -> bool:
        """Parse ``<execute>`` within a line, which is text if the line continues after its end."""
        while True:
            end = self._rest.find(_CLOSE, self._searched_to)
            if end < 0 and not self._is_over:
                # The end mark may be split between pieces: search the last characters again.
                self._searched_to = max(self._searched_to, len(self._rest) - len(_CLOSE))
                return False
            if end < 0 or not _is_in_string(self._rest[:end]):
                break
            self._searched_to = end + 1
        rest_of_line, line_ended, _ = self._rest[end + len(_CLOSE) :].partition("\n")
        if end >= 0 and not rest_of_line.strip() and not line_ended and not self._is_over:
            self._searched_to = end
            return False
        if end >= 0 and rest_of_line.strip() and not rest_of_line.lstrip().startswith("<"):
            self._say(self._rest[: end + len(_CLOSE)], events)
            self._rest = self._rest[end + len(_CLOSE) :]
            self._state = self._text
            return True
        self._rest, self._state = self._rest[len(_OPEN) :], self._open
        return True

    def _open(self, events: list[Event]) -> bool:
        upcoming = self._rest.lstrip()
        if not upcoming or (len(upcoming) < len(_CLOSE) and _CLOSE.startswith(upcoming)):
            return False
        if upcoming[0] in "[{`" or upcoming.startswith(_CLOSE):
            self._state = self._calls
            return True
        name = _NAME.match(upcoming)
        if name is not None and name.end() == len(upcoming) and not self._is_over:
            return False
        if name is not None and upcoming[name.end() :].startswith("("):
            self._state = self._python
            return True
        self._say(_OPEN, events)
        self._state = self._text
        return True

    def _python(self, events: list[Event]) -> bool:
        """Parse a call in Python's notation, which is never made; return False for more input."""
        text, end_mark, rest = self._rest.partition(_CLOSE)
        if not end_mark and not self._is_over:
            return False
        events.append(Misread(text.strip()[:1000], _NOT_JSON))
        self._rest, self._state = rest, self._continues_after
        return bool(end_mark)

    def _calls(self, events: list[Event]) -> bool:
        """Parse the space between calls; return False if more input is needed."""
        self._rest = rest = self._rest.lstrip(_BETWEEN)
        if rest != _CLOSE and (_CLOSE.startswith(rest) or _FENCE.startswith(rest)):
            return False
        if rest.startswith(_CLOSE):
            self._rest = rest[len(_CLOSE) :]
            self._tell_garbage(events)
            self._state = self._continues_after
        elif rest[0] == "{":
            self._state, self._searched_to, self._depth, self._in_string = (
                self._element,
                0,
                0,
                False,
            )
        elif rest.startswith(_FENCE[:3]):
            self._rest = rest[len(_FENCE) if rest.startswith(_FENCE) else 3 :]
        else:
            self._garbage.append(rest[0])
            self._rest = rest[1:]
        return True

    def _element(self, events: list[Event]) -> bool:
        """Parse a call; return False if more input is needed."""
        while True:
            match = (_IN_STRING if self._in_string else _OUTSIDE).search(
                self._rest, self._searched_to
            )
            if match is None:
                # The next search goes on from here: from the start, a call in thousands of pieces
                # would take quadratic time.
                self._searched_to = len(self._rest)
                return False
            mark, place = match.group(), match.start()
            if mark == "\\":
                if place + 1 == len(self._rest):
                    # The escaped character is in the next piece: without it, an escaped quote would
                    # end the string.
                    self._searched_to = place
                    return False
                self._searched_to = place + 2
                continue
            if mark == "<":
                ahead = self._rest[place : place + len(_CLOSE)]
                if ahead == _CLOSE:
                    events.append(Misread(self._rest[:place], "it has no end"))
                    self._rest, self._state = self._rest[place:], self._calls
                    return True
                if _CLOSE.startswith(ahead) and place + len(ahead) == len(self._rest):
                    self._searched_to = place
                    return False
            self._searched_to = place + 1
            if mark == '"':
                self._in_string = not self._in_string
            elif mark in "{[":
                self._depth += 1
            elif mark in "}]":
                self._depth -= 1
            if not self._depth:
                events.append(read_call(self._rest[: self._searched_to]))
                self._rest, self._state = self._rest[self._searched_to :], self._calls
                return True

    def _continues_after(self, events: list[Event]) -> bool:
        upcoming = self._rest.lstrip()
        if upcoming.startswith(_OPEN):
            self._rest, self._state = upcoming[len(_OPEN) :], self._open
            return True
        if _OPEN.startswith(upcoming):
            return False
        self._rest, self._state = upcoming, self._cut
        return True

    def _cut(self, events: list[Event]) -> bool:
        # Models may go on and invent results of their calls, which are not part of the answer.
        self._invented.append(self._rest)
        self._rest = ""
        return False

    # -- parts -------------------------------------------------------------------------------

    def _say(self, text: str, events: list[Event]) -> None:
        """Emit text, tracking lines and fences."""
        if not text:
            return
        events.append(Prose(text))
        self._prose.append(text)
        *lines, last = text.split("\n")
        for line in lines:
            full_line = "".join([*self._line, line])
            self._in_fence ^= full_line.lstrip().startswith(_FENCES)
            self._line.clear()
        self._line.append(last)

    def _tell_garbage(self, events: list[Event]) -> None:
        text = "".join(self._garbage).strip()
        self._garbage.clear()
        if text:
            events.append(Misread(text[:1000], "it is not a call; an array of objects is expected"))


def _begun_mark_length(text: str, mark: str) -> int:
    """Return the length of a text's end that may begin a mark, ignoring case."""
    lowered, mark = text[-len(mark) :].casefold(), mark.casefold()
    return next((n for n in range(len(mark) - 1, 0, -1) if lowered.endswith(mark[:n])), 0)


def _is_in_string(text: str) -> bool:
    """Return whether JSON stops within a string."""
    return re.sub(r"\\.", "", text, flags=re.DOTALL).count('"') % 2 == 1
