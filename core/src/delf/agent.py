"""``Agent``: tools, a model, and tasks in plain words."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self, TypedDict, Unpack

from delf.config.schema import make_config
from delf.engine.usage import Ledger
from delf.errors import AgentConfirmationError
from delf.lifecycle import RuntimeHome
from delf.llm import LLMConfig
from delf.messages import Message, TextPart, Usage
from delf.response import Response
from delf.tools import as_connection
from delf.types import ApprovalMode, Isolation

if TYPE_CHECKING:
    from delf.config.project import Project
    from delf.engine.log import Listener
    from delf.engine.models import OnDelta
    from delf.engine.runtime import Runtime
    from delf.plugins.host import PluginHost
    from delf.protocols.memory import MemoryStore


class AgentOptions(TypedDict, total=False):
    """The fields of :class:`delf.config.schema.AgentConfig` as keywords."""

    llm: str | LLMConfig | None
    light_llm: str | LLMConfig | None
    heavy_llm: str | LLMConfig | None
    vision_llm: str | LLMConfig | None
    system_prompt: str | None
    providers: Mapping[str, str] | None
    verbose: bool
    prefilter_mode: Literal["auto", "filter", "search", "semantic", "off"]
    retry_count: int
    rerun_count: int
    sandbox: str
    sandbox_config: Mapping[str, Any] | None
    min_isolation: Isolation
    files: Sequence[str] | None
    allowed_libs: Sequence[str] | None
    budget_usd: float | None
    allow_unpriced: bool
    strategy: str
    approval_mode: ApprovalMode
    approvals: Sequence[str] | None
    approval_timeout: float
    timeout: float
    stream: bool
    record: str | None
    journal: str
    output_dir: str | None


class ChatLike(Protocol):
    """A conversation that an agent reads and continues."""

    @property
    def messages(self) -> Sequence[Mapping[str, Any]]:
        """Its messages as ``{"role": …, "content": …}``."""
        ...

    def append(self, role: str, content: str) -> None:
        """Add a message."""
        ...


class Agent:
    """Does tasks by letting a model write scripts that call tools.

    It starts when it is first used and works on one event loop: that of the first
    ``await``, or one in a thread of its own when first used from synchronous code. Calls
    from other threads and loops are passed on to it.

    Args:
        tools: Connections, ``@tool`` functions, or plain functions.
        chat: A conversation to continue.
        memory: Facts from before, recalled for each task.
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
        chat: ChatLike | None = None,
        memory: MemoryStore | None = None,
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
        self.config = make_config(given)
        self._finish_init(tools or (), chat, memory, on_confirm, host, project)

    def _finish_init(
        self,
        tools: Sequence[Any],
        chat: ChatLike | None,
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
        self.agent_id = f"agent_{secrets.token_hex(6)}"
        self.chat = chat
        self.memory = memory
        self.tools = tuple(as_connection(item) for item in tools)
        self._on_confirm = on_confirm
        self._host = host
        self._project = project
        self._ledger = Ledger(self.config.budget_usd, allow_unpriced=self.config.allow_unpriced)
        self._home = RuntimeHome(self._make_runtime, f"delf-{self.agent_id}")

    # -- lifecycle ----------------------------------------------------------------------

    def start(self) -> Self:
        """Load tools and prepare the sandbox now rather than with the first task."""
        self._home.call(_nothing)
        return self

    def stop(self) -> None:
        """Cancel what runs; free sandboxes, connections and threads. Safe to call twice."""
        self._home.stop()

    async def astop(self) -> None:
        """The same from asynchronous code."""
        await self._home.astop()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        await self._home.call_async(_nothing)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.astop()

    # -- tasks --------------------------------------------------------------------------

    def run(self, task: str, timeout: float | None = None) -> Response:
        """Do a task and wait for it.

        Args:
            task: What to do, in plain words.
            timeout: Seconds; the configuration's (60) when omitted. Past it the sandbox is
                stopped, no tool call starts any more, and the response says Timeout.

        Raises:
            ConfigurationError: When the agent cannot start.
            AgentStateError: When called from the event loop that the agent works on.
        """
        return self._home.call(lambda runtime: self._run(runtime, task, timeout))

    async def arun(
        self,
        task: str,
        timeout: float | None = None,
        *,
        listeners: Sequence[Listener] = (),
        on_delta: OnDelta | None = None,
    ) -> Response:
        """Do a task; the same from asynchronous code. Cancelling it stops the task.

        Args:
            task: What to do, in plain words.
            timeout: Seconds; the configuration's when omitted.
            listeners: Called with each event after it was journalled.
            on_delta: Called with pieces of the model's answers, with ``stream=True``.
        """
        return await self._home.call_async(
            lambda runtime: self._run(runtime, task, timeout, listeners, on_delta)
        )

    async def _run(
        self,
        runtime: Runtime,
        task: str,
        timeout: float | None,
        listeners: Sequence[Listener] = (),
        on_delta: OnDelta | None = None,
    ) -> Response:
        from delf.engine.views.trace import Trace

        finished = await runtime.run(
            task,
            self.config.timeout if timeout is None else timeout,
            history=self._history(),
            listeners=listeners,
            on_delta=on_delta,
        )
        result, run = finished.result, finished.run
        trace = Trace(run.log.events)
        if self.chat is not None and result.error is None:
            self.chat.append("user", task)
            self.chat.append("assistant", result.text)
        if self.config.verbose:
            sys.stderr.write(trace.summary() + "\n")
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

    def _history(self) -> tuple[Message, ...]:
        if self.chat is None:
            return ()
        return tuple(
            Message(item["role"], (TextPart(str(item["content"])),)) for item in self.chat.messages
        )

    # -- facts --------------------------------------------------------------------------

    def inspect(self, *, verbose: bool = False) -> dict[str, Any]:
        """The agent's tools as data; with ``verbose`` their descriptions and parameters."""
        described: list[dict[str, Any]] = []
        for item in self.tools:
            look = getattr(item, "inspect", None)
            described.append(look(verbose=verbose) if look is not None else {"tool": item.name})
        return {"agent": self.agent_id, "tools": described, "total": len(described)}

    @property
    def usage(self) -> Usage:
        """Tokens of all tasks so far."""
        return self._ledger.usage

    @property
    def total_cost_usd(self) -> float:
        """What all tasks so far cost, as far as prices are known."""
        return self._ledger.cost_usd

    def reset_budget(self, limit: float | None = None) -> None:
        """Count costs from zero again, under a new limit if one is given (USD)."""
        self._ledger.reset(limit)

    def __repr__(self) -> str:
        names = ", ".join(item.name for item in self.tools) or "no tools"
        return f"<Agent {self.agent_id}: {names}>"

    async def _make_runtime(self) -> Runtime:
        from delf.engine.runtime import Runtime, RuntimeParts
        from delf.plugins.host import PluginHost

        project = self._project
        environ = project.environ if project is not None else _environ()
        if self._host is None:
            self._host = PluginHost.discover(environ=environ)
        runtime = Runtime(
            RuntimeParts(
                agent_id=self.agent_id,
                config=self.config,
                host=self._host,
                connections=self.tools,
                plugin_options=project.plugin_options if project is not None else {},
                environ=environ,
                ledger=self._ledger,
                memory=self.memory,
                on_confirm=self._on_confirm,
                pricing_files=_pricing_files(project),
            )
        )
        try:
            await runtime.start()
        except BaseException:
            await runtime.stop()
            raise
        return runtime


async def _nothing(_: Runtime) -> None:
    """Only have it started."""


def _environ() -> Mapping[str, str]:
    from delf.environment import current_environ

    return current_environ()


def _pricing_files(project: Project | None) -> tuple[Path, ...]:
    from platformdirs import user_config_path

    root = project.root if project is not None else Path(os.curdir)
    return root / "pricing.json", user_config_path("delf") / "pricing.json"
