"""Small shared types: literals and identifiers that every layer speaks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal, NamedTuple, get_args

Effect = Literal["read", "write", "irreversible"]
"""The effect of an action: it looks, it changes what can be changed back, or neither.

Each level is stricter than those before it.
"""


class EffectWords(NamedTuple):
    """An effect as people see it: a shape, and words that stand beside it."""

    mark: str
    text: str


EFFECT_WORDS: Final[Mapping[str, EffectWords]] = {
    "read": EffectWords("○", "only reads"),
    "write": EffectWords("◐", "changes something"),
    "irreversible": EffectWords("●", "cannot be undone"),
}
"""The words of each level: terminal, page, Slack and all other channels take them from here."""


Settle = Literal["ask", "again", "done"]
"""The decision about a call without a recorded end: ask a person, make it again, or take it as
done, with no result.
"""

Isolation = Literal["process", "interpreter", "container", "vm"]
"""The isolation of a script from the host, weakest first."""

ISOLATION_ORDER: Final[tuple[Isolation, ...]] = ("process", "interpreter", "container", "vm")

Permission = bool | str | Sequence[str] | None
"""The form of ``allow`` and ``confirm``: a switch, one action name, or several."""

ApprovalMode = Literal["interactive", "approve_all", "strict"]

ConfirmMode = Literal["call", "plan"]
"""The moment for asking a person: at each call, or once before the script runs."""

Trust = Literal["own", "outside"]
"""The author of a value: the user and the user's own services, or others."""

FlowMode = Literal["off", "show", "guard", "deny"]
"""The use of values' sources: none, shown in questions, asked about, or refused."""

IN_PROCESS: Final = "none"
"""The name of the journal that the core brings: events live as long as their process."""


def can_be_undone(effect: str) -> bool:
    """Tell whether what an action does can be changed back: levels up to ``write`` can.

    Args:
        effect: The name of a level. One that is not known here counts as the strictest.
    """
    levels: tuple[str, ...] = get_args(Effect)
    return effect in levels[: levels.index("write") + 1]


def effect_words(effect: str) -> EffectWords:
    """The words of an effect.

    Args:
        effect: The name of a level. One that is not known is named, with the strictest mark.
    """
    return EFFECT_WORDS.get(effect) or EffectWords(EFFECT_WORDS["irreversible"].mark, effect)


def isolation_rank(isolation: Isolation) -> int:
    """The place of an isolation level in the order from weakest (0) to strongest."""
    return ISOLATION_ORDER.index(isolation)
