"""Short values of one's own data, such as ids, found without reading what others wrote."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Final, cast

from delf.types import Trust
from delf_engine.origins.origin import Origin, Wording
from delf_engine.origins.texts import SHORT, letters_of
from delf_engine.origins.values import authored

_LONGEST: Final = 2 * SHORT
"""Characters of a value that is kept here."""
_MOST_VALUES: Final = 200_000
"""Values that are kept."""


class OwnValues:
    """The first place of each short value of the results that is the user's own.

    Most scripts change what they listed, by its id. To take in all texts of a listing, so that any
    of them can be found, would take as long as all the rest of the task.
    """

    def __init__(self) -> None:
        self._waiting: list[tuple[int, str, Any, Wording]] = []
        self._places: dict[str, tuple[int, str, str]] = {}

    def add(self, call_id: int, action: str, value: Any, wording: Wording) -> None:
        """Take in a result, as :meth:`ResultTexts.add` does."""
        if wording.trust != "outside":
            self._waiting.append((call_id, action, value, wording))

    def find(self, text: str) -> Origin | None:
        """The first place of a short text that is a whole value there."""
        if not 0 < len(letters_of(text)) < SHORT:
            return None
        for call_id, action, value, wording in self._waiting:
            left = max(0, _MOST_VALUES - len(self._places))
            for path, held in islice(_own_texts(value, wording.trust), left):
                if len(held) <= _LONGEST:
                    self._places.setdefault(held, (call_id, action, path))
        self._waiting.clear()  # taken in only here: most tasks never look for an id
        place = self._places.get(text)
        if place is None:
            return None
        call_id, action, path = place
        return Origin(kind="result", trust="own", call_id=call_id, action=action, path=path)


def _own_texts(value: Any, trust: Trust | Mapping[str, Trust]) -> Iterator[tuple[str, str]]:
    """The texts of a result that are the user's own, each with its path.

    Of rows with few fields of the user's own, only these are looked at.
    """
    if isinstance(trust, str) or trust.get("*") == "own" or not isinstance(value, list):
        yield from ((path, text) for whose, path, text in authored(value, trust) if whose == "own")
        return
    own = [name for name, whose in trust.items() if whose == "own"]
    for at, row in enumerate(cast("list[Any]", value)):
        if not isinstance(row, dict):
            continue
        for name in own:
            field = cast("dict[Any, Any]", row).get(name)
            if isinstance(field, str) and field[:1] not in ("{", "["):
                yield f"[{at}].{name}", field
            elif field is not None:
                inner = authored(field, {**trust, "*": "own"}, f"[{at}].{name}")
                yield from ((path, text) for whose, path, text in inner if whose == "own")
