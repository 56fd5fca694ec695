"""Step 2, select: which of the allowed tools the model is shown."""

from __future__ import annotations

import asyncio
import functools
import logging
from typing import Final

from delf.engine.task_run import TaskRun
from delf.errors import DelfError, PrefilterError
from delf.events import Step, ToolsSelected
from delf.plugins.shapes import need
from delf.protocols.prefilter import Choice, Selection

_log = logging.getLogger(__name__)
_MOST_SECONDS: Final = 60.0
"""A choice that takes longer costs more than showing all tools."""
_MANY: Final = 50
"""So many tools make a long prompt."""


async def select(run: TaskRun, seconds: float) -> None:
    """Let a prefilter choose in so many seconds what is shown; without one, or if it fails, all is.

    Raises:
        PrefilterError: When the prefilter that was asked for by name failed.
    """
    past = run.replay.selected() if run.replay.resumed else None
    chosen_by = "all"
    count = run.tools.own_count
    if past is not None:
        run.tools = run.tools.showing(frozenset(past.actions))
    elif run.config.prefilter_mode == "off":
        pass  # also where only this task's strategy says so
    elif (choice := run.resources.prefilters.choose(count)) is not None:
        async with run.log.step(Step.SELECT):
            names = await _chosen(run, choice, min(seconds, _MOST_SECONDS))
        if names is not None:
            run.tools = run.tools.showing(names)
            chosen_by = choice.name
    elif count >= _MANY and run.config.prefilter_mode == "auto":
        message = f"all {count} tools are shown to the model: no prefilter is installed"
        await run.warn(message)
    shown = tuple(bound.name for bound in run.tools.shown if not bound.built_in)
    await run.log.record(ToolsSelected, actions=shown, by=chosen_by)


async def _chosen(run: TaskRun, choice: Choice, seconds: float) -> frozenset[str] | None:
    """The names that a prefilter chose; None where it failed and all are shown."""
    safe = run.log.redactor
    try:
        async with asyncio.timeout(seconds):
            prefilter = choice.made()
            words, catalog = safe.text(run.request.task), run.tools.catalog()
            ask = functools.partial(run.ask, "prefilter")
            selection = await prefilter.select(words, catalog, ask)
            need(selection, Selection, f"the prefilter {choice.name!r}")
            return frozenset(selection.names)
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
    await run.warn(f"all tools are shown: the prefilter {choice.name!r} failed: {why}")
    return None
