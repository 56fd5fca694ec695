"""A worker as the whole task, for ``delf workers run`` and :func:`run_worker`."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from delf.errors import AgentStateError, ToolExecutionError
from delf.events import ChildStarted, Event, ModelCalled, ModelFailed, ModelReplied, end_event
from delf.protocols.sandbox import Raised, Returned
from delf.protocols.strategy import StrategyHost
from delf_engine.views.prompts import Prompt, prompts_of

if TYPE_CHECKING:
    from delf import Response

Listener = Callable[[Event], None]

DEFAULT_TASK: Final = "Do what your instructions say."
_GIVEN: Final = "\n\nGiven: "
_GIVEN_KEYS: Final = {"inputs", "attachments"}
_ORDER: Final = re.compile(r"(?P<worker>[^\s:]+)(?::\s*(?P<task>.*))?", re.DOTALL)


def order(
    worker: str, task: str | None, inputs: Mapping[str, Any], attachments: Sequence[str]
) -> str:
    """Return the text of a task that passes everything to a worker.

    Args:
        worker: The name.
        task: The task; when omitted, the worker follows its instructions.
        inputs: Values by name.
        attachments: Names of the task's files.
    """
    fields = {"inputs": dict(inputs), "attachments": list(attachments)}
    more = _GIVEN + json.dumps(fields, ensure_ascii=False) if inputs or attachments else ""
    return f"{worker}: {task or DEFAULT_TASK}{more}"


class WorkerStrategy:
    """A strategy that passes a task ``NAME: TASK`` to the worker NAME.

    Implements :class:`delf.protocols.strategy.Strategy`.
    """

    async def solve(self, host: StrategyHost) -> str:
        """Return the worker's answer.

        Raises:
            ToolExecutionError: If the worker failed, or the task names none.
        """
        text, more = _parts(host.task)
        match = _ORDER.fullmatch(text.strip())
        if match is None:
            raise ToolExecutionError("the task names no worker", hint="NAME: TASK")
        arguments = {"worker": match["worker"], "task": match["task"] or DEFAULT_TASK}
        answer = await host.call("workers.call", {**arguments, **more})
        if isinstance(answer, Raised):
            hint = getattr(answer.cause, "hint", None)
            raise ToolExecutionError(answer.message, hint=hint) from answer.cause
        value: Any = answer.value if isinstance(answer, Returned) else answer.message
        return value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)


def _parts(task: str) -> tuple[str, dict[str, Any]]:
    """Split the text of :func:`order` into the task, and its inputs and attachments.

    Any other text is the task itself, because a person's own text may contain ``Given:``, too.
    """
    text, _, fields = task.rpartition(_GIVEN)
    try:
        more: Any = json.loads(fields) if text else None
    except ValueError:
        more = None
    is_order = isinstance(more, dict) and set(cast("dict[str, Any]", more)) == _GIVEN_KEYS
    return (text, cast("dict[str, Any]", more)) if is_order else (task, {})


MessageCallback = Callable[[str, Prompt], None]
"""Receives each model call of a worker: name, messages and answer."""


async def arun_worker(
    worker: str,
    task: str | None = None,
    *,
    project: str | os.PathLike[str] = ".",
    inputs: Mapping[str, Any] | None = None,
    attachments: Sequence[str | os.PathLike[str]] = (),
    timeout: float | None = None,
    listeners: Sequence[Listener] = (),
    message_callback: MessageCallback | None = None,
    **options: Any,
) -> Response:
    """Run a worker's task.

    Args:
        worker: The name.
        task: The task; when omitted, the worker follows its instructions.
        project: The folder of the project.
        inputs: Values for its inputs, by name.
        attachments: Paths of files for the worker.
        timeout: Seconds.
        listeners: Called with each event of the worker and of workers it calls.
        message_callback: Called with the worker's name and each answered or failed model call.
        options: Parameters of :class:`delf.Agent`, such as ``llm`` and ``on_confirm``.

    Returns:
        The response: the worker's own scripts, calls, tokens and messages are in ``trace`` and
        ``events``. ``value`` is the worker's answer as data, if the worker declares its shape.

    Raises:
        ConfigurationError: If the worker is missing or invalid.
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
    events: list[Event] = []
    seeing: list[Listener] = [events.append, *listeners]
    names: dict[str, str] = {}

    def note(event: Event) -> None:
        if isinstance(event, ChildStarted):
            names[event.child_id] = event.worker or worker

    if message_callback is not None:
        seeing += [note, _Messages(names, message_callback)]
    async with agent:
        response = await agent.arun(text, timeout, listeners=[note], child_listeners=seeing)
    return of_worker(response, events)


class _Messages:
    """An event listener that reports model calls."""

    def __init__(self, names: Mapping[str, str], callback: MessageCallback) -> None:
        self._names = names
        self._callback = callback
        self._events: dict[str, list[Event]] = {}
        self._reported: set[tuple[str, int]] = set()

    def __call__(self, event: Event) -> None:
        """Report the model call that an event completes, if any."""
        if not isinstance(event, (ModelCalled, ModelReplied, ModelFailed)):
            return
        events = self._events.setdefault(event.task_id, [])
        events.append(event)
        if isinstance(event, ModelCalled):
            return
        for prompt in prompts_of(events):
            key = event.task_id, prompt.number
            if key not in self._reported and (
                prompt.answer is not None or prompt.error is not None
            ):
                self._reported.add(key)
                self._callback(self._names[event.task_id], prompt)


def of_worker(response: Response, events: Sequence[Event]) -> Response:
    """Return the response of the worker's task; the outer response if that task never began."""
    child_ids = (e.child_id for e in response.events if isinstance(e, ChildStarted))
    task_id = next(child_ids, None)
    own = [event for event in events if event.task_id == task_id]
    if not own:
        return response
    end = end_event(own)
    if end is None:
        return replace(response, events=own)
    return replace(response, events=own, files=dict(end.files), value=end.value)


def run_worker(worker: str, task: str | None = None, **options: Any) -> Response:
    """Run a worker's task and wait, from synchronous code.

    Raises:
        AgentStateError: In an event loop, which it would block.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        is_in_loop = False
    else:
        is_in_loop = True
    if is_in_loop:
        raise AgentStateError("run_worker would block the event loop", hint="await arun_worker(…)")
    return asyncio.run(arun_worker(worker, task, **options))
