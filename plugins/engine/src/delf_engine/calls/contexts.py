"""The ``CallContext`` of calls: an action's view of its task."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePath
from typing import Any, Final, cast

from delf.errors import ToolRefusedError
from delf.events import CallPrinted, ChildStarted
from delf.llm import LLMConfig
from delf.messages import Message, ModelReply, ModelRequest
from delf.protocols.approval import Approved, Edited
from delf.protocols.connection import NeedsApproval
from delf.tools.action import Action
from delf.tools.context import CallContext, ChildResult, ChildTask, read_once
from delf_engine.bound_action import BoundAction
from delf_engine.calls.call import Call, call_digest
from delf_engine.calls.children import ChildTasks
from delf_engine.redact import RedactedStream
from delf_engine.task_run import TaskRun

# The maximum size of a file that is kept in memory while a person is asked, in bytes.
_MAX_FROZEN_BYTES: Final = 100 * 1024 * 1024


class CallContexts:
    """Creates the ``CallContext`` of each call of a task.

    Args:
        run: The run of the task.
        children: The child tasks of the task.
    """

    def __init__(self, run: TaskRun, children: ChildTasks) -> None:
        self._run = run
        self.children = children
        # The calls' printed text, by call number. A possible beginning of a secret is held back.
        self._outputs: dict[int, RedactedStream] = {}

    async def wait_for_output_files(self) -> None:
        """Wait until the script's output files are written, because a call may read them."""
        await self._run.output.wait()

    async def end_call(self, call: Call, *, is_cut_off: bool) -> None:
        """Flush a call's printed text and end its child tasks, after its action ended.

        Args:
            call: The call.
            is_cut_off: Whether the sandbox died. The child tasks then keep running, because the
                repeated script may fetch their results.

        Raises:
            TaskLeftError: If a child task of the call was left unfinished. The action may have
                caught an earlier ``TaskLeftError``; the error is then raised again.
        """
        if (output := self._outputs.pop(call.number, None)) is not None:
            self._record_print(call.number, output.end())
        if is_cut_off:
            return
        await self.children.end(call)
        if self.children.left_error is not None:
            raise self.children.left_error

    def _record_print(self, call_id: int, text: str) -> None:
        if text:
            self._run.log.record_soon(CallPrinted, call_id=call_id, text=text)

    def of(self, call: Call, *, is_repeated: bool = False) -> CallContext:
        """Create the context of a call.

        Args:
            call: The call.
            is_repeated: Whether an earlier process started the call, before the task was resumed.
                The child tasks that the call started are then continued.
        """
        recorded_starts = self.children.recorded_children(call.number) if is_repeated else []
        context = self._run.resources.agent.context

        return CallContext(
            task_id=self._run.log.task_id,
            task=self._run.request.task,
            call_id=call.number,
            connection=call.bound.connection.name,
            folder=context.folder,
            depth=self.children.depth,
            worker=self._run.request.worker,
            user=self._run.request.user,
            input_files={file.name: Path(file.path) for file in self._run.inputs},
            llm=self._run.config.main_llm,
            vision_llm=self._run.config.image_llm,
            strategy=self._run.config.strategy,
            tools={connection.name: connection for connection in self._run.agent_tools.connections},
            connect=context.connect,
            basis=call.basis,  # the state from which an approved preview was made
            _say=functools.partial(self._print, call),
            _loop=asyncio.get_running_loop(),
            _output_files=self._output_files,
            _read_file=functools.partial(self._read_file, call),
            _add_file=self._run.output.start_writing_tool_file,
            _delegate=functools.partial(self._delegate, call, recorded_starts),
            _ask=self._ask,
            _consent=functools.partial(self._consent, call),
        )

    def _print(self, call: Call, text: str) -> None:
        """Record a text that a call prints."""
        # feed() holds back a possible beginning of a secret until the next text, or end_call().
        output = self._outputs.setdefault(call.number, RedactedStream(self._run.log.redactor))
        self._record_print(call.number, output.feed(text))

    def _delegate(
        self, call: Call, recorded_starts: list[ChildStarted], child: ChildTask
    ) -> Awaitable[ChildResult]:
        """Run a child task of a call, as :meth:`ChildTasks.delegate` describes."""
        if child.tools is not None and child.worker is None:
            # Remembered approvals apply to one worker. This child has tools of its own, so it
            # becomes a worker of its own: approvals for tools of the main agent with the same names
            # do not apply to the child.
            child = replace(child, worker=call.bound.connection.name)
        return self.children.delegate(call, child, recorded_starts)

    async def freeze(self, call: Call) -> None:
        """Read the files that a call's arguments name, and store the contents in ``call.files``.

        Called before a person is asked about the call. A file that cannot be read now stays
        unreadable for the call, because nobody approved its content.
        """
        file_names = self._files_by_name()
        texts = _texts_in(call.arguments)
        # A script may write ``out/notes.txt`` for the file that the task knows as ``notes.txt``.
        possible_names = {*texts, *(text.rpartition("/")[2] for text in texts)}
        for name in sorted(possible_names & {*file_names}):
            # The action itself reports an unreadable file.
            with contextlib.suppress(ToolRefusedError, OSError):
                await asyncio.to_thread(read_once, call.files, file_names, name, _MAX_FROZEN_BYTES)
        # If a file with one of the other names appears later, the call must not read it, because
        # nobody has approved its content.
        call.unreadable_names = possible_names - call.files.keys()

    def _read_file(
        self, call: Call, name: str, max_bytes: int, reader: Callable[[], bytes] | None
    ) -> bytes:
        """Return the content of a file, which is read only once per call. Thread-safe.

        Args:
            call: The call that reads the file.
            name: The file's name, with or without its folder.
            max_bytes: The maximum size of the file.
            reader: Reads the content from another place than the task's files; None for a file of
                the task.
        """
        names = {name, Path(name).name}
        is_loaded = not names.isdisjoint(call.files)
        # If the file was unreadable when a person was asked about the call, the person cannot have
        # approved the content that the file has now.
        was_unreadable = not names.isdisjoint(call.unreadable_names)
        if reader is None and not is_loaded and was_unreadable:
            raise ToolRefusedError(
                f"{name[:200]!r} could not be read when a person was asked about this call; "
                "make the call again"
            )
        return read_once(call.files, self._files_by_name(), name, max_bytes, reader)

    def _files_by_name(self) -> dict[str, Path]:
        inputs = {file.name: Path(file.path) for file in self._run.inputs}
        return {**inputs, **self._output_files()}

    def _output_files(self) -> Mapping[str, Path]:
        return {name: Path(path) for name, path in self._run.output.files.items()}

    async def _ask(
        self, messages: Sequence[Message], llm: str | LLMConfig | None, settings: Mapping[str, Any]
    ) -> ModelReply:
        """Ask a model on behalf of a call; the cost counts for the task."""
        config = self._run.config.main_llm if llm is None else self._run.chosen_llm(llm)
        request = ModelRequest(messages=tuple(messages), purpose="call", settings=settings)
        return await self._run.models.ask_whole(config, request)

    async def _consent(
        self,
        call: Call,
        question: str,
        arguments: dict[str, Any],
        name: str,
        convert_edited: Callable[[Mapping[str, Any]], dict[str, Any]],
    ) -> Mapping[str, Any] | None:
        """Ask a person to consent on behalf of a call, as :meth:`CallContext.consent` describes.

        For example, an MCP server asks during a call for data from the user, and the person decides
        which ``arguments`` are sent to the server.
        """
        consent_call = _consent_call(call, question, arguments, name, convert_edited)
        verdict = NeedsApproval(reason=f"{call.bound.name} asks", preview=question)
        answer = await self._run.approvals.decide(consent_call, verdict)
        if isinstance(answer.decision, Edited):
            return convert_edited(answer.decision.arguments)
        return arguments if isinstance(answer.decision, Approved) else None


def _consent_call(
    call: Call,
    question: str,
    arguments: dict[str, Any],
    name: str,
    convert_edited: Callable[[Mapping[str, Any]], dict[str, Any]],
) -> Call:
    """Return a substitute call, whose request for approval asks a person for consent.

    The person approves, edits or rejects the substitute call, which is never made. Its effect is
    irreversible, because consent may release data out of delf's control.
    """
    action = Action(
        name=name,
        permission=name,
        effect="irreversible",
        summary=question,
        parameters=(),
        returns="None",
        validate=convert_edited,
        call=convert_edited,  # a required field that is not used
    )
    title = f"{call.bound.connection.name}.{name}"
    return replace(
        call,
        bound=BoundAction(call.bound.connection, action, title, asks=True),
        arguments=arguments,
        description=None,
        digest=call_digest(title, {"question": question, "arguments": arguments}),
        blocks_script=False,
        line=None,
        edited=set(),
        has_changed_since_request=False,
    )


def _texts_in(value: Any) -> set[str]:
    """Return all texts and paths in a value at any depth, except dict keys."""
    texts: set[str] = set()
    pending: list[Any] = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, (str, PurePath)):
            texts.add(str(item))
        elif isinstance(item, Mapping):
            pending += cast("Mapping[Any, Any]", item).values()
        elif isinstance(item, (list, tuple, set, frozenset)):
            pending += cast("Sequence[Any]", item)
    return texts
