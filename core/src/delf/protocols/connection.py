"""A connection: actions that a script can call."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import field, fields, replace
from typing import TYPE_CHECKING, Any, Protocol, Self, runtime_checkable

from delf.events import ApprovalRequest
from delf.members import ProtocolMeta
from delf.records import dataclass
from delf.values.encoding import dumps

if TYPE_CHECKING:
    from delf.errors import DelfError
    from delf.llm import LLMConfig
    from delf.messages import Message, ModelReply
    from delf.protocols.context import PluginContext
    from delf.tools.action import Action
    from delf.tools.context import CallContext
    from delf.types import Permission, Trust


@runtime_checkable
class ConnectionLike(Protocol, metaclass=ProtocolMeta):
    """The members of a connection that the engine uses.

    ``is_function`` is True for a ``@tool`` function: scripts call the only action of such a
    connection by the connection's own name, as in ``add(1, 2)``.
    """

    name: str
    summary: str
    allow: Permission
    confirm: Permission
    is_function: bool

    async def actions(self) -> Sequence[Action]:
        """Return all actions, allowed or not, in a stable order. May contact the service."""
        ...


@runtime_checkable
class SupportsContext(Protocol, metaclass=ProtocolMeta):
    """A connection that adds current information to the prompt, such as a database's schema."""

    async def context(self, task: str) -> str | None:
        """Return facts that help to write a script for this task, or None.

        Args:
            task: The user's task in plain words.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedTask:
    """A finished task from which a connection may learn.

    Args:
        task: The user's task in plain words, without declared secrets.
        ask: Asks the model of the setting ``light_llm``, or else the main model. The cost counts
            against the agent's budget, not against a task's.
    """

    task: str
    ask: Callable[[str], Awaitable[str]]


@runtime_checkable
class SupportsLearning(Protocol, metaclass=ProtocolMeta):
    """A connection that gets every finished task, for example to store facts for later tasks."""

    async def learn(self, finished: FinishedTask) -> None:
        """Process a finished task in the background. Cancelled when the agent stops.

        A failure is logged; neither failure nor delay affects the task.

        Args:
            finished: The task.
        """
        ...


@runtime_checkable
class SupportsPluginContext(Protocol, metaclass=ProtocolMeta):
    """A connection that needs the agent's embedder, data folder or conversations."""

    def use_context(self, context: PluginContext) -> None:
        """Set the agent's services for all further calls; called before any action.

        Args:
            context: The context of the agent.
        """
        ...


@runtime_checkable
class SupportsRenewal(Protocol, metaclass=ProtocolMeta):
    """A connection whose actions may change while an agent uses it."""

    def is_stale(self) -> bool:
        """Return True if ``actions()`` may have changed; called before each task."""
        ...


@runtime_checkable
class SupportsNotices(Protocol, metaclass=ProtocolMeta):
    """A connection with notices for the user, for example about an omitted action."""

    def notices(self) -> Sequence[str]:
        """Return notices for the user, a line each; called for each task, after ``actions()``."""
        ...


@runtime_checkable
class SupportsClose(Protocol, metaclass=ProtocolMeta):
    """An object that holds resources and can be used again after closing."""

    async def aclose(self) -> None:
        """Release all resources. Idempotent."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposedCall:
    """A call of a connection's action, as :meth:`SupportsCheck.check` sees it.

    Args:
        action: The action's name, such as ``send``.
        arguments: The validated arguments that the script gave; defaults are not among them.
        description: The script's own ``desc=``, if any.
        context: The context of the task, for reading only.
    """

    action: str
    arguments: Mapping[str, Any]
    description: str | None = None
    context: CallContext | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shown:
    """Base class of the verdicts that do not refuse a call; describes the call to an approver.

    The fields that :class:`delf.events.ApprovalRequest` also has are copied to the request. If a
    person edits the call, these fields are removed from the request.

    Args:
        preview: The effect of the call, as plain text of any number of lines: a diff, a list of
            recipients. Calls with the same effect have the same preview.
        basis: The state that the preview was made from, such as the digest of the file or the
            revision of the document that the call would change. Set the basis if that state may
            change while the preview stays the same.
        files: The files that the call would send or read, by name, with their sizes in bytes.
    """

    preview: str | None = None
    basis: str | None = None
    files: Mapping[str, int] = field(default_factory=dict[str, int])

    @property
    def digest(self) -> str | None:
        """The digest of the preview, the basis and the files; None if all three are missing.

        The basis is the state from which the preview was made.
        """
        shown_fields = {
            name: value for name, value in _shown_fields(self).items() if value not in (None, {})
        }
        if not shown_fields:
            return None
        if self.files:
            shown_fields["files"] = sorted(self.files.items())  # their order means nothing
        return hashlib.sha256(dumps(shown_fields)).hexdigest()

    def with_reason_to_ask(self, reason: str) -> NeedsApproval:
        """Return a :class:`NeedsApproval` verdict with this verdict's preview, basis and files."""
        return NeedsApproval(reason=reason, **_shown_fields(self))

    def request_fields(self) -> dict[str, Any]:
        """Return the fields of this verdict to put into the call's approval request, by name.

        The fields are ``preview`` and ``files``. A request has no field ``basis``: the basis is
        only part of this verdict's :attr:`digest`.
        """
        names_in_request = {item.name for item in fields(ApprovalRequest)}
        return {
            name: value for name, value in _shown_fields(self).items() if name in names_in_request
        }


def _shown_fields(verdict: _Shown) -> dict[str, Any]:
    return {item.name: getattr(verdict, item.name) for item in fields(_Shown)}


def without_verdict(request: ApprovalRequest) -> ApprovalRequest:
    """Return a copy of a request without the fields of a verdict, such as the preview."""
    empty_verdict = Allowed()
    return replace(request, **empty_verdict.request_fields())


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowed(_Shown):
    """The verdict that the connection has no objection; ``confirm`` still decides about approval.

    Args:
        preview: The effect of the call, shown if approval is required for another reason.
        basis: The state that the preview was made from.
        files: The files that the call would send or read.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class NeedsApproval(_Shown):
    """The verdict that a person must be asked, whatever ``confirm`` says.

    Args:
        reason: The reason in one line.
        preview: The effect of the call.
        basis: The state that the preview was made from.
        files: The files that the call would send or read.
    """

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """The verdict that refuses a call without asking a person.

    The script and the model get the message.
    """

    message: str

    @classmethod
    def of(cls, error: DelfError) -> Self:
        """Make the verdict of an error, with the error's hint in parentheses."""
        text = error.for_model()
        return cls(message=f"{text} ({error.hint})" if error.hint else text)


Verdict = Allowed | NeedsApproval | Refused


@runtime_checkable
class SupportsCheck(Protocol, metaclass=ProtocolMeta):
    """A connection that checks calls by their arguments, such as a shell with rules.

    A check can only add restrictions: actions outside of ``allow`` are refused without a check, and
    actions that the user's ``confirm`` setting covers need approval even if the check returns
    :class:`Allowed`. A connection whose own settings decide which calls need approval should have
    the default ``confirm=False``.
    """

    def check(self, call: ProposedCall) -> Verdict | Awaitable[Verdict]:
        """Check a call, without side effects, before a person is asked to approve the call.

        A plain method runs in a thread. A failure refuses the call.

        Args:
            call: The call. After a person has approved the call, it is checked again, and the
                person is asked again if the verdict's preview, files or basis
                (:attr:`NeedsApproval.basis`) has changed. After an edit by the person, only the
                basis is compared, because the edit itself may change the preview.
        """
        ...


class SecretsKeeper(Protocol):
    """A redactor that removes secrets from everything that leaves an agent.

    This is a protocol because connections declare secrets without a dependency on the engine.
    """

    def learn(self, source: str, secrets: Sequence[str]) -> None:
        """Add secrets to redact. Thread-safe.

        Args:
            source: The owner of the secrets; these replace the owner's earlier secrets.
            secrets: The secrets in plain text.
        """
        ...


@runtime_checkable
class SupportsResultTrust(Protocol, metaclass=ProtocolMeta):
    """A connection that tells from a call's arguments how far the result can be trusted."""

    def result_trust(
        self, action: str, arguments: Mapping[str, Any]
    ) -> Trust | Mapping[str, Trust] | None:
        """Return how far a call's result can be trusted, which depends on who may have written it.

        Return ``outside`` if it is uncertain who wrote the result.

        Called for each call, and again when a task is resumed, so the method does no I/O and
        returns the same for the same arguments.

        Args:
            action: The action's name.
            arguments: The call's arguments, as recorded.

        Returns:
            The trust in the whole result, or a mapping from field name to trust, in which ``*``
            stands for all other fields. None to use the trust that the connection's user or the
            action declares.
        """
        ...


@runtime_checkable
class SupportsSecrets(Protocol, metaclass=ProtocolMeta):
    """A connection that gets secrets while it works, such as access tokens."""

    def tell_secrets(self, keeper: SecretsKeeper) -> None:
        """Pass current secrets to a keeper, and each later secret as it arrives.

        Args:
            keeper: The receiver, held by a weak reference.
        """
        ...


SetupAsk = Callable[["Sequence[Message]", "str | LLMConfig | None"], Awaitable["ModelReply"]]
"""A function that asks a model during set-up; None as the model means the agent's light model.

The cost counts against the agent's budget, but belongs to no task.

The function raises a :class:`delf.errors.DelfError` if the model call failed after retries, and
:class:`delf.errors.BudgetExceededError` if the agent's budget is exhausted.
"""


@runtime_checkable
class SupportsSetup(ConnectionLike, Protocol, metaclass=ProtocolMeta):
    """A connection that asks a model before its first use, to improve an API's descriptions."""

    @property
    def needs_setup(self) -> bool:
        """True if :meth:`setup` is to be called at all."""
        ...

    async def setup(self, ask: SetupAsk) -> bool:
        """Set up the connection in an agent's first task. A failure is a warning of that task.

        If that task is cancelled during the setup, the method is called again. So store each answer
        of the model as soon as it arrives; otherwise the answer is paid for twice.

        Args:
            ask: Asks a model.

        Returns:
            Whether the actions changed and must be loaded again.
        """
        ...
