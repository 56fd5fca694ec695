"""Actions as the light model reads and writes them: ``connection:ACTION``."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from delf.errors import DelfError, PrefilterError
from delf.protocols.prefilter import Ask, CatalogEntry

_MAX_SUMMARY_CHARACTERS: Final = 160
_NAME: Final = re.compile(r"[\w-]+(?:[:.][\w-]+)*")


def display_name(entry: CatalogEntry) -> str:
    """Return the name of an action as the model reads the name: ``connection:ACTION``."""
    return entry.name.replace(".", ":")


def line(entry: CatalogEntry) -> str:
    """Format an action in a line: its name and the beginning of its summary."""
    summary = " ".join(entry.summary.split())
    return f"{display_name(entry)}  {summary[:_MAX_SUMMARY_CHARACTERS]}"


def named_in(text: str, entries: Iterable[CatalogEntry]) -> tuple[str, ...]:
    """Return the names of the known actions that a text mentions, without duplicates.

    Case is ignored, and a name may be written with a colon or a dot (``mail:read``, ``mail.read``).

    Args:
        text: A model's answer.
        entries: The known actions.
    """
    names_by_text = {display_name(entry).lower(): entry.name for entry in entries}
    mentioned = [name.replace(".", ":").lower() for name in _NAME.findall(text)]
    known_names = [names_by_text[name] for name in mentioned if name in names_by_text]
    return tuple(dict.fromkeys(known_names))


async def answer(ask: Ask, question: str) -> str:
    """Ask the light model a question, and return the model's answer.

    Raises:
        PrefilterError: If the model fails.
    """
    try:
        return await ask(question)
    except DelfError as error:
        raise PrefilterError(f"the light model failed: {error.message}") from error
