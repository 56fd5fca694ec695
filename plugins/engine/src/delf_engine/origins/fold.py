"""Determine whose words a call's values are, from the events of its task.

The host knows exactly which texts the author of a script had read before writing the script. A
value is the user's own if a clean script, whose author had read no text of others, computes the
value from constants and own results. Any other value counts as a stranger's, unless the user's
words ask for it. The place where a value is found only informs people.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, Final

from delf.events import (
    ASK,
    CallFinished,
    CallStarted,
    Event,
    ModelCalled,
    ModelReplied,
    Noted,
    ScriptFinished,
    ScriptGenerated,
)
from delf.types import Trust
from delf_engine.origins.followed import followed_texts
from delf_engine.origins.origin import Author, Origin, ReadCall, Wording
from delf_engine.origins.outline import Outline
from delf_engine.origins.planned import Planned
from delf_engine.origins.scripts import Scripts
from delf_engine.origins.search import ResultTexts
from delf_engine.origins.texts import mentions, names
from delf_engine.origins.values import (
    MOST_LEAVES,
    authored,
    leaves_of,
    own_texts,
    same_text,
    texts_in,
    whole,
)

CONVERSATION: Final = "this conversation"
ANSWER: Final = "an earlier answer"
MEMORY: Final = "memory"
VARIABLE: Final = "this conversation's variable"
PARENT: Final = "the words of this task"
FILES: Final = "the input files"
_LOOKED_UP: Final = "the web, where its provider searches"


class Origins:
    """The origins of the values of one task's calls.

    Args:
        task: The user's words.
        before: Returns the model's context in addition to the task: texts with author and place.
            The user's earlier messages are the user's own; an earlier answer may contain words of
            others.
        wording_of: Returns the authors of an action's results.
        files: Reads the input files, which others may have written, as names and texts; None if
            there are none.
        kept: Texts of others that earlier tasks wrote to each connection.
    """

    def __init__(
        self,
        task: str,
        before: Callable[[], Iterable[tuple[Trust, str, str]]],
        wording_of: Callable[[str], Wording],
        files: Callable[[], Iterable[tuple[str, str]]] | None = None,
        kept: dict[str, set[str]] | None = None,
    ) -> None:
        self._words = [task]
        self._answers: set[str] = set()
        """The answers to questions, each the user's own word as a whole."""
        self._before: Callable[[], Iterable[tuple[Trust, str, str]]] | None = before
        self._wording_of = wording_of
        self._has_files = files is not None
        self._files = files
        self._seen = 0
        self._read: list[tuple[int, str]] = []
        """The sources of others' words, in the order in which the task read them."""
        self._asked: tuple[tuple[int, str], ...] = ()
        """The sources of others' words that the model had read at its last request."""
        self._author = Author()
        self._scripts = Scripts(lambda name: wording_of(name).is_known)
        self._calls: dict[int, ReadCall] = {}
        self._read_calls: list[ReadCall] = []
        """All texts that the task has read, each as a call with its result."""
        self._own: dict[str, tuple[int, set[str]]] = {}
        """The own values in results of each action, with the number of results examined."""
        self._kept = {} if kept is None else kept
        self._given: dict[str, int] = {}
        """The first call that gave each connection texts of others."""
        self._results = ResultTexts()
        self._searched = 0
        """The searchable texts among those read; created lazily."""
        self.planned = Planned(
            self._calls,
            wording_of,
            self._scripts.stated,
            self._is_named_by_others,
            self.is_answer,
        )
        self.outlines = 0
        """The model's answers from which the outline was built."""

    @property
    def own_words(self) -> str:
        """The user's own words, the task first; empty if a script wrote the task."""
        return "\n\n".join(filter(None, self._words))

    @property
    def author(self) -> Author:
        """The author of the current calls."""
        return self._author

    @property
    def has_read(self) -> bool:
        """True once the task has received others' words, even if no model has read them."""
        return bool(self._read) or self._has_files

    def follow(self, events: Sequence[Event]) -> None:
        """Process new events.

        Args:
            events: All events of the task.
        """
        for event in events[self._seen :]:
            match event:
                case ModelCalled(purpose="generate"):
                    self._take_before()
                    if event.server_side:
                        self._read.append((0, _LOOKED_UP))
                    files = ((0, FILES),) if self._has_files else ()
                    self._asked = (*files, *self._read)
                    self._author = Author(read=self._asked)
                case ScriptGenerated(code=code):
                    self._author = Author(code=code, read=self._asked)
                    if not self._asked:
                        self._scripts.add(code)
                case ModelReplied(purpose="outline", text=text):
                    parsed = Outline.of(text)
                    known = self.planned.outline
                    self.planned.outline = known.with_more(parsed) if self.outlines else parsed
                    self.outlines += 1
                case Noted(topic=topic, text=text) if text:
                    self._take_text("outside", text, f"a {topic}")
                case ScriptFinished():
                    self._author = Author(read=self._asked)
                case CallStarted():
                    self._take_call(event)
                case CallFinished(status="ok" | "error"):
                    self._take_result(event)
                case CallFinished(status="refused", raised="ToolNotAllowed"):
                    # Its tool's check wrote why, and the model of the next script reads it.
                    if self._wording_of(event.action).checks != "own":
                        self._read.append((event.call_id, event.action))
                case _:
                    pass
        self._seen = len(events)

    def _take_before(self) -> None:
        """Record the model's initial context; known once a model is asked."""
        if self._before is None:
            return
        for trust, text, where in self._before():
            if trust == "own" and where == CONVERSATION:
                self._words.append(text)
                continue
            self._take_text(trust, text, where)
        self._before = None

    def _take_text(self, trust: Trust, text: str, where: str) -> None:
        wording = Wording(trust=trust)
        read_call = ReadCall(number=0, action=where, arguments={}, wording=wording, result=text)
        self._read_calls.append(read_call)
        if trust == "outside" and (0, where) not in self._read:
            self._read.append((0, where))

    def _take_call(self, event: CallStarted) -> None:
        call = ReadCall(
            number=event.call_id,
            action=event.action,
            arguments=event.arguments,
            wording=self._wording_of_call(event),
            is_clean=not self._author.read,
            changes=event.effect != "read",
        )
        self._calls[event.call_id] = call
        for name, item in call.arguments.items() if call.changes and self.has_read else ():
            if not self.is_own(call.action, name, "", event.line):
                self._given.setdefault(call.connection, call.number)
                self._kept.setdefault(call.connection, set()).update(map(same_text, texts_in(item)))

    def _wording_of_call(self, event: CallStarted) -> Wording:
        """Return the authors of a call's result, if its connection tells them by call.

        The result is a text of others if a script gives the call one: others choose what it finds.
        """
        wording = self._wording_of(event.action)
        trust = wording.of_call and wording.of_call(event.arguments)
        if not trust:
            return wording
        leaves = (leaf for name, item in event.arguments.items() for leaf in whole(item, name))
        if not self._author.read and not all(
            self.is_own(event.action, *leaf, event.line) for leaf in leaves
        ):
            trust = "outside"
        return replace(wording, trust=trust)

    def _take_result(self, event: CallFinished) -> None:
        call = self._calls.get(event.call_id)
        if call is None:  # its beginning is not recorded, so nobody knows what it was asked
            wording = self._wording_of(event.action)
            call = ReadCall(
                number=event.call_id, action=event.action, arguments={}, wording=wording
            )
        call.result = event.error if event.result is None else event.result
        call.has_failed = event.status != "ok"
        kept = self._kept.get(call.connection) if call.wording.trust == "own" else None
        if kept and any(same_text(text) in kept for _, _, text in authored(call.result)):
            call.wording = replace(call.wording, trust="outside")
        self._read_calls.append(call)
        if event.action == ASK and event.status == "ok":
            self._take_answer(call)
        if call.wording.trust != "own":
            self._read.append((event.call_id, event.action))

    def _take_answer(self, call: ReadCall) -> None:
        """Record a person's answer as the user's own words.

        Others may have written a chosen option, so no part of the option becomes the user's word.
        """
        self._answers.add(same_text(str(call.result)))
        if isinstance(call.result, str) and not call.arguments.get("options"):
            self._words.append(call.result)

    def followed(self) -> Sequence[str]:
        """Return the texts that the user's words order to follow, for authors named by the user."""
        return followed_texts(self.planned.outline.orders, self._calls.values(), self.is_stated)

    def of(self, arguments: Mapping[str, Any]) -> dict[str, Origin]:
        """Find the source of each value of a call's arguments, by its path, such as ``to[0]``."""
        return self.of_values(islice(leaves_of(arguments), MOST_LEAVES))

    def of_values(self, values: Iterable[tuple[str, str]]) -> dict[str, Origin]:
        """Find the source of each of some values, given with their paths."""
        return {path: self.find(text) for path, text in values}

    def own_part(self, value: Any) -> Origin | None:
        """Return the first place in the user's own data that contains an argument or its part."""
        results = self._all_results()
        found = (results.find(text, ("own",)) for text in texts_in(value))
        return next(filter(None, found), None)

    def is_own(self, action: str, path: str, text: str, line: int | None) -> bool:
        """Return whether a clean script computes a value only from constants and own results.

        Args:
            action: The called action.
            path: The value's place in the arguments.
            text: The value.
            line: The line of the script with the call, if known.
        """
        if self._author.read:
            return False
        sources = self.sources(action, path, line)
        return sources is not None and all(self._is_own_source(each, text) for each in sources)

    def sources(self, action: str, path: str, line: int | None) -> frozenset[str] | None:
        """Return the actions whose results a clean script uses for a value; None if unknown."""
        if self._author.code is None:  # a strategy calls without a script: the model wrote it
            return frozenset()
        parameters = self._wording_of(action).parameters
        return self._scripts.sources(action, parameters, path, line)

    def _is_own_source(self, action: str, text: str) -> bool:
        """Return whether a value in an action's results is the user's own.

        A service that has received texts of others may return them, whatever it declares.
        """
        wording = self._wording_of(action)
        if not wording.is_known or (wording.trust == "outside" and wording.of_call is None):
            return False
        calls = [call for call in self._calls.values() if call.action == action]
        given = self._given.get(action.rpartition(".")[0])
        if (given is not None or self._kept) and any(
            call.wording.trust == "outside" or call.number > (given or call.number)
            for call in calls
        ):
            return False
        if wording.of_call is None and (wording.trust == "own" or not text):
            return True
        if wording.of_call and calls and all(call.wording.trust == "own" for call in calls):
            return True
        return same_text(text) in self._own_texts_of(action)

    def _own_texts_of(self, action: str) -> set[str]:
        seen, found = self._own.get(action, (0, set[str]()))
        for call in self._read_calls[seen:]:
            if call.action == action:
                found.update(same_text(text) for text in own_texts(call.result, call.wording.trust))
        self._own[action] = len(self._read_calls), found
        return found

    def unplanned_read(self) -> ReadCall | None:
        """Return the first call that read something the task does not ask for.

        Its author had read texts of others, which may have asked to pass the result on.
        """
        for call in self._calls.values():
            is_read = not (call.is_clean or call.changes or call.wording.is_built_in)
            if is_read and not call.has_failed and not self.planned.is_planned(call):
                return call
        return None

    def find(self, text: str) -> Origin:
        """Find the most likely source of a value."""
        if self.is_stated(text):
            return Origin(kind="task", trust="own")
        is_clean, code = not self._author.read, self._author.code
        if is_clean and code is not None and mentions(code, text):
            return Origin(kind="script", trust="own")
        if found := self._all_results().find(text):
            return found
        if not is_clean and (code is None or mentions(code, text)):
            return Origin(kind="script", trust="outside")
        if not text.strip() or not self.has_read:
            return Origin(kind="script", trust="own")
        return Origin(kind="unknown", trust="outside")

    def is_stated(self, text: str) -> bool:
        """Return whether a value occurs in the user's words."""
        return self.is_answer(text) or any(mentions(words, text) for words in self._words)

    def is_answer(self, text: str) -> bool:
        """Return whether a value is the whole answer of a person to a question."""
        return same_text(text) in self._answers

    def _is_named_by_others(self, text: str) -> bool:
        """Return whether others' words mention a value, within a longer text."""
        for call in self._all_read():
            for whose, _, held in authored(call.result, call.wording.trust):
                if whose == "outside" and names(held, text):
                    return True
        return False

    def _all_results(self) -> ResultTexts:
        """Return all texts that the task has read, ready to be searched."""
        read_call = self._all_read()
        for call in read_call[self._searched :]:
            self._results.add(call)
        self._searched = len(read_call)
        return self._results

    def _all_read(self) -> Sequence[ReadCall]:
        """Return all texts that the task has read, including those of its input files."""
        if self._files is not None:
            self._read_calls[:0] = [
                ReadCall(
                    number=0,
                    action=f"the input file {name}",
                    arguments={},
                    wording=Wording(),
                    result=text,
                )
                for name, text in self._files()
            ]
            self._files = None
        return self._read_calls
