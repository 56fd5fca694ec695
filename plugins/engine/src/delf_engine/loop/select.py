"""Step 2, select: choose the tools that the model is shown."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Sequence
from typing import Final

from delf.errors import DelfError, PrefilterError, describe_exception
from delf.events import Step, ToolsSelected
from delf.llm import AUTO
from delf.plugins.shapes import require_type
from delf.protocols.prefilter import Prefilter, Selection
from delf.specs import PrefilterSpec
from delf.tools.catalogs import best_first
from delf.tools.stubs import select_fitting
from delf_engine.task_run import TaskRun

_log = logging.getLogger(__name__)
# The maximum number of seconds that a prefilter may take; a slower one saves no time.
_MAX_SECONDS: Final = 60.0
_ALL: Final = "all"
_WORDS: Final = "words"


async def select_tools(run: TaskRun, seconds: float) -> None:
    """Choose the tools that the model is shown.

    The setting ``prefilter_mode`` decides. With ``off``, all tools are shown. A prefilter that the
    setting names always chooses. With ``auto``, all tools are shown if their descriptions fit the
    budget. Otherwise the tools that an installed prefilter chooses come first, and then the tools
    that share the most words with the task. A resumed task shows the tools that were recorded.

    Args:
        run: The task, whose tools are replaced by the selection.
        seconds: The prefilter's timeout.

    Raises:
        PrefilterError: If a prefilter that the user named fails.
    """
    recorded_selection = run.replay.recorded_selection()
    chosen_by = _ALL
    if recorded_selection is not None:
        chosen_by = recorded_selection.by
        if chosen_by != _ALL:
            run.tools = run.tools.showing(frozenset(recorded_selection.actions))
    elif _needs_selection(run):
        chosen_by = await _choose(run, seconds)
    shown_names = tuple(
        bound_action.name for bound_action in run.tools.shown if not bound_action.built_in
    )
    await run.log.record(ToolsSelected, actions=shown_names, by=chosen_by)


def _needs_selection(run: TaskRun) -> bool:
    """Return whether a prefilter has to choose the tools that the model is shown."""
    # ``auto``, ``off`` or the name of a prefilter.
    mode = run.config.prefilter_mode
    if mode == AUTO:
        return not run.tools.fits(run.config.tools_budget)
    return mode != "off"


async def _choose(run: TaskRun, seconds: float) -> str:
    """Limit the shown tools to a selection.

    Args:
        run: The task, whose tools are replaced by the selection.
        seconds: The prefilter's timeout.

    Returns:
        The name of the prefilter, or ``words`` if the tools were chosen by the task's words.
    """
    prefilter = _prefilter_of(run)
    task = run.log.redactor.redact_text(run.request.task)
    chosen_by = _WORDS
    names: list[str] = []
    async with run.log.step(Step.SELECT):
        if prefilter is not None:
            timeout = min(seconds, _MAX_SECONDS)
            prefilter_names = await _names_from_prefilter(run, prefilter, task, timeout)
            if prefilter_names is not None:  # the prefilter has not failed
                chosen_by = prefilter
                names += prefilter_names
        candidates = run.tools.choice(run.config.tools_budget)
        if run.config.prefilter_mode == AUTO:  # the other tools follow, best first
            names += best_first(candidates.catalog, task)
        run.tools = run.tools.showing(select_fitting(candidates, dict.fromkeys(names), task))
    return chosen_by


def _prefilter_of(run: TaskRun) -> str | None:
    """Return the name of the configured prefilter; None without a prefilter.

    The setting ``auto`` stands for an installed prefilter that asks no model.
    """
    if run.config.prefilter_mode != AUTO:
        return run.config.prefilter_mode
    specs = run.resources.agent.context.host.specs(PrefilterSpec)
    return next((spec.name for spec in specs if not spec.asks), None)


async def _names_from_prefilter(
    run: TaskRun, name: str, task: str, seconds: float
) -> Sequence[str] | None:
    """Return the action names that a prefilter chose, best first; None if the prefilter failed."""
    redactor = run.log.redactor
    try:
        async with asyncio.timeout(seconds):
            prefilter: Prefilter = run.resources.plugin(PrefilterSpec, name)
            ask = functools.partial(run.ask, "prefilter")
            selection = await prefilter.select(task, run.tools.catalog(), ask)
            require_type(selection, Selection, f"the prefilter {name!r}")
            return selection.names
    except TimeoutError:
        reason = f"it did not end within {seconds:g} s"
    except DelfError as error:
        reason = error.message
    except Exception as error:
        redactor.log_failure(_log, f"the prefilter {name!r} failed", error)
        reason = f"an unexpected {describe_exception(error)}"
    reason = redactor.redact_text(reason)
    if run.config.prefilter_mode != AUTO:
        raise PrefilterError(
            f"the prefilter {name!r} failed: {reason}",
            hint='prefilter_mode="auto" needs no prefilter',
        )
    await run.warn(
        "tools are chosen by the words that they share with the task, because "
        f"the prefilter {name!r} failed: {reason}"
    )
    return None
