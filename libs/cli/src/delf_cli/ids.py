"""Ids of tasks and requests, as shown to and typed by people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from delf.errors import DelfError

_SHORT_ID_CHARACTERS: Final = 7
_MIN_CHARACTERS_TO_ACT: Final = 6


def check_id_prefix(text: str, whole_id: str) -> bool:
    """Check that a typed id prefix is long enough for a command that changes something.

    Args:
        text: The typed prefix, with or without ``req_``.
        whole_id: The id that the prefix stands for, such as ``req_…``, or an id without a kind.

    Returns:
        True if the text is the whole id.

    Raises:
        DelfError: If the text is too short.
    """
    (characters,) = without_prefixes([whole_id])  # such as "3f9a2b1c" of "req_3f9a2b1c"
    kind = whole_id.removesuffix(characters)  # such as "req_"
    typed_characters = text.removeprefix(kind)
    if len(typed_characters) < min(_MIN_CHARACTERS_TO_ACT, len(characters)):
        raise DelfError(
            f"{text!r} is too short to act on {whole_id}",
            hint=f"at least {_MIN_CHARACTERS_TO_ACT} characters: {short_id(whole_id)}",
        )
    return typed_characters == characters


def short_id(name: str) -> str:
    """Return an id as it is shown in lists."""
    (characters,) = without_prefixes([name])
    return characters[:_SHORT_ID_CHARACTERS]


def without_prefixes(ids: Sequence[str]) -> list[str]:
    """Return ids without their prefix ``task_`` or ``req_``."""
    return [name.partition("_")[2] or name for name in ids]


def short_ids(ids: Sequence[str]) -> list[str]:
    """Strip ``task_`` or ``req_`` from ids, and cut all ids to the same length.

    The length is the shortest at which different ids stay different, but not below
    ``_SHORT_ID_CHARACTERS``.
    """
    whole_names = without_prefixes(ids)
    longest = max(map(len, whole_names), default=0)
    for length in range(_SHORT_ID_CHARACTERS, longest):
        if len({name[:length] for name in whole_names}) == len(set(whole_names)):
            return [name[:length] for name in whole_names]
    return whole_names
