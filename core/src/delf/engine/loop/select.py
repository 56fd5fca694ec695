"""Step 2, select: which of the allowed tools the model is shown."""

from __future__ import annotations

import asyncio
import functools
import logging
from typing import Final

from delf.engine.task import TaskState
from delf.errors import DelfError, PrefilterError
from delf.events import Step, ToolsSelected
from delf.protocols.prefilter import Choice

_log = logging.getLogger(__name__)
_MOST_SECONDS: Final = 60.0
_MANY: Final = 50
"""So many tools make a long prompt."""


async def select(task: TaskState, seconds: float) -> None:
    """Let a prefilter choose in so many seconds what is shown; without one, or if it fails, all is.

    Raises:
        PrefilterError: When the prefilter that was asked for by name failed.
    """
    past = task.replay.selected() if task.replay.resumed else None
    chosen_by = "all"
    count = task.tools.own_count
    if past is not None:
        task.tools = task.tools.showing(frozenset(past.actions))
    elif task.prefilters is not None and (choice := task.prefilters.choose(count)) is not None:
        async with task.log.step(Step.SELECT):
            names = await _chosen(task, choice, min(seconds, _MOST_SECONDS))
        if names is not None:
            task.tools = task.tools.showing(names)
            chosen_by = choice.name
    elif count >= _MANY and task.config.prefilter_mode == "auto":
        message = f"all {count} tools are shown to the model: no prefilter is installed"
        await task.warn(message)
    shown = tuple(bound.name for bound in task.tools.shown if not bound.built_in)
    await task.log.record(ToolsSelected, actions=shown, by=chosen_by)


async def _chosen(task: TaskState, choice: Choice, seconds: float) -> frozenset[str] | None:
    """The names that a prefilter chose; None where it failed and all are shown."""
    safe = task.log.redactor
    try:
        async with asyncio.timeout(seconds):
            prefilter = choice.made()
            words, catalog = safe.text(task.request.task), task.tools.catalog()
            ask = functools.partial(task.ask, "prefilter")
            return frozenset((await prefilter.select(words, catalog, ask)).names)
    except TimeoutError:
        why = f"it did not end within {seconds:g} s"
    except DelfError as error:
        why = error.message
    except Exception as error:
        safe.log_failure(_log, f"the prefilter {choice.name!r} failed", error)
        why = f"an unexpected {type(error).__name__}: {error}"
    why = safe.text(why)
    if choice.forced:
        raise PrefilterError(
            f"the prefilter {choice.name!r} failed: {why}",
            hint='prefilter_mode="auto" goes on with all tools',
        )
    await task.warn(f"all tools are shown: the prefilter {choice.name!r} failed: {why}")
    return None
