"""Search for a value's place in results, for the message to a person."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import islice
from typing import Final

from delf.types import Trust
from delf_engine.origins.origin import Origin, ReadCall
from delf_engine.origins.texts import letters_of, pieces_of
from delf_engine.origins.values import authored

_LEAST: Final = 3
"""The least number of characters of a value that can reveal its source."""
_SHORT: Final = 12
"""The least number of characters of a value that may match within another value."""
_MOST_CHARACTERS: Final = 4_000_000
"""The most characters of results of one trust that are searched."""
_MOST_VALUES: Final = 200_000
"""The most values of one result that are searched."""
_SEAM: Final = "\x00"
"""A separator around values, so that matches end where values end."""
_TRUSTS: Final[tuple[Trust, ...]] = ("outside", "own")


class ResultTexts:
    """The texts of results; texts that others wrote are stored separately."""

    def __init__(self) -> None:
        self._texts: list[tuple[Trust, ReadCall, Sequence[str], str]] = []
        """For each trust: the results, their paths, and their normalised texts."""
        self._sizes: Counter[Trust] = Counter()

    def add(self, call: ReadCall) -> None:
        """Add a result, up to the size limit."""
        values = [*islice(authored(call.result, call.trust), _MOST_VALUES)]
        for trust in _TRUSTS:
            held = [(path, text) for whose, path, text in values if whose == trust]
            if held and self._sizes[trust] <= _MOST_CHARACTERS:
                texts = (letters_of(text.replace(_SEAM, "")) for _, text in held)
                letters = f"{_SEAM}{_SEAM.join(texts)}{_SEAM}"
                self._texts.append((trust, call, [path for path, _ in held], letters))
                self._sizes[trust] += len(letters)

    def find(self, text: str, trusts: Sequence[Trust] = _TRUSTS) -> Origin | None:
        """Return the first place of a text or its pieces, searching others' words first.

        A short text must match a whole value, because it occurs in many texts.
        """
        letters = letters_of(text)
        if len(letters) < _LEAST:
            return None
        whole = f"{_SEAM}{letters}{_SEAM}" if len(letters) < _SHORT else letters
        found = (self._find(each, letters, trusts) for each in (whole, *pieces_of(text)))
        return next(filter(None, found), None)

    def _find(self, wanted: str, value: str, trusts: Sequence[Trust]) -> Origin | None:
        for trust in trusts:
            for author, call, paths, letters in self._texts:
                begin = letters.find(wanted) if author == trust else -1
                if begin < 0:
                    continue
                end = begin + len(wanted)
                ends = letters[begin - 1 : begin], letters[end : end + 1]
                is_whole = wanted[0] == _SEAM or (wanted == value and ends == (_SEAM, _SEAM))
                return Origin(
                    kind="result",
                    trust=trust,
                    call_id=call.number,
                    action=call.action,
                    path=paths[letters.count(_SEAM, 0, begin + 1) - 1],
                    is_part=not is_whole,
                )
        return None
