"""``Agent``: tools, a model, and tasks in plain words."""

from __future__ import annotations

import asyncio
import os
import secrets
import sys
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack

from delf.agent.approvals import AgentApprovals
from delf.agent.background import BackgroundTasks, EventStream
from delf.agent.facts import AgentFacts, tell
from delf.agent.home import RuntimeHome
from delf.agent.lifecycle import AgentLifecycle
from delf.agent.options import AgentOptions
from delf.agent.tasks import AgentTasks
from delf.agent.terminal import AgentTerminal
from delf.config.schema import make_config
from delf.engine.approvals.pending import PendingRequests
from delf.engine.models.usage import Ledger
from delf.engine.request import OnDelta, TaskOrder
from delf.errors import AgentConfirmationError, ConfigurationError
from delf.events import TaskFinished, TaskStarted
from delf.messages import ModelDelta
from delf.response import Response, past_response
from delf.terminal import visible
from delf.tools.function import as_connection

if TYPE_CHECKING:
    from delf.chat import Chat
    from delf.config.project import Project
    from delf.engine.journal.log import Listener
    from delf.engine.runtime import Runtime
    from delf.events import Event
    from delf.plugins.host import PluginHost
    from delf.protocols.memory import MemoryStore


class Agent(AgentLifecycle, AgentTasks, AgentApprovals, AgentFacts, AgentTerminal):
    """Does tasks by letting a model write scripts that call tools.

    It starts when it is first used and works on one event loop: that of the first
    ``await``, or one in a thread of its own when first used from synchronous code. Calls
    from other threads and loops are passed on to it.

    Args:
        tools: Connections, ``@tool`` functions, or plain functions.
        chat: A conversation to continue.
        memory: Facts from before, recalled for each task: a store, or the name of one.
        on_confirm: Asked about calls that need approval; returns True, False, or None to
            leave it to the next channel. Plain or async.
        host: Plugins; those installed when omitted.
        project: Where ``plugins`` options and the environment come from.
        options: The fields of :class:`delf.config.schema.AgentConfig`.

    Raises:
        ConfigurationError: For an option that is unknown or does not fit.
        ModelConfigurationError: When no model is given.
        ToolDefinitionError: For something in ``tools`` that is no tool.
    """

    def __init__(
        self,
        *,
        tools: Sequence[Any] | None = None,
        chat: Chat | None = None,
        memory: MemoryStore | str | None = None,
        on_confirm: Callable[[Any], Any] | None = None,
        host: PluginHost | None = None,
        project: Project | None = None,
        **options: Unpack[AgentOptions],
    ) -> None:
        given = {name: value for name, value in options.items() if value is not None}
        if project is not None:
            written = project.agent
            base = {name: getattr(written, name) for name in written.model_fields_set}
            given = {**base, **given}
        if isinstance(memory, str):
            given, memory = {**given, "memory": memory}, None
        self.config = make_config(given)
        self._finish_init(tools or (), chat, memory, on_confirm, host, project)

    def _finish_init(
        self,
        tools: Sequence[Any],
        chat: Chat | None,
        memory: MemoryStore | None,
        on_confirm: Callable[[Any], Any] | None,
        host: PluginHost | None,
        project: Project | None,
    ) -> None:
        _ = self.config.main_llm
        if on_confirm is not None and not callable(on_confirm):
            raise AgentConfirmationError(
                f"on_confirm is a {type(on_confirm).__name__}", hint="give a function"
            )
        if chat is not None and not hasattr(chat, "here"):
            raise ConfigurationError(f"chat is a {type(chat).__name__}", hint="give a Chat")
        self.agent_id = f"agent_{secrets.token_hex(6)}"
        self.chat = chat
        self.memory = memory
        self.tools = tuple(as_connection(item) for item in tools)
        self._on_confirm = on_confirm
        self._host = host
        self._project = project
        self._ledger = Ledger(self.config.budget_usd, allow_unpriced=self.config.allow_unpriced)
        self._pending = PendingRequests()
        self._tasks = BackgroundTasks(self.config.keep_tasks)
        self._home = RuntimeHome(self._make_runtime, f"delf-{self.agent_id}")

    # -- tasks --------------------------------------------------------------------------

    def run(
        self, task: str, timeout: float | None = None, *, conversation_id: str | None = None
    ) -> Response:
        """Do a task and wait for it.

        Args:
            task: What to do, in plain words.
            timeout: Seconds; the configuration's (60) when omitted. Past it the sandbox is
                stopped, no tool call starts any more, and the response says Timeout.
            conversation_id: The conversation of the agent's chat that it continues; the
                chat's present one when omitted.

        Raises:
            ConfigurationError: When the agent cannot start.
            AgentStateError: When called from the event loop that the agent works on.
        """
        order = self._order(task, timeout, conversation_id)
        return self._home.call(lambda runtime: self._run(runtime, order))

    async def arun(
        self,
        task: str,
        timeout: float | None = None,
        *,
        listeners: Sequence[Listener] = (),
        on_delta: OnDelta | None = None,
        setup: Mapping[str, Any] | None = None,
        conversation_id: str | None = None,
    ) -> Response:
        """Do a task; the same from asynchronous code. Cancelling it stops the task.

        Args:
            task: What to do, in plain words.
            timeout: Seconds; the configuration's when omitted.
            listeners: Called with each event after it was journalled.
            on_delta: Called with pieces of the model's answers, with ``stream=True``.
            setup: Kept in the journal for whoever resumes the task; plain data, no secrets.
            conversation_id: As for :meth:`run`.
        """
        order = self._order(task, timeout, conversation_id)
        order = replace(order, listeners=listeners, on_delta=on_delta, setup=dict(setup or {}))
        return await self._home.call_async(lambda runtime: self._run(runtime, order))

    def resume(self, task_id: str, timeout: float | None = None) -> Response:
        """Go on with a task whose process was killed, and wait for it.

        Its recorded model answers and call results are used again, and nothing recorded is
        done twice. A call that was begun and has no recorded end is made again if it only
        reads; of any other, a person is asked whether to make it again
        (:attr:`ApprovalRequest.unsettled`).

        Args:
            task_id: The task, in this agent's journal.
            timeout: Seconds from now; the configuration's when omitted.

        Returns:
            Its response; the recorded one if it is over. With ``ReplayMismatch`` as its
            exception where the script does something else than is recorded.

        Raises:
            UnknownTaskError: When the journal does not have the task.
            DelfError: When a process that lives works on it.
        """
        return self._home.call(lambda runtime: self._resume(runtime, task_id, timeout))

    async def aresume(
        self,
        task_id: str,
        timeout: float | None = None,
        *,
        listeners: Sequence[Listener] = (),
        on_delta: OnDelta | None = None,
    ) -> Response:
        """The same from asynchronous code; listeners see what is new.

        Args:
            task_id: The task.
            timeout: Seconds from now; the configuration's when omitted.
            listeners: Called with each event after it was journalled.
            on_delta: Called with pieces of the model's answers, with ``stream=True``.
        """
        return await self._home.call_async(
            lambda runtime: self._resume(
                runtime, task_id, timeout, listeners=listeners, on_delta=on_delta
            )
        )

    async def _resume(
        self, runtime: Runtime, task_id: str, timeout: float | None, **seen: Any
    ) -> Response:
        past = await runtime.take_up(task_id)
        end = next((event for event in past if isinstance(event, TaskFinished)), None)
        if end is not None:
            return past_response(past, end)
        started = next((event for event in past if isinstance(event, TaskStarted)), None)
        task, conversation_id, attended = (
            ("", None, True)
            if started is None
            else (started.task, started.conversation, started.attended)
        )
        order = self._order(task, timeout, None if self.chat is None else conversation_id)
        order = replace(order, task_id=task_id, past=past, patient=not attended, **seen)
        return await self._run(runtime, order)

    def submit(
        self, task: str, timeout: float | None = None, *, conversation_id: str | None = None
    ) -> str:
        """Let a task be done in the background.

        Requests for approval go to ``on_confirm`` and to :meth:`get_pending_approvals`; no
        terminal is asked.

        Args:
            task: What to do, in plain words.
            timeout: Seconds from the moment it begins to run; the configuration's when omitted.
            conversation_id: As for :meth:`run`.

        Returns:
            The task's id, for :meth:`poll`, :meth:`wait` and :meth:`cancel`.
        """
        order = self._order(task, timeout, conversation_id, attended=False)
        return self._tasks.add(order, self._post)

    def _post(self, order: TaskOrder) -> Future[Response]:
        return self._home.post(lambda runtime: self._run(runtime, order))

    async def stream(
        self,
        task: str,
        granularity: Literal["event", "token"] = "event",
        timeout: float | None = None,
        *,
        conversation_id: str | None = None,
    ) -> AsyncGenerator[Event | ModelDelta]:
        """Do a task and see its events as they happen; leaving the loop cancels it.

        Args:
            task: What to do, in plain words.
            granularity: ``token`` adds the pieces of the model's answers.
            timeout: Seconds; the configuration's when omitted.
            conversation_id: As for :meth:`run`.
        """
        flow = EventStream()
        tokens = granularity == "token"
        order = replace(
            self._order(task, timeout, conversation_id),
            listeners=(flow.put,),
            on_delta=flow.put_text if tokens else None,
            stream=tokens or None,
        )
        work = asyncio.ensure_future(
            self._home.call_async(lambda runtime: self._run(runtime, order))
        )
        work.add_done_callback(lambda _: flow.put(None))
        try:
            async for item in flow.read():
                yield item
            await work
        finally:
            work.cancel()

    def _order(
        self,
        task: str,
        timeout: float | None,
        conversation_id: str | None = None,
        *,
        attended: bool = True,
    ) -> TaskOrder:
        if self.chat is None and conversation_id is not None:
            raise ConfigurationError("the agent has no chat", hint="Agent(chat=Chat(…))")
        conversation = None if self.chat is None else self.chat.here(conversation_id)
        seconds = self.config.timeout if timeout is None else timeout
        return TaskOrder(
            task=task,
            timeout=seconds,
            conversation=conversation,
            attended=attended,
            patient=not attended,
        )

    async def _run(self, runtime: Runtime, order: TaskOrder) -> Response:
        from delf.engine.views.trace import Trace

        if self.config.verbose:
            order = replace(order, listeners=(tell, *order.listeners))
        finished = await runtime.run(order)
        result, run = finished.result, finished.run
        trace = Trace(run.log.events)
        if self.config.verbose:
            sys.stderr.write(visible(trace.summary()) + "\n")
        return Response(
            text=result.text,
            status=result.error is None,
            error=None if result.error is None else result.error.message,
            cost_usd=trace.total_cost_usd,
            duration_ms=round(result.duration_ms),
            trace=trace,
            files=dict(run.output.files),
            exception=result.error,
        )

    async def _make_runtime(self) -> Runtime:
        from delf.engine.runtime import Runtime, RuntimeParts
        from delf.plugins.host import PluginHost

        project = self._project
        environ = project.environ if project is not None else _environ()
        if self._host is None:
            self._host = PluginHost.discover(environ=environ)
        if self.chat is not None:
            self._attach(self.chat, environ)
        runtime = Runtime(
            RuntimeParts(
                agent_id=self.agent_id,
                config=self.config,
                host=self._host,
                connections=self.tools,
                plugin_options=project.plugin_options if project is not None else {},
                environ=environ,
                ledger=self._ledger,
                pending=self._pending,
                memory=self.memory,
                on_confirm=self._on_confirm,
                pricing_files=_pricing_files(project),
                attached=() if self.chat is None else (self.chat,),
                folder=Path.cwd() if project is None else project.root,
            )
        )
        try:
            await runtime.start()
        except BaseException:
            await runtime.stop()
            raise
        return runtime

    def _attach(self, chat: Chat, environ: Mapping[str, str]) -> None:
        from delf.chat.place import Surroundings

        surroundings = Surroundings(
            host=self._host,
            plugin_options=self._project.plugin_options if self._project is not None else {},
            environ=environ,
            config=self.config,
            ledger=self._ledger,
            pricing_files=_pricing_files(self._project),
        )
        chat.attach(surroundings)


def _environ() -> Mapping[str, str]:
    from delf.environment import current_environ

    return current_environ()


def _pricing_files(project: Project | None) -> tuple[Path, ...]:
    from platformdirs import user_config_path

    root = project.root if project is not None else Path(os.curdir)
    return root / "pricing.json", user_config_path("delf") / "pricing.json"
