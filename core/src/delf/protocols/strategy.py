"""A strategy: how a task becomes tool calls."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable

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

TOOLS_BUDGET: Final = 21_000
"""The default for ``tools_budget``: the most characters of tools in a prompt."""

OnDelta = Callable[["ModelDelta"], None]
"""A listener for pieces of a model's answer. A recorded answer comes in whole pieces."""


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
        returns: The type of its result in stub notation.
        connection: The name of its connection; empty for a function.
        about: A line about the connection.
        tags: Words that it is sorted under.
        built_in: Whether it is always shown, as a reader of input files.
        full_types: Makes the parameters and the result with whole types, where those here were
            shortened.
        returns_doc: The description of the result.
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
        """``(statement: str, limit: int = 100) -> list[dict]``."""
        return f"({', '.join(map(str, self.parameters))}) -> {self.returns}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolChoice:
    """The tools of a task: the tools shown to the model, and the searchable tools.

    Args:
        shown: The tools shown to the model.
        left_out: How many more may be called.
        catalog: All tools except built-in ones.
        describe: Describes one of the catalog by its name.
        budget: The most characters of a prompt that tools take.
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
        outcome: How it ended.
        printed: The printed text, without secrets.
        variables_alive: Whether the next script finds its variables.
        changes: Its calls that changed something, or may have, as lines of text.
        refused: Why the task cannot go on, when the script failed because the budget was used up.
        can_retry: Whether another script could do better. It could not where a call failed for a
            reason that stays, as a service that does not answer or a right that is missing.
        cause: The exception of the tool that failed the script. A strategy that fails with the
            script raises its error ``from`` this, so that programs see the reason.
        is_silent: Whether the script ended without effect: it printed nothing, left no value, wrote
            no file and changed nothing.
        returned: The results of the calls of a silent script, as lines of text: kinds and sizes.
        found_nothing: Whether it is silent, called tools, and all that they returned was empty.
        rejected: Whether it failed because approval was denied to a call, or to the script as a
            whole. The name of the exception says nothing: a script can raise any.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptCall:
    """A valid call of a script, as a guard sees it.

    Args:
        name: The tool, as in :class:`ToolDescription`.
        effect: The effect of the call.
        arguments: By name.
        built_in: Whether it is a tool of delf's own.
    """

    name: str
    effect: Effect
    arguments: Mapping[str, Any]
    built_in: bool = False


class CallGuard(Protocol):
    """A strategy's additional rules for the calls of a script."""

    def begin(self) -> None:
        """Reset all counts as a script begins, perhaps again after its sandbox died."""
        ...

    def begun(self, call: ScriptCall) -> Returned | None:
        """Take notice of a call.

        Returns:
            The result that the same call had in an earlier script, so that it is not made again;
            None where it is made.
        """
        ...

    def judge(self, call: ScriptCall) -> Verdict:
        """Judge a call before its connection does; a call may be judged several times."""
        ...

    def ended(self, call: ScriptCall, answer: CallAnswer) -> CallAnswer:
        """Look at the answer of a call.

        Returns:
            It, or another one that the script gets in its place.
        """
        ...


class StrategyHost(Protocol):
    """The interface of a strategy to its task.

    Everything through this interface is counted, approved and journalled. A resumed task runs its
    strategy from the beginning: recorded answers are returned, not repeated. So a strategy must be
    deterministic for the same answers.
    """

    @property
    def task(self) -> str:
        """The user's task in plain words."""
        ...

    @property
    def tools(self) -> Sequence[ToolDescription]:
        """The tools that the model is shown."""
        ...

    @property
    def choice(self) -> ToolChoice:
        """The same tools and the omitted ones, for :func:`delf.tools.stubs.stubs_of`."""
        ...

    @property
    def libraries(self) -> Sequence[str]:
        """The packages that scripts may import beside harmless standard modules."""
        ...

    @property
    def unsupported(self) -> str:
        """The parts of Python that the sandbox lacks, in words for the model; empty for none."""
        ...

    @property
    def language(self) -> str:
        """The Python that scripts run on, as ``Python 3.12``."""
        ...

    @property
    def is_conversation(self) -> bool:
        """True if the task is a turn of a conversation, in which much needs no tool."""
        ...

    @property
    def used_tools(self) -> bool:
        """True if the task has called a tool so far."""
        ...

    @property
    def retry_count(self) -> int:
        """The number of times that a failed step may be tried again."""
        ...

    @property
    def rerun_count(self) -> int:
        """The number of times that a script may ask for another pass."""
        ...

    def begin(self, rules: str) -> tuple[Message, ...]:
        """Return the start of the conversation: rules, history, context and task.

        Args:
            rules: Instructions for the model about its work, with the tools. Equal instructions for
                every task with the same tools let providers cache them.
        """
        ...

    @property
    def takes_tools(self) -> bool:
        """True if the main model can be given tools, and asks for calls of them."""
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
        """Ask the main model; counted in cost and budget.

        The answer is whole and without reasoning. An answer that was truncated at the limit of its
        length is continued, and is an error if it has no end. With ``on_delta`` or in a session, a
        truncated answer is returned with its ``broken_by``: use only the parts that were begun
        already.

        Args:
            messages: The whole conversation; in a session that was asked before, the new messages.
            tools: The tools that the model may call in its answer, if it supports tools.
            on_delta: Receives the answer's pieces as they come, and may begin calls: the text so
                far is journalled first. An answer that breaks off after its first piece is returned
                as far as it came, with ``cut`` as its ``finish_reason``; so is an answer whose
                process died after one of its calls was begun.
            session: Where it is asked, of :meth:`connect`, if not by a request of its own.
            continues: Whether the session has answered before.

        Raises:
            BudgetExceededError: Before any cost.
            DelfError: When the model failed for good.
        """
        ...

    async def connect(self, *, needed: bool = False) -> ModelSession | None:
        """Open a session, so that no turn sends the history again; the caller closes it.

        None if the model has no sessions, and while a resumed task's answers come from the journal.
        A session may break: a strategy keeps the history, for another session or plain requests.

        Args:
            needed: Whether a model that has none is an error.

        Raises:
            ModelConfigurationError: When it has none, and one is needed.
            DelfError: When none is available now.
        """
        ...

    async def call(
        self, name: str, arguments: Mapping[str, Any], description: str | None = None
    ) -> CallAnswer:
        """Make a tool call. Not while a script runs.

        Args:
            name: The tool, as in :class:`ToolDescription`.
            arguments: By name.
            description: A few words that say why, for people.

        Returns:
            The result, or why there is none, as a value.
        """
        ...

    async def execute(self, code: str, guard: CallGuard | None = None) -> ScriptResult:
        """Run a script in the task's sandbox, whose variables persist.

        Args:
            code: The script.
            guard: Additional rules for the calls of the script.

        Raises:
            SandboxUnavailableError: When no sandbox is available.
        """
        ...

    def strategy(self, name: str) -> Strategy:
        """Return another strategy, which can do a part of the task.

        Args:
            name: Its name.

        Raises:
            PluginError: When it is not installed.
        """
        ...

    @property
    def output(self) -> str:
        """The answer so far: the strategy's text and the scripts' output, without secrets.

        The output of a failed script counts until another script runs.
        """
        ...

    def say(self, text: str) -> None:
        """Add to the answer; people see the text at once."""
        ...

    def step(self, name: str) -> AbstractAsyncContextManager[None]:
        """Show a step and its duration to people."""
        ...

    async def note(self, topic: str, source: Callable[[], Awaitable[str]]) -> str:
        """Store outside data in the journal: a resumed task gets the same data again.

        Args:
            topic: The strategy's own word for it, as ``notification``. People see it with the text.
            source: Asked for the text, unless it is recorded. An empty text is kept, and not shown.
        """
        ...

    async def warn(self, message: str) -> None:
        """Warn people; the task continues."""
        ...

    @property
    def has_answered(self) -> bool:
        """True if a task that wants data has been given them, by a call of ``answer``.

        A strategy that has nothing else to say can end then.
        """
        ...

    def refuse(self, text: str) -> str | None:
        """Return the fault of an answer, if the task wants a declared shape.

        A strategy asks before it ends, and lets the model fix the fault. A refused answer is not
        shown; a refused answer that is returned anyway fails the task.

        Args:
            text: The answer.

        Returns:
            Words for the model; None where nothing is wrong.
        """
        ...

    async def retrying(self, reason: str) -> None:
        """Record that something failed and is tried once more."""
        ...


class Strategy(Protocol):
    """A way to work on a task until it is done."""

    async def solve(self, host: StrategyHost) -> str:
        """Return the answer's text.

        Raises:
            DelfError: When the task failed.
        """
        ...


@runtime_checkable
class SupportsCallsOnly(Strategy, Protocol):
    """A strategy that may do without scripts."""

    calls_only: bool
    """True if its tasks run no script: no sandbox is opened or announced for them."""


def runs_scripts(strategy: Strategy) -> bool:
    """Return whether tasks of a strategy may run scripts."""
    return not (isinstance(strategy, SupportsCallsOnly) and strategy.calls_only)


@runtime_checkable
class SupportsOwnTools(Strategy, Protocol):
    """A strategy with tools of its own, such as a search for tools that the model is not shown."""

    def own_tools(self, choice: ToolChoice) -> Sequence[ConnectionLike]:
        """Return tools of a task for which a prefilter chose; always shown, and never asked about.

        Args:
            choice: The strategy's choice.
        """
        ...
