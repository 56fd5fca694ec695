"""The place that a value is from, for people to read; it decides nothing where it finds nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from itertools import islice
from typing import Final

from delf.records import dataclass
from delf.types import Trust
from delf_engine.origins.origin import Origin, ReadCall
from delf_engine.origins.texts import LEAST, SHORT, letters_of, pieces_of
from delf_engine.origins.values import authored

_MOST_CHARACTERS: Final = 4_000_000
"""Letters of results of one trust that are searched; later ones are not."""
_MOST_VALUES: Final = 200_000
"""Values of one result that are searched."""
_SEAM: Final = "\x00"
"""Stands around each value, so that a value ends where its letters end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Texts:
    """The texts of one author in a result: their paths, and their letters between seams."""

    call: ReadCall
    paths: Sequence[str]
    letters: str

    def find(self, letters: str, *, whole: bool) -> tuple[str, bool] | None:
        """Return the path of the first text that has some letters, and whether it has no others."""
        needle = f"{_SEAM}{letters}{_SEAM}" if whole else letters
        at = self.letters.find(needle)
        if at < 0:
            return None
        begin = at + whole
        end = begin + len(letters)
        is_whole = self.letters[begin - 1] == _SEAM == self.letters[end]
        return self.paths[self.letters.count(_SEAM, 0, begin) - 1], is_whole


@dataclass(slots=True, kw_only=True)
class _Shelf:
    """The texts of all results of one trust."""

    results: list[_Texts] = field(default_factory=list[_Texts])
    size: int = 0


class ResultTexts:
    """The texts of results, those of others apart from one's own."""

    def __init__(self) -> None:
        self._shelves: dict[Trust, _Shelf] = {"outside": _Shelf(), "own": _Shelf()}

    def add(self, call: ReadCall) -> None:
        """Take in a result, while there is room."""
        paths: Mapping[Trust, list[str]] = {"outside": [], "own": []}
        letters: Mapping[Trust, list[str]] = {"outside": [], "own": []}
        for whose, path, text in islice(authored(call.result, call.wording.trust), _MOST_VALUES):
            paths[whose].append(path)
            letters[whose].append(letters_of(text.replace(_SEAM, "")))
        for whose, shelf in self._shelves.items():
            if paths[whose] and shelf.size <= _MOST_CHARACTERS:
                joined = f"{_SEAM}{_SEAM.join(letters[whose])}{_SEAM}"
                shelf.results.append(_Texts(call=call, paths=paths[whose], letters=joined))
                shelf.size += len(joined)

    def find(self, text: str, trusts: Sequence[Trust] = ("outside", "own")) -> Origin | None:
        """Return the first place of a text or its piece, in others' words first.

        Args:
            text: The value. A short one has to be a whole value there, as it is in many texts.
            trusts: Whose words are searched.
        """
        letters = letters_of(text)
        if len(letters) < LEAST:
            return None
        found = self._places(letters, trusts, whole=len(letters) < SHORT)
        pieces = (self._places(piece, trusts, is_piece=True) for piece in pieces_of(text))
        return next((origin for place in (found, *pieces) for origin in place), None)

    def _places(
        self, letters: str, trusts: Sequence[Trust], *, whole: bool = False, is_piece: bool = False
    ) -> Iterator[Origin]:
        for trust in trusts:
            for texts in self._shelves[trust].results:
                if found := texts.find(letters, whole=whole):
                    path, is_whole = found
                    yield Origin(
                        kind="result",
                        trust=trust,
                        call_id=texts.call.number,
                        action=texts.call.action,
                        path=path,
                        is_part=is_piece or not is_whole,
                    )
