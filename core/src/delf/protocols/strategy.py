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
"""The most characters of a prompt that tools take, unless an agent's ``tools_budget`` says so."""

OnDelta = Callable[["ModelDelta"], None]
"""Sees a piece of a model's answer as it comes. Of a recorded answer, the pieces are whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolDescription:
    """A tool that the model may be shown.

    Args:
        name: What calls it: ``connection.method``, or the bare name of a function.
        summary: One paragraph about it.
        effect: What a call does to the world.
        asks: Whether a person is asked before each call.
        make_schema: Makes :attr:`schema`.
        parameters: What it takes, in order.
        returns: The type of its result in stub notation.
        connection: The name of its connection; empty for a function.
        about: What that is, in a line.
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
        """Its name without that of its connection."""
        return self.name.rpartition(".")[2]

    @property
    def schema(self) -> Mapping[str, Any]:
        """Its arguments as a JSON Schema."""
        return self.make_schema()

    @property
    def signature(self) -> str:
        """``(statement: str, limit: int = 100) -> list[dict]``."""
        return f"({', '.join(map(str, self.parameters))}) -> {self.returns}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolChoice:
    """The tools of a task: those that the model is shown, and those that it can look for.

    Args:
        shown: What the model is shown.
        left_out: How many more may be called.
        catalog: All of them, but for those that are built in.
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
        printed: What it printed, without secrets.
        variables_alive: Whether the next script finds its variables.
        changes: Its calls that changed something, or may have, as lines of text.
        refused: Why the task cannot go on, when the script failed because the budget was used up.
        can_retry: Whether another script could do better. It could not where a call failed for a
            reason that stays, as a service that does not answer or a right that is missing.
        cause: What a tool raised, where the script failed with that. A strategy that fails with
            the script raises its error ``from`` this, so that programs see the reason.
        is_silent: Whether it came to its end with nothing to show for: it printed nothing, left no
            value, handed no file over and changed nothing.
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
    """A call of a script that was found and whose arguments fit, as a guard sees it.

    Args:
        name: The tool, as in :class:`ToolDescription`.
        effect: What it does to the world.
        arguments: By name.
        built_in: Whether it is a tool of delf's own.
    """

    name: str
    effect: Effect
    arguments: Mapping[str, Any]
    built_in: bool = False


class CallGuard(Protocol):
    """A strategy's own rules for the calls of a script. They add to what holds for every call."""

    def begin(self) -> None:
        """The script begins, perhaps again after its sandbox died: what was counted is void."""
        ...

    def begun(self, call: ScriptCall) -> Returned | None:
        """Take notice of a call.

        Returns:
            The result that the same call had in an earlier script, so that it is not made again;
            None where it is made.
        """
        ...

    def judge(self, call: ScriptCall) -> Verdict:
        """Judge a call, before its connection does; it may be asked several times about one."""
        ...

    def ended(self, call: ScriptCall, answer: CallAnswer) -> CallAnswer:
        """Look at the answer of a call.

        Returns:
            It, or another one that the script gets in its place.
        """
        ...


class StrategyHost(Protocol):
    """All that a strategy may do for its task.

    Whatever goes through it is counted, approved and journalled. A resumed task runs its strategy
    from the beginning: what the journal holds is answered from there, and not done again. So a
    strategy does the same again when it gets the same answers.
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
        """The same tools with those that are left out, for :func:`delf.tools.stubs.stubs_of`."""
        ...

    @property
    def libraries(self) -> Sequence[str]:
        """The packages that scripts may import beside harmless standard modules."""
        ...

    @property
    def lacks(self) -> str:
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
        """The conversation's start: rules, what was said before, context and task.

        Args:
            rules: What the model is told about its work, with the tools. The same words for every
                task with the same tools let providers keep what they have read.
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

        The answer is whole, and holds nothing that the model only thought. One that broke off at
        the limit of its length is asked for to its end, and is an error where that has none. With
        ``on_delta`` or in a session, an answer that broke off is returned with its ``broken_by``:
        then nothing of it may be used but what was begun already.

        Args:
            messages: The whole conversation; in a session that was asked before, what is new.
            tools: What the model may call in its answer, where it takes tools.
            on_delta: Sees the answer's pieces as they come. It may begin calls with them: what the
                model has written by then is journalled first. An answer that breaks off after its
                first piece is then returned as far as it came, with ``cut`` as its
                ``finish_reason``; so is one whose process died after a call of it was begun.
            session: Where it is asked, of :meth:`connect`, if not by a request of its own.
            continues: Whether the session has answered before.

        Raises:
            BudgetExceededError: Before anything is spent.
            DelfError: When the model failed for good.
        """
        ...

    async def connect(self, *, needed: bool = False) -> ModelSession | None:
        """A session that stays open, so that no turn sends it all again; whoever has it closes it.

        None where the model has none, and while a resumed task's answers come from the journal.
        One may break: a strategy keeps all that was said, for another session or plain requests.

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
        """Run a script in the task's sandbox, whose variables stay for the next one.

        Args:
            code: The script.
            guard: Rules for its calls, beside those that hold for every call.

        Raises:
            SandboxUnavailableError: When no sandbox is available.
        """
        ...

    def strategy(self, name: str) -> Strategy:
        """Another strategy, which can do a part of the task.

        Args:
            name: Its name.

        Raises:
            PluginError: When it is not installed.
        """
        ...

    @property
    def said(self) -> str:
        """The answer so far: what was said, and what scripts printed, without secrets.

        What a script printed that failed counts until another one runs.
        """
        ...

    def say(self, text: str) -> None:
        """Add to the answer; people see it at once."""
        ...

    def step(self, name: str) -> AbstractAsyncContextManager[None]:
        """Let people see what goes on, and how long it takes."""
        ...

    async def note(self, topic: str, source: Callable[[], Awaitable[str]]) -> str:
        """Take something from elsewhere that the journal keeps: a resumed task gets it again.

        Args:
            topic: The strategy's own word for it, as ``notification``. People see it with the text.
            source: Asked for the text, unless it is recorded. An empty text is kept, and not shown.
        """
        ...

    async def warn(self, message: str) -> None:
        """Tell people of something that they should look at, though the task goes on."""
        ...

    @property
    def has_answered(self) -> bool:
        """True if a task that wants data has been given them, by a call of ``answer``.

        A strategy that has nothing else to say can end then.
        """
        ...

    def refuse(self, text: str) -> str | None:
        """Return the fault of an answer, where the task wants one of a declared shape.

        A strategy asks before it ends, and lets the model fix what is wrong. An answer that is
        refused is not said; one that is returned anyway fails the task.

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
    """Works a task until it is done."""

    async def solve(self, host: StrategyHost) -> str:
        """The answer's text.

        Raises:
            DelfError: When the task failed.
        """
        ...


@runtime_checkable
class SupportsCallsOnly(Strategy, Protocol):
    """A strategy that may do without scripts."""

    calls_only: bool
    """True if its tasks run no script: no sandbox is opened for them, nor are people told of it."""


def runs_scripts(strategy: Strategy) -> bool:
    """Tell whether tasks of a strategy may run scripts."""
    return not (isinstance(strategy, SupportsCallsOnly) and strategy.calls_only)


@runtime_checkable
class SupportsOwnTools(Strategy, Protocol):
    """A strategy with tools of its own, as one that finds tools which the model is not shown."""

    def own_tools(self, choice: ToolChoice) -> Sequence[ConnectionLike]:
        """Tools of a task for which a prefilter chose; always shown, and never asked about.

        Args:
            choice: What it chose.
        """
        ...
