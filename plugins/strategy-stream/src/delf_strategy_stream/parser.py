"""Parses thoughts, text and calls from an answer in arbitrary pieces."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from delf.answers import Opening, find_reasoning_opening, may_be_reasoning
from delf_strategy_stream.calls import read_call
from delf_strategy_stream.events import (
    AnswerText,
    Event,
    InventedResults,
    Thought,
    UnparsableCall,
)

_EXECUTE: Final = "<execute>"
_END_EXECUTE: Final = "</execute>"
_QUOTE_OR_ESCAPE: Final = re.compile(r'"|\\.', re.DOTALL)
_OUTSIDE_OF_STRINGS: Final = re.compile(rf'{_END_EXECUTE}|["{{}}\[\]<]')
_NAME: Final = re.compile(r"(await\s+)?[A-Za-z_][\w.]{0,200}")
_NOT_JSON: Final = 'it is not JSON; expected is [{"name": …, "args": {…}}]'
_SEPARATORS: Final = " \t\r\n,[]"
_JSON_FENCE: Final = "```json"
_FENCES: Final = ("```", "~~~")
_OPENING_QUOTES: Final = ('"', "'", "`", "“", "‘", "«", "„")
_ONLY_FENCED: Final = re.compile(r"\s*```\w*\s*<execute>.*</execute>\s*```\s*", re.DOTALL)
_MAX_INVENTED_CHARS: Final = 10_000
_MAX_UNPARSABLE_CHARS: Final = 1_000
# After this number of tags that are ordinary text, the rest of an answer is only text.
#
# A model that repeats a tag endlessly would otherwise take quadratic time.
_MAX_TAGS_IN_TEXT: Final = 200
_CHUNK_CHARS: Final = 4096


class Parser:
    """Parses one answer, which arrives in pieces, into events.

    An answer has optional reasoning, then text, then calls. The calls are a JSON array between the
    tags ``<execute>`` and ``</execute>``. Nothing may follow ``</execute>`` in its line. Text in
    later lines is ignored, except another ``<execute>``.

    A tag in a code fence, in quotes or in a JSON string is ordinary text.

    Args:
        parses_calls: Whether to parse calls from the text; False if the API reports calls
            separately.
    """

    def __init__(self, *, parses_calls: bool = True) -> None:
        self._tags = ("<think>", _EXECUTE) if parses_calls else ("<think>",)
        # The received input that no state has consumed yet.
        self._unparsed: str = ""
        # The method that parses the input at this point of the answer.
        self._state: Callable[[list[Event]], bool] = self._reasoning_or_text
        # The kind of tag with which the current reasoning began; unset before any reasoning.
        self._opening: Opening
        # That tag as the model wrote it, for messages.
        self._reasoning_tag: str = ""
        # The pieces of the current line of text, which is not yet complete.
        self._current_line: list[str] = []
        self._in_fence = False
        # The number of tags so far that were ordinary text, for example because of quotes.
        self._tags_in_text = 0
        # The text for the user, outside of reasoning and calls.
        self._shown_text_parts: list[str] = []
        # The text among the calls of a block, where only commas and brackets belong.
        self._text_between_calls: list[str] = []
        # The position in the unparsed input up to which a search has found nothing.
        self._search_start = 0
        # The number of open brackets, and whether a JSON string is open, in the current call.
        self._depth = 0
        self._in_string = False
        self._is_input_complete = False
        # The text after the calls, in which models invent results of these calls.
        self._text_after_calls: list[str] = []

    def feed(self, text: str) -> list[Event]:
        """Parse the next piece of the answer; return the events that are now complete."""
        events: list[Event] = []
        # Parse in chunks, because each state copies the unparsed input: a long text would take n²
        # steps. The loop runs once even for the empty text of finish(), so that the states see the
        # end of the input.
        for start in range(0, max(len(text), 1), _CHUNK_CHARS):
            self._unparsed += text[start : start + _CHUNK_CHARS]
            # Each state adds events, may choose the next state, and returns False for more input.
            while self._state(events):
                pass
        return events

    def finish(self) -> list[Event]:
        """End the answer; return the remaining events.

        An ``UnparsableCall`` event names a text that is no valid call, with the reason. An
        ``InventedResults`` event has the text after the calls, in which models make up results of
        these calls.
        """
        self._is_input_complete = True
        events = self.feed("")
        self._finish_state(events)
        self._report_text_between_calls(events)
        self._report_calls_in_fence(events)
        if self._text_after_calls:
            invented_text = "".join(self._text_after_calls)
            events.append(InventedResults(invented_text[:_MAX_INVENTED_CHARS]))
        return events

    def _finish_state(self, events: list[Event]) -> None:
        """Add the events for the input that is still unparsed at the end of the answer."""
        rest = self._unparsed
        self._unparsed = ""
        state = self._state
        if state in (self._reasoning_or_text, self._outside_tags, self._think_tag_in_text):
            self._add_text_for_user(rest, events)
        elif state == self._inside_reasoning:
            if rest:
                events.append(Thought(rest))
            events.append(UnparsableCall(text="", why=f"{self._reasoning_tag} has no end"))
        elif state == self._after_execute_tag:  # the rest is blank, or begins ``</execute>``
            events.append(UnparsableCall(text=_EXECUTE, why="no calls follow"))
        elif state == self._inside_call:
            events.append(UnparsableCall(text=rest, why="it has no end"))
        elif state == self._between_calls:
            # An incomplete "```json" before a call is not reported.
            is_incomplete_fence = _may_become(rest, _JSON_FENCE)
            if not is_incomplete_fence:
                self._text_between_calls.append(rest)  # finish() reports the text

    def _report_calls_in_fence(self, events: list[Event]) -> None:
        """Report the calls in a code fence that is the whole answer, because the calls are meant.

        In an answer with other text, calls in a fence are text, as quoted in an explanation.
        """
        text = "".join(self._shown_text_parts)
        if _EXECUTE in self._tags and _ONLY_FENCED.fullmatch(text):
            events.append(UnparsableCall(text=text, why="calls are not written in a fence"))

    # -- states: each consumes input, and returns False if more input is needed ---------------

    def _reasoning_or_text(self, events: list[Event]) -> bool:
        """Choose the next state: reasoning if an opening tag follows, else text.

        Return False if more input is needed for the choice.
        """
        opening = find_reasoning_opening(self._unparsed)
        if opening is not None:
            self._opening = opening
            self._reasoning_tag = self._unparsed[: opening.length].strip()
            self._unparsed = self._unparsed[opening.length :]
            self._state = self._inside_reasoning
            return True
        if may_be_reasoning(self._unparsed) and not self._is_input_complete:
            return False
        self._state = self._outside_tags
        return True

    def _inside_reasoning(self, events: list[Event]) -> bool:
        """Parse reasoning up to its end tag. Return False if more input is needed.

        The reasoning so far becomes an event at once. A possible beginning of the end tag stays
        unparsed.
        """
        end_tag = self._opening.closing_pattern.search(self._unparsed)
        if end_tag is not None:
            thought = self._unparsed[: end_tag.start()]
            self._unparsed = self._unparsed[end_tag.end() :]
            self._state = self._reasoning_or_text
        else:
            tag_length = _partial_tag_length(self._unparsed, self._opening.closing_mark)
            end_of_thought = len(self._unparsed) - tag_length
            thought = self._unparsed[:end_of_thought]
            self._unparsed = self._unparsed[end_of_thought:]
        if thought:
            events.append(Thought(thought))
        return end_tag is not None

    def _outside_tags(self, events: list[Event]) -> bool:
        """Parse text for the user up to the next tag. Return False if more input is needed."""
        # After very many tags, the rest is only text: a search could take quadratic time.
        if self._tags_in_text > _MAX_TAGS_IN_TEXT:
            self._add_text_for_user(self._unparsed, events)
            self._unparsed = ""
            return False
        text, bracket, rest = self._unparsed.partition("<")
        self._add_text_for_user(text, events)
        self._unparsed = bracket + rest
        return bool(bracket) and self._tag_or_text(events)

    def _tag_or_text(self, events: list[Event]) -> bool:
        """Parse the ``<`` at the start of the input as a tag, or as text for the user.

        A quoted tag is text for the user, and so is a ``<`` that begins no tag.

        Return False if more input is needed.
        """
        tag = next((each for each in self._tags if self._unparsed.startswith(each)), None)
        if tag is None:
            may_be_tag = any(_may_become(self._unparsed, each) for each in self._tags)
            if may_be_tag and not self._is_input_complete:
                return False
            plain_text = "<"
        elif self._is_unquoted_tag(tag):
            self._choose_state_for_tag(tag)
            return True
        else:
            self._tags_in_text += 1
            plain_text = tag
        self._add_text_for_user(plain_text, events)
        self._unparsed = self._unparsed[len(plain_text) :]
        return True

    def _is_unquoted_tag(self, tag: str) -> bool:
        """Return True if a tag is neither quoted nor in a code fence.

        A ``<think>`` that follows other text in its line counts as quoted, unlike ``<execute>``.
        """
        line = "".join(self._current_line)
        is_in_backticks = line.count("`") % 2 == 1
        # Calls that a model quotes in an explanation must not be made.
        if self._in_fence or is_in_backticks or line.endswith(_OPENING_QUOTES):
            return False
        is_first_in_line = not line.strip()
        return tag == _EXECUTE or is_first_in_line

    def _choose_state_for_tag(self, tag: str) -> None:
        """Choose the state that parses the input from a tag on."""
        text_before_in_line = "".join(self._current_line).strip()
        if tag == "<think>":
            # <think> begins reasoning only at the start of an answer, and is text later on.
            self._state = self._think_tag_in_text
        elif text_before_in_line:
            # The tag may only be mentioned, as in "Write <execute>[…]</execute> for calls".
            self._search_start = len(tag)  # look for the end tag after this tag
            self._state = self._execute_in_line
        else:
            self._skip_execute_tag()

    def _think_tag_in_text(self, events: list[Event]) -> bool:
        """Treat ``<think>…</think>`` in the middle of an answer as text for the user.

        Return False if more input is needed.
        """
        text, end_tag, rest = self._unparsed.partition("</think>")
        if not end_tag:
            return False
        self._add_text_for_user(text + end_tag, events)
        self._unparsed = rest
        self._state = self._outside_tags
        return True

    def _execute_in_line(self, events: list[Event]) -> bool:
        """Parse ``<execute>`` in a line with other text. Return False if more input is needed.

        The text between the tags is parsed as calls if ``</execute>`` ends the line or is followed
        by another tag, such as ``</answer>``. Otherwise, both tags and the text between the tags
        are text for the user. Without ``</execute>``, the rest of the answer is parsed as calls.
        """
        end_tag_start = self._find_end_tag_outside_of_strings()
        if end_tag_start is None:
            if not self._is_input_complete:
                return False
            self._skip_execute_tag()
            return True
        end_of_tag = end_tag_start + len(_END_EXECUTE)
        rest_of_line, line_break, _ = self._unparsed[end_of_tag:].partition("\n")
        following_text = rest_of_line.strip()
        is_line_complete = bool(line_break) or self._is_input_complete
        if not following_text and not is_line_complete:
            self._search_start = end_tag_start  # find the same tag again
            return False
        are_calls = not following_text or following_text.startswith("<")
        if are_calls:
            self._skip_execute_tag()
            return True
        self._tags_in_text += 1
        self._add_text_for_user(self._unparsed[:end_of_tag], events)
        self._unparsed = self._unparsed[end_of_tag:]
        self._state = self._outside_tags
        return True

    def _find_end_tag_outside_of_strings(self) -> int | None:
        """Return the index of the next ``</execute>`` that is in no JSON string, or None."""
        while True:
            index = self._unparsed.find(_END_EXECUTE, self._search_start)
            if index < 0:
                # The tag may be split between pieces: search the last characters again.
                start_of_last = len(self._unparsed) - len(_END_EXECUTE)
                self._search_start = max(self._search_start, start_of_last)
                return None
            if not _is_in_string(self._unparsed[:index]):
                return index
            self._search_start = index + 1

    def _skip_execute_tag(self) -> None:
        """Remove the tag ``<execute>`` from the unparsed input, and parse what follows the tag."""
        self._unparsed = self._unparsed[len(_EXECUTE) :]
        self._state = self._after_execute_tag

    def _after_execute_tag(self, events: list[Event]) -> bool:
        """Choose the state after ``<execute>``: JSON calls, a call in Python's notation, or text.

        Return False if more input is needed for the choice.
        """
        upcoming = self._unparsed.lstrip()
        # Calls as JSON follow, a fence around such calls, or the end tag without a call.
        if upcoming.startswith(("[", "{", "`", _END_EXECUTE)):
            self._state = self._between_calls
            return True
        if _may_become(upcoming, _END_EXECUTE):
            return False
        # A call in Python's notation is a name and a bracket. The next piece may continue the name.
        name = _NAME.match(upcoming)
        if name is not None:
            text_after_name = upcoming[name.end() :]
            if not text_after_name and not self._is_input_complete:
                return False
            if text_after_name.startswith("("):
                self._state = self._inside_python_call
                return True
        # No call follows, so the tag is text.
        self._tags_in_text += 1
        self._add_text_for_user(_EXECUTE, events)
        self._state = self._outside_tags
        return True

    def _inside_python_call(self, events: list[Event]) -> bool:
        """Skip a call in Python's notation, and add an :class:`UnparsableCall` event for the call.

        Calls must be JSON.

        Return False to stop parsing: more input is needed, or the answer has ended.
        """
        text, end_tag, rest = self._unparsed.partition(_END_EXECUTE)
        if not end_tag and not self._is_input_complete:
            return False
        events.append(UnparsableCall(text.strip()[:_MAX_UNPARSABLE_CHARS], _NOT_JSON))
        self._unparsed = rest
        self._state = self._after_calls
        return bool(end_tag)

    def _between_calls(self, events: list[Event]) -> bool:
        """Parse the characters between two calls, up to the next call or the end tag.

        Return False if more input is needed.
        """
        rest = self._unparsed.lstrip(_SEPARATORS)
        self._unparsed = rest
        if rest.startswith(_END_EXECUTE):
            self._unparsed = rest.removeprefix(_END_EXECUTE)
            self._report_text_between_calls(events)
            self._state = self._after_calls
        elif _may_become(rest, _END_EXECUTE) or _may_become(rest, _JSON_FENCE):
            return False
        elif rest.startswith("{"):
            self._state = self._inside_call
            self._search_start = 0
            self._depth = 0
            self._in_string = False
        elif rest.startswith(_JSON_FENCE):
            self._unparsed = rest.removeprefix(_JSON_FENCE)
        elif rest.startswith("```"):
            self._unparsed = rest.removeprefix("```")
        else:
            self._text_between_calls.append(rest[0])
            self._unparsed = rest[1:]
        return True

    def _inside_call(self, events: list[Event]) -> bool:
        """Parse one call, a JSON object, up to its end, or to ``</execute>`` outside of a string.

        Return False if more input is needed; True if the next state can parse the rest.
        """
        while True:
            if self._in_string and not self._skip_string():
                return False
            match = _OUTSIDE_OF_STRINGS.search(self._unparsed, self._search_start)
            if match is None:
                # Continue here with the next piece: starting over would take quadratic time.
                self._search_start = len(self._unparsed)
                return False
            mark = match.group()
            start, end = match.span()
            if mark == _END_EXECUTE:
                events.append(UnparsableCall(self._unparsed[:start], "it has no end"))
                self._end_call(start)
                return True
            upcoming = self._unparsed[start : start + len(_END_EXECUTE)]
            if mark == "<" and _may_become(upcoming, _END_EXECUTE):
                self._search_start = start
                return False
            self._search_start = end
            self._count_bracket_or_quote(mark)
            if mark in "}]" and self._depth == 0:
                events.append(read_call(self._unparsed[:end]))
                self._end_call(end)
                return True

    def _count_bracket_or_quote(self, mark: str) -> None:
        """Note the beginning of a string, or count an open bracket, in a call's JSON."""
        if mark == '"':
            self._in_string = True
        elif mark in "{[":
            self._depth += 1
        elif mark in "}]":
            self._depth -= 1

    def _skip_string(self) -> bool:
        """Move the search behind the end of the JSON string. Return False if more input is needed.

        A backslash at the end of the input is searched again: without the next character, an
        escaped quote would end the string.
        """
        while match := _QUOTE_OR_ESCAPE.search(self._unparsed, self._search_start):
            self._search_start = match.end()
            if match.group() == '"':
                self._in_string = False
                return True
        ends_with_backslash = self._unparsed.endswith("\\", self._search_start)
        self._search_start = len(self._unparsed)
        if ends_with_backslash:
            self._search_start -= 1
        return False

    def _end_call(self, end: int) -> None:
        """Go on after a call that ends at a position of the unparsed input."""
        self._unparsed = self._unparsed[end:]
        self._state = self._between_calls

    def _after_calls(self, events: list[Event]) -> bool:
        """Choose the state after ``</execute>``: another block of calls, else ignored text.

        Return False if more input is needed for the choice.
        """
        upcoming = self._unparsed.lstrip()
        if upcoming.startswith(_EXECUTE):
            self._unparsed = upcoming.removeprefix(_EXECUTE)
            self._state = self._after_execute_tag
            return True
        if _may_become(upcoming, _EXECUTE):
            return False
        self._unparsed = upcoming
        self._state = self._collect_ignored_text
        return True

    def _collect_ignored_text(self, events: list[Event]) -> bool:
        """Collect the text after the calls, in which models may invent results of the calls."""
        self._text_after_calls.append(self._unparsed)
        self._unparsed = ""
        return False  # wait for more input

    # -- parts -------------------------------------------------------------------------------

    def _add_text_for_user(self, text: str, events: list[Event]) -> None:
        """Add an event with text for the user, and note whether the text is in a code fence."""
        if not text:
            return
        events.append(AnswerText(text))
        self._shown_text_parts.append(text)
        *ends_of_lines, start_of_next_line = text.split("\n")
        for end_of_line in ends_of_lines:
            # The first line may have begun in earlier pieces of the answer.
            line = "".join([*self._current_line, end_of_line])
            self._current_line.clear()
            if line.lstrip().startswith(_FENCES):  # opens or closes a fence
                self._in_fence = not self._in_fence
        self._current_line.append(start_of_next_line)

    def _report_text_between_calls(self, events: list[Event]) -> None:
        text = "".join(self._text_between_calls).strip()
        self._text_between_calls.clear()
        if text:
            why = "it is not a call; an array of objects is expected"
            events.append(UnparsableCall(text[:_MAX_UNPARSABLE_CHARS], why))


def _may_become(text: str, tag: str) -> bool:
    """Return whether a text may be the beginning of a tag, as ``<exe`` is of ``<execute>``.

    An empty text may become any tag.
    """
    return tag.startswith(text)


def _partial_tag_length(text: str, tag: str) -> int:
    """Return the length of the incomplete tag at the end of a text; 0 without one."""
    lowered_end = text[-len(tag) :].casefold()
    lowered_tag = tag.casefold()
    for length in range(len(lowered_tag) - 1, 0, -1):
        if lowered_end.endswith(lowered_tag[:length]):
            return length
    return 0


def _is_in_string(text: str) -> bool:
    """Return whether a JSON text ends within a string."""
    return re.sub(r"\\.", "", text, flags=re.DOTALL).count('"') % 2 == 1
