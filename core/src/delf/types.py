"""Small shared types: literals and identifiers for all layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final, Literal, NamedTuple, get_args

Effect = Literal["read", "write", "irreversible"]
"""The effect of an action: read, write (reversible) or irreversible.

Each level is stricter than the levels before it.
"""


class EffectWords(NamedTuple):
    """The symbol and the words that describe an effect to people."""

    mark: str
    text: str


EFFECT_WORDS: Final[Mapping[str, EffectWords]] = {
    "read": EffectWords("○", "only reads"),
    "write": EffectWords("◐", "changes something"),
    "irreversible": EffectWords("●", "cannot be undone"),
}
"""The words for each effect, used by all channels."""


class TaskState(StrEnum):
    """The state of a task, computed by :func:`delf.protocols.states.state_of`.

    A member is its text, so that it can be compared, stored and sent as text.
    """

    QUEUED = "queued"
    RUNNING = "running"
    WAITING = "waiting"
    """A person has to answer before the task goes on."""
    DONE = "done"
    FAILED = "failed"
    STOPPED = "stopped"
    """A person or a program stopped the task."""
    INTERRUPTED = "interrupted"
    """The task's process is gone; the task can be resumed."""

    @property
    def is_terminal(self) -> bool:
        """True if the task has ended."""
        return self in (TaskState.DONE, TaskState.FAILED, TaskState.STOPPED)

    @property
    def is_at_work(self) -> bool:
        """True if a process works on the task, or a runner will."""
        return self in (TaskState.QUEUED, TaskState.RUNNING, TaskState.WAITING)


class StateWords(NamedTuple):
    """The mark, words and colour that describe a task state to people.

    Args:
        mark: A symbol shown before the text.
        text: The words.
        colour: The name of a terminal colour.
    """

    mark: str
    text: str
    colour: str


STATE_WORDS: Final[Mapping[TaskState, StateWords]] = {
    TaskState.QUEUED: StateWords("○", "queued", "blue"),
    TaskState.RUNNING: StateWords("◐", "running", "cyan"),
    TaskState.WAITING: StateWords("◆", "waiting for you", "yellow"),
    TaskState.DONE: StateWords("✓", "done", "green"),
    TaskState.FAILED: StateWords("✕", "failed", "red"),
    TaskState.STOPPED: StateWords("■", "stopped", "yellow"),
    TaskState.INTERRUPTED: StateWords("‖", "interrupted", "yellow"),
}
"""The words for each task state, used by terminal and page."""

WAITING_FOR_OTHERS_WORDS: Final = StateWords("◇", "waiting for others", "yellow")
"""The words for a task that waits for another person."""


Settle = Literal["ask", "again", "done"]
"""The decision about an interrupted call.

``ask``: ask a person. ``again``: make the call again. ``done``: assume that the call happened, and
give the script no result.
"""

Isolation = Literal["process", "interpreter", "container", "vm"]
"""The isolation of a script from the host, weakest first."""

ISOLATION_ORDER: Final[tuple[Isolation, ...]] = ("process", "interpreter", "container", "vm")

Permission = bool | str | Sequence[str] | None
"""The type of ``allow`` and ``confirm``: True or False for all actions, a name, names, or None."""

ApprovalMode = Literal["interactive", "approve_all", "strict", "read_only"]

ConfirmMode = Literal["call", "plan"]
"""The time of approval: ``call``, before each call, or ``plan``, once before a script runs."""

Weight = Literal["danger", "caution", "information"]
"""The weight of a fact about a request: possibly harmful, unusual, or merely informative."""

Trust = Literal["own", "outside"]
"""The trust in a value.

``own``: the value is from the user or the user's own services. ``outside``: somebody else may have
written the value, so that delf does not trust it.
"""

FlowMode = Literal["off", "show", "guard", "deny"]
"""The mode of protection against calls with arguments from untrusted data, such as a web page.

``off``: the origins of arguments are ignored. ``show``: approval requests show the origins.
``guard``: a call with untrusted arguments needs approval. ``deny``: such a call is refused.
"""

IN_PROCESS: Final = "none"
"""The name of the core's in-process journal, whose events are lost when the process ends."""


def can_be_undone(effect: str) -> bool:
    """Return True if an effect can be undone: ``read`` and ``write`` can.

    Args:
        effect: The name of a level. An unknown name counts as the strictest.
    """
    levels: tuple[str, ...] = get_args(Effect)  # from mild to strict
    if effect not in levels:
        return False
    return levels.index(effect) <= levels.index("write")


def effect_words(effect: str) -> EffectWords:
    """Return the words that describe an effect to people.

    Args:
        effect: The name of an effect, such as ``read``. An unknown name gets the mark of
            ``irreversible``.
    """
    if effect in EFFECT_WORDS:
        return EFFECT_WORDS[effect]
    return EffectWords(EFFECT_WORDS["irreversible"].mark, effect)


def isolation_rank(isolation: Isolation) -> int:
    """Return the rank of an isolation level, from weakest (0) to strongest."""
    return ISOLATION_ORDER.index(isolation)
