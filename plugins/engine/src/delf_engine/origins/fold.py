"""Find where the values of a call came from, by a fold over the events of its task.

Two things are known. What the author of a script had read when it was written is exact: the host
knows every result that came before. Where one value came from is found by its text, and is a help
and no proof: a value that a script computed from another one is found nowhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
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
from delf_engine.origins.followed import AuthoredResult, followed_texts
from delf_engine.origins.origin import Author, Origin, Wording
from delf_engine.origins.outline import Outline
from delf_engine.origins.own_values import OwnValues
from delf_engine.origins.search import Placed, ResultTexts
from delf_engine.origins.texts import LEAST, LONGEST_BARE, Words, letters_of
from delf_engine.origins.values import MOST_LEAVES, leaves_of, texts_in

CONVERSATION: Final = "this conversation"
ANSWER: Final = "an earlier answer"
MEMORY: Final = "memory"
VARIABLE: Final = "this conversation's variable"
PARENT: Final = "the words of the task above"
FILES: Final = "the input files"
_LOOKED_UP: Final = "the web, where its provider searches"


class Origins:
    """The origins of the values of one task's calls.

    Args:
        task: The user's words.
        before: Gives what the model has beside the task, each text with its author and its place.
            What the user said before is theirs; an earlier answer may hold others' words.
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
        self._has_run = False
        self._seen = 0
        self._read: list[tuple[int, str]] = []
        """The sources of others' words, in the order in which the task got them."""
        self._asked: tuple[tuple[int, str], ...] = ()
        """Those that the model had read when it was asked last."""
        self._author = Author()
        self._code: Words | None = None
        self._clean_code: list[Words] = []
        self._results = ResultTexts()
        self._own_values = OwnValues()
        self._waiting: list[tuple[int, str, Any, Wording]] = []
        """Results that are not yet taken in: most tasks never search them."""
        self._arguments: dict[int, Mapping[str, Any]] = {}
        """The arguments of the calls whose results have an author."""
        self._with_author: list[AuthoredResult] = []
        self.outline = Outline()
        """The calls that the task itself asks for; none before a model was asked about them."""
        self.outlines = 0
        """The answers that it was put together from."""

    @property
    def own_words(self) -> str:
        """The user's own words, the task first; empty for a task of a script's words."""
        return "\n\n".join(words.text for words in self._words if words.text)

    @property
    def author(self) -> Author:
        """The author of what is done now."""
        return self._author

    @property
    def clean_code(self) -> Iterator[str]:
        """The scripts whose authors had read nothing of others."""
        return (words.text for words in self._clean_code)

    @property
    def has_read(self) -> bool:
        """True once the task has had others' words, read by a model or not."""
        return bool(self._read) or self._has_files

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
                    files = ((0, FILES),) if self._has_files and self._has_run else ()
                    self._asked = (*files, *self._read)
                    self._author, self._code = Author(read=self._asked), None
                case ScriptGenerated(code=code):
                    self._author = Author(code=code, read=self._asked)
                    self._code = Words(code)
                    if not self._asked:
                        self._clean_code.append(self._code)
                case ModelReplied(purpose="outline", text=text):
                    told = Outline.of(text)
                    self.outline = self.outline.with_more(told) if self.outlines else told
                    self.outlines += 1
                    self._clean_code.append(Words(told.code))
                case ScriptFinished():
                    self._has_run = True
                    self._author, self._code = Author(read=self._asked), None
                case CallStarted() if self._wording_of(event.action).author:
                    self._arguments[event.call_id] = event.arguments
                case CallFinished(status="ok" | "error"):
                    self._take_result(event)
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
            self._waiting.append((0, where, text, Wording(trust=trust)))
            if trust == "outside" and (0, where) not in self._read:
                self._read.append((0, where))
        self._before = None

    def _take_result(self, event: CallFinished) -> None:
        given = event.error if event.result is None else event.result
        wording = self._wording_of(event.action)
        self._waiting.append((event.call_id, event.action, given, wording))
        self._own_values.add(event.call_id, event.action, given, wording)
        if wording.is_outside:
            self._read.append((event.call_id, event.action))
        given_to = self._arguments.get(event.call_id)
        if event.status == "ok" and given_to is not None and wording.author is not None:
            self._with_author.append(
                AuthoredResult(
                    action=event.action,
                    author=wording.author,
                    arguments=given_to,
                    result=event.result,
                )
            )

    def followed(self) -> Sequence[str]:
        """The texts that the user's words order to follow, by the authors that they name."""
        return followed_texts(self.outline.orders, self._with_author, self._is_own)

    def of(self, arguments: Mapping[str, Any]) -> dict[str, Origin]:
        """Find the source of each value of a call's arguments, by its path, as ``to[0]``."""
        return self.of_values(islice(leaves_of(arguments), MOST_LEAVES))

    def of_values(self, values: Iterable[tuple[str, str]]) -> dict[str, Origin]:
        """Find the source of each value, which comes with its path."""
        return {path: self._of(text) for path, text in values}

    def are_from(self, actions: AbstractSet[str], value: Any) -> Placed:
        """Tell how results of some actions hold all of the values of an argument.

        Args:
            actions: Whose results are looked at.
            value: The argument, or one of its values.
        """
        results = self._all_results()
        found = {results.placed(actions, text) for text in texts_in(value)}
        if not found or "nowhere" in found:
            return "nowhere"
        return "in a text" if "in a text" in found else "whole"

    def own_part(self, value: Any) -> Origin | None:
        """The first place in one's own data that an argument, or a piece of it, is from."""
        results = self._all_results()
        found = (results.find(text, ("own",)) for text in texts_in(value))
        return next(filter(None, found), None)

    def _of(self, text: str) -> Origin:
        if self._is_own(text):
            return self._named(text) or Origin(kind="task", trust="own")
        if any(code.mention(text) for code in self._clean_code):
            return Origin(kind="script", trust="own")
        if not self._author.read and (own := self._own_values.find(text)) is not None:
            return own
        found = self._find(text)
        if found is not None:
            is_whole = found.is_sure and not found.is_part
            return (self._named(text) if is_whole else None) or found
        if self._author.read and (self._code is None or self._code.mention(text)):
            return Origin(kind="script", trust="outside")
        if not text.strip() or not self.has_read:
            return Origin(kind="script", trust="own")
        return Origin(kind="unknown", trust="outside")

    def _is_own(self, text: str) -> bool:
        """Tell whether a value stands in the user's words."""
        return any(words.mention(text) for words in self._words)

    def _named(self, text: str) -> Origin | None:
        """The place where others' words name a short number of one's own, if the author read it.

        The 13 of "on June 13" in a task is not the 13 of "delete the file '13'" in a mail.
        """
        number = text.strip()
        is_bare = len(number) <= LONGEST_BARE and any(map(str.isdigit, number))
        if not is_bare or not self._author.read:
            return None
        return self._all_results().named_by_others(number)

    def _find(self, text: str) -> Origin | None:
        """The result that a value is from, others' words before one's own.

        A whole value of one's own data goes first where it is one or two letters, which say
        nothing in others' words, and where the script's author had read none of these.
        """
        results = self._all_results()
        record = results.find_record(text)
        if record is not None and (len(letters_of(text)) < LEAST or self._is_sure_of(record)):
            return record
        return results.find(text)

    def _is_sure_of(self, record: Origin) -> bool:
        return record.is_sure and not self._author.read

    def _all_results(self) -> ResultTexts:
        """All that was returned so far, and the texts of input files, ready to be searched."""
        if self._files is not None:
            for name, text in self._files():
                self._results.add(0, f"the input file {name}", text, Wording())
            self._files = None
        for waiting in self._waiting:
            self._results.add(*waiting)
        self._waiting.clear()
        return self._results
