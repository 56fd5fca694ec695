"""Takes thoughts, text and calls out of an answer that comes in pieces, however it is cut."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from delf_strategy_stream.calls import read_call
from delf_strategy_stream.events import (
    Event,
    Invented,
    Misread,
    Reported,
    Said,
    Thought,
)

_OPEN: Final = "<execute>"
_CLOSE: Final = "</execute>"
_ALL: Final = ("think", "execute", "results", "report")
_IN_STRING: Final = re.compile(r'["\\]')
_OUTSIDE: Final = re.compile(r'["{}\[\]<]')
_BETWEEN: Final = " \t\r\n,[]"
_FENCE: Final = "```json"
_LONGEST_INVENTION: Final = 10_000


class Parser:
    """The events of one answer.

    Text is text until ``<think>``, ``<report>`` or ``<execute>``; in the latter stand calls as a
    JSON array. After its end only another ``<execute>`` counts. ``</execute>`` within a JSON
    string ends nothing, and ``<execute>`` that no JSON follows is text.

    Args:
        calls: Whether calls stand in the text.
    """

    def __init__(self, *, calls: bool = True) -> None:
        names = _ALL if calls else ("think", "report")
        self._marks = [f"<{name}>" for name in names] + [f"</{name}>" for name in names]
        self._mark = re.compile("|".join(map(re.escape, self._marks)))
        self._rest: str = ""
        self._state: Callable[[list[Event]], bool] = self._text
        self._report: list[str] = []
        self._garbage: list[str] = []
        self._at = 0
        self._depth = 0
        self._quoted = False
        self._invented: list[str] = []

    def feed(self, text: str) -> list[Event]:
        """The events that a piece completes; texts come in pieces.

        Args:
            text: What came.
        """
        self._rest += text
        events: list[Event] = []
        while self._state(events):
            pass
        return events

    def finish(self) -> list[Event]:
        """The events of what is left when the answer is over."""
        events: list[Event] = []
        rest, state = self._rest, self._state
        self._rest = ""
        if state == self._text and rest:
            events.append(Said(rest))
        elif state == self._think:
            events += [Thought(rest)] if rest else []
            events.append(Misread("", "<think> has no end"))
        elif state == self._reporting:
            events.append(Reported("".join([*self._report, rest]).strip()))
        elif state == self._open:
            events.append(Misread(_OPEN, "no calls follow"))
        elif state == self._element:
            events.append(Misread(rest, "it has no end"))
        elif state == self._calls and not _FENCE.startswith(rest):
            self._garbage.append(rest)
        self._tell_garbage(events)
        if self._invented:
            events.append(Invented("".join(self._invented)[:_LONGEST_INVENTION]))
        return events

    # -- states: each takes what it can of the rest, and says whether to go on ---------------

    def _text(self, events: list[Event]) -> bool:
        found = self._mark.search(self._rest)
        end = len(self._rest) - self._held_back(self._marks) if found is None else found.start()
        if end:
            events.append(Said(self._rest[:end]))
        self._rest = self._rest[end if found is None else found.end() :]
        if found is None:
            return False
        states = {
            "<think>": self._think,
            "<report>": self._reporting,
            _OPEN: self._open,
            "<results>": self._cut,
        }
        self._state = states.get(found.group(), self._text)
        return True

    def _think(self, events: list[Event]) -> bool:
        text, ended = self._until("</think>")
        if text:
            events.append(Thought(text))
        return ended

    def _reporting(self, events: list[Event]) -> bool:
        text, ended = self._until("</report>")
        self._report.append(text)
        if ended:
            events.append(Reported("".join(self._report).strip()))
            self._report.clear()
        return ended

    def _open(self, events: list[Event]) -> bool:
        begin = self._rest.lstrip()
        if not begin or (len(begin) < len(_CLOSE) and _CLOSE.startswith(begin)):
            return False
        if begin[0] in "[{`" or begin.startswith(_CLOSE):
            self._state = self._calls
            return True
        events.append(Said(_OPEN))
        self._state = self._text
        return True

    def _calls(self, events: list[Event]) -> bool:
        """Between calls."""
        self._rest = rest = self._rest.lstrip(_BETWEEN)
        if rest != _CLOSE and (_CLOSE.startswith(rest) or _FENCE.startswith(rest)):
            return False
        if rest.startswith(_CLOSE):
            self._rest = rest[len(_CLOSE) :]
            self._tell_garbage(events)
            self._state = self._after
        elif rest[0] == "{":
            self._state, self._at, self._depth, self._quoted = self._element, 0, 0, False
        elif rest.startswith(_FENCE[:3]):
            self._rest = rest[len(_FENCE) if rest.startswith(_FENCE) else 3 :]
        else:
            self._garbage.append(rest[0])
            self._rest = rest[1:]
        return True

    def _element(self, events: list[Event]) -> bool:
        """Within a call."""
        while True:
            found = (_IN_STRING if self._quoted else _OUTSIDE).search(self._rest, self._at)
            if found is None:
                self._at = len(self._rest)
                return False
            mark, place = found.group(), found.start()
            if mark == "\\":
                if place + 1 == len(self._rest):
                    self._at = place
                    return False
                self._at = place + 2
                continue
            if mark == "<":
                behind = self._rest[place : place + len(_CLOSE)]
                if behind == _CLOSE:
                    events.append(Misread(self._rest[:place], "it has no end"))
                    self._rest, self._state = self._rest[place:], self._calls
                    return True
                if _CLOSE.startswith(behind) and place + len(behind) == len(self._rest):
                    self._at = place
                    return False
            self._at = place + 1
            if mark == '"':
                self._quoted = not self._quoted
            elif mark in "{[":
                self._depth += 1
            elif mark in "}]":
                self._depth -= 1
            if not self._depth:
                events.append(read_call(self._rest[: self._at]))
                self._rest, self._state = self._rest[self._at :], self._calls
                return True

    def _after(self, events: list[Event]) -> bool:
        begin = self._rest.lstrip()
        if begin.startswith(_OPEN):
            self._rest, self._state = begin[len(_OPEN) :], self._open
            return True
        if _OPEN.startswith(begin):
            return False
        self._rest, self._state = begin, self._cut
        return True

    def _cut(self, events: list[Event]) -> bool:
        self._invented.append(self._rest)
        self._rest = ""
        return False

    # -- parts -------------------------------------------------------------------------------

    def _until(self, mark: str) -> tuple[str, bool]:
        """What comes before a mark, and whether the mark came; text follows it."""
        text, found, rest = self._rest.partition(mark)
        if found:
            self._rest, self._state = rest, self._text
            return text, True
        end = len(text) - self._held_back([mark])
        self._rest = text[end:]
        return text[:end], False

    def _held_back(self, marks: list[str]) -> int:
        """How much of the rest's end can be the beginning of a mark."""
        place = self._rest.rfind("<")
        if place < 0:
            return 0
        tail = self._rest[place:]
        return len(tail) if any(mark.startswith(tail) for mark in marks) else 0

    def _tell_garbage(self, events: list[Event]) -> None:
        text = "".join(self._garbage).strip()
        self._garbage.clear()
        if text:
            events.append(Misread(text[:1000], "it is no call; an array of objects is expected"))
