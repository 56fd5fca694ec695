"""Parses thoughts, text and calls from an answer in arbitrary pieces."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from delf.answers import Opening, find_reasoning_opening, may_be_reasoning
from delf_strategy_stream.calls import read_call
from delf_strategy_stream.events import (
    Event,
    Invented,
    Misread,
    Prose,
    Thought,
)

_EXECUTE: Final = "<execute>"
_END_EXECUTE: Final = "</execute>"
_IN_STRING: Final = re.compile(r'["\\]')
_OUTSIDE: Final = re.compile(r'["{}\[\]<]')
_NAME: Final = re.compile(r"(await\s+)?[A-Za-z_][\w.]*")
_NOT_JSON: Final = 'it is not JSON; expected is [{"name": …, "args": {…}}]'
_LINE_END_OR_TAG: Final = re.compile(r"[\n<]")
_SEPARATORS: Final = " \t\r\n,[]"
_JSON_FENCE: Final = "```json"
_FENCES: Final = ("```", "~~~")
_QUOTES: Final = "\"'`“‘«„"
_ONLY_FENCED: Final = re.compile(r"\s*```\w*\s*<execute>.*</execute>\s*```\s*", re.DOTALL)
_MAX_INVENTED_CHARS: Final = 10_000


class Parser:
    """Parses one answer, which arrives in pieces, into events.

    An answer has optional reasoning, then text, then calls. The calls are a JSON array between the
    tags ``<execute>`` and ``</execute>``. Nothing may follow ``</execute>`` in its line. Text in
    later lines is ignored, except another ``<execute>``.

    A tag in a code fence, in quotes or in a JSON string is ordinary text.

    Args:
        calls: Whether to parse calls from the text; False if the API reports calls separately.
    """

    def __init__(self, *, calls: bool = True) -> None:
        self._tags = ("<think>", _EXECUTE) if calls else ("<think>",)
        self._rest: str = ""
        self._state: Callable[[list[Event]], bool] = self._reasoning_or_text
        self._opening: Opening | None = None
        self._thought_tag: str = ""
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
        """Parse the next piece of the answer; return the events that are now complete."""
        self._rest += text
        events: list[Event] = []
        while self._state(events):
            pass
        return events

    def finish(self) -> list[Event]:
        """End the answer; return the remaining events."""
        self._is_over = True
        events = self.feed("")
        rest, state = self._rest, self._state
        self._rest = ""
        if state in (self._reasoning_or_text, self._text, self._quoted_thought) and rest:
            self._say(rest, events)
        elif state == self._think:
            events += [Thought(rest)] if rest else []
            events.append(Misread("", f"{self._thought_tag} has no end"))
        elif state == self._open:
            events.append(Misread(_EXECUTE, "no calls follow"))
        elif state == self._one_call:
            events.append(Misread(rest, "it has no end"))
        elif state == self._between_calls and not _JSON_FENCE.startswith(rest):
            self._garbage.append(rest)
        self._report_garbage(events)
        prose = "".join(self._prose)
        if _EXECUTE in self._tags and _ONLY_FENCED.fullmatch(prose):
            events.append(Misread(prose, "calls are not written in a fence"))
        if self._invented:
            events.append(Invented("".join(self._invented)[:_MAX_INVENTED_CHARS]))
        return events

    # -- states: each consumes input, and returns False if more input is needed ---------------

    def _reasoning_or_text(self, events: list[Event]) -> bool:
        """Decide whether the answer continues with reasoning or with text."""
        self._opening = find_reasoning_opening(self._rest)
        if self._opening is not None:
            self._thought_tag = self._rest[: self._opening.length].strip()
            self._rest = self._rest[self._opening.length :]
            self._state = self._think
            return True
        if may_be_reasoning(self._rest) and not self._is_over:
            return False
        self._state = self._text
        return True

    def _think(self, events: list[Event]) -> bool:
        """Parse reasoning up to its end tag."""
        opening = self._opening
        end = None if opening is None else opening.closing_pattern.search(self._rest)
        if end is not None:
            thought, self._rest = self._rest[: end.start()], self._rest[end.end() :]
            self._state = self._reasoning_or_text
        else:
            tag_length = (
                0 if opening is None else _partial_tag_length(self._rest, opening.closing_mark)
            )
            position = len(self._rest) - tag_length
            thought, self._rest = self._rest[:position], self._rest[position:]
        if thought:
            events.append(Thought(thought))
        return end is not None

    def _text(self, events: list[Event]) -> bool:
        match = _LINE_END_OR_TAG.search(self._rest)
        position = len(self._rest) if match is None else match.start()
        self._say(self._rest[:position], events)
        self._rest = self._rest[position:]
        if match is None:
            return False
        if match.group() == "\n":
            self._say("\n", events)
            self._rest = self._rest[1:]
            return True
        tag = next((tag for tag in self._tags if self._rest.startswith(tag)), None)
        if tag is not None and self._is_valid_tag(tag):
            return self._begin_section(tag)
        # A piece may end within a mark: keep the mark's beginning until the next piece.
        may_begin_tag = any(tag.startswith(self._rest) for tag in self._tags)
        if tag is None and may_begin_tag and not self._is_over:
            return False
        tag = tag or "<"
        self._say(tag, events)
        self._rest = self._rest[len(tag) :]
        return True

    def _is_valid_tag(self, tag: str) -> bool:
        """Return True if a tag is valid: it is neither quoted nor in a code fence."""
        line = "".join(self._line)
        # Calls that a model quotes in an explanation must not be made. A tuple, because the empty
        # string is in every string.
        if self._in_fence or line.count("`") % 2 or line[-1:] in tuple(_QUOTES):
            return False
        return tag == _EXECUTE or not line.strip()

    def _begin_section(self, tag: str) -> bool:
        if tag == "<think>":
            self._state = self._quoted_thought  # a thought is valid only at the beginning
            return True
        if "".join(self._line).strip():
            self._searched_to, self._state = len(tag), self._inline_execute
            return True
        self._rest = self._rest[len(tag) :]
        self._state = self._open
        return True

    def _quoted_thought(self, events: list[Event]) -> bool:
        """Parse ``<think>…</think>`` inside the text, and add it to the text that the user sees.

        Return False if the end tag has not been received.
        """
        text, end_tag, rest = self._rest.partition("</think>")
        if not end_tag:
            return False
        self._say(text + end_tag, events)
        self._rest, self._state = rest, self._text
        return True

    def _inline_execute(self, events: list[Event]) -> bool:
        """Parse ``<execute>`` in a line with other text.

        If the line continues after ``</execute>``, both tags are ordinary text.
        """
        while True:
            end = self._rest.find(_END_EXECUTE, self._searched_to)
            if end < 0 and not self._is_over:
                # The end mark may be split between pieces: search the last characters again.
                self._searched_to = max(self._searched_to, len(self._rest) - len(_END_EXECUTE))
                return False
            if end < 0 or not _is_in_string(self._rest[:end]):
                break
            self._searched_to = end + 1
        rest_of_line, line_break, _ = self._rest[end + len(_END_EXECUTE) :].partition("\n")
        if end >= 0 and not rest_of_line.strip() and not line_break and not self._is_over:
            self._searched_to = end
            return False
        if end >= 0 and rest_of_line.strip() and not rest_of_line.lstrip().startswith("<"):
            self._say(self._rest[: end + len(_END_EXECUTE)], events)
            self._rest = self._rest[end + len(_END_EXECUTE) :]
            self._state = self._text
            return True
        self._rest, self._state = self._rest[len(_EXECUTE) :], self._open
        return True

    def _open(self, events: list[Event]) -> bool:
        upcoming = self._rest.lstrip()
        if not upcoming or (
            len(upcoming) < len(_END_EXECUTE) and _END_EXECUTE.startswith(upcoming)
        ):
            return False
        if upcoming[0] in "[{`" or upcoming.startswith(_END_EXECUTE):
            self._state = self._between_calls
            return True
        name = _NAME.match(upcoming)
        if name is not None and name.end() == len(upcoming) and not self._is_over:
            return False
        if name is not None and upcoming[name.end() :].startswith("("):
            self._state = self._python_call
            return True
        self._say(_EXECUTE, events)
        self._state = self._text
        return True

    def _python_call(self, events: list[Event]) -> bool:
        """Parse a call that the model wrote in Python's notation, and add a :class:`Misread` event.

        Return False if the end tag has not been received.
        """
        text, end_tag, rest = self._rest.partition(_END_EXECUTE)
        if not end_tag and not self._is_over:
            return False
        events.append(Misread(text.strip()[:1000], _NOT_JSON))
        self._rest, self._state = rest, self._after_calls
        return bool(end_tag)

    def _between_calls(self, events: list[Event]) -> bool:
        """Parse the characters between two calls, up to the next call or the end tag.

        Return False if more input is needed.
        """
        self._rest = rest = self._rest.lstrip(_SEPARATORS)
        if rest != _END_EXECUTE and (_END_EXECUTE.startswith(rest) or _JSON_FENCE.startswith(rest)):
            return False
        if rest.startswith(_END_EXECUTE):
            self._rest = rest[len(_END_EXECUTE) :]
            self._report_garbage(events)
            self._state = self._after_calls
        elif rest[0] == "{":
            self._state = self._one_call
            self._searched_to = self._depth = 0
            self._in_string = False
        elif rest.startswith(_JSON_FENCE[:3]):
            self._rest = rest[len(_JSON_FENCE) if rest.startswith(_JSON_FENCE) else 3 :]
        else:
            self._garbage.append(rest[0])
            self._rest = rest[1:]
        return True

    def _one_call(self, events: list[Event]) -> bool:
        """Parse one call, a JSON object; return False if the text ends within the call."""
        while True:
            match = (_IN_STRING if self._in_string else _OUTSIDE).search(
                self._rest, self._searched_to
            )
            if match is None:
                # The next search goes on from here: from the start, a call in thousands of pieces
                # would take quadratic time.
                self._searched_to = len(self._rest)
                return False
            character, position = match.group(), match.start()
            if character == "\\":
                if position + 1 == len(self._rest):
                    # The escaped character is in the next piece: without it, an escaped quote would
                    # end the string.
                    self._searched_to = position
                    return False
                self._searched_to = position + 2
                continue
            if character == "<":
                upcoming = self._rest[position : position + len(_END_EXECUTE)]
                if upcoming == _END_EXECUTE:
                    events.append(Misread(self._rest[:position], "it has no end"))
                    self._rest, self._state = self._rest[position:], self._between_calls
                    return True
                if _END_EXECUTE.startswith(upcoming) and position + len(upcoming) == len(
                    self._rest
                ):
                    self._searched_to = position
                    return False
            self._searched_to = position + 1
            if character == '"':
                self._in_string = not self._in_string
            elif character in "{[":
                self._depth += 1
            elif character in "}]":
                self._depth -= 1
            if not self._depth:
                events.append(read_call(self._rest[: self._searched_to]))
                self._rest, self._state = self._rest[self._searched_to :], self._between_calls
                return True

    def _after_calls(self, events: list[Event]) -> bool:
        upcoming = self._rest.lstrip()
        if upcoming.startswith(_EXECUTE):
            self._rest, self._state = upcoming[len(_EXECUTE) :], self._open
            return True
        if _EXECUTE.startswith(upcoming):
            return False
        self._rest, self._state = upcoming, self._ignored_text
        return True

    def _ignored_text(self, events: list[Event]) -> bool:
        # Models may go on and invent results of their calls, which are not part of the answer.
        self._invented.append(self._rest)
        self._rest = ""
        return False

    # -- parts -------------------------------------------------------------------------------

    def _say(self, text: str, events: list[Event]) -> None:
        """Add an event with text for the user, and note whether the text is in a code fence."""
        if not text:
            return
        events.append(Prose(text))
        self._prose.append(text)
        *lines, last = text.split("\n")
        for line in lines:
            full_line = "".join([*self._line, line])
            if full_line.lstrip().startswith(_FENCES):  # opens or closes a fence
                self._in_fence = not self._in_fence
            self._line.clear()
        self._line.append(last)

    def _report_garbage(self, events: list[Event]) -> None:
        text = "".join(self._garbage).strip()
        self._garbage.clear()
        if text:
            events.append(Misread(text[:1000], "it is not a call; an array of objects is expected"))


def _partial_tag_length(text: str, tag: str) -> int:
    """Return the length of the incomplete tag at the end of a text; 0 without one."""
    lowered, tag = text[-len(tag) :].casefold(), tag.casefold()
    return next((n for n in range(len(tag) - 1, 0, -1) if lowered.endswith(tag[:n])), 0)


def _is_in_string(text: str) -> bool:
    """Return whether a JSON text ends within a string."""
    return re.sub(r"\\.", "", text, flags=re.DOTALL).count('"') % 2 == 1
