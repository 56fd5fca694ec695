"""Find where the values of a call came from, by a fold over the events of its task.

Two things are known. What the author of a script had read when it was written is exact: the host
knows every result that came before. Where one value came from is found by its text, and is a help
and no proof: a value that a script computed from another one is found nowhere.
"""

from __future__ import annotations

import base64
import binascii
import html
import json
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import date, time
from decimal import Decimal
from functools import cached_property
from itertools import chain, filterfalse, islice
from typing import Any, Final, Literal, cast
from urllib.parse import unquote

from delf.engine.outline import Outline
from delf.events import (
    CallFinished,
    CallStarted,
    Event,
    ModelCalled,
    ModelReplied,
    ScriptFinished,
    ScriptGenerated,
)
from delf.records import dataclass
from delf.types import Trust

Placed = Literal["whole", "in a text", "nowhere"]
OriginKind = Literal["task", "script", "result", "unknown"]

CONVERSATION: Final = "this conversation"
MEMORY: Final = "memory"
PARENT: Final = "the words of the task above"
FILES: Final = "the input files"
_LOOKED_UP: Final = "the web, where its provider searches"
_MOST_CHARACTERS: Final = 4_000_000
"""Letters of results of one trust that are searched; later ones are not."""
_MOST_VALUES: Final = 200_000
MOST_LEAVES: Final = 500
"""Values of one call that are looked for."""
_MOST_NEEDLES: Final = 24
"""Pieces of one value that are looked for."""
_NEWEST: Final = 3
_FIRST_ROWS: Final = 50
"""Results, and rows of each, that are looked through before they are taken in."""
_LEAST: Final = 3
"""Characters of a value that says something about where it came from."""
_SHORT: Final = 12
"""Letters from which on a value may be a part of another one."""
_PIECE: Final = 24
"""Letters of a piece of a longer text, at least; of a long text's twice as many."""
_LONGEST_PATH: Final = 100
"""Characters of a path that are told: its names are others' words, too."""
_MOST_FOLLOWED: Final = 3
"""Texts that one task may order to follow."""
_LONGEST_FOLLOWED: Final = 20_000
_SEAM: Final = "\x00"
_WORD: Final = re.compile(r"[\w.@+:/%-]{6,}")
_NAME: Final = re.compile(r"[\w.-]{6,}")
_TELLING: Final = re.compile(r"[\d@/]|\.\w|.{15}")
"""Signs of a word that is rare, such as an address; common words are in any two texts."""
_SHORTEST_CODE: Final = 20
_BASE64: Final = re.compile(r"(?<![A-Za-z0-9+/_-])[A-Za-z0-9+/_-]{20,}={0,2}")
_LONGEST_WORD: Final = 300
_BEFORE: Final = r"(?<![\w@])(?<!\w[.+-])"
_AFTER: Final = r"(?![\w@]|[.+-]\w)"
_NUMBER: Final = re.compile(r"\d{1,15}(?:[\d,]{0,20}\.\d{1,15}|(?:,\d{3}){0,6})")
_SCHEMES: Final = ("http://", "https://", "mailto:")
_NAMES: Final = re.compile(r"[^.\[\]]+")
_LONGEST_BARE: Final = 4
"""Characters of a number that is in any text, and is a record's only where it is named."""
_NAMES_NEXT: Final = re.compile(
    r"(?:['\"#`“‘]|\b(?:id|no|nr|num|number|file|mail|e-?mail|event|record|order)\b\W{0,4})$",
    re.IGNORECASE,
)
"""The signs ahead of a record's number."""
_LINKS: Final = re.compile(r"\w@\w|://|\bwww\.|\b[\w-]+\.[a-z]{2,12}/|[A-Z]{2}\d{10}")
_MARKS: Final = bytes(code for code in range(1, 128) if not chr(code).isalnum())
_FOREIGN_MARKS: Final = re.compile(r"[^\w\x00-\x7f]+")
_BLOCK: Final = 8
"""Bytes of a block; a piece of twice as many less one holds a whole one."""
_MOST_PLACES: Final = 20
"""Places of one text that are compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The source of a value, as far as it is known.

    Args:
        kind: The words of the ``task``; the ``script``, whose author wrote it; the ``result`` of a
            call; or ``unknown``, which a value is that the script computed.
        trust: Whose words these are. A script's are its author's own until it has read others'.
        call_id: The call with that result.
        action: What was called.
        path: Where in the result, as ``[3].body``.
        is_part: Only a part of the value was found there, or it is a part of what was.
        is_changed: It is alike, and not the same.
        is_named: It is one's own, and others' words name it, such as a record's number.
    """

    kind: OriginKind
    trust: Trust
    call_id: int | None = None
    action: str | None = None
    path: str = ""
    is_part: bool = False
    is_changed: bool = False
    is_named: bool = False

    @property
    def is_sure(self) -> bool:
        """True for a value of the user's own, exactly as it stands there."""
        return self.trust == "own" and not self.is_changed

    @property
    def is_others(self) -> bool:
        """True for a value that was found among others' words."""
        return self.kind == "result" and self.trust == "outside"

    @property
    def text(self) -> str:
        """The origin in words, for a person."""
        match self.kind:
            case "task":
                return "in your task"
            case "script":
                return (
                    "written by the model"
                    if self.trust == "own"
                    else "written by the model after it read what others wrote"
                )
            case "result":
                part = "in part " if self.is_part or self.is_changed else ""
                path = self.path.lstrip(".")
                path = path if len(path) <= _LONGEST_PATH else f"{path[:_LONGEST_PATH]}…"
                where = f", {path}" if path else ""
                whose = "; others wrote it" if self.trust == "outside" else ""
                whose = "; changed by the script" if self.is_changed else whose
                call = f" (call {self.call_id}{where})" if self.call_id else ""
                return f"{part}from {self.action}{call}{whose}"
            case "unknown":
                return "computed by the script; not found in your task or in a result"

    @property
    def is_own(self) -> bool:
        """True for the words of the user, or of a script whose author had read no others."""
        return self.trust == "own" and self.kind != "result"

    def data(self) -> dict[str, Any]:
        """The origin as plain data, for events and requests."""
        found = {"kind": self.kind, "trust": self.trust, "text": self.text}
        if self.kind == "result":
            return {**found, "call_id": self.call_id, "action": self.action, "path": self.path}
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Wording:
    """The authors of the words in an action's results.

    Args:
        trust: Of the result as a whole, or by the name of a field with ``*`` for the rest.
        author: The field or the argument with the author that the service vouches for.
    """

    trust: Trust | Mapping[str, Trust] = "outside"
    author: str | None = None

    @property
    def is_outside(self) -> bool:
        """True if others wrote a part of it."""
        return self.trust != "own" if isinstance(self.trust, str) else True

    def of(self, path: str) -> Trust:
        """Return the author of a path in the result, by the innermost field that names one."""
        if isinstance(self.trust, str):
            return self.trust
        names = reversed(_NAMES.findall(path))
        named = next((name for name in names if name in self.trust), "*")
        return self.trust.get(named, "outside")


@dataclass(frozen=True, slots=True, kw_only=True)
class Author:
    """The model that wrote what is done now, and what it had read by then.

    Args:
        code: The script; None where a strategy calls without one.
        read: The calls with others' words that had ended when the model was asked.
    """

    code: str | None = None
    read: tuple[tuple[int, str], ...] = ()

    def told(self) -> str:
        """Name what it had read, for a person."""
        names = dict.fromkeys(
            f"{action} (call {number})" if number else action for number, action in self.read
        )
        more = len(names) - 3
        return ", ".join(islice(names, 3)) + (f" and {more} more" if more > 0 else "")


_FOLLOWED: Final = frozenset(
    (ModelCalled, ScriptGenerated, ModelReplied, ScriptFinished, CallStarted, CallFinished)
)
"""The events that say where a value may come from."""


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
        self._words = [_Words(task)]
        self._wording_of = wording_of
        self._has_files = files is not None
        self._files = files
        self._has_run = False
        self._seen = 0
        self._read: list[tuple[int, str]] = []
        self._author = Author()
        self._code: _Words | None = None
        self._asked: tuple[tuple[int, str], ...] = ()
        self._clean_code: list[_Words] = []
        self._results: list[CallFinished] = []
        self._taken_in = 0
        self._recorded = 0
        # Numbers and texts alone, which the garbage collector does not walk through.
        self._records: dict[str, int] = {}
        self._record_paths: dict[str, str] = {}
        self._haystack = _Haystack()
        self._before: Callable[[], Iterable[tuple[Trust, str, str]]] | None = before
        self.outline: Outline | None = None
        """The calls that the task itself asks for, once a model was asked about them."""
        self.outlines = 0
        """The answers that it was put together from."""
        self._arguments: dict[int, Mapping[str, Any]] = {}
        """The arguments of the calls whose results have an author."""

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
            if type(event) not in _FOLLOWED:
                continue
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
                    self._code = _Words(code)
                    if not self._asked:
                        self._clean_code.append(self._code)
                case ModelReplied(purpose="outline", text=text):
                    told, self.outlines = Outline.of(text), self.outlines + 1
                    self.outline = self.outline.with_more(told) if self.outline else told
                    self._clean_code.append(_Words(told.code))
                case ScriptFinished():
                    self._has_run = True
                    self._author, self._code = Author(read=self._asked), None
                case CallStarted() if self._wording_of(event.action).author:
                    self._arguments[event.call_id] = event.arguments
                case CallFinished(status="ok" | "error"):
                    self._results.append(event)
                    if self._wording_of(event.action).is_outside:
                        self._read.append((event.call_id, event.action))
                case _:
                    pass
        self._seen = len(events)

    def followed(self) -> Sequence[str]:
        """The texts that the user's words order to follow, by the authors that they name.

        A record's author is a field that its service vouches for. A text that names its author
        itself is nobody's.
        """
        found: dict[str, None] = {}
        for event in self._results if self.outline is not None and self.outline.orders else ():
            given = self._arguments.get(event.call_id)
            if given is None or event.status != "ok":
                continue
            author = str(self._wording_of(event.action).author)
            for order in self.outline.orders if self.outline else ():
                if order.action == event.action:
                    records = _records_by(self._is_own, author, given, event.result)
                    told = [text for text in order.literals if self._is_own(text)]
                    for record in records:
                        held = _Words(f"{record}\n{_text_of(given)}")
                        if all(map(held.mention, told)):
                            found.setdefault(record[:_LONGEST_FOLLOWED])
        return list(islice(found, _MOST_FOLLOWED))

    def _is_own(self, text: str) -> bool:
        """Tell whether a value stands in the user's words."""
        return any(words.mention(text) for words in self._words)

    def _take_before(self) -> None:
        """Take in what the model had with the task; it is known once a model is asked."""
        if self._before is not None:
            for trust, text, where in self._before():
                if trust == "own" and where == CONVERSATION:
                    self._words.append(_Words(text))
                    continue
                self._haystack.add(0, where, text, Wording(trust=trust))
                if trust == "outside" and (0, where) not in self._read:
                    self._read.append((0, where))
            self._before = None

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
        self._take_in()
        found = [self._haystack.placed(actions, text) for _, text in _leaves(value)]
        if not found or "nowhere" in found:
            return "nowhere"
        return "in a text" if "in a text" in found else "whole"

    def _of(self, text: str) -> Origin:
        if self._is_own(text):
            return self._named(text) or Origin(kind="task", trust="own")
        if any(code.mention(text) for code in self._clean_code):
            return Origin(kind="script", trust="own")
        letters = _letters(text)
        if not self._author.read and (own := self._own_record(text, letters)) is not None:
            return own
        found = self._find(text, letters)
        if found is not None and not found.is_part and found.is_sure:
            return self._named(text) or found
        if found is not None:
            return found
        if self._author.read and (self._code is None or self._code.mention(text)):
            return Origin(kind="script", trust="outside")
        if not text.strip() or not self.has_read:
            return Origin(kind="script", trust="own")
        return Origin(kind="unknown", trust="outside")

    def _named(self, text: str) -> Origin | None:
        """The place where others' words name a short number of one's own, if the author read it.

        The 13 of "on June 13" in a task is not the 13 of "delete the file '13'" in a mail.
        """
        if not self._author.read or len(text) > _LONGEST_BARE:
            return None
        self._take_in()
        return self._haystack.named_by_others(text)

    def own_part(self, value: Any) -> Origin | None:
        """The first place in one's own data that an argument, or a piece of it, is from."""
        self._take_in()
        found = (self._haystack.own_part(text) for _, text in islice(_leaves(value), MOST_LEAVES))
        return next(filter(None, found), None)

    def _take_in(self) -> None:
        """Have all results in the haystack, and the texts of input files."""
        if self._files is not None:
            for name, text in self._files():
                self._haystack.add(0, f"the input file {name}", text, Wording())
            self._files = None
        for event in self._results[self._taken_in :]:
            given = event.error if event.result is None else event.result
            wording = self._wording_of(event.action)
            self._haystack.add(event.call_id, event.action, given, wording)
        self._taken_in = len(self._results)

    def _own_record(self, text: str, letters: str) -> Origin | None:
        """The first place of a short value, such as a number, that is a whole one of one's own.

        It is known without taking in what others wrote.
        """
        if len(letters) >= _SHORT:
            return None
        if (newest := self._newest_record(text)) is not None:
            return newest
        known, paths = self._records, self._record_paths
        for index in range(self._recorded, len(self._results)):
            event = self._results[index]
            trust = self._wording_of(event.action).trust
            for path, value in _own_values(event.result, trust):
                plain = _without_spaces(value)
                if len(plain) <= 2 * _SHORT and len(known) < _MOST_VALUES and plain not in known:
                    known[plain] = index
                    paths[plain] = path
        self._recorded = len(self._results)
        plain = _without_spaces(text)
        if plain not in known:
            return None
        return _own_origin(self._results[known[plain]], paths[plain])

    def _newest_record(self, text: str) -> Origin | None:
        """The same among what was returned just now, before all of it is taken in.

        Most scripts change what they read last.
        """
        for event in reversed(self._results[max(self._recorded, len(self._results) - _NEWEST) :]):
            trust = self._wording_of(event.action).trust
            rows: object = event.result
            if isinstance(trust, str) or not isinstance(rows, list):
                continue
            own = [name for name, whose in trust.items() if whose == "own" and name != "*"]
            for at, row in enumerate(islice(cast("list[Any]", rows), _FIRST_ROWS)):
                for name in own if type(row) is dict else ():
                    if cast("dict[Any, Any]", row).get(name) == text:
                        return _own_origin(event, f"[{at}].{name}")
        return None

    def _find(self, text: str, letters: str) -> Origin | None:
        """The result that a value is from, others' words before one's own."""
        if not letters:
            return None
        self._take_in()
        if (
            len(letters) < _LEAST
        ):  # such as the number of a record; in others' words it says nothing
            return self._haystack.find_own(letters, text)
        whole = self._haystack.find(letters, text, exact=len(letters) < _SHORT)
        return self._haystack.find_part(text) if whole is None else whole


def _own_origin(event: CallFinished, path: str) -> Origin:
    return Origin(kind="result", trust="own", call_id=event.call_id, action=event.action, path=path)


class _Haystack:
    """The texts of a task's results, by whose words they are."""

    def __init__(self) -> None:
        self._texts: dict[Trust, _Texts] = {"outside": _Texts(), "own": _Texts()}

    def add(self, call_id: int, action: str, value: Any, wording: Wording) -> None:
        """Take in a result.

        Args:
            call_id: The call's number.
            action: What was called.
            value: What it returned, or how it failed.
            wording: Whose words these are.
        """
        found: dict[Trust, list[tuple[str, str]]] = {
            trust: [] for trust, texts in self._texts.items() if texts.size <= _MOST_CHARACTERS
        }
        for whose, path, text in islice(_authored(value, wording.trust), _MOST_VALUES):
            readings = found.get(whose)
            if readings is not None:
                readings.append((path, text))
                readings += ((path, plain) for plain in _decoded(text))
        for trust, readings in found.items():
            if readings:
                self._texts[trust].add(call_id, action, readings)

    def find(self, letters: str, text: str, *, exact: bool, is_part: bool = False) -> Origin | None:
        """The first place of a text, in others' words before one's own.

        Args:
            letters: What is looked for.
            text: The value as it is. It is changed where no place in one's own data has it
                exactly: one more dot is another address.
            exact: It has to be a whole value there, as short texts are in many others.
            is_part: It is a piece of what is looked for.
        """
        for trust in self._texts:
            if found := self._find_in(trust, letters, text, exact=exact, is_part=is_part):
                return found
        return None

    def own_part(self, text: str) -> Origin | None:
        """The first place in one's own data of a text, or of a piece of it."""
        letters = _letters(text)
        if len(letters) < _LEAST:
            return None
        whole = self._find_in("own", letters, text, exact=len(letters) < _SHORT, is_part=False)
        return whole or self.find_part(text, ("own",))

    def find_own(self, letters: str, text: str) -> Origin | None:
        """The first place of a short text that is a whole value of one's own data."""
        return self._find_in("own", letters, text, exact=True, is_part=False)

    def placed(self, actions: AbstractSet[str], text: str) -> Placed:
        """Tell how the results of some actions hold a text."""
        letters, words, is_there = _letters(text), _without_spaces(text), False
        for result, _, reading in chain(*(texts.readings() for texts in self._texts.values())):
            if result.action not in actions or words not in _without_spaces(reading):
                continue
            if _letters(reading) == letters:
                return "whole"
            is_there = is_there or _Words(reading).mention(text)
        return "in a text" if is_there else "nowhere"

    def named_by_others(self, text: str) -> Origin | None:
        """The first place where others' words name a value, such as a record's number."""
        if not any(map(str.isdigit, text)):
            return None  # words and names are in any text
        names = _Naming(text)
        for result, path, reading in self._texts["outside"].readings():
            if names.stand_in(reading):
                return Origin(
                    kind="result",
                    trust="outside",
                    call_id=result.call_id,
                    action=result.action,
                    path=path,
                    is_named=True,
                )
        return None

    def _find_in(
        self, trust: Trust, letters: str, text: str, *, exact: bool, is_part: bool
    ) -> Origin | None:
        places = self._texts[trust].places(letters, exact=exact, is_part=is_part)
        first = next(places, None)
        if first is None:
            return None
        held = (place.text for place in islice(chain((first,), places), _MOST_PLACES))
        is_changed = trust == "own" and not any(
            _Words(one).mention(text) for one in dict.fromkeys(held)
        )
        return Origin(
            kind="result",
            trust=trust,
            call_id=first.result.call_id,
            action=first.result.action,
            path=first.path,
            is_part=is_part or not first.is_whole,
            is_changed=is_changed,
        )

    def find_part(self, text: str, trusts: Sequence[Trust] = ("outside", "own")) -> Origin | None:
        """The first place of a piece of a text, or of what it hides by an encoding."""
        needles = dict.fromkeys(_letters(reading) for reading in _decoded(text))
        for reading in (text, *_decoded(text)):
            words = (*_WORD.findall(reading), *_NAME.findall(reading))
            telling = [word for word in words if _TELLING.search(word)]
            letters = _letters(reading)
            size = min(max(_PIECE, len(letters) // 4), 2 * _PIECE)
            step = max(size, len(letters) // _MOST_NEEDLES)
            cuts = (letters[at : at + size] for at in range(0, len(letters) - size, step))
            pieces = (_letters(word) for word in sorted(telling, key=len, reverse=True))
            for piece in (*pieces, *cuts):
                if len(piece) >= 2 * _LEAST:
                    needles.setdefault(piece)
        for needle in islice(filter(None, needles), _MOST_NEEDLES):
            for trust in trusts:
                found = self._find_in(trust, needle, text, exact=False, is_part=True)
                if found is not None:
                    return found
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Result:
    """The texts of a result, with their paths, and their letters with a seam around each."""

    call_id: int
    action: str
    readings: Sequence[tuple[str, str]]
    letters: str
    telling: str
    """The letters of its words that are more than letters; the others tell nothing alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """A place in a result where something was found."""

    result: _Result
    path: str
    text: str
    is_whole: bool


class _Texts:
    """The texts of one trust, with what says quickly that something is not in them."""

    def __init__(self) -> None:
        self._results: list[_Result] = []
        self.size = 0
        self._blocks: set[int] = set()
        """Each block of the bytes of the letters, as a number."""
        self._without_blocks: list[str] = []
        """The letters whose blocks nothing has asked for yet."""
        self._short: dict[str, int] = {}
        """The first result with a short value, by its index."""

    def add(self, call_id: int, action: str, readings: Sequence[tuple[str, str]]) -> None:
        """Take in the texts of a result, with their paths."""
        text = _folded(_SEAM.join(text.replace(_SEAM, "") for _, text in readings))
        letters = f"{_SEAM}{_without_marks(text)}{_SEAM}"
        words = text.replace(_SEAM, " ").split()
        telling = _without_marks(" ".join(filterfalse(str.isalpha, words)))
        result = _Result(
            call_id=call_id,
            action=action,
            readings=readings,
            letters=letters,
            telling=telling,
        )
        for value in letters.split(_SEAM):
            if len(value) < _SHORT:
                self._short.setdefault(value, len(self._results))
        self._results.append(result)
        self._without_blocks.append(letters)
        self.size += len(letters)

    def readings(self) -> Iterator[tuple[_Result, str, str]]:
        """Each text, with its result and its path there."""
        for result in self._results:
            for path, text in result.readings:
                yield result, path, text

    def places(self, letters: str, *, exact: bool, is_part: bool) -> Iterator[_Place]:
        """The places of a text, as :meth:`_Haystack.find` says."""
        needle = f"{_SEAM}{letters}{_SEAM}" if exact else letters
        for result in self._with(letters, exact=exact, is_part=is_part):
            at = result.letters.find(needle)
            while at >= 0:
                begin, end = at + exact, at + exact + len(letters)
                path, text = result.readings[result.letters.count(_SEAM, 0, begin) - 1]
                is_whole = result.letters[begin - 1] == _SEAM == result.letters[end]
                yield _Place(result=result, path=path, text=text, is_whole=is_whole)
                at = result.letters.find(needle, end)

    def _with(self, letters: str, *, exact: bool, is_part: bool) -> Iterable[_Result]:
        """The results that a text may be in."""
        if exact:
            first = self._short.get(letters)
            return () if first is None else self._results[first:]
        data = _bytes(letters)
        if len(data) >= 2 * _BLOCK - 1:
            return self._results if self._may_hold(memoryview(data)) else ()
        if is_part or letters.isdecimal():
            return [result for result in self._results if letters in result.telling]
        return self._results

    def _may_hold(self, data: memoryview) -> bool:
        """Tell whether all whole blocks of a piece are there, wherever its first one begins."""
        for letters in self._without_blocks:
            held = _bytes(letters)
            self._blocks.update(memoryview(held + bytes(-len(held) % _BLOCK)).cast("Q"))
        self._without_blocks.clear()
        return any(
            self._blocks.issuperset(data[at : len(data) - (len(data) - at) % _BLOCK].cast("Q"))
            for at in range(_BLOCK)
        )


class _Naming:
    """Finds a value in texts that name it: a long one anywhere, a short number only as a name.

    ``11`` in "June 11" is not a record's number; in "file '11'" or "the mail with the ID 11" it is.

    Args:
        value: The value.
    """

    def __init__(self, value: str) -> None:
        self._value = value.strip()
        self._is_short = len(self._value) <= _LONGEST_BARE
        self._pattern = re.compile(rf"{_BEFORE}{re.escape(self._value)}{_AFTER}", re.IGNORECASE)

    def stand_in(self, text: str) -> bool:
        """Tell whether a text names it."""
        if self._value not in text and self._value.casefold() not in text.casefold():
            return False
        if not self._is_short:
            return self._pattern.search(text) is not None
        ahead = (text[max(0, m.start() - 12) : m.start()] for m in self._pattern.finditer(text))
        return any(map(_NAMES_NEXT.search, ahead))


class _Words:
    """A text in which values are looked for as words of their own, exactly as they are.

    Case and spaces do not count, and a number is the same however it is written. Other marks do:
    ``ada@example.co.m`` is not ``ada@example.com``.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self._plain = _without_spaces(text)

    @cached_property
    def _numbers(self) -> frozenset[str]:
        return frozenset(_numbers(self.text))

    def mention(self, text: str) -> bool:
        """Say if a value stands there."""
        if text[:1].isdigit() and _NUMBER.fullmatch(text):
            return _number(float(text)) in self._numbers
        text = text.strip()
        if text.startswith(_SCHEMES):
            text = text.partition(":")[2].removeprefix("//")
        text = text.rstrip("/")
        if not text or _without_spaces(text) not in self._plain:
            return False
        if len(text) > _LONGEST_WORD:
            return True
        if text.replace(" ", "").isalnum() and any(map(str.isdigit, text)):
            parts = map(re.escape, "".join(text.split()))  # as people write accounts, in groups
            pattern = r"[ \u00a0]?".join(parts)
        else:
            pattern = r"\s+".join(map(re.escape, text.split()))
        return re.search(rf"{_BEFORE}{pattern}{_AFTER}", self.text, re.IGNORECASE) is not None


def has_link(value: Any) -> bool:
    """Tell whether a value holds an address that somebody could follow or pay to."""
    return any(_LINKS.search(text) for _, text in islice(_leaves(value), MOST_LEAVES))


def leaves_of(arguments: Mapping[str, Any], *, has_keys: bool = False) -> Iterator[tuple[str, str]]:
    """The values of arguments as texts, each with its path, as ``to[0]``.

    Args:
        arguments: By name.
        has_keys: The keys of records are values, too.
    """
    for name, item in arguments.items():
        yield from _leaves(item, name, has_keys=has_keys)


def _records_by(
    is_named: Callable[[str], bool], author: str, given: Mapping[str, Any], value: Any
) -> Iterator[str]:
    """The records of a result whose author is one of those that are named, each as a text.

    Args:
        is_named: Tells of an author.
        author: The field with it; where no record has such a field, the argument.
        given: The call's arguments.
        value: The result.
    """
    todo, steps, has_field = [value], 0, False
    while todo and steps < _MOST_VALUES:
        item, steps = todo.pop(), steps + 1
        if isinstance(item, Mapping):
            fields = cast("Mapping[str, Any]", item)
            if author not in fields:
                todo += [*fields.values()][::-1]
                continue
            has_field, whose = True, fields[author]
            if isinstance(whose, str) and is_named(whose):
                yield _text_of(fields)
        elif isinstance(item, (list, tuple)):
            todo += reversed(cast("Sequence[Any]", item))
    whose = given.get(author)
    if not has_field and isinstance(whose, str) and is_named(whose):
        yield _text_of(value)


def _text_of(value: Any) -> str:
    leaves = islice(_leaves(value), MOST_LEAVES)
    return "\n".join(f"{path.lstrip('.')}: {text}" if path else text for path, text in leaves)


def _without_spaces(text: str) -> str:
    return "".join(text.split()).casefold()


def _numbers(text: str) -> Iterator[str]:
    """The numbers of a text as :func:`_number` writes them; ``1,250.00`` is ``1250``."""
    for match in _NUMBER.finditer(text):
        yield _number(float(match[0].replace(",", "").rstrip(".")))


def _number(value: float | Decimal) -> str:
    return f"{value:.12g}" if isinstance(value, (float, Decimal)) else str(value)


def _letters(text: str) -> str:
    """Letters and digits of a text, which spaces, marks, case and invisible characters leave."""
    return _without_marks(_folded(text))


def _folded(text: str) -> str:
    """Write a text in small letters, and each of them in one way."""
    return text.lower() if text.isascii() else unicodedata.normalize("NFKC", text).casefold()


def _without_marks(text: str) -> str:
    if not text.isascii():
        text = _FOREIGN_MARKS.sub("", text)
    return _bytes(text).translate(None, _MARKS).decode(errors="surrogatepass")


def _bytes(text: str) -> bytes:
    return text.encode(errors="surrogatepass")


def _decoded(text: str) -> Iterator[str]:
    """Decode percent signs, HTML and base64 in a text."""
    if len(text) < _SHORTEST_CODE:
        return
    if "%" in text and (plain := unquote(text)) != text:
        yield plain
    if "&" in text and (plain := html.unescape(text)) != text:
        yield plain
    for match in islice(_BASE64.finditer(text), 8):
        if match[0].islower():
            continue  # a long word
        padded = match[0].rstrip("=").translate(_URL_SAFE)
        try:
            yield base64.b64decode(padded + "=" * (-len(padded) % 4)).decode()
        except (binascii.Error, UnicodeDecodeError):
            continue


_URL_SAFE: Final = str.maketrans("-_", "+/")


def _leaves(value: Any, path: str = "", *, has_keys: bool = False) -> Iterator[tuple[str, str]]:
    """The values of plain data that could come from somewhere, as texts, with their paths.

    Args:
        value: The data.
        path: Its own path.
        has_keys: Every key is a value, else only those that are no field's name, but an address or
            a title.
    """
    match value:
        case str():
            if value[:1] in ("{", "[") and (inner := _of_json(value)) is not None:
                yield from _leaves(inner, path, has_keys=has_keys)
            else:
                yield path, value
        case bool() | None:
            return
        case int() | float() | Decimal():
            yield path, _number(value)
        case date() | time():
            yield path, str(value)
        case bytes():
            yield path, value[:_MOST_CHARACTERS].decode(errors="replace")
        case Mapping():
            for index, (key, item) in enumerate(cast("Mapping[Any, Any]", value).items()):
                if isinstance(key, str) and (has_keys or not key.isidentifier()):
                    yield f"{path}[key {index}]", key
                yield from _leaves(item, f"{path}.{key}", has_keys=has_keys)
        case list() | tuple() | set() | frozenset():
            for index, item in enumerate(cast("Iterable[Any]", value)):
                yield from _leaves(item, f"{path}[{index}]", has_keys=has_keys)
        case _:
            yield path, str(value)


def _authored(value: Any, trust: Trust | Mapping[str, Trust]) -> Iterator[tuple[Trust, str, str]]:
    """The values of a result as texts, each with its author and its path.

    Args:
        value: The result. If it is a text of JSON as a whole, its fields have authors; such a text
            in a field is its author's alone, who could name any field there.
        trust: Whose words it holds, as :class:`Wording` has them; a field without a name of its
            own there is of the field around it.
    """
    named: Mapping[str, Trust] = {"*": trust} if isinstance(trust, str) else trust
    todo: list[tuple[Any, str, Trust]] = [(_opened(value), "", named.get("*", "outside"))]
    while todo:
        item, path, whose = todo.pop()
        if type(item) is dict or isinstance(item, Mapping):
            fields = cast("Mapping[Any, Any]", item)
            for key in fields:
                if isinstance(key, str) and not key.isidentifier():
                    yield whose, path, key
            later: list[tuple[Any, str, Trust]] = []
            for key, each in fields.items():
                author = named.get(key, whose)
                if type(each) is str and not later and each[:1] not in ("{", "["):
                    yield author, f"{path}.{key}", each  # most are; a step of its own costs more
                else:
                    later.append((each, f"{path}.{key}", author))
            todo += reversed(later)
        elif isinstance(item, (list, tuple)):
            items = [*enumerate(cast("Sequence[Any]", item))]
            for index, each in reversed(items):
                todo.append((each, f"{path}[{index}]", whose))
        else:
            for rest, text in _leaves(item):
                yield whose, path + rest, text


_FLAT: Final = frozenset((str, int, float, bool, type(None)))


def _own_values(value: Any, trust: Trust | Mapping[str, Trust]) -> Iterator[tuple[str, str]]:
    """The values of a result that are the user's own, as texts with their paths.

    It goes by the names that are the user's own, and looks at nothing else in a flat record.

    Args:
        value: The result.
        trust: As for :func:`_authored`.
    """
    if trust == "outside":
        return
    if isinstance(trust, str) or trust.get("*", "outside") == "own":
        yield from _own_in(value, trust)
        return
    own = [name for name, whose in trust.items() if whose == "own"]
    todo = [(_opened(value), "")] if own else []
    while todo:
        item, path = todo.pop()
        if isinstance(item, (list, tuple)):
            items = cast("Sequence[Any]", item)
            later: list[tuple[Any, str]] = []
            for at, each in enumerate(items):
                row = cast("dict[Any, Any]", each)
                if type(row) is dict and _FLAT.issuperset(map(type, row.values())):
                    for name in own:  # most are flat records; a step of their own costs more
                        if type(found := row.get(name)) is str:
                            yield f"{path}[{at}].{name}", found
                        elif found is not None:
                            yield from _own_in(found, trust, f"{path}[{at}].{name}")
                else:
                    later.append((each, f"{path}[{at}]"))
            todo += reversed(later)
        elif isinstance(item, Mapping):
            fields = cast("Mapping[Any, Any]", item)
            for key, each in fields.items():
                if key in own:
                    yield from _own_in(each, trust, f"{path}.{key}")
                elif type(each) not in _FLAT:
                    todo.append((each, f"{path}.{key}"))


def _own_in(
    value: Any, trust: Trust | Mapping[str, Trust], path: str = ""
) -> Iterator[tuple[str, str]]:
    """The values of the user's own in one of their fields, or in a result that is mostly theirs."""
    named = trust
    if path and not isinstance(trust, str):
        named = dict[str, Trust](trust)
        named["*"] = "own"
    for whose, rest, text in _authored(value, named):
        if whose == "own":
            yield path + rest, text


def _opened(value: Any) -> Any:
    """A result, or the data in it where it is a text of JSON as a whole."""
    is_data = isinstance(value, str) and value[:1] in ("{", "[")
    inner = _of_json(cast("str", value)) if is_data else None
    return value if inner is None else inner


def _of_json(text: str) -> Any:
    """The data of a text that is JSON; None for any other one."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
