"""A connection: actions that a script can call."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import field, fields
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from delf.records import dataclass
from delf.values.encoding import dumps

if TYPE_CHECKING:
    from delf.llm import LLMConfig
    from delf.messages import Message, ModelReply
    from delf.protocols.context import PluginContext
    from delf.tools.action import Action
    from delf.tools.context import CallContext
    from delf.types import Permission


@runtime_checkable
class ConnectionLike(Protocol):
    """The engine's view of a connection, as :class:`delf.tools.connection.Connection` has it.

    ``is_function`` says that the connection's only action is called by the connection's own
    name, as ``add(1, 2)``, which is what a ``@tool`` function is.
    """

    name: str
    summary: str
    allow: Permission
    confirm: Permission
    is_function: bool

    async def actions(self) -> Sequence[Action]:
        """All actions, allowed or not, in a stable order. May contact the service."""
        ...


@runtime_checkable
class SupportsContext(Protocol):
    """A connection with live facts for the prompt, such as a database's schema."""

    async def context(self, task: str) -> str | None:
        """Facts that help to write a script for this task, or None.

        Args:
            task: The user's task in plain words.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """A task that a user gave, to be learned from; no declared secret is in it.

    Args:
        task: What the user wants.
        ask: Asks the agent's light model. It costs the agent's budget and no task's.
    """

    task: str
    ask: Callable[[str], Awaitable[str]]


@runtime_checkable
class SupportsLearning(Protocol):
    """A connection that learns from what users ask for."""

    async def learn(self, heard: Heard) -> None:
        """Learn from a task, beside it. It is cancelled when the agent stops.

        Neither its failure, which is logged, nor its delay concerns the task.

        Args:
            heard: The task.
        """
        ...


@runtime_checkable
class SupportsPluginContext(Protocol):
    """A connection that needs the agent's embedder, data folder or conversations."""

    def use_context(self, context: PluginContext) -> None:
        """Use these from now on. Called as the agent starts, before any action.

        Args:
            context: The agent's.
        """
        ...


@runtime_checkable
class SupportsRenewal(Protocol):
    """A connection whose actions may become others while an agent uses it."""

    def is_stale(self) -> bool:
        """Tell whether ``actions()`` may give others than last time; asked before each task."""
        ...


@runtime_checkable
class SupportsNotices(Protocol):
    """A connection that has something to say about itself, as that it left an action out."""

    def notices(self) -> Sequence[str]:
        """Return notices for its user, a line each; asked after ``actions()``, for each task."""
        ...


@runtime_checkable
class SupportsClose(Protocol):
    """Something that holds resources. It can be used again after it was closed."""

    async def aclose(self) -> None:
        """Free what is held. Safe to call twice."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposedCall:
    """A call of a connection's action, as :meth:`SupportsCheck.check` sees it.

    Args:
        action: The action's name, as ``send``.
        arguments: The validated arguments that the script gave; defaults are not among them.
        description: The script's own ``desc=``, if any.
        context: The task behind the call, to be looked at.
    """

    action: str
    arguments: Mapping[str, Any]
    description: str | None = None
    context: CallContext | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shown:
    """The part of a call that a person sees.

    Args:
        preview: What would happen, as plain text of any number of lines: a diff, a list of
            recipients. It says the same each time, unless something else would happen.
        basis: What the preview was made from, such as a file's digest or a document's revision,
            where that may change without a change of the preview. What would be done to something
            else, or to something that has changed, has another basis.
        files: The files that the call would send or read, by name, with their sizes in bytes.
    """

    preview: str | None = None
    basis: str | None = None
    files: Mapping[str, int] = field(default_factory=dict[str, int])

    @property
    def digest(self) -> str | None:
        """Of what is shown and what it was made from; None where nothing is."""
        if self.preview is None and self.basis is None and not self.files:
            return None
        shown = [self.preview, self.basis, sorted(self.files.items())]
        return hashlib.sha256(dumps(shown)).hexdigest()

    def asking(self, reason: str) -> NeedsApproval:
        """The same, with a reason to ask a person."""
        shown: dict[str, Any] = {item.name: getattr(self, item.name) for item in fields(_Shown)}
        return NeedsApproval(reason=reason, **shown)


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowed(_Shown):
    """The connection has nothing to add: ``confirm`` decides whether a person is asked.

    Args:
        preview: What a person sees if one is asked anyway.
        basis: What the preview was made from.
        files: The files that the call would send or read.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class NeedsApproval(_Shown):
    """A person is to be asked, whatever ``confirm`` says.

    Args:
        reason: Why, in one line.
        preview: What would happen.
        basis: What the preview was made from.
        files: The files that the call would send or read.
    """

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """The call is not made, and nobody is asked. The script and the model read the message."""

    message: str


Verdict = Allowed | NeedsApproval | Refused


@runtime_checkable
class SupportsCheck(Protocol):
    """A connection that checks calls by their arguments, such as a shell with rules.

    It can only add to what the user set: what ``allow`` leaves out is never checked, and what
    ``confirm`` asks about is asked about even when it is :class:`Allowed`. A connection whose own
    settings say which calls need a person takes ``confirm=False`` as its default.
    """

    def check(self, call: ProposedCall) -> Verdict | Awaitable[Verdict]:
        """Check a call before anybody is asked about it. It must change nothing.

        A plain method runs in a thread. A failure refuses the call.

        Args:
            call: The call. It is checked again once a person has approved it; where something
                else would happen by then, the person is asked again. One that a person edited is
                checked again, too, and asked about again where its basis is another.
        """
        ...


class SecretsKeeper(Protocol):
    """Takes secrets out of what leaves an agent."""

    def learn(self, source: str, secrets: Sequence[str]) -> None:
        """Take these out, too, from now on. May be called in any thread.

        Args:
            source: Whose they are; they take the place of those that it had before.
            secrets: The secrets as they are.
        """
        ...


@runtime_checkable
class SupportsSecrets(Protocol):
    """A connection that gets secrets while it works, such as access tokens."""

    def tell_secrets(self, keeper: SecretsKeeper) -> None:
        """Tell of the secrets that it has got, at once and whenever there is another.

        Args:
            keeper: Who is told. It is forgotten when nothing else holds it.
        """
        ...


class SetupAsk(Protocol):
    """Asks a model while a connection is set up; what it costs is set-up cost."""

    async def __call__(
        self, messages: Sequence[Message], llm: str | LLMConfig | None = None
    ) -> ModelReply:
        """The model's answer.

        Args:
            messages: The conversation.
            llm: The model; the agent's light one when None.

        Raises:
            BudgetExceededError: When the agent's budget is used up.
            DelfError: When the model failed for good.
        """
        ...


@runtime_checkable
class SupportsSetup(ConnectionLike, Protocol):
    """A connection that a model improves before it is used, such as an API's descriptions."""

    @property
    def needs_setup(self) -> bool:
        """True if :meth:`setup` is to be called at all."""
        ...

    async def setup(self, ask: SetupAsk) -> bool:
        """Get ready, in an agent's first task. A failure is a warning in that task's trace.

        It is called again when that task is cancelled meanwhile, so what was paid for should
        be kept as it comes.

        Args:
            ask: Asks a model.

        Returns:
            Whether the actions are others now, and are to be loaded again.
        """
        ...
