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
from delf.machine.threads import running_loop
from delf.protocols.sandbox import Raised, Returned
from delf.protocols.strategy import StrategyHost
from delf.values.sequences import one_or_more
from delf_engine.views.prompts import Prompt, prompts_of

if TYPE_CHECKING:
    from delf import Response

Listener = Callable[[Event], None]

DEFAULT_TASK: Final = "Do what your instructions say."
# Separates, in the text of a worker's task, the task from the JSON of inputs and attachments.
_INPUTS_MARK: Final = "\n\nGiven: "
_INPUTS_KEYS: Final = {"inputs", "attachments"}
# Matches the text of a worker's task without inputs: ``NAME: TASK``, or ``NAME``.
_WORKER_TASK: Final = re.compile(r"(?P<worker>[^\s:]+)(?::\s*(?P<task>.*))?", re.DOTALL)


def text_of_worker_task(
    worker: str, task: str | None, inputs: Mapping[str, Any], attachments: Sequence[str]
) -> str:
    """Return the text of a task in which :class:`WorkerStrategy` only calls a worker.

    Args:
        worker: The name of the worker.
        task: The task for the worker; None to follow the worker's instructions.
        inputs: The values of the worker's inputs, by name.
        attachments: The names of the task's files to attach.
    """
    fields = {"inputs": dict(inputs), "attachments": list(attachments)}
    text = f"{worker}: {task or DEFAULT_TASK}"
    # _split_inputs() splits the text at the last mark. If the task itself contains the mark, append
    # empty inputs, so that the words after the task's own mark are not read as inputs.
    if inputs or attachments or _INPUTS_MARK in text:
        text += _INPUTS_MARK + json.dumps(fields, ensure_ascii=False)
    return text


class WorkerStrategy:
    """A strategy that passes a task of the form ``NAME: TASK`` to the worker NAME.

    Implements :class:`delf.protocols.strategy.Strategy`.
    """

    async def solve(self, host: StrategyHost) -> str:
        """Call the worker, and return its answer as text.

        Raises:
            ToolExecutionError: If the worker failed, or the task names no worker.
        """
        # The text has the form that text_of_worker_task() returns.
        text, inputs_and_attachments = _split_inputs(host.task)
        match = _WORKER_TASK.fullmatch(text.strip())
        if match is None:
            raise ToolExecutionError("the task names no worker", hint="NAME: TASK")
        arguments = {"worker": match["worker"], "task": match["task"] or DEFAULT_TASK}
        answer = await host.call("workers.call", {**arguments, **inputs_and_attachments})
        if isinstance(answer, Raised):
            hint = getattr(answer.cause, "hint", None)
            raise ToolExecutionError(answer.message, hint=hint) from answer.cause
        value: Any = answer.value if isinstance(answer, Returned) else answer.message
        if isinstance(value, str):
            return value
        return json.dumps(value, indent=2, ensure_ascii=False)


def _split_inputs(task: str) -> tuple[str, dict[str, Any]]:
    """Split the text of a worker's task into the text before the inputs, and the inputs.

    The inputs are JSON after ``Given:`` at the beginning of the last paragraph. If the text after
    ``Given:`` does not have the form of inputs, it belongs to the user's text.

    Returns:
        The text before the inputs, and a mapping with the keys ``inputs`` and ``attachments``.
        Without inputs, the whole text and an empty mapping.
    """
    text, _, json_text = task.rpartition(_INPUTS_MARK)
    try:
        data: Any = json.loads(json_text) if text else None
    except (ValueError, RecursionError):
        data = None
    if isinstance(data, dict) and set(cast("dict[str, Any]", data)) == _INPUTS_KEYS:
        return text, cast("dict[str, Any]", data)
    return task, {}


MessageCallback = Callable[[str, Prompt], None]
"""Function that gets a worker's name and each completed model call of the worker."""


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
        worker: The name of the worker.
        task: The task; None to follow the worker's instructions.
        project: The folder of the project.
        inputs: The values of the worker's inputs, by name.
        attachments: The paths of files to attach.
        timeout: The timeout in seconds.
        listeners: Called with each event of the worker and of the workers that it calls.
        message_callback: Called with the worker's name and each answered or failed model call.
        **options: Parameters of :class:`delf.Agent`, such as ``llm`` and ``on_confirm``.

    Returns:
        The response. ``trace`` and ``events`` have the worker's own scripts, calls, tokens and
        messages. ``value`` is the answer as data if the worker's file declares a result schema.

    Raises:
        ConfigurationError: If the worker is missing or invalid.
    """
    from delf import Agent

    paths: list[str] = [os.fspath(path) for path in one_or_more(attachments)]
    file_names = [Path(path).name for path in paths]
    text = text_of_worker_task(worker, task, inputs or {}, file_names)
    agent = Agent.from_project(
        project,
        connections=["workers"],
        strategy="worker",
        files=paths,
        **options,
    )
    events: list[Event] = []
    reporters: list[Listener] = []
    if message_callback is not None:
        reporters.append(_ModelCallReporter(worker, message_callback))
    async with agent:
        # The agent's own task only starts the worker, whose task is a child task.
        response = await agent.arun(
            text,
            timeout,
            listeners=reporters,
            child_listeners=[events.append, *one_or_more(listeners), *reporters],
        )
    return response_of_worker(response, events)


class _ModelCallReporter:
    """An event listener that reports each completed model call of a worker.

    Args:
        worker: The name of the worker that is run. This worker may call other workers.
        callback: Called with the name of the worker that made a model call, and with that call.
    """

    def __init__(self, worker: str, callback: MessageCallback) -> None:
        self._first_worker = worker
        self._callback = callback
        # The names of the workers, by task id.
        self._worker_names: dict[str, str] = {}
        # The events about model calls, by task id.
        self._events: dict[str, list[Event]] = {}

    def __call__(self, event: Event) -> None:
        """Report the model call that a reply or failure completes."""
        if isinstance(event, ChildStarted):
            self._worker_names[event.child_id] = event.worker or self._first_worker
        is_of_worker = event.task_id in self._worker_names
        if not is_of_worker or not isinstance(event, (ModelCalled, ModelReplied, ModelFailed)):
            return
        events = self._events.setdefault(event.task_id, [])
        events.append(event)
        if isinstance(event, ModelCalled):
            return
        # A model call's event has only what its prompt adds to the previous prompt, so the earlier
        # events are needed, too.
        for model_call in prompts_of(events):
            if model_call.number == event.number:
                self._callback(self._worker_names[event.task_id], model_call)


def response_of_worker(response: Response, events: Sequence[Event]) -> Response:
    """Return the response of the worker's task; the outer task's if the worker never began.

    Args:
        response: The response of the outer task.
        events: The events of all child tasks.
    """
    child_ids = [event.child_id for event in response.events if isinstance(event, ChildStarted)]
    if not child_ids:
        return response
    worker_task_id = child_ids[0]
    worker_events = [event for event in events if event.task_id == worker_task_id]
    if not worker_events:
        return response
    end = end_event(worker_events)
    if end is None:
        return replace(response, events=worker_events)
    return replace(response, events=worker_events, files=dict(end.files), value=end.value)


def run_worker(worker: str, task: str | None = None, **options: Any) -> Response:
    """Run a worker's task and wait for its end, from sync code.

    Raises:
        AgentStateError: If called inside an event loop, which the call would block.
    """
    if running_loop() is not None:
        raise AgentStateError("run_worker would block the event loop", hint="await arun_worker(…)")
    return asyncio.run(arun_worker(worker, task, **options))
