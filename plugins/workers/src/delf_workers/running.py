"""A worker as the whole task: what ``delf workers run`` and :func:`run_worker` do."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from delf.errors import DelfError, ToolExecutionError
from delf.protocols.sandbox import Raised, Returned
from delf.protocols.strategy import StrategyHost

if TYPE_CHECKING:
    from delf import Response

DEFAULT_TASK: Final = "Do what your instructions say."
_GIVEN: Final = "\n\nGiven: "
_ORDER: Final = re.compile(r"(?P<worker>[^\s:]+)(?::\s*(?P<task>.*))?", re.DOTALL)


def order(
    worker: str, task: str | None, inputs: Mapping[str, Any], attachments: Sequence[str]
) -> str:
    """A task in words that gives all of it to a worker.

    Args:
        worker: Its name.
        task: What to do; what its instructions say when omitted.
        inputs: Values by name.
        attachments: Names of the task's files.
    """
    given = {"inputs": dict(inputs), "attachments": list(attachments)}
    more = _GIVEN + json.dumps(given, ensure_ascii=False) if inputs or attachments else ""
    return f"{worker}: {task or DEFAULT_TASK}{more}"


class WorkerStrategy:
    """Gives a task ``NAME: TASK`` to the worker NAME, and takes its answer.

    Implements :class:`delf.protocols.strategy.Strategy`.
    """

    async def solve(self, host: StrategyHost) -> str:
        """The worker's answer.

        Raises:
            ToolExecutionError: When it failed, or the task names none.
        """
        text, _, given = host.task.partition(_GIVEN)
        named = _ORDER.fullmatch(text.strip())
        if named is None:
            raise ToolExecutionError("the task names no worker", hint="NAME: TASK")
        arguments = {"worker": named["worker"], "task": named["task"] or DEFAULT_TASK}
        answer = await host.call("workers.call", {**arguments, **_more(given)})
        if isinstance(answer, Raised):
            raise ToolExecutionError(answer.message) from answer.cause
        value: Any = answer.value if isinstance(answer, Returned) else answer.message
        return value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)


def _more(given: str) -> dict[str, Any]:
    try:
        return dict(json.loads(given)) if given else {}
    except (ValueError, TypeError):
        raise ToolExecutionError("what is given to the worker is no JSON object") from None


async def arun_worker(
    worker: str,
    task: str | None = None,
    *,
    project: str | os.PathLike[str] = ".",
    inputs: Mapping[str, Any] | None = None,
    attachments: Sequence[str | os.PathLike[str]] = (),
    timeout: float | None = None,
    **options: Any,
) -> Response:
    """Have a worker do a task.

    Args:
        worker: Its name.
        task: What to do; what its instructions say when omitted.
        project: The folder of the project.
        inputs: Values that it asks for, by name.
        attachments: Paths of files that it may read.
        timeout: Seconds.
        options: Parameters of :class:`delf.Agent`, as ``llm`` and ``on_confirm``.

    Returns:
        Its response; ``response.trace`` has what it said and did.

    Raises:
        ConfigurationError: When there is no such worker, or it cannot work.
    """
    from delf import Agent

    text = order(worker, task, inputs or {}, [Path(path).name for path in attachments])
    agent = Agent.from_project(
        project,
        connections=["workers"],
        strategy="worker",
        files=[os.fspath(path) for path in attachments] or None,
        **options,
    )
    async with agent:
        return await agent.arun(text, timeout)


def run_worker(worker: str, task: str | None = None, **options: Any) -> Response:
    """The same from synchronous code.

    Args:
        worker: Its name.
        task: What to do.
        options: As of :func:`arun_worker`.
    """
    import asyncio

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(arun_worker(worker, task, **options))
    raise DelfError("run_worker cannot be called from an event loop", hint="await arun_worker(…)")
