"""Removal of tasks and conversations beyond their retention time."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

from delf.errors import DelfError
from delf.protocols.journal import Ages
from delf.protocols.shared_journal import SharedJournal
from delf_engine.retention import prune
from delf_serve.files import Uploads

_log = logging.getLogger(__name__)

_FORGET_SECONDS: Final = 3600.0


async def keep_forgetting(journal: SharedJournal, ages: Ages, uploads: Uploads, chat: Any) -> None:
    """Periodically remove tasks and conversations beyond their retention time.

    Args:
        journal: The journal with the tasks.
        ages: The retention times.
        uploads: The uploaded files, which are removed with the last task that needs them.
        chat: The agent's conversations; None if the agent keeps none.
    """
    while True:
        try:
            await _forget_old(journal, ages, uploads, chat)
        except DelfError as error:
            _log.warning("old tasks are not removed: %s", error.message)
        await asyncio.sleep(_FORGET_SECONDS)


async def _forget_old(journal: SharedJournal, ages: Ages, uploads: Uploads, chat: Any) -> None:
    removed = await prune(journal, ages)
    await uploads.forget(removed.inputs)  # the input files that no remaining task uses
    # A conversation is kept as long as the tasks that are kept longest.
    chats: list[Any] = [] if chat is None else await chat.aprune(max(ages.values()))
    if removed.tasks or chats:
        _log.info("%d tasks, %d conversations forgotten", len(removed.tasks), len(chats))
