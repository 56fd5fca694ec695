"""Find whose words the values of a call are, by a fold over the events of its task.

What the author of a script had read when it was written is exact: the host knows every text that
came before. A value is the user's own if it stands in the task, in a script whose author had read
nothing of others, or as a whole value in a result that is the user's own. Any other value counts
as a stranger's; the place where it is found is a help for people and decides nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, Final

from delf.events import (
    CallFinished,
    CallStarted,
    Event,
    ModelCalled,
    ModelReplied,
    ScriptFinished,
    ScriptGenerated,
)
from delf.types import Trust
from delf_engine.origins.asked_for import AskedFor
from delf_engine.origins.followed import followed_texts
from delf_engine.origins.origin import Author, Origin, ReadCall, Wording
from delf_engine.origins.outline import Outline
from delf_engine.origins.own_values import OwnValues
from delf_engine.origins.search import ResultTexts
from delf_engine.origins.texts import Words, is_bare, names
from delf_engine.origins.values import MOST_LEAVES, authored, leaves_of, texts_in

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
        before: Gives what the model has beside the task, each text with its author and its place.
            What the user wrote before is theirs; an earlier answer may hold others' words.
        wording_of: Says of an action whose words its results are.
        files: Reads input files, which scripts can open and others may have written: the name and
            text of each; None where there are none.
    """

    def __init__(
        self,
        task: str,
        before: Callable[[], Iterable[tuple[Trust, str, str]]],
        wording_of: Callable[[str], Wording],
        files: Callable[[], Iterable[tuple[str, str]]] | None = None,
    ) -> None:
        self._words = [Words(task)]
        self._before: Callable[[], Iterable[tuple[Trust, str, str]]] | None = before
        self._wording_of = wording_of
        self._has_files = files is not None
        self._files = files
        self._seen = 0
        self._read: list[tuple[int, str]] = []
        """The sources of others' words, in the order in which the task got them."""
        self._asked: tuple[tuple[int, str], ...] = ()
        """Those that the model had read when it was asked last."""
        self._author = Author()
        self._code: Words | None = None
        self._clean_code: list[Words] = []
        self._calls: dict[int, ReadCall] = {}
        self._read_calls: list[ReadCall] = []
        """All that the task has read, each text as the result of a call, or of what gave it."""
        self._own_values = OwnValues(self.is_own)
        self._results = ResultTexts()
        self._searched = 0
        """Of what the task has read those texts that can be searched: most tasks need none."""
        self.asked_for = AskedFor(self.is_own, self._calls)
        self.outlines = 0
        """The answers that the outline was put together from."""

    @property
    def own_words(self) -> str:
        """The user's own words, the task first; empty for a task of a script's words."""
        return "\n\n".join(words.text for words in self._words if words.text)

    @property
    def author(self) -> Author:
        """The author of what is done now."""
        return self._author

    @property
    def has_read(self) -> bool:
        """True once the task has had others' words, read by a model or not."""
        return bool(self._read) or self._has_files

    def is_planned(self, action: str) -> bool:
        """Return whether a script names an action whose author had read nothing of others."""
        name = re.compile(rf"(?<![\w.]){re.escape(action)}\s*\(")
        return any(name.search(words.text) for words in self._clean_code)

    def follow(self, events: Sequence[Event]) -> None:
        """Take in what happened since the last time.

        Args:
            events: The task's events from its begin.
        """
        for event in events[self._seen :]:
            match event:
                case ModelCalled(purpose="generate"):
                    self._take_before()
                    if event.server_side:
                        self._read.append((0, _LOOKED_UP))
                    files = ((0, FILES),) if self._has_files else ()
                    self._asked = (*files, *self._read)
                    self._author, self._code = Author(read=self._asked), None
                case ScriptGenerated(code=code):
                    self._author = Author(code=code, read=self._asked)
                    self._code = Words(code)
                    if not self._asked:
                        self._clean_code.append(self._code)
                case ModelReplied(purpose="outline", text=text):
                    parsed = Outline.of(text)
                    known = self.asked_for.outline
                    self.asked_for.outline = known.with_more(parsed) if self.outlines else parsed
                    self.outlines += 1
                    self._own_values.forget()
                case ScriptFinished():
                    self._author, self._code = Author(read=self._asked), None
                case CallStarted():
                    call = ReadCall(
                        number=event.call_id,
                        action=event.action,
                        arguments=event.arguments,
                        wording=self._wording_of(event.action),
                        has_read=self.has_read,
                    )
                    self._calls[event.call_id] = call
                    if event.effect != "read":
                        self._own_values.add(call, is_over=False)
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
        """Take in what the model had with the task; it is known once a model is asked."""
        if self._before is None:
            return
        for trust, text, where in self._before():
            if trust == "own" and where == CONVERSATION:
                self._words.append(Words(text))
                continue
            read_call = ReadCall(
                number=0, action=where, arguments={}, wording=Wording(trust=trust), result=text
            )
            self._read_calls.append(read_call)
            self._own_values.add(read_call, is_over=True)
            if trust == "outside" and (0, where) not in self._read:
                self._read.append((0, where))
        self._before = None

    def _take_result(self, event: CallFinished) -> None:
        call = self._calls.get(event.call_id)
        if call is None:  # its beginning is not recorded, so nobody knows what it was asked
            wording = self._wording_of(event.action)
            call = ReadCall(
                number=event.call_id, action=event.action, arguments={}, wording=wording
            )
        call.result = event.error if event.result is None else event.result
        self._read_calls.append(call)
        self._own_values.add(call, is_over=True)
        if call.wording.trust != "own":
            self._read.append((event.call_id, event.action))

    def followed(self) -> Sequence[str]:
        """Return the texts that the user's words order to follow, by the authors that they name."""
        return followed_texts(self.asked_for.outline.orders, self._calls.values(), self._is_stated)

    def of(self, arguments: Mapping[str, Any]) -> dict[str, Origin]:
        """Find the source of each value of a call's arguments, by its path, as ``to[0]``."""
        return self.of_values(islice(leaves_of(arguments), MOST_LEAVES))

    def of_values(self, values: Iterable[tuple[str, str]]) -> dict[str, Origin]:
        """Find the source of each value, which comes with its path."""
        return {path: self.find(text) for path, text in values}

    def own_part(self, value: Any) -> Origin | None:
        """Return the first place in one's own data that an argument, or a piece of it, is from."""
        results = self._all_results()
        found = (results.find(text, ("own",)) for text in texts_in(value))
        return next(filter(None, found), None)

    def is_own(self, text: str) -> bool:
        """Return whether a value is in the words of the user, or of a clean script."""
        return self._is_stated(text) or any(code.mention(text) for code in self._clean_code)

    def own(self, text: str) -> Origin | None:
        """Return the origin of a value that is the user's own beyond doubt; None of any other.

        Once the author of the script had read others' words, what stands in one's own data counts
        no more, since they could have named it; nor does a short number, which is in any text.
        """
        if not text.strip():
            return Origin(kind="script", trust="own")
        if not self._author.read:
            if not self.has_read:
                return Origin(kind="script", trust="own")
            return self._own_words(text) or self._own_values.find(text)
        return None if is_bare(text) else self._own_words(text)

    def _own_words(self, text: str) -> Origin | None:
        if self._is_stated(text):
            return Origin(kind="task", trust="own")
        if any(code.mention(text) for code in self._clean_code):
            return Origin(kind="script", trust="own")
        return None

    def find(self, text: str) -> Origin:
        """Find the source of a value, as well as it can be found."""
        known = self._own_words(text) or self._own_values.find(text)
        found = known or self._all_results().find(text)
        if found is not None:
            return found
        if self._author.read and (self._code is None or self._code.mention(text)):
            return Origin(kind="script", trust="outside")
        if not text.strip() or not self.has_read:
            return Origin(kind="script", trust="own")
        return Origin(kind="unknown", trust="outside")

    def _is_stated(self, text: str) -> bool:
        """Return whether a value stands in the user's words."""
        return any(words.mention(text) for words in self._words)

    def named_by_others(self, number: str) -> Origin | None:
        """Return the place where others' words name a short number, if the author has read it.

        The 13 of "on June 13" in a task is not the 13 of "delete the file '13'" in a mail.
        """
        for call in self._all_read() if is_bare(number) and self._author.read else ():
            for whose, path, text in authored(call.result, call.wording.trust):
                if whose == "outside" and names(text, number):
                    return Origin(
                        kind="result",
                        trust="outside",
                        call_id=call.number,
                        action=call.action,
                        path=path,
                    )
        return None

    def _all_results(self) -> ResultTexts:
        """Return all that the task has read, ready to be searched."""
        read_call = self._all_read()
        for call in read_call[self._searched :]:
            self._results.add(call)
        self._searched = len(read_call)
        return self._results

    def _all_read(self) -> Sequence[ReadCall]:
        """Return all that the task has read, with the texts of its input files."""
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
