"""Similarity of tasks: the same words but for values. Offers to save, and tasks that fit a routine.

A task fits if all of its words are those of the routine's task, but for its parameters. What is
in their places has to have their type. Where that is not sure, the task does not fit.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection, Iterable, Sequence
from typing import Final, NamedTuple

from delf.errors import DelfError
from delf.events import CallStarted
from delf.protocols.journal import TaskRecord
from delf.protocols.shared_journal import SharedJournal
from delf.types import TaskState
from delf_routines.calls import call_text, read_call
from delf_routines.routine import Parameter, Routine, Value
from delf_routines.store import RoutineStore

LEAST: Final = 3
"""The number of like tasks from which on one is offered to be saved."""
_LOOKED_AT: Final = 200
"""The number of newest tasks that are compared."""
_MOST_OFFERS: Final = 3
_MOST_VALUES: Final = 0.5
"""The part of a task's words that may be values."""
_QUOTED: Final = re.compile(r"\"[^\"\n]+\"|“[^”\n]+”|(?<!\w)'[^'\n]+'(?!\w)")
_TOKEN: Final = re.compile(r"\S+")
_EDGES: Final = ".,;:!?()[]\"'“”"
_VALUE: Final = re.compile(r"[^\s]*[\d@/\\][^\s]*")
_NAMES_OF: Final = re.compile(r"[^\W\d_]{4,}")
_GAP: Final = "_"


class Offer(NamedTuple):
    """Like tasks that could be kept as a routine."""

    name: str
    tasks: Sequence[TaskRecord]

    @property
    def words(self) -> str:
        """Tell of them in a line."""
        newest = self.tasks[0]
        return (
            f"{len(self.tasks)} like tasks were done; "
            f"delf routines save {newest.task_id} {self.name} keeps them as a routine"
        )


async def offers(
    journal: SharedJournal, routines: Iterable[Routine], keys: Collection[str] | None = None
) -> list[Offer]:
    """Find tasks that were done several times, with other values and the same calls.

    Args:
        journal: The tasks.
        routines: Those that there are; what fits one is not offered.
        keys: Only tasks on behalf of one of these.
    """
    groups: dict[str, list[TaskRecord]] = {}
    for task in await journal.find(_LOOKED_AT, state=TaskState.DONE, keys=keys):
        words = pattern_of(task.task)
        if words is not None:
            groups.setdefault(words, []).append(task)
    known, found = list(routines), list[Offer]()
    for like in groups.values():
        # Journals are read only for groups that are large enough.
        if len(like) < LEAST or len(found) >= _MOST_OFFERS:
            continue
        if any(fitting(like[0].task, routine) is not None for routine in known):
            continue
        same = await _with_the_same_calls(journal, like)
        if len(same) >= LEAST:
            found.append(Offer(name_for(like[0].task), same))
    return found


async def _with_the_same_calls(
    journal: SharedJournal, tasks: Sequence[TaskRecord]
) -> list[TaskRecord]:
    """The tasks that called what the newest one did; none where that called nothing."""
    wanted: frozenset[str] | None = None
    same: list[TaskRecord] = []
    for task in tasks[:10]:
        events = await journal.read(task.task_id)
        calls = frozenset(event.action for event in events if isinstance(event, CallStarted))
        wanted = calls if wanted is None else wanted
        if calls and calls == wanted:
            same.append(task)
    return same


def pattern_of(task: str) -> str | None:
    """The words of a task without its values; None where too little is left, or it is a call."""
    if is_call(task):
        return None
    words = [_word(text, first=number == 0) for number, text in enumerate(_words_of(task))]
    gaps = words.count(_GAP)
    if len(words) - gaps < LEAST or gaps > len(words) * _MOST_VALUES:
        return None
    return " ".join(words)


def _words_of(task: str) -> list[str]:
    return _TOKEN.findall(_QUOTED.sub(f" {_GAP} ", task))


def _word(text: str, *, first: bool) -> str:
    """A word as it is compared: a number, a date, an address and a name are values."""
    bare = text.strip(_EDGES)
    if text == _GAP or _VALUE.fullmatch(bare) or (bare[:1].isupper() and not first):
        return _GAP
    return bare.casefold()


def is_call(task: str) -> bool:
    """Tell whether a task is written as a call of a routine."""
    try:
        read_call(task)
    except DelfError:
        return False
    return True


def name_for(task: str) -> str:
    """A name for a routine of a task: the first of its longer words."""
    words = [w for n, w in enumerate(_words_of(task)) if _word(w, first=n == 0) != _GAP]
    found = _NAMES_OF.findall(" ".join(words).casefold())
    name = "_".join(word for word in found if word.isascii())[:40].rstrip("_")
    return "_".join(name.split("_")[:3]) or "routine"


def fits_in(task: str, store: RoutineStore) -> str | None:
    """The call of the one routine that a task fits; None where none or several do.

    Args:
        task: The task.
        store: The routines; a file that cannot be read, or is not trusted, fits nothing.
    """
    calls: list[str] = []
    for name in store.names():
        with contextlib.suppress(DelfError):
            given = fitting(task, store.find(name))
            if given is not None:
                calls.append(call_text(name, given))
    return calls[0] if len(calls) == 1 else None


def fitting(task: str, routine: Routine) -> dict[str, Value] | None:
    """The values of a routine's parameters in a task; None where it does not surely fit."""
    form = _form_of(routine)
    match = None if form is None else form.fullmatch(" ".join(task.split()).rstrip(".!?"))
    if match is None:
        return None
    try:
        return dict(routine.values(match.groupdict()))
    except DelfError:
        return None


def _form_of(routine: Routine) -> re.Pattern[str] | None:
    """The words of a routine's task with a place for each parameter; None where one is missing."""
    words = " ".join(routine.task.split()).rstrip(".!?")
    names = {str(item.default): item for item in routine.parameters.values()}
    if len(names) < len(routine.parameters) or "" in names:
        return None
    # Else 2026 would be found within 2026-10.
    longest = sorted(names, key=len, reverse=True)
    parts = [words]
    if longest:
        values = "|".join(map(re.escape, longest))
        parts = re.split(rf"(?<!\w)({values})(?!\w)", words)
    seen: set[str] = set()
    made = ""
    for number, part in enumerate(parts):
        if number % 2 == 0:
            made += f"(?i:{re.escape(part)})"
        elif (item := names[part]).name in seen:
            made += f"(?P={item.name})"
        else:
            seen.add(item.name)
            made += f"(?P<{item.name}>{_place_for(item)})"
    return re.compile(made) if seen == {*routine.parameters} else None


def _place_for(item: Parameter) -> str:
    """The pattern of a parameter's values in a task, which is strict rather than kind."""
    text = str(item.default)
    if item.type == "date":
        return {4: r"\d{4}", 7: r"\d{4}-\d{2}"}.get(len(text), r"\d{4}-\d{2}-\d{2}")
    if item.type == "integer":
        return r"-?\d+"
    if item.type == "number":
        return r"-?\d+(?:\.\d+)?"
    if "@" in text:
        return r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+"
    if text[:1].isupper():
        return r"[^\W\d_a-z][\w'-]*(?: [^\W\d_a-z][\w'-]*){0,3}"
    return r"[\w'-]+" if re.fullmatch(r"[\w'-]+", text) else re.escape(text)
