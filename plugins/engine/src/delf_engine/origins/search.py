"""Search for a value's place in results; only informs people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import islice
from typing import Final

from delf.types import Trust
from delf_engine.origins.origin import Origin, ReadCall
from delf_engine.origins.texts import LEAST, SHORT, letters_of, pieces_of
from delf_engine.origins.values import authored

_MOST_CHARACTERS: Final = 4_000_000
"""The most characters of results of one trust that are searched."""
_MOST_VALUES: Final = 200_000
"""The most values of one result that are searched."""
_SEAM: Final = "\x00"
"""A separator around values, so that matches end where values end."""
_TRUSTS: Final[tuple[Trust, ...]] = ("outside", "own")


class ResultTexts:
    """The texts of results, with those of others separate."""

    def __init__(self) -> None:
        self._texts: list[tuple[Trust, ReadCall, Sequence[str], str]] = []
        """For each trust: the results, their paths, and their normalised texts."""
        self._sizes: Counter[Trust] = Counter()

    def add(self, call: ReadCall) -> None:
        """Add a result, up to the size limit."""
        values = [*islice(authored(call.result, call.wording.trust), _MOST_VALUES)]
        for trust in _TRUSTS:
            held = [(path, text) for whose, path, text in values if whose == trust]
            if held and self._sizes[trust] <= _MOST_CHARACTERS:
                letters = _SEAM.join(letters_of(text.replace(_SEAM, "")) for _, text in held)
                self._texts.append((trust, call, [path for path, _ in held], letters))
                self._sizes[trust] += len(letters)

    def find(self, text: str, trusts: Sequence[Trust] = _TRUSTS) -> Origin | None:
        """Return the first place of a text or its pieces, searching others' words first.

        Args:
            text: The value. A short value must match a whole value, because it occurs in many
                texts.
            trusts: The trusts to search.
        """
        letters = letters_of(text)
        if len(letters) < LEAST:
            return None
        found = self._find(letters, trusts, whole=len(letters) < SHORT)
        pieces = (self._find(piece, trusts, is_piece=True) for piece in pieces_of(text))
        return found or next(filter(None, pieces), None)

    def _find(
        self, wanted: str, trusts: Sequence[Trust], *, whole: bool = False, is_piece: bool = False
    ) -> Origin | None:
        for trust in trusts:
            for author, call, paths, letters in self._texts:
                if author != trust or wanted not in letters:
                    continue
                padded = f"{_SEAM}{letters}{_SEAM}"
                begin = padded.find(f"{_SEAM}{wanted}{_SEAM}") + 1 if whole else padded.find(wanted)
                if begin > 0:
                    is_whole = padded[begin - 1] == _SEAM == padded[begin + len(wanted)]
                    return Origin(
                        kind="result",
                        trust=trust,
                        call_id=call.number,
                        action=call.action,
                        path=paths[padded.count(_SEAM, 0, begin) - 1],
                        is_part=is_piece or not is_whole,
                    )
        return None
