"""The task behind calls that a test makes by hand."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from delf.errors import ToolExecutionError
from delf.llm import LLMConfig
from delf.messages import Message, ModelReply
from delf.tools.context import CallContext, ChildResult, ChildTask, read_once
from delf_devkit.testing.models import USAGE


@dataclass
class ScriptedTask:
    """Provides an action's ``CallContext`` in a test, and records how it is used.

    Example: ``await desk.hand_over("the lamp", context=ScriptedTask(answer="done").context())``.

    Args:
        answer: The answer of models and child tasks. An exception makes child tasks fail, and
            ``ask`` raises the exception.
        agrees: The person's answer to a request: True to approve the call, False to reject it, or
            changed arguments with which the call is approved.
        children: Records the child tasks.
        asked: Records the conversations with models.
        questions: Records the questions to the person.
        output: Records the texts shown to people.
        files: Records the output files that the action added, by name.
    """

    answer: str | Exception = "done"
    agrees: bool | Mapping[str, Any] = True
    children: list[ChildTask] = field(default_factory=list[ChildTask])
    asked: list[tuple[Message, ...]] = field(default_factory=list[tuple[Message, ...]])
    questions: list[str] = field(default_factory=list[str])
    output: list[str] = field(default_factory=list[str])
    files: dict[str, bytes] = field(default_factory=dict[str, bytes])

    def context(
        self,
        connection: str = "tested",
        *,
        task: str = "Try everything.",
        tools: Mapping[str, Any] | None = None,
        folder: str | Path = ".",
        input_files: Mapping[str, Path] | None = None,
        output_files: Mapping[str, Path] | None = None,
    ) -> CallContext:
        """Make the context of an action.

        Args:
            connection: The name of the connection that is called.
            task: The task in plain words.
            tools: The task's connections, by name.
            folder: The project's folder.
            input_files: The paths of input files by name.
            output_files: The paths of written output files by name.
        """
        all_files = {**(input_files or {}), **(output_files or {})}
        content_by_name: dict[str, bytes] = {}  # of the files that the call has read
        return CallContext(
            task_id="task_of_a_test",
            task=task,
            call_id=1,
            connection=connection,
            folder=Path(folder),
            depth=0,
            input_files=dict(input_files or {}),
            llm=LLMConfig(model="scripted"),
            vision_llm=LLMConfig(model="scripted"),
            strategy="codegen",
            tools=dict(tools or {}),
            connect=_no_connection,
            _say=self.output.append,
            _loop=asyncio.get_running_loop(),
            _output_files=lambda: dict(output_files or {}),
            _read_file=functools.partial(read_once, content_by_name, all_files),
            _add_file=self.files.__setitem__,
            _delegate=self._delegate,
            _ask=self._ask,
            _consent=self._consent,
        )

    async def _delegate(self, child: ChildTask) -> ChildResult:
        self.children.append(child)
        task_id = f"task_of_a_test.{len(self.children)}"
        if isinstance(self.answer, Exception):
            return ChildResult(task_id=task_id, text="", status=False, error=str(self.answer))
        return ChildResult(task_id=task_id, text=self.answer, status=True)

    async def _ask(
        self, messages: Sequence[Message], llm: str | LLMConfig | None, settings: Mapping[str, Any]
    ) -> ModelReply:
        self.asked.append(tuple(messages))
        if isinstance(self.answer, Exception):
            raise self.answer
        return ModelReply(text=self.answer, model="scripted", usage=USAGE, cost_usd=0.0)

    async def _consent(
        self,
        question: str,
        arguments: dict[str, Any],
        _name: str,
        validate: Callable[[Mapping[str, Any]], dict[str, Any]],
    ) -> Mapping[str, Any] | None:
        """Return the arguments that the scripted person approves; None if the person rejects.

        If ``agrees`` is a mapping, the person approves these edited arguments.
        """
        self.questions.append(question)
        if isinstance(self.agrees, Mapping):
            edited_arguments = self.agrees
            return validate(edited_arguments)
        return arguments if self.agrees else None


def _no_connection(name: str, **_: Any) -> Any:
    raise ToolExecutionError(f"a scripted task makes no connection {name!r}")
