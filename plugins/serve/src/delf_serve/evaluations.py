"""Evaluations over HTTP: the data sets of the project, and reports of their runs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from delf import Agent
from delf.errors import ConfigurationError, OptionalDependencyError
from delf_cli.evaluations import EVALUATIONS, ProjectEvaluations
from delf_serve import schemas as s
from delf_serve.keys import Caller
from delf_serve.problems import ProblemError


def _evaluations_of(agent: Agent, caller: Caller) -> ProjectEvaluations | None:
    """Return the evaluations of the agent's project.

    None if the agent has no project, if no evaluation plugin is installed, or if the caller may not
    see all tasks.
    """
    # The cases hold tasks and answers of all people.
    if agent.project is None or caller.visible_users is not None:
        return None
    try:
        return agent.plugins.service(EVALUATIONS)(agent.project.root)
    except OptionalDependencyError:
        return None


async def list_all(agent: Agent, caller: Caller) -> Sequence[s.EvaluationView]:
    """Return the evaluation data sets of the agent's project.

    Args:
        agent: The agent.
        caller: The authenticated caller. A caller who may not see all tasks gets an empty list.
    """
    evaluations = _evaluations_of(agent, caller)
    if evaluations is None:
        return []
    names = await asyncio.to_thread(evaluations.names)
    return [
        s.EvaluationView(name=name, runs=await asyncio.to_thread(evaluations.runs, name))
        for name in names
    ]


async def report(agent: Agent, caller: Caller, name: str, run: int) -> s.EvaluationReport:
    """Return the report of an evaluation run.

    Args:
        agent: The agent.
        caller: The authenticated caller.
        name: The name of the data set.
        run: The number of the run, counted backwards: 1 is the last run.

    Raises:
        ProblemError: If the data set or the run is unknown, or the run's file is damaged.
    """
    evaluations = _evaluations_of(agent, caller)
    if evaluations is None:
        raise ProblemError(404, f"there is no data set {name!r}", "GET /evals")
    try:
        runs = await asyncio.to_thread(evaluations.runs, name)
        data = await asyncio.to_thread(evaluations.report, name, run)
    except ConfigurationError as error:
        raise ProblemError(404, error.message, "GET /evals") from None
    return s.EvaluationReport(runs=runs, report=dict(data))
