"""The texts of a task's results, searched for the place that a value is from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from itertools import chain, filterfalse, islice
from typing import Any, Final, Literal

from delf.records import dataclass
from delf.types import Trust
from delf_engine.origins.origin import Origin, Wording
from delf_engine.origins.texts import (
    LEAST,
    SHORT,
    Words,
    as_bytes,
    decoded,
    letters_of,
    names,
    pieces_of,
    without_spaces,
)
from delf_engine.origins.values import authored

Placed = Literal["whole", "in a text", "nowhere"]

_MOST_CHARACTERS: Final = 4_000_000
"""Letters of results of one trust that are searched; later ones are not."""
_MOST_VALUES: Final = 200_000
"""Values of one result that are searched."""
_MOST_PLACES: Final = 20
"""Places of one text that are compared."""
_SEAM: Final = "\x00"
"""Stands around each value, so that a value ends where its letters end."""
_BLOCK: Final = 8
"""Bytes of a block; a piece of twice as many less one holds a whole one."""


class ResultTexts:
    """The texts of results, those of others apart from one's own."""

    def __init__(self) -> None:
        self._shelves: dict[Trust, _Shelf] = {"outside": _Shelf(), "own": _Shelf()}

    def add(self, call_id: int, action: str, value: Any, wording: Wording) -> None:
        """Take in a result.

        Args:
            call_id: The call's number.
            action: What was called.
            value: What it returned, or how it failed.
            wording: Whose words these are.
        """
        readings: Mapping[Trust, list[tuple[str, str]]] = {"outside": [], "own": []}
        for whose, path, text in islice(authored(value, wording.trust), _MOST_VALUES):
            readings[whose].append((path, text))
            readings[whose].extend((path, plain) for plain in decoded(text))
        for whose, found in readings.items():
            if found:
                self._shelves[whose].add(call_id, action, found)

    def find(self, text: str, trusts: Sequence[Trust] = ("outside", "own")) -> Origin | None:
        """The first place of a text, or else of a piece of it, in others' words before one's own.

        Args:
            text: The value. A short one has to be a whole value there, as it is in many texts.
            trusts: Whose words are searched.
        """
        letters = letters_of(text)
        if len(letters) < LEAST:
            return None
        for trust in trusts:
            if found := self._find_in(trust, letters, text, exact=len(letters) < SHORT):
                return found
        for piece in pieces_of(text):
            for trust in trusts:
                if found := self._find_in(trust, piece, text, is_piece=True):
                    return found
        return None

    def find_record(self, text: str) -> Origin | None:
        """The first whole value of one's own data that a short text is, such as a number."""
        letters = letters_of(text)
        if not letters or len(letters) >= SHORT:
            return None
        return self._find_in("own", letters, text, exact=True)

    def named_by_others(self, number: str) -> Origin | None:
        """The first place where others' words name a record's number."""
        shelf = self._shelves["outside"]
        for result, path, reading in shelf.readings():
            if names(reading, number):
                return replace(result.origin("outside", path), is_named=True)
        return None

    def placed(self, actions: AbstractSet[str], text: str) -> Placed:
        """Tell how the results of some actions hold a text."""
        letters, words, is_there = letters_of(text), without_spaces(text), False
        readings = chain.from_iterable(shelf.readings() for shelf in self._shelves.values())
        for result, _, reading in readings:
            if result.action not in actions or words not in without_spaces(reading):
                continue
            if letters_of(reading) == letters:
                return "whole"
            is_there = is_there or Words(reading).mention(text)
        return "in a text" if is_there else "nowhere"

    def _find_in(
        self, trust: Trust, letters: str, text: str, *, exact: bool = False, is_piece: bool = False
    ) -> Origin | None:
        """The first place of some letters.

        Args:
            trust: Whose words are searched.
            letters: What is looked for.
            text: The value as it is. It is changed where no place in one's own data has it
                exactly: one more dot is another address.
            exact: It has to be a whole value there.
            is_piece: It is a piece of the value.
        """
        places = self._shelves[trust].places(letters, exact=exact, is_piece=is_piece)
        first = next(places, None)
        if first is None:
            return None
        held = (place.text for place in islice(chain((first,), places), _MOST_PLACES))
        is_changed = trust == "own" and not any(
            Words(one).mention(text) for one in dict.fromkeys(held)
        )
        found = first.result.origin(trust, first.path)
        return replace(found, is_part=is_piece or not first.is_whole, is_changed=is_changed)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Result:
    """The texts of a result, with their paths, and their letters with a seam around each."""

    call_id: int
    action: str
    readings: Sequence[tuple[str, str]]
    letters: str
    telling: str
    """The letters of its words that are more than letters; the others tell nothing alone."""

    def origin(self, trust: Trust, path: str) -> Origin:
        """The origin of a value that was found here."""
        return Origin(
            kind="result", trust=trust, call_id=self.call_id, action=self.action, path=path
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """A place in a result where something was found."""

    result: _Result
    path: str
    text: str
    is_whole: bool


class _Shelf:
    """The texts of one trust, with what says quickly that something is not in them.

    Most values of most calls are nowhere, and each is looked for in dozens of pieces.
    """

    def __init__(self) -> None:
        self._results: list[_Result] = []
        self._size = 0
        self._blocks: set[int] = set()
        """Each block of the bytes of the letters, as a number."""
        self._without_blocks: list[str] = []
        """The letters whose blocks nothing has asked for yet."""
        self._short: dict[str, int] = {}
        """The first result with a short value, by its index."""

    def add(self, call_id: int, action: str, readings: Sequence[tuple[str, str]]) -> None:
        """Take in the texts of a result, with their paths, while there is room."""
        if self._size > _MOST_CHARACTERS:
            return
        texts = [text.replace(_SEAM, "") for _, text in readings]
        letters = f"{_SEAM}{letters_of(_SEAM.join(texts))}{_SEAM}"
        telling = filterfalse(str.isalpha, " ".join(texts).split())
        result = _Result(
            call_id=call_id,
            action=action,
            readings=readings,
            letters=letters,
            telling=letters_of(" ".join(telling)),
        )
        for value in letters.split(_SEAM):
            if len(value) < SHORT:
                self._short.setdefault(value, len(self._results))
        self._results.append(result)
        self._without_blocks.append(letters)
        self._size += len(letters)

    def readings(self) -> Iterator[tuple[_Result, str, str]]:
        """Each text, with its result and its path there."""
        for result in self._results:
            for path, text in result.readings:
                yield result, path, text

    def places(self, letters: str, *, exact: bool, is_piece: bool) -> Iterator[_Place]:
        """The places of some letters, as :meth:`ResultTexts.find` says."""
        needle = f"{_SEAM}{letters}{_SEAM}" if exact else letters
        for result in self._with(letters, exact=exact, is_piece=is_piece):
            at = result.letters.find(needle)
            while at >= 0:
                begin, end = at + exact, at + exact + len(letters)
                path, text = result.readings[result.letters.count(_SEAM, 0, begin) - 1]
                is_whole = result.letters[begin - 1] == _SEAM == result.letters[end]
                yield _Place(result=result, path=path, text=text, is_whole=is_whole)
                at = result.letters.find(needle, end)

    def _with(self, letters: str, *, exact: bool, is_piece: bool) -> Iterable[_Result]:
        """The results that some letters may be in."""
        if exact:
            first = self._short.get(letters)
            return () if first is None else self._results[first:]
        data = as_bytes(letters)
        if len(data) >= 2 * _BLOCK - 1:
            return self._results if self._may_hold(memoryview(data)) else ()
        if is_piece or letters.isdecimal():
            return [result for result in self._results if letters in result.telling]
        return self._results

    def _may_hold(self, data: memoryview) -> bool:
        """Tell whether all whole blocks of a piece are there, wherever its first one begins."""
        for letters in self._without_blocks:
            held = as_bytes(letters)
            self._blocks.update(memoryview(held + bytes(-len(held) % _BLOCK)).cast("Q"))
        self._without_blocks.clear()
        return any(
            self._blocks.issuperset(data[at : len(data) - (len(data) - at) % _BLOCK].cast("Q"))
            for at in range(_BLOCK)
        )
