"""The values of a task's results that are the user's own: whole, and asked for by no stranger."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any, Final, cast

from delf.types import Trust
from delf_engine.origins.origin import Origin, ReadCall
from delf_engine.origins.values import authored, same_text

_LONGEST: Final = 200
"""Characters of a value that is kept here; longer ones decide nowhere."""
_MOST_VALUES: Final = 200_000
"""Values that are kept."""


class OwnValues:
    """The first place of each value of the results that are the user's own.

    A result is as foreign as its tool says, and as what went into it: a tool that is asked with
    others' words may give these back, and a service that has taken them in may do so later.
    Results are looked at when a value is first looked for.

    Args:
        is_own: Tells whether a value is in the words of the user or of a clean script.
    """

    def __init__(self, is_own: Callable[[str], bool]) -> None:
        self._is_own = is_own
        self._steps: list[tuple[ReadCall, bool]] = []
        """The changing calls that began, and the calls that ended, in their order."""
        self._known = 0
        """Of these steps those that were looked at."""
        self._places: dict[str, tuple[int, str, str]] = {}
        self._given: set[str] = set()
        """Others' words that changing calls were given."""
        self._given_to: set[str] = set()
        """The connections of these calls."""

    def add(self, call: ReadCall, *, is_over: bool) -> None:
        """Take note of a changing call that begins, or of a call that is over."""
        self._steps.append((call, is_over))

    def forget(self) -> None:
        """Look at all again, for more is known of what the user's words ask for."""
        self._known = 0
        self._places.clear()
        self._given.clear()
        self._given_to.clear()

    def find(self, text: str) -> Origin | None:
        """Return the first place of a value, exactly as it is there."""
        waiting, self._known = self._steps[self._known :], len(self._steps)
        for call, is_over in waiting:
            if not is_over:
                self._take_given(call)
            elif call.wording.trust != "outside":
                self._take_result(call)
        place = self._places.get(same_text(text)) if len(text) <= _LONGEST else None
        if place is None:
            return None
        number, action, path = place
        return Origin(kind="result", trust="own", call_id=number, action=action, path=path)

    def _take_given(self, call: ReadCall) -> None:
        foreign = {same_text(text) for text in self._foreign_in(call)}
        self._given |= foreign
        connection, dot, _ = call.action.rpartition(".")
        if foreign and dot:
            self._given_to.add(connection)

    def _take_result(self, call: ReadCall) -> None:
        is_kept = call.action.rpartition(".")[0] in self._given_to
        if is_kept or next(self._foreign_in(call), None) is not None:
            return
        left = max(0, _MOST_VALUES - len(self._places))
        for path, held in islice(_own_texts(call.result, call.wording.trust), left):
            if len(held) <= _LONGEST and (text := same_text(held)) not in self._given:
                self._places.setdefault(text, (call.number, call.action, path))

    def _foreign_in(self, call: ReadCall) -> Iterator[str]:
        """Yield the arguments that are not known to be the user's own."""
        for text in call.asked_with() if call.has_read else ():
            if text.strip() and not self._is_own(text) and same_text(text) not in self._places:
                yield text


def _own_texts(value: Any, trust: Trust | Mapping[str, Trust]) -> Iterator[tuple[str, str]]:
    """Yield the texts of a result that are the user's own, each with its path.

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
