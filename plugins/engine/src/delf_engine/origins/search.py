"""The place that a value is from, for people to read; it decides nothing where it finds nothing."""

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
"""Letters of results of one trust that are searched; later ones are not."""
_MOST_VALUES: Final = 200_000
"""Values of one result that are searched."""
_SEAM: Final = "\x00"
"""Stands around each value, so that a value ends where its letters end."""
_TRUSTS: Final[tuple[Trust, ...]] = ("outside", "own")


class ResultTexts:
    """The texts of results, those of others apart from one's own."""

    def __init__(self) -> None:
        self._texts: list[tuple[Trust, ReadCall, Sequence[str], str]] = []
        """The author of texts, their result, their paths, and their letters between seams."""
        self._sizes: Counter[Trust] = Counter()

    def add(self, call: ReadCall) -> None:
        """Take in a result, while there is room."""
        values = [*islice(authored(call.result, call.wording.trust), _MOST_VALUES)]
        for trust in _TRUSTS:
            held = [(path, text) for whose, path, text in values if whose == trust]
            if held and self._sizes[trust] <= _MOST_CHARACTERS:
                letters = _SEAM.join(letters_of(text.replace(_SEAM, "")) for _, text in held)
                self._texts.append((trust, call, [path for path, _ in held], letters))
                self._sizes[trust] += len(letters)

    def find(self, text: str, trusts: Sequence[Trust] = _TRUSTS) -> Origin | None:
        """Return the first place of a text or its piece, in others' words first.

        Args:
            text: The value. A short one has to be a whole value there, as it is in many texts.
            trusts: Whose words are searched.
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
