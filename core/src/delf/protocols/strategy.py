"""A strategy: how a task becomes tool calls."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable

from delf.members import ProtocolMeta
from delf.records import dataclass

if TYPE_CHECKING:
    from delf.errors import DelfError
    from delf.messages import Message, ModelDelta, ModelReply, ModelTool
    from delf.protocols.connection import ConnectionLike, Verdict
    from delf.protocols.model import ModelSession
    from delf.protocols.prefilter import Catalog
    from delf.protocols.sandbox import CallAnswer, Outcome, Returned
    from delf.tools.signature import FullTypes, Parameter
    from delf.types import Effect

TOOLS_BUDGET: Final = 21_700
"""The default for ``tools_budget``: the maximum number of characters of tools in a prompt."""

OnDelta = Callable[["ModelDelta"], "Sequence[ModelDelta] | None"]
"""A function that receives each piece of a model's answer as it arrives.

The function may return pieces to show to people instead of the received piece, each with its
``kind``. A recorded answer arrives in a few large pieces.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolDescription:
    """A tool that the model may be shown.

    Args:
        name: The name in calls: ``connection.method``, or the bare name of a function.
        summary: A paragraph of description.
        effect: The effect of a call.
        asks: Whether a person is asked before each call.
        make_schema: Makes :attr:`schema`.
        parameters: The parameters, in order.
        returns: The type of the result in stub notation.
        connection: The name of the connection; empty for a function.
        about: A one-line description of the connection.
        tags: Category tags.
        built_in: Whether the tool is always shown, such as ``files.read``.
        full_types: Returns the parameters and the result with complete types, if ``parameters`` and
            ``returns`` are shortened.
        returns_doc: The description of the result.
        notes: Further text after the summary if the prompt has space, such as units and warnings.
    """

    name: str
    summary: str
    effect: Effect
    asks: bool
    make_schema: Callable[[], Mapping[str, Any]]
    parameters: tuple[Parameter, ...] = ()
    returns: str = "Any"
    connection: str = ""
    about: str = ""
    tags: tuple[str, ...] = ()
    built_in: bool = False
    full_types: Callable[[], FullTypes] | None = None
    returns_doc: str = ""
    notes: str = ""

    @property
    def method(self) -> str:
        """The name without the connection's name."""
        return self.name.rpartition(".")[2]

    @property
    def schema(self) -> Mapping[str, Any]:
        """The arguments as a JSON Schema."""
        return self.make_schema()

    @property
    def signature(self) -> str:
        """The signature in stub notation: ``(statement: str, limit: int = 100) -> list[dict]``."""
        return f"({', '.join(map(str, self.parameters))}) -> {self.returns}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolChoice:
    """The tools of a task: the tools shown to the model, and the searchable tools.

    Args:
        shown: The tools shown to the model.
        left_out: The number of tools that can be called but are not shown.
        catalog: All tools except built-in ones.
        describe: Returns the description of a tool in the catalog.
        budget: The maximum number of characters that tools may take up in the prompt.
    """

    shown: Sequence[ToolDescription]
    left_out: int
    catalog: Catalog
    describe: Callable[[str], ToolDescription]
    budget: int = TOOLS_BUDGET


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptResult:
    """The outcome of a script.

    Args:
        outcome: The outcome of the sandbox session.
        printed: The printed text, without secrets.
        variables_alive: Whether the next script can use the variables.
        changes: The calls that changed something, or may have, one line each.
        refused: The error with which the task ends, if a call was refused because the budget is
            exhausted.
        can_retry: Whether another script could succeed. False if a call failed for a permanent
            reason, such as an unreachable service or a missing permission.
        cause: The tool's exception that failed the script. A strategy raises its own error ``from``
            this exception, so that programs see the reason.
        is_silent: Whether the script ended without effect: it printed nothing, left no value, wrote
            no file and changed nothing.
        returned: The types and sizes of the call results of a silent script, one line each.
        found_nothing: Whether the script is silent, called tools, and got only empty results.
        rejected: Whether the script failed because a call, or the whole script, was denied
            approval. Do not use the exception's name for this: a script can raise any exception.
        changes_requested: The changes to the script or its calls that people requested. If there
            are any, the model writes another script even if this script succeeded. The other script
            does not count as a retry.
    """

    outcome: Outcome
    printed: str = ""
    variables_alive: bool = True
    changes: Sequence[str] = ()
    refused: DelfError | None = None
    can_retry: bool = True
    cause: BaseException | None = None
    is_silent: bool = False
    returned: Sequence[str] = ()
    found_nothing: bool = False
    rejected: bool = False
    changes_requested: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptCall:
    """A valid call that a script makes, as passed to a :class:`CallGuard`.

    Args:
        name: The tool, as in :class:`ToolDescription`.
        effect: The effect of the call.
        arguments: The arguments by name.
        built_in: Whether the tool is one of delf's own.
    """

    name: str
    effect: Effect
    arguments: Mapping[str, Any]
    built_in: bool = False


class CallGuard(Protocol):
    """A strategy's additional rules for the calls of a script."""

    def begin(self) -> None:
        """Reset all counts, because a script starts or is repeated in a new sandbox."""
        ...

    def before_call(self, call: ScriptCall) -> Returned | None:
        """Observe a call before it is made, and optionally answer the call.

        Returns:
            A recorded result of the same call, so that the call is not made again;
            None to make the call.
        """
        ...

    def check(self, call: ScriptCall) -> Verdict:
        """Check a call before the tool's connection does. Called at least once for each call."""
        ...

    def after_call(self, call: ScriptCall, answer: CallAnswer) -> CallAnswer:
        """Observe the answer of a call, and optionally replace the answer.

        Returns:
            The answer for the script: the given one or a replacement.
        """
        ...


class StrategyHost(Protocol):
    """The interface of a strategy to its task.

    This is a protocol because strategies work without a dependency on the engine.

    All requests and calls through this interface are counted, approved and journalled. A resumed
    task runs its strategy from the beginning, and the journal answers the requests that the
    strategy made before. So a strategy must make the same requests after the same answers.
    """

    @property
    def task(self) -> str:
        """The user's task in plain words."""
        ...

    @property
    def tools(self) -> Sequence[ToolDescription]:
        """The tools that the prompt shows to the model."""
        ...

    @property
    def choice(self) -> ToolChoice:
        """The shown and the omitted tools, for :func:`delf.tools.stubs.stubs_of`."""
        ...

    @property
    def libraries(self) -> Sequence[str]:
        """Packages that scripts may import in addition to harmless standard modules."""
        ...

    @property
    def unsupported(self) -> str:
        """The unsupported Python features of the sandbox, in words for the model; may be empty."""
        ...

    @property
    def language(self) -> str:
        """The Python that scripts run on, such as ``Python 3.12``."""
        ...

    @property
    def is_conversation(self) -> bool:
        """True if the task is a turn of a conversation, which often needs no tool."""
        ...

    @property
    def used_tools(self) -> bool:
        """True if the task has called a tool so far."""
        ...

    @property
    def retry_count(self) -> int:
        """The maximum number of retries of a failed step."""
        ...

    @property
    def rerun_count(self) -> int:
        """The maximum number of further scripts that a task which changed data may request."""
        ...

    def begin(self, rules: str) -> tuple[Message, ...]:
        """Return the start of the conversation: rules, history, context and task.

        Args:
            rules: Instructions for the model, including the descriptions of the tools. Providers
                can cache the instructions if they are equal for all tasks with the same tools.
        """
        ...

    @property
    def takes_tools(self) -> bool:
        """True if the main model supports tool calls."""
        ...

    async def ask(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[ModelTool] = (),
        on_delta: OnDelta | None = None,
        session: ModelSession | None = None,
        continues: bool = False,
    ) -> ModelReply:
        """Ask the main model, and return its answer without reasoning.

        The call counts towards cost and budget.

        If the model's answer is truncated, the model is asked to continue the answer. But if
        ``on_delta`` or ``session`` is given, the incomplete answer is returned, and ``broken_by``
        has the reason: for example ``length``, or ``break`` if the connection failed or the process
        died after the first piece of the answer.

        In an incomplete answer, only the calls that ``on_delta`` has started are certain to be
        complete. Ignore all other calls.

        Args:
            messages: The whole conversation; with ``continues``, only the new messages.
            tools: The tools that the model may call in its answer, if it supports tools.
            on_delta: Receives the answer's pieces as they arrive, and may start calls; before each
                call, the text so far is journalled.
            session: An open session of :meth:`connect` to use instead of a separate request.
            continues: Whether the session has already answered an earlier request.

        Raises:
            BudgetExceededError: If the call could exceed the budget; nothing is spent.
            DelfError: If the call failed after retries, or if the model does not end its answer.
        """
        ...

    async def connect(self, *, needed: bool = False) -> ModelSession | None:
        """Open a session, so that turns need not resend the history; the caller closes the session.

        Returns None if the model does not support sessions, and while a resumed task replays
        recorded answers. A session may break, so a strategy keeps the history to open another one.

        Args:
            needed: Raise instead of returning None if the model does not support sessions.

        Raises:
            ModelConfigurationError: If the model does not support sessions and ``needed`` is True.
            DelfError: If no session is available at the moment.
        """
        ...

    async def call(
        self, name: str, arguments: Mapping[str, Any], description: str | None = None
    ) -> CallAnswer:
        """Make a tool call; not allowed while a script runs.

        Args:
            name: The tool, as in :class:`ToolDescription`.
            arguments: The arguments by name.
            description: A short reason for people who approve the call.

        Returns:
            The result, or the failure as a value.
        """
        ...

    async def execute(self, code: str, guard: CallGuard | None = None) -> ScriptResult:
        """Run a script in the task's sandbox, whose variables persist.

        Args:
            code: The script.
            guard: Additional rules for the calls of the script.

        Raises:
            SandboxUnavailableError: If no sandbox is available.
        """
        ...

    def strategy(self, name: str) -> Strategy:
        """Return another installed strategy, to delegate a part of the task.

        Args:
            name: The strategy's name.

        Raises:
            PluginError: If the strategy is not installed.
        """
        ...

    @property
    def output(self) -> str:
        """The answer so far: the strategy's text and the scripts' output, without secrets.

        The output of a failed script is part of the answer until another script runs.
        """
        ...

    def say(self, text: str) -> None:
        """Append a text to the answer, and show it to people immediately."""
        ...

    def step(self, name: str) -> AbstractAsyncContextManager[None]:
        """Report a step and its duration in the trace while the block runs."""
        ...

    async def note(self, topic: str, source: Callable[[], Awaitable[str]]) -> str:
        """Fetch outside data once and journal it, so that a resumed task gets the same data.

        Args:
            topic: The strategy's own name for the data, such as ``notification``, shown in the
                trace with the text.
            source: Fetches the data; not called if the data is recorded. An empty text is recorded,
                but not shown in the trace.
        """
        ...

    async def warn(self, message: str) -> None:
        """Warn people; the task continues."""
        ...

    @property
    def has_answered(self) -> bool:
        """True if a task with a declared answer type has been answered by a call of ``answer``.

        A strategy can then return without further text.
        """
        ...

    def refuse_mismatch(self, text: str) -> str | None:
        """Refuse an answer if it does not match the task's declared answer type.

        Call this method before returning an answer, and let the model fix a refused answer. The
        task fails if the strategy returns a refused answer.

        Args:
            text: The answer.

        Returns:
            The reason for the refusal, for the model; None for a valid answer.
        """
        ...

    async def retrying(self, reason: str) -> None:
        """Record that a step failed and is retried."""
        ...


class Strategy(Protocol):
    """A way to work on a task until it is done."""

    async def solve(self, host: StrategyHost) -> str:
        """Work on the task and return the answer's text.

        Raises:
            DelfError: If the task fails.
        """
        ...


@runtime_checkable
class SupportsCallsOnly(Strategy, Protocol, metaclass=ProtocolMeta):
    """A strategy that can work with direct tool calls alone, without a script."""

    @property
    def calls_only(self) -> bool:
        """True if tasks run no script: no sandbox is opened or mentioned in the prompt."""
        ...


def runs_scripts(strategy: Strategy) -> bool:
    """Return whether tasks of a strategy may run scripts."""
    only_calls = isinstance(strategy, SupportsCallsOnly) and strategy.calls_only
    return not only_calls


@runtime_checkable
class SupportsChanges(Strategy, Protocol, metaclass=ProtocolMeta):
    """A strategy with a model that plans again when a person requests changes."""

    @property
    def takes_changes(self) -> bool:
        """True if people can request changes instead of rejecting a call or a script."""
        ...


def takes_changes(strategy: Strategy) -> bool:
    """Return True if people can request changes instead of approving or rejecting.

    The model of the strategy then plans again.
    """
    return isinstance(strategy, SupportsChanges) and strategy.takes_changes


@runtime_checkable
class SupportsOwnTools(Strategy, Protocol, metaclass=ProtocolMeta):
    """A strategy with its own tools, such as a tool that finds tools left out of the prompt."""

    def own_tools(self, choice: ToolChoice) -> Sequence[ConnectionLike]:
        """Return the strategy's own tools for a task; calls of these tools need no approval.

        Called if the prompt omits tools.

        Args:
            choice: The shown and the omitted tools.
        """
        ...
